"""Look at file systems as nodes see them: mounts, how full and by whom, silent ones, installed programs, saves on own disks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import NightshiftError, ToolError
from assistant.ports import Reply
from assistant.records import Job, Risk
from assistant.recover.checkpoints.layout import step_in_name
from assistant.recover.checkpoints.place import checkpoint_place
from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.job_program import JobProgram
from assistant.recover.joblog import log_lines
from assistant.recover.shell.folders import UNRESOLVED
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
_UNUSABLE = re.compile(r"Stale|Input/output|not connected|Host is down|shutdown|Remote I/O", re.IGNORECASE)
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
    absolute_paths = [path for path in paths or () if path.startswith("/") and "\n" not in path][:MOST_PATHS]
    if not nodes or bool(paths) is not bool(absolute_paths):
        raise ToolError("storage_state needs at least one node, and absolute paths")
    command = ("sh", "-c", _PROGRAM, "sh", *absolute_paths) if absolute_paths else MOUNTS_COMMAND
    replies = context.transport.run(nodes[:MOST_NODES], command, timeout_s=min(30.0, context.command_timeout_s))
    states: list[dict[str, Any]] = []
    unknown: dict[str, str] = {}
    for node, reply in replies.items():
        rows = _rows(reply) if absolute_paths else _all_rows(reply)
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
        word, _, value = line.partition(" ")
        if word == "path":
            rows.append({"path": value})
        elif not rows:
            words = line.split(" ")
            mounts += [words] if len(words) >= 4 else []
        elif word == "real":
            rows[-1].update(real=value, **_mount_of(value, mounts))
        elif word == "stands":
            rows[-1]["stands"] = value
        elif word == "gone":
            rows[-1]["silent"] = True
        elif word == "owner" and (match := _OWNER.fullmatch(line)):
            rows[-1].setdefault("owners", []).append(f"{match[3]}:{match[1]}:{match[2]}")
        elif word == "status":
            rows[-1]["silent"] = rows[-1].get("silent", False) or value == SILENT
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
            "silent": mount.stopped or _UNUSABLE.search(mount.error) is not None,
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


MOST_FOLDERS = 96
MOST_FILES = 200
_INSTALLED_PROGRAM = (
    'n=$1; shift; for d; do for f in "$d/$n" "$d/$n".*; do timeout -k 1 2 test -e "$f" || continue; k=file; '
    '[ -f "$f" ] && [ -x "$f" ] && k=program; printf "%s %s\\n" "$k" "$f"; done; done; echo end'
)
FILE_KINDS = ("program", "file")


@tool(risk=Risk.READ)
def installed_files(context: Context, nodes: list[str], name: str, folders: list[str]) -> dict[str, Any]:
    """Show where nodes have a file of a name, with any suffix: under `files` a list for each node, under `unknown` the others.

    A row has `path`, and `program` where it is a file that may be run. Nothing is run, and no folder is searched below.

    Args:
        nodes: Names of nodes; 32 are asked.
        name: Of a program, a module of Python, a library or a modulefile; one with `/` is looked for below the folders.
        folders: Absolute paths of the folders that are looked into; 96 are.
    """
    wanted_folders = [folder.rstrip("/") for folder in folders if folder.startswith("/") and "\n" not in folder][:MOST_FOLDERS]
    if not nodes or not name or name.startswith(("/", "-")) or "\n" in name or ".." in name.split("/") or not wanted_folders:
        raise ToolError("installed_files needs nodes, a name and absolute folders")
    command = ("sh", "-c", _INSTALLED_PROGRAM, "sh", name, *wanted_folders)
    replies = context.transport.run(nodes[:MOST_NODES], command, timeout_s=min(30.0, context.command_timeout_s))
    files: dict[str, list[dict[str, Any]]] = {}
    unknown: dict[str, str] = {}
    for node, reply in replies.items():
        if reply.reached and reply.status == 0 and reply.out.rstrip().endswith("end"):
            files[node] = _installed_rows(reply)
        else:
            unknown[node] = (reply.err or reply.out).strip()[:200] or f"status {reply.status}"
    return {"files": files, "unknown": unknown}


def _installed_rows(reply: Reply) -> list[dict[str, Any]]:
    """Return what one node printed, a row for each file."""
    lines = [line.partition(" ") for line in reply.out.splitlines()]
    return [{"path": path, "program": kind == "program"} for kind, _, path in lines if kind in FILE_KINDS and path.startswith("/")][
        :MOST_FILES
    ]


MOST_JOB_NODES = 16
MOST_SAVE_FOLDERS = 4
MOST_NAMED_SAVES = 4
SAVES_OF = "nightshift-saves"
_SAVES_PROGRAM = (
    'user=$1; shift; id -u -- "$user" >/dev/null 2>&1 || exit 1; for p; do printf "nightshift-saves %s\\n" "$p"; '
    'timeout -k 1 5 find "$p" -mindepth 1 -maxdepth 1 -user "$user" -newerct "@$since" -printf "entry %f\\n" 2>/dev/null '
    "| head -n 500; done"
)
ACCOUNT = re.compile(r"[a-z_][\w.@-]{0,63}\$?", re.IGNORECASE)


class NodeSaves(NamedTuple):
    """Checkpoints of a job on a node's own disk."""

    node: str
    folder: str
    names: tuple[str, ...]
    """Names of checkpoints that changed since the job began, by step, the newest last."""


