# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bundles this copy of the collection carries, one program for each architecture."""

from __future__ import annotations

import hashlib
import typing as t
from pathlib import Path

ROOT = Path(__file__).absolute().parents[2]

# What `uname -sm` says on a target, and the name of the architecture in libexec/ and plugins/modules/.
MACHINES = {"Linux x86_64": "x86_64", "Linux aarch64": "aarch64"}

# Installing a collection writes its files in any order, a few seconds apart.
_INSTALL_SECONDS = 60


class Bundle(t.NamedTuple):
    """One built bundle; `sha256` names its copies on the targets."""

    architecture: str
    path: Path
    sha256: str
    size: int


def built(root: Path = ROOT) -> dict[str, Bundle]:
    """Every bundle that is built, by what `uname -sm` says where it runs."""
    return {machine: _bundle(architecture, path)
            for machine, architecture in MACHINES.items()
            if (path := root / "libexec" / f"{architecture}-linux" / "anvil-modules").is_file()}


def _bundle(architecture: str, path: Path) -> Bundle:
    return Bundle(architecture, path, _recorded_digest(path) or _digest(path), path.stat().st_size)


def _recorded_digest(path: Path) -> str | None:
    """The digest the build wrote beside the bundle, unless the bundle was replaced since.

    Every task is a process of its own, so without the record each one would hash megabytes.
    """
    record = path.with_name(path.name + ".sha256")
    try:
        if record.stat().st_mtime + _INSTALL_SECONDS < path.stat().st_mtime:
            return None
        return record.read_text(encoding="ascii").split()[0]
    except (OSError, IndexError):
        return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
