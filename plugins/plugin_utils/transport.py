# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a module gets to the target and its answer back: one remote command a task.

The bundle with all modules is kept on the target; a task sends its arguments to it on standard
input, so that they are in no file and in no argument list. Where standard input cannot be piped
(async, su, some connections), Ansible's own way is used: copy the bundle, then run it on a file.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import typing as t

from ansible.plugins.action import ActionBase

from . import bundle, shell

try:
    from ansible.module_utils.common.json import Direction, get_module_encoder

    _ENCODER: dict[str, t.Any] = {"cls": get_module_encoder("legacy", Direction.CONTROLLER_TO_MODULE)}
except ImportError:  # ansible-core before 2.19
    from ansible.module_utils.common.json import AnsibleJSONEncoder

    _ENCODER = {"cls": AnsibleJSONEncoder, "vault_to_text": True}

COLLECTION = "homelab.anvil"
DEFAULT_BASES = ["~/.cache", "/var/tmp", "/tmp", "/dev/shm"]

# Bases go unquoted through `ls` on the target, which separates its columns by blanks.
_BASE = re.compile(r"(~/|/)[A-Za-z0-9._/@%+:,-]+")


class TransportError(Exception):
    """The module was not run, or gave no answer."""

    def __init__(self, error_code: str, msg: str, **details: t.Any) -> None:
        super().__init__(msg)
        self.result = {"failed": True, "msg": msg, "error_code": error_code, **details}


