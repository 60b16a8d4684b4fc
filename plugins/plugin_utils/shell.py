# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two commands the transport sends to a target: run the bundle, store the bundle.

They need a POSIX shell with coreutils or busybox. Each is one line, since csh as a login shell
cannot quote a newline. The bundle runs as a child and never through `exec`: a shell that dies of
a signal makes ssh answer 255, which Ansible takes for an unreachable host. Standard input is read
to its end before every early exit: ssh reports input nobody took as a broken connection.

A *base* is a directory that exists on the target (below `~` it is created). The bundles lie in
BASE/homelab-anvil-UID, which belongs to the user that runs them.
"""

from __future__ import annotations

import re
import shlex
import typing as t

from .bundle import Bundle

# Exit statuses of ours. Modules end with 0 or 1, shells use 126 and up.
MISSING = 117  # run: no copy of the bundle can be run here
NOT_STORED = 118  # store: standard input is used up, or no base is left

EXPIRE_DAYS = 30

_NOTE = "anvil-transport: "

# $b base, $d directory of the bundles, $f the bundle, $u uid, $s SHA-256 of the bundle.
_LOCATE = """
    case $b in '~'/*) [ -O "$HOME" ] || { %s continue; }; b=$HOME/${b#??};; esac;
    d=$b/homelab-anvil-$u; f=$d/anvil-modules-$s;
"""

# The base may be shared when it is sticky; the directory in it is the user's alone.
_TRUSTED = """
    set -- $(LC_ALL=C ls -ldn "$b/." "$d"%(path)s 2>/dev/null);
    case "$*" in
        d????-??-*" $b/. d"????-??-*%(entry)s|d????????[tT]*" $b/. d"????-??-*%(entry)s)
            case $3 in 0|"$u") [ -O "$d" ]%(owned)s;; *) false;; esac;;
        *) false;;
    esac
"""

_RUN = """
    m=$(uname -sm); s=; case $m in %(digests)s esac;
    %(environment)s
    set -f; u=$(id -u);
    for b in %(bases)s; do
        %(locate)s
        [ -s "$f" ] || continue;
        { %(trusted)s ; } || continue;
        %(call)s; r=$?;
        case $r in 126|127) ;; *) exit $r;; esac;
    done;
    cat >/dev/null; echo "%(note)smachine $m"; exit %(missing)d
"""

_STORE = """
    umask 077; LC_ALL=C; export LC_ALL; set -f; s=%(sha256)s; u=$(id -u);
    note() {
        p=$b;
        [ -n "$p" ] && { until [ -d "$p/" ]; do p=${p%%/*}; done; set -- "$1" $(df -P "$p/" 2>/dev/null | tail -n 1); };
        echo "%(note)s$d${7:+ (mounted on $7)}: $1";
    };
    for b in %(bases)s; do
        %(locate)s
        e=$({ case $b in "$HOME"/*) mkdir -p "$b";; esac && { [ -d "$d" ] || mkdir "$d"; }; } 2>&1) || [ -d "$d" ] ||
            { note "$e"; continue; };
        { %(trusted)s ; } ||
            { note "refused: it must be a directory of uid $u that nobody else may write to,
                in one of root or uid $u that nobody else may write to or that is sticky"; continue; };
        [ -d "$f" ] && { note "refused: $f is a directory"; continue; };
        t=$(mktemp "$f.XXXXXX" 2>&1) || { note "$t"; continue; };
        e=$({ echo '#!/bin/sh' >"$t" && chmod 700 "$t"; } 2>&1) || { rm -f "$t"; note "$e"; continue; };
        "$t" </dev/null >/dev/null 2>&1 || { rm -f "$t"; note 'programs may not be run from it (noexec)'; continue; };
        e=$(cat 2>&1 >"$t") || { rm -f "$t"; cat >/dev/null; note "$e"; exit %(not_stored)d; };
        n=$(wc -c <"$t");
        [ "$n" -eq %(size)d ] || { rm -f "$t"; note "$n of %(size)d bytes arrived"; exit %(not_stored)d; };
        command -v sha256sum >/dev/null 2>&1 && case $(sha256sum <"$t") in
            "$s "*) ;;
            *) rm -f "$t"; note "what arrived has not the SHA-256 $s"; exit %(not_stored)d;;
        esac;
        e=$(mv -f "$t" "$f" 2>&1) || { rm -f "$t"; note "$e"; exit %(not_stored)d; };
        find "$d" -type f '(' -name 'anvil-modules-*' -mtime +%(days)d -o -name 'anvil-modules-*.*' -mtime +0 ')'
            -exec rm -f '{}' + 2>/dev/null;
        exit 0;
    done;
    cat >/dev/null; exit %(not_stored)d
"""


def run(module: str, bundles: t.Mapping[str, Bundle], bases: t.Sequence[str], environment: str = "") -> str:
    """The command that runs a module with its arguments from standard input.

    `environment` is the assignments of the task as the connection's shell quotes them. Their values
    may be secret, so they are no part of the command: `stdin` puts them before the arguments.
    """
    call = f'"$f" {shlex.quote(module)}'
    length = len(environment.encode())
    return _one_line(_RUN % {
        "digests": " ".join(f"{shlex.quote(machine)}) s={bundle.sha256};;" for machine, bundle in bundles.items()),
        "environment": f"e=$(dd bs=1 count={length} 2>/dev/null);" if length else "",
        "bases": _words(bases),
        "locate": _LOCATE % "",
        "trusted": _TRUSTED % {"path": ' "$f"', "entry": '" $d -"??x?-??-*', "owned": ' && [ -O "$f" ]'},
        "call": f'(eval "export $e"; {call})' if length else call,
        "note": _NOTE,
        "missing": MISSING,
    })


def stdin(arguments: str, environment: str = "") -> bytes:
    """What `run` reads: the assignments, then the arguments of the module."""
    return (environment + arguments).encode()


def store(bundle: Bundle, bases: t.Sequence[str]) -> str:
    """The command that stores the bundle from standard input in the first base that takes it."""
    return _one_line(_STORE % {
        "sha256": bundle.sha256,
        "size": bundle.size,
        "bases": _words(bases),
        "locate": _LOCATE % "d=$b; b=; note \"the home directory $HOME is missing or belongs to somebody else\";",
        "trusted": _TRUSTED % {"path": "", "entry": "", "owned": ""},
        "note": _NOTE,
        "not_stored": NOT_STORED,
        "days": EXPIRE_DAYS,
    })


def notes(output: str) -> list[str]:
    """What the commands said about themselves, one note a base for `store`."""
    return re.findall(rf"^{_NOTE}(.*?)\r?$", output, re.MULTILINE)


def _words(bases: t.Sequence[str]) -> str:
    return " ".join(map(shlex.quote, bases))


def _one_line(script: str) -> str:
    return " ".join(filter(None, map(str.strip, script.splitlines())))
