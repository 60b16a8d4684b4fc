# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Is the collection that Ansible loaded the one of this checkout, built and current?

As a lookup it answers what is wrong, with the cure, or an empty text. Run as a script it prints the
hash of this checkout's sources, which the build keeps in libexec/build.json.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
from pathlib import Path

from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: anvil_collection
author: the homelab.anvil contributors
short_description: What is wrong with the loaded homelab.anvil
description:
  - Compares the copy of C(homelab.anvil) that Ansible loaded with the checkout that the playbook lies in.
options: {}
"""

RETURN = r"""
_raw:
  description: What is wrong and how to cure it; empty when nothing is.
  type: list
  elements: str
"""

CHECKOUT = Path(__file__).resolve().parents[2]
COLLECTIONS = Path(".ansible/collections")

# Everything that ends up in the collection. Playbooks are played from the checkout itself.
SOURCES = (
    ".cargo", "Cargo.lock", "Cargo.toml", "bundle", "galaxy.yml", "meta", "module_utils", "modules",
    "plugins", "roles", "rust-toolchain.toml",
)
# Built files, and tests: changing them makes no build stale.
SKIPPED = {"__pycache__", "aarch64", "tests", "x86_64"}


def source_files(checkout: Path) -> list[Path]:
    files = [checkout / name for name in SOURCES if (checkout / name).is_file()]
    for name in SOURCES:
        for folder, folders, names in os.walk(checkout / name):
            folders[:] = [entry for entry in folders if entry not in SKIPPED]
            files += [Path(folder, entry) for entry in names if not entry.startswith(".") and not entry.endswith("~")]
    return sorted(files)


def source_hash(checkout: Path) -> str:
    digest = hashlib.sha256()
    for path in source_files(checkout):
        digest.update(f"{path.relative_to(checkout)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def loaded_collection() -> Path | None:
    """The folder that Ansible's own collection loader chose."""
    try:
        package = importlib.import_module("ansible_collections.homelab.anvil")
    except ImportError:
        return None
    return Path(next(iter(package.__path__))).resolve()


def build_of(collection: Path) -> dict | None:
    """What libexec/build.json says, or None where this machine's modules are not built."""
    if not (collection / "libexec" / f"{platform.machine()}-linux" / "anvil-modules").is_file():
        return None
    try:
        return json.loads((collection / "libexec" / "build.json").read_text())
    except (OSError, ValueError):
        return None


def problem(checkout: Path, loaded: Path | None) -> str:
    own = (checkout / COLLECTIONS / "ansible_collections/homelab/anvil").resolve()
    not_built = f"not built: run `make rebuild` in {checkout}"
    if loaded == checkout:  # the playbook of an installed collection, by its full name
        if build_of(loaded) is None:
            return f"{loaded} holds no modules for {platform.machine()}: install a release of the collection"
        return ""
    if loaded != own and build_of(own) is None:
        return f"homelab.anvil is {not_built}" + (f" (Ansible would take another copy, {loaded})" if loaded else "")
    if loaded != own:
        found = f"another copy of homelab.anvil wins. Loaded: {loaded}" if loaded else "Ansible finds no homelab.anvil"
        return (
            f"{found}. Expected, this checkout's: {own}. "
            f"Run Ansible in {checkout}, so that its ansible.cfg is read (Ansible ignores it in a world-writable folder), "
            f"or set ANSIBLE_COLLECTIONS_PATH={checkout / COLLECTIONS}, and unset what points elsewhere"
        )
    build = build_of(own)
    if build is None:
        return f"homelab.anvil is {not_built}"
    if build.get("sources") != source_hash(checkout):
        return f"stale: the sources in {checkout} changed after {own} was built: run `make rebuild` in {checkout}"
    return ""


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        return [problem(CHECKOUT, loaded_collection())]


if __name__ == "__main__":
    print(source_hash(CHECKOUT))
