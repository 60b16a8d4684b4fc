"""The collection's tarball holds what it should, and nothing else.

Usage: tarball.py TARBALL
"""

import hashlib
import re
import sys
import tarfile
from pathlib import Path

# Galaxy refuses 20 MB.
SIZE_LIMIT = 20_000_000
EXPECTED = [
    r"MANIFEST\.json", r"FILES\.json", r"README\.md", r"CHANGELOG\.md", r"LICENSE",
    r"docs/[a-z_]+\.md", r"meta/runtime\.yml",
    r"libexec/build\.json", r"libexec/(x86_64|aarch64)-linux/anvil-modules(\.sha256)?",
    r"plugins/(action|modules|plugin_utils)/[a-z_]+\.py",
    r"plugins/modules/(x86_64|aarch64)/anvil_modules",
    r"roles/[a-z_]+/(README\.md|(defaults|handlers|meta|tasks|vars)/[a-z_]+\.yml|templates/[a-z_.]+\.j2)",
    r"playbooks/([a-z_]+|tasks/[a-z_]+)\.yml", r"playbooks/lookup_plugins/anvil_collection\.py",
]


NEEDED = ("README.md", "LICENSE", "meta/runtime.yml", "libexec/build.json", "plugins/action/anvil.py")


def bundle_complaints(tarball: tarfile.TarFile, members: dict, architecture: str) -> list[str]:
    bundle = f"libexec/{architecture}-linux/anvil-modules"
    link = f"plugins/modules/{architecture}/anvil_modules"
    found = []
    recorded = members.get(f"{bundle}.sha256")
    digest = hashlib.sha256(tarball.extractfile(bundle).read()).hexdigest()
    if recorded is None or tarball.extractfile(recorded).read().split()[0].decode() != digest:
        found.append(f"{bundle}.sha256 is not its hash")
    if not members[bundle].mode & 0o100:
        found.append(f"{bundle} is not executable")
    if link not in members or members[link].linkname != f"../../../{bundle}":
        found.append(f"{link} is not a link to {bundle}")
    return found


def complaints(path: str) -> list[str]:
    found = []
    with tarfile.open(path) as tarball:
        members = {member.name: member for member in tarball if not member.isdir()}
        found += [f"{name} does not belong in the collection: remove it, or name it under build_ignore in galaxy.yml" for name in members
                  if not any(re.fullmatch(pattern, name) for pattern in EXPECTED)]
        if not any(re.fullmatch(r"plugins/modules/\w+\.py", name) for name in members):
            found.append("no module in plugins/modules")
        found += [f"{name} is missing" for name in NEEDED if name not in members]
        architectures = [name.split("/")[1].removesuffix("-linux") for name in members if name.endswith("/anvil-modules")]
        if not architectures:
            found.append("no bundle in libexec")
        for architecture in architectures:
            found += bundle_complaints(tarball, members, architecture)
    return found


def main() -> int:
    path = sys.argv[1]
    found = complaints(path)
    size = Path(path).stat().st_size
    if size > SIZE_LIMIT:
        found.append(f"{size} bytes; Galaxy refuses more than {SIZE_LIMIT}")
    for complaint in found:
        print(f"{path}: {complaint}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
