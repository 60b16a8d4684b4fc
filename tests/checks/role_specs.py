"""Every role's argument_specs, defaults and README agree.

Usage: role_specs.py
"""

import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def load(path: Path) -> dict:
    return yaml.safe_load(path.read_text()) or {} if path.is_file() else {}


def computed(value: object, option: dict) -> bool:
    """A template that gives something else than text: in argument_specs the documentation tools refuse it as the wrong type."""
    return isinstance(value, str) and "{{" in value and option.get("type", "str") not in ("str", "path", "raw")


def complaints(role: Path) -> list[str]:
    found = []
    for needed in ("README.md", "meta/argument_specs.yml", "tasks/main.yml"):
        if not (role / needed).is_file():
            found.append(f"{needed} is missing")
    entry = load(role / "meta/argument_specs.yml").get("argument_specs", {}).get("main", {})
    options = entry.get("options") or {}
    defaults = load(role / "defaults/main.yml")
    readme = (role / "README.md").read_text() if (role / "README.md").is_file() else ""

    if not entry.get("short_description") or not entry.get("description"):
        found.append("argument_specs: main needs short_description and description")
    for name, option in options.items():
        if not option.get("description"):
            found.append(f"argument_specs: {name} has no description")
        if option.get("required") and name in defaults:
            found.append(f"{name} is required by argument_specs and has a default in defaults/main.yml")
        if "default" in option and name not in defaults:
            found.append(f"{name} has a default in argument_specs and none in defaults/main.yml")
        if name.startswith(role.name) and f"`{name}`" not in readme:
            found.append(f"README.md does not name `{name}`")
    for name, value in defaults.items():
        if not name.startswith(f"{role.name}_"):
            found.append(f"defaults/main.yml: {name} does not begin with {role.name}_")
        elif name not in options:
            found.append(f"defaults/main.yml: {name} is not in argument_specs")
        elif computed(value, options[name]):
            if "default" in options[name]:
                found.append(f"argument_specs: {name} is computed in defaults/main.yml: leave its default out here")
        elif options[name].get("default") != value:
            found.append(f"{name} is {value!r} in defaults/main.yml, {options[name].get('default')!r} in argument_specs")
    return [f"roles/{role.name}: {complaint}" for complaint in found]


def main() -> int:
    roles = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
    found = [complaint for role in roles for complaint in complaints(role)]
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found or not roles else 0


if __name__ == "__main__":
    sys.exit(main())
