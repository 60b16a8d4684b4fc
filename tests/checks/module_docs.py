"""Every module's documentation loads in Ansible's own tools, and its examples use options that exist.

Usage: module_docs.py COLLECTIONS    (a folder whose ansible_collections/homelab/anvil is the checkout)
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = "homelab.anvil"


def ansible_doc(collections: str, *arguments: str) -> dict:
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_DEVEL_WARNING": "false"}
    run = subprocess.run(["ansible-doc", "--type", "module", "--json", *arguments], env=environment,
                         capture_output=True, text=True, check=False)
    if run.returncode or "WARNING" in run.stderr:
        raise SystemExit(f"ansible-doc {' '.join(arguments)}: {run.stderr.strip()}")
    return json.loads(run.stdout)


def tasks(examples: list) -> list[dict]:
    """Every task of EXAMPLES, those in blocks and plays included."""
    found = []
    for entry in examples:
        inner = [task for key in ("tasks", "pre_tasks", "block", "rescue", "always") for task in entry.get(key) or []]
        found += tasks(inner) if inner else [entry]
    return found


def example_complaints(name: str, document: dict) -> list[str]:
    examples = tasks(yaml.safe_load(document["examples"] or "") or [])
    options = document["doc"]["options"]
    known = {alias for option, text in options.items() for alias in (option, *text.get("aliases", []))}
    required = {option for option, text in options.items() if text.get("required")}
    own = [task[name] or {} for task in examples if name in task]
    if not own:
        return [f"{name}: no example uses it"]
    found = [f"{name}: an example has no name" for task in examples if "name" not in task]
    defaulted = any("module_defaults" in entry for entry in yaml.safe_load(document["examples"]))
    for arguments in own:
        found += [f"{name}: an example gives `{option}`, which is no option" for option in set(arguments) - known]
        if not defaulted:
            found += [f"{name}: an example lacks the required `{option}`" for option in required - set(arguments)]
    return found


def main() -> int:
    collections = sys.argv[1]
    stubs = sorted(f"{COLLECTION}.{path.stem}" for path in (ROOT / "plugins/modules").glob("*.py"))
    listed = ansible_doc(collections, "--list", COLLECTION)
    documents = ansible_doc(collections, *stubs)
    collection = Path(collections, "ansible_collections/homelab/anvil")
    lint = subprocess.run(["antsibull-docs", "lint-collection-docs", "--plugin-docs", str(collection)],
                          capture_output=True, text=True, check=False)
    found = [f"{name} is not in `ansible-doc --list`" for name in stubs if name not in listed]
    found += [f"{name} is listed and has no stub" for name in listed if name not in stubs]
    for name in stubs:
        found += example_complaints(name, documents[name])
    if lint.returncode:
        found.append(lint.stdout.strip() or lint.stderr.strip())
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