class BundleAction(ActionBase):
    """An action that runs the module of its task out of the bundle."""

    _supports_async = True
    _supports_check_mode = True

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result = super().run(tmp, task_vars)
        try:
            result.update(self._run_module(task_vars or {}))
        except TransportError as error:
            result.update(error.result)
        return result

    @property
    def _module(self) -> str:
        found = self._shared_loader_obj.module_loader.find_plugin_with_context(
            self._task.action, collection_list=self._task.collections)
        return found.resolved_fqcn.rpartition(".")[2]

    def _run_module(self, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        if getattr(self._connection._shell, "_IS_WINDOWS", False):
            raise TransportError("unsupported_architecture", "the modules of homelab.anvil run on Linux, not on Windows")
        bundles = bundle.built()
        if not bundles:
            raise TransportError("not_built", f"not built: run make rebuild (there is no bundle below {bundle.ROOT}/libexec)")
        if self._task.async_val or not self._can_pipe():
            return self._run_copied(bundles, task_vars)
        return self._run_cached(bundles, task_vars)

    def _can_pipe(self) -> bool:
        if not self._connection.has_pipelining:
            return False
        become = self._connection.become
        # ansible-core before 2.19 asks for the name instead.
        return become is None or getattr(become, "pipelining", become.name != "su")

    # the cached bundle

    def _run_cached(self, bundles: dict[str, bundle.Bundle], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        bases = self._bases(task_vars)
        environment = self._compute_environment_string().strip()
        arguments = dict(self._task.args)
        self._update_module_args(self._module, arguments, task_vars)
        command = shell.run(self._module, bundles, bases, environment)
        data = shell.stdin(json.dumps(arguments, **_ENCODER), environment)

        answer = self._pipe(command, data)
        if (machine := _machine_without_bundle(answer)) is not None:
            self._store(_bundle_for(machine, bundles), bases)
            answer = self._pipe(command, data)
        if _machine_without_bundle(answer) is not None:
            raise TransportError("cache", f"the bundle was stored on the target but cannot be run there: {answer['stderr'].strip()}")
        return _result(self._module, answer)

    def _store(self, wanted: bundle.Bundle, bases: list[str]) -> None:
        """Uploads the bundle into the first base that takes it; each refusal uses up its bases."""
        tried: list[str] = []
        data = wanted.path.read_bytes()
        while bases:
            answer = self._pipe(shell.store(wanted, bases), data)
            if answer["rc"] == 0:
                return
            refused = shell.notes(answer["stdout"])
            if answer["rc"] != shell.NOT_STORED or not refused:
                raise TransportError("cache", f"the upload of the bundle ended with exit status {answer['rc']}: {answer['stderr'].strip()}")
            tried += refused
            bases = bases[len(refused):]
        raise TransportError(
            "cache",
            "no directory on the target can keep the bundle. Tried: " + "; ".join(tried)
            + ". Set anvil_cache_dirs to a list of directories on the target where this user may write and run programs.",
        )

    def _bases(self, task_vars: dict[str, t.Any]) -> list[str]:
        if self._task.delegate_to:
            task_vars = task_vars.get("ansible_delegated_vars", {}).get(self._task.delegate_to, task_vars)
        bases = self._templar.template(task_vars.get("anvil_cache_dirs"))
        if bases is None:
            return list(DEFAULT_BASES)
        if isinstance(bases, str):
            bases = bases.split(",")
        if not isinstance(bases, list):
            raise TransportError("bad_argument", f"anvil_cache_dirs: expected a list of directories, found {bases!r}")
        for base in bases:
            if not isinstance(base, str) or not _BASE.fullmatch(base):
                raise TransportError(
                    "bad_argument",
                    f"anvil_cache_dirs: expected paths that begin with / or ~/ and hold no blanks, found {base!r}",
                )
        if not bases:
            raise TransportError("bad_argument", "anvil_cache_dirs: expected at least one directory, found an empty list")
        return list(bases)

    def _pipe(self, command: str, data: bytes) -> dict[str, t.Any]:
        with self._stdin_is_a_pipe():
            return self._low_level_execute_command(command, in_data=data)

    @contextlib.contextmanager
    def _stdin_is_a_pipe(self) -> t.Iterator[None]:
        """The local connection gives a become password a terminal, unless pipelining is on."""
        before = self.get_connection_option("pipelining")
        if before is None:
            yield
            return
        self._connection.set_option("pipelining", True)
        try:
            yield
        finally:
            self._connection.set_option("pipelining", before)

    # Ansible's own way

    def _run_copied(self, bundles: dict[str, bundle.Bundle], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        wrap_async = bool(self._task.async_val) and not self._connection.has_native_async
        wanted = _bundle_for(self._machine(), bundles)
        # The job removes it, arguments and all; a job that does not start leaves that to us.
        directory = self._connection._shell.tmpdir or self._make_tmp_path()
        result: dict[str, t.Any] = {"failed": True}
        try:
            result = self._execute_module(
                module_name=f"{COLLECTION}.{wanted.architecture}.anvil_modules",
                module_args=json.loads(json.dumps(self._task.args, **_ENCODER)),
                task_vars=task_vars,
                wrap_async=wrap_async,
            )
        finally:
            if not wrap_async or result.get("failed"):
                self._remove_tmp_path(directory)
        if wrap_async and result.get("failed") and not result.get("ansible_job_id"):
            result["changed"] = False
            result.pop("exception", None)  # shown instead of msg, and it speaks of JSON
            result["msg"] = f"async needs Python on the target, and the job could not be started there: {result.get('msg', '')}"
        return result

    def _update_module_args(self, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any], **kwargs: t.Any) -> None:
        """The bundle learns from `_ansible_module_name` which module it is, under whatever name it was copied."""
        super()._update_module_args(f"{COLLECTION}.{self._module}", module_args, task_vars, **kwargs)

    def _machine(self) -> str:
        answer = self._low_level_execute_command("uname -sm")
        lines = answer["stdout"].split("\n")
        if answer["rc"] != 0:
            raise TransportError("unsupported_architecture", f"uname -sm failed on the target: {answer['stderr'].strip() or answer['stdout'].strip()}")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _bundle_for(machine: str, bundles: dict[str, bundle.Bundle]) -> bundle.Bundle:
    if machine not in bundle.MACHINES:
        supported = ", ".join(bundle.MACHINES)
        raise TransportError("unsupported_architecture", f"the target is {machine!r}; the modules of homelab.anvil run on: {supported}")
    if machine not in bundles:
        raise TransportError("not_built", f"not built for {machine!r}, only for: {', '.join(bundles)}. Run make dist, which builds every architecture")
    return bundles[machine]


def _machine_without_bundle(answer: dict[str, t.Any]) -> str | None:
    """What `uname -sm` said, when the target has no copy of the bundle that it can run."""
    if answer["rc"] != shell.MISSING:
        return None
    found = [note.removeprefix("machine ") for note in shell.notes(answer["stdout"]) if note.startswith("machine ")]
    return found[-1] if found else None


def _result(module: str, answer: dict[str, t.Any]) -> dict[str, t.Any]:
    """The module's answer: the JSON object that begins a line, whatever a login script printed before it."""
    found = re.search(r"^\{", answer["stdout"], re.MULTILINE)
    try:
        data = json.JSONDecoder().raw_decode(answer["stdout"], found.start())[0] if found else None
    except ValueError:
        data = None
    if data is None:
        raise TransportError(
            "no_answer", f"{module} {_end(answer['rc'])} and gave no result",
            rc=answer["rc"], module_stdout=answer["stdout"], module_stderr=answer["stderr"],
        )
    data = {key: value for key, value in data.items() if not key.startswith("_ansible_")}
    for stream in ("stdout", "stderr"):
        if stream in data:
            data.setdefault(f"{stream}_lines", str(data[stream] or "").splitlines())
    return data


def _end(status: int) -> str:
    number = -status if status < 0 else status - 128
    with contextlib.suppress(ValueError):
        return f"was killed by signal {number} ({signal.Signals(number).name})"
    return f"ended with exit status {status}"