def node_saves(context: Context, job: Job, programs: Sequence[JobProgram], *, pieces: bool = False) -> list[NodeSaves]:
    """Return what nodes of a job hold of its checkpoints, in folders that are not there on this machine.

    None where that is not known. Sixteen nodes are asked for the names in four folders, those of the job's user alone.

    Args:
        context: Of the call.
        job: The attempt.
        programs: What its script starts.
        pieces: Whether it is proven to do only the pieces that are missing: what it wrote into a folder that has its number in the
            name is then nothing that it goes on from, for another run of it has another number.
    """
    own = re.compile(rf"(?<![^\W_]){re.escape(job.raw_id or job.id)}(?![^\W_])")
    folders = [folder for folder in _unseen_folders(job, programs) if not pieces or own.search(str(folder)) is None]
    if not folders or not job.nodes or job.started is None or not ACCOUNT.fullmatch(job.account):
        return []
    command = ("sh", "-c", f"since={int(job.started.timestamp())}; {_SAVES_PROGRAM}", "sh", job.account, *map(str, folders))
    try:
        replies = context.transport.run(list(job.nodes[:MOST_JOB_NODES]), command, timeout_s=min(30.0, context.command_timeout_s))
    except NightshiftError:
        return []
    return [saves for node, reply in replies.items() for saves in _read_saves(node, reply, folders)]


def saves_in_words(saves: Sequence[NodeSaves], job: Job) -> str:
    """Return where the checkpoints of a job lie that only its nodes see, and what follows, for people; empty for none."""
    if not saves:
        return ""
    first = saves[0]
    places = "; ".join(
        f"{held_by.folder} on {held_by.node} holds {', '.join(reversed(held_by.names[-MOST_NAMED_SAVES:]))}"
        for held_by in saves[:MOST_NAMED_SAVES]
    )
    nodes = list(dict.fromkeys(saved.node for saved in saves))
    how = f"`--nodelist={first.node}`" if len(nodes) == 1 and len(job.nodes) == 1 else "the same nodes"
    return (
        f"{places}; that cannot be seen from here and was not judged. Elsewhere its script may begin at 0: "
        f"it goes on there only with {how}, or from a copy on a file system that all nodes have"
    )


def _unseen_folders(job: Job, programs: Sequence[JobProgram]) -> list[Path]:
    """Return the folders into which a job saves by script or log, those that are not there on this machine."""
    place = checkpoint_place(job, {}, [line.text for line in log_lines(job)])
    folders = [*([place.folder] if place is not None else []), *(place.folder for place in save_folders(programs))]
    plain = [path for path in dict.fromkeys(folders) if path.is_absolute() and not re.search(rf"[\n{UNRESOLVED}]", str(path))]
    return [path for path in plain if _is_missing(path)][:MOST_SAVE_FOLDERS]


def _is_missing(path: Path) -> bool:
    """Tell whether a path is known not to be there; one that may not be looked at is not known."""
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _read_saves(node: str, reply: Reply, folders: Sequence[Path]) -> list[NodeSaves]:
    if not reply.reached or reply.status:
        return []
    names_by_folder: dict[str, list[tuple[int, str]]] = {}
    folder = ""
    for line in reply.out.splitlines():
        kind, _, text = line.partition(" ")
        if kind == SAVES_OF:
            folder = text if Path(text) in folders else ""
        elif kind == "entry" and folder and (step := step_in_name(text)) is not None:
            names_by_folder.setdefault(folder, []).append((step, text))
    return [NodeSaves(node, path, tuple(name for _, name in sorted(names))) for path, names in names_by_folder.items()]
