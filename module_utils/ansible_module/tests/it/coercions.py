"""Answers, for each [type, value] on standard input, what the real AnsibleModule makes of it."""
import json
import math
import sys

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator


def answer(kind, value):
    try:
        result = ArgumentSpecValidator({"x": {"type": kind}}).validate({"x": value})
    except OverflowError as crash:  # int from "inf", seen with ansible-core 2.19
        return {"error": repr(crash)}
    if result.error_messages:
        return {"error": result.error_messages[0]}
    made = result.validated_parameters["x"]
    if isinstance(made, int) and abs(made) >= 2**63 or isinstance(made, float) and not math.isfinite(made):
        made = repr(made)
    return {"value": made}


json.dump([answer(kind, value) for kind, value in json.load(sys.stdin)], sys.stdout)
