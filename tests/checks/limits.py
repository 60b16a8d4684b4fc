"""tests/limits.yml is well formed, and every ignored test names an entry of it; every test that tests/public_bugs.yml names
is there.

Usage: limits.py [--summary]
"""

import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
REGISTER = "tests/limits.yml"
BUGS = "tests/public_bugs.yml"


def entries(register: dict, key: str, fields: set[str]) -> list[str]:
    found = []
    for entry in register.get(key) or []:
        if set(entry) != fields or not all(str(entry[field]).strip() for field in fields):
            found.append(f"{REGISTER}: an entry of {key} needs exactly {', '.join(sorted(fields))}: {entry}")
    return found


def ignored_tests() -> list[tuple[str, str]]:
    """Path, and what stands between the brackets of each `#[ignore]`."""
    found = []
    for folder in ("bundle", "module_utils", "modules", "tests"):
        for path in sorted((ROOT / folder).rglob("*.rs")):
            found += [(str(path.relative_to(ROOT)), match)
                      for match in re.findall(r"#\[ignore([^\]]*)\]", path.read_text())]
    return found


def complaints(register: dict) -> list[str]:
    found = entries(register, "limits", {"name", "where", "why"})
    found += entries(register, "heavy_suites", {"name", "run", "why"})
    names = {entry["name"] for key in ("limits", "heavy_suites") for entry in register.get(key) or [] if "name" in entry}
    for path, reason in ignored_tests():
        match = re.fullmatch(r' = "(?:limit|heavy) ([^"]+)"', reason)
        if match is None or match[1] not in names:
            found.append(f"{path}: #[ignore{reason}] names no entry of {REGISTER}")
    return found


def bugs() -> list[dict]:
    return yaml.safe_load((ROOT / BUGS).read_text())["public_bugs"]


def bug_complaints() -> list[str]:
    found = []
    for bug in bugs():
        if set(bug) not in ({"report", "wrong", "tests"}, {"report", "wrong", "limit"}):
            found.append(f"{BUGS}: an entry needs report, wrong, and either tests or limit: {bug}")
        for test in bug.get("tests", []):
            path, _, name = test.partition("::")
            source = ROOT / path
            if not source.is_file() or f"fn {name}()" not in source.read_text():
                found.append(f"{BUGS}: {bug['report']}: there is no test {test}")
    return found


def summary(register: dict) -> str:
    heavy = register.get("heavy_suites") or []
    lines = [f"heavy suite not run: {suite['name']} ({suite['run']}): {suite['why']}" for suite in heavy]
    lines.append(f"documented limits: {len(register.get('limits') or [])} ({REGISTER})")
    tested = sum("tests" in bug for bug in bugs())
    lines.append(f"public bug reports: {tested} with a test, {len(bugs()) - tested} that cannot be had here ({BUGS})")
    return "\n".join(lines)


def main() -> int:
    register = yaml.safe_load((ROOT / REGISTER).read_text())
    if sys.argv[1:] == ["--summary"]:
        print(summary(register))
        return 0
    found = complaints(register) + bug_complaints()
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
