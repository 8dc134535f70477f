"""Look at file systems on which paths lie, as nodes see them: which is mounted, how full, read-only or silent, who filled it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from assistant.errors import ToolError
from assistant.ports import Reply
from assistant.records import Risk
from assistant.tooling import Context, tool
from assistant.tools.probes.mounts import MOUNTS_COMMAND, read_mounts

MOST_NODES = 32
MOST_PATHS = 8
MOST_SEARCHED = 8
_PROGRAM = (
    'printf "mounts\\n"; cat /proc/mounts; for p; do printf "path %s\\n" "$p"; r=$(timeout -k 1 2 readlink -m -- "$p") || r=$p; '
    'printf "real %s\\n" "$r"; s=stands; '
    'while [ "$r" != / ]; do e=$(LC_ALL=C timeout -k 1 2 stat -- "$r" 2>&1 >/dev/null); [ $? = 1 ] || break; '
    'case $e in *"No such file"*) ;; '
    '*Stale*|*"Input/output"*|*"not connected"*|*"Host is down"*|*shutdown*|*"Remote I/O"*) s=gone ;; '
    '*) [ "$s" = gone ] || s=hidden ;; esac; r=${r%/*}; r=${r:-/}; done; '
    'printf "%s %s\\n" "$s" "$r"; q=$r; '
    'while timeout -k 1 2 stat -c "owner %g %a %U" -- "$q" 2>/dev/null; do [ "$q" = / ] && break; q=${q%/*}; q=${q:-/}; done; '
    'timeout -k 1 2 stat -f -c "answer %S %b %a %c %d" -- "$r" || printf "status %s\\n" "$?"; done'
)
_WRITTEN = (
    'LC_ALL=C; export LC_ALL; printf "disk "; timeout -k 1 2 stat -f -c "%S %b %a %c %d" -- "$1" || exit; '
    'id -u -- "$2" >/dev/null 2>&1 || exit; '
    'timeout -k 1 20 find "$1" -xdev -user "$2" \\( -type f -newerct "@$3" -printf "file %b %p\\n" '
    '-o -type d ! -readable -printf "hidden\\n" \\) 2>/dev/null; printf "status %s\\n" "$?"'
)
_SUMMED = (
    'sh -c "$0" sh "$@" | awk \'/^disk / { print } /^hidden/ { hidden = 1 } /^status/ { hidden = hidden || $2 > 1; searched = 1 } '
    '/^file / { files++; blocks += $2; if ($2 >= most) { most = $2; name = $0; sub(/^file [0-9]+ /, "", name) } } '
    'END { printf "written %.0f %d %d\\n", blocks, files, hidden || !searched; '
    'if (files) printf "largest %.0f %s\\n", most, name; print "end" }\''
)
_HOLDERS = (
    'LC_ALL=C; export LC_ALL; timeout -k 1 20 find "$1" -xdev -mindepth 1 -printf "%b %u %P\\n" 2>/dev/null | awk \''
    '{ name = $0; sub(/^[0-9]+ [^ ]+ /, "", name); sub(/\\/.*/, "", name); held[$2 "/" name] += $1 } '
    'END { for (key in held) printf "held %.0f %s\\n", held[key], key }\' | sort -k 2,2rn | head -n 5; printf "end\\n"'
)
_HOLDER = re.compile(r"held (\d{1,18}) ([^/\s]{1,256})/(.{1,4096})")
_SIZES = re.compile(r"disk (\d{1,10}) (\d{1,18}) (\d{1,18}) (\d{1,18}) (\d{1,18})")
_AMOUNT = re.compile(r"written (\d{1,18}) (\d{1,18}) ([01])")
_LARGEST = re.compile(r"largest (\d{1,18}) (.{1,4096})")
BLOCK = 512
"""Bytes of a block in which `find` counts."""
_ANSWER = re.compile(r"answer (\d+) (\d+) (\d+) (\d+) (\d+)")
_OWNER = re.compile(r"owner (\d{1,10}) ([0-7]{1,5}) (.{1,256})")
SILENT = "124"
_GONE = re.compile(r"Stale|Input/output|not connected|Host is down|shutdown|Remote I/O", re.IGNORECASE)
"""What the kernel says of a file system that is mounted and cannot be used."""


@tool(risk=Risk.READ)
def storage_state(context: Context, nodes: list[str], paths: list[str] | None = None) -> dict[str, Any]:
    """Show the file systems on which paths lie: under `states` one row for each node and path, under `unknown` who did not answer.

    A row has `place` (the mount point), `kind`, `source`, `options`, `used_percent`, `inodes_percent` and `free_bytes`, None
    where the file system did not say, and `silent` where it did not answer within two seconds, or said that it is gone. Of a
    path that was asked for, `real` is where its links lead and `stands` how far down it is there, empty where that may not be
    seen; `owners` has what stands and each folder above it, up to `/`, as `USER:GROUP NUMBER:MODE`.

    Args:
        nodes: Names of nodes; 32 are asked.
        paths: Absolute paths; eight are looked at. What does not exist is looked at by the folder above it. All file systems of
            the nodes that hold files when not given.
    """
    wanted = [path for path in paths or () if path.startswith("/") and "\n" not in path][:MOST_PATHS]
    if not nodes or bool(paths) is not bool(wanted):
        raise ToolError("storage_state needs at least one node, and absolute paths")
    command = ("sh", "-c", _PROGRAM, "sh", *wanted) if wanted else MOUNTS_COMMAND
    replies = context.transport.run(nodes[:MOST_NODES], command, timeout_s=min(30.0, context.command_timeout_s))
    states: list[dict[str, Any]] = []
    unknown: dict[str, str] = {}
    for node, reply in replies.items():
        rows = _rows(reply) if wanted else _all_rows(reply)
        if not rows:
            unknown[node] = (reply.err or reply.out).strip()[:200] or f"status {reply.status}"
        states += [{"node": node, **row} for row in rows]
    return {"states": states, "unknown": unknown}


@tool(risk=Risk.READ)
def space_written(context: Context, nodes: list[str], place: str, user: str, since_s: int) -> dict[str, Any]:
    """Show what a user has written into a file system since a time: under `rows` one row for each node, under `unknown` the others.

    A row has `written_bytes` and `written_files` of the user's files that came or changed since then, the `largest` of them with
    `largest_bytes`, and `total_bytes`, `free_bytes`, `total_files`, `free_files` of the whole file system. A node where a folder of
    the user may not be read, or that was not searched within 20 seconds, is unknown.

    Args:
        nodes: Names of nodes; eight are asked.
        place: Where the file system is mounted; other file systems below are left out.
        user: Name of an account of the nodes.
        since_s: Seconds since 1970.
    """
    if not nodes or not place.startswith("/") or not user or since_s < 0:
        raise ToolError("space_written needs nodes, an absolute path, a user and a time since 1970")
    command = ("sh", "-c", _SUMMED, _WRITTEN, place, user, str(since_s))
    replies = context.transport.run(nodes[:MOST_SEARCHED], command, timeout_s=min(30.0, context.command_timeout_s))
    rows = {node: _space(reply.out) for node, reply in replies.items() if reply.reached and reply.status == 0}
    unknown = {
        node: (reply.err or reply.out).strip()[:200] or "not all was seen" for node, reply in replies.items() if not rows.get(node)
    }
    return {"rows": [{"node": node, **row} for node, row in rows.items() if row], "unknown": unknown}


@tool(risk=Risk.READ)
def space_holders(context: Context, nodes: list[str], place: str) -> dict[str, Any]:
    """Show whose files and folders take most of a file system: under `rows` up to five a node, the largest first.

    A row has `node`, `user` (a name, or a number where the node knows none), the `path` right below the mount point and
    `held_bytes` of that user in it. What may not be read, or was not reached within 20 seconds, is not counted; nodes without a row
    are `unknown`.

    Args:
        nodes: Names of nodes; eight are asked.
        place: Where the file system is mounted; other file systems below are left out.
    """
    if not nodes or not place.startswith("/") or "\n" in place:
        raise ToolError("space_holders needs nodes and an absolute path")
    command = ("sh", "-c", _HOLDERS, "sh", place)
    replies = context.transport.run(nodes[:MOST_SEARCHED], command, timeout_s=min(30.0, context.command_timeout_s))
    rows = [{"node": node, **row} for node, reply in replies.items() if reply.reached for row in _holders(reply.out, place)]
    answered = {row["node"] for row in rows}
    unknown = {node: (reply.err or "no file was seen").strip()[:200] for node, reply in replies.items() if node not in answered}
    return {"rows": rows, "unknown": unknown}


def _holders(text: str, place: str) -> list[dict[str, Any]]:
    """Return whose files take most of a file system of one node; empty where its answer did not come to its end."""
    matches = map(_HOLDER.fullmatch, text.splitlines()) if text.rstrip().endswith("end") else ()
    folder = place.rstrip("/")
    return [
        {"user": match[2], "path": f"{folder}/{match[3]}", "held_bytes": int(match[1]) * BLOCK}
        for match in matches
        if match is not None
    ]


def _space(text: str) -> dict[str, Any]:
    """Return what one node says of the files of a user; empty where not all of them were seen."""
    sizes, amount, largest = _SIZES.search(text), _AMOUNT.search(text), _LARGEST.search(text)
    if sizes is None or amount is None or amount[3] == "1" or not text.rstrip().endswith("end"):
        return {}
    block, blocks, free, inodes, inodes_free = (int(number) for number in sizes.groups())
    return {
        "written_bytes": int(amount[1]) * BLOCK,
        "written_files": int(amount[2]),
        "largest": largest[2] if largest else "",
        "largest_bytes": int(largest[1]) * BLOCK if largest else 0,
        "total_bytes": block * blocks,
        "free_bytes": block * free,
        "total_files": inodes,
        "free_files": inodes_free,
    }


def _rows(reply: Reply) -> list[dict[str, Any]]:
    """Return what one node says of each path; empty where it could not be asked."""
    if not reply.reached or not reply.out.startswith("mounts\n"):
        return []
    mounts: list[Sequence[str]] = []
    rows: list[dict[str, Any]] = []
    for line in reply.out.splitlines()[1:]:
        word, _, rest = line.partition(" ")
        if word == "path":
            rows.append({"path": rest})
        elif not rows:
            words = line.split(" ")
            mounts += [words] if len(words) >= 4 else []
        elif word == "real":
            rows[-1].update(real=rest, **_mount_of(rest, mounts))
        elif word == "stands":
            rows[-1]["stands"] = rest
        elif word == "gone":
            rows[-1]["silent"] = True
        elif word == "owner" and (match := _OWNER.fullmatch(line)):
            rows[-1].setdefault("owners", []).append(f"{match[3]}:{match[1]}:{match[2]}")
        elif word == "status":
            rows[-1]["silent"] = rows[-1].get("silent", False) or rest == SILENT
        elif match := _ANSWER.match(line):
            rows[-1].update(_fill(*(int(number) for number in match.groups())))
    empty = {"place": "", "kind": "", "source": "", "options": "", "used_percent": None, "inodes_percent": None, "free_bytes": None}
    return [{**empty, "real": "", "stands": "", "owners": [], "silent": False, **row} for row in rows]


def _all_rows(reply: Reply) -> list[dict[str, Any]]:
    """Return what one node says of each of its file systems; empty where it could not be asked."""
    reading = read_mounts(reply) if reply.reached else None
    return [
        {
            "path": mount.place,
            "place": mount.place,
            "kind": mount.kind,
            "source": "",
            "options": mount.options,
            "used_percent": mount.used_percent,
            "inodes_percent": mount.inodes_percent,
            "free_bytes": None,
            "real": "",
            "stands": "",
            "owners": [],
            "silent": mount.stopped or _GONE.search(mount.error) is not None,
        }
        for mount in (reading.mounts if reading is not None else ())
    ]


def _mount_of(path: str, mounts: Sequence[Sequence[str]]) -> Mapping[str, str]:
    """Return the mount on which a path lies: the last of the longest mount points above it."""
    best: Sequence[str] = ()
    for words in mounts:
        place = words[1].replace("\\040", " ")
        below = path == place or path.startswith(f"{place.rstrip('/')}/")
        if below and (not best or len(place) >= len(best[1].replace("\\040", " "))):
            best = words
    if not best:
        return {}
    return {"source": best[0], "place": best[1].replace("\\040", " "), "kind": best[2], "options": best[3]}


def _fill(block: int, blocks: int, free: int, inodes: int, inodes_free: int) -> Mapping[str, Any]:
    return {
        "used_percent": round(100 * (1 - free / blocks), 1) if blocks else None,
        "inodes_percent": round(100 * (1 - inodes_free / inodes), 1) if inodes else None,
        "free_bytes": block * free,
    }
