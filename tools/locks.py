"""See who holds a lock on files that a job could not lock, and tell when they are free again. Nothing is locked to find out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from assistant.errors import ToolError, Unavailable
from assistant.ports import Reply
from assistant.records import JobState, Risk
from assistant.tooling import Context, tool
from assistant.tools.holders import MAY_RESTART, OWNER_LINE, PROCESS, WAITING

LOOK_S = 20.0
MOST_NODES = 8
MOST_FILES = 8
MOST_SHOWN = 16
LOCK_NAMES = ("", "-shm", ".lock")
"""What libraries lock in the place of a file: SQLite beside its log of writes, others a file of its name."""
_TEST = (
    "import fcntl,os,struct,sys\n"
    "d=os.open(sys.argv[1],os.O_RDONLY)\n"
    "r=fcntl.fcntl(d,fcntl.F_GETLK,struct.pack('hhqqi4x',fcntl.F_WRLCK,0,0,0,0))\n"
    "print('held' if struct.unpack('hhqqi4x',r)[0]!=fcntl.F_UNLCK else 'free')"
)
"""Ask the kernel, on a network file system its server, for a lock that stands in the way of a writer. Source: fcntl(2), F_GETLK."""
_PROGRAM = (
    "LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/local/bin:/usr/bin:/bin; exec 2>/dev/null; test=$1; shift; "
    'for f; do of=$(stat -L -c "%d:%i" -- "$f") || { printf "missing %s\\n" "$f"; continue; }; '
    'printf "file %s %s\\n" "$of" "$f"; printf "lock %s %s\\n" "$of" "$(timeout -k 1 5 python3 -c "$test" "$f" || echo unknown)"; '
    'timeout -k 1 8 find -L $(printf "%s " /proc/[0-9]*/fd) -maxdepth 1 -type f -samefile "$f" | while read -r at; do '
    'p=${at#/proc/}; p=${p%%/*}; grep -qE "^lock:[^>]*$" "/proc/$p/fdinfo/${at##*/}" || continue; '
    f"{OWNER_LINE}done; done; echo end"
)
"""A line `lock:` of fdinfo is a lock that the process holds; one with an arrow waits for it. Source: proc(5), fs/locks.c."""
_FILE = re.compile(r"file (\S{1,40}) (/.{1,4096})")
_LOCK = re.compile(r"lock (\S{1,40}) (held|free|unknown)")
_MISSING = re.compile(r"missing (/.{1,4096})")


@tool(risk=Risk.READ)
def lock_holders(context: Context, nodes: list[str], paths: list[str]) -> dict[str, Any]:
    """Show who holds a lock on files: `holders`, `held`, `free` and `missing` paths, and `unknown` nodes without an answer.

    A path is held where a process of a node holds a lock on it or the kernel knows of one that stands in a writer's way, of another
    machine too where the file system tells; it is free where each node that has it says so. A holder has `path`, `node`, and what
    one of `port_holders` has. What is locked in its place counts for a file: `-shm` of SQLite, a file with `.lock` behind its name.

    Args:
        nodes: Names of nodes; eight are asked.
        paths: Absolute paths of files; eight are looked at.
    """
    return _locks_on(context, nodes, paths)


@tool(risk=Risk.READ)
def wait_unlocked(context: Context, job: str, paths: list[str], timeout_s: float = 60.0) -> dict[str, Any]:
    """Tell whether files that a job could not lock are free; `status` is may_restart or waiting, and `note` says who holds which.

    Where no node can tell, the status is waiting; a file that is gone is free.

    Args:
        job: Scheduler job id of the job that failed.
        paths: Absolute paths of the files.
        timeout_s: Not used: it looks once, for the caller decides when to look again.
    """
    del timeout_s
    failed_job = context.scheduler.job(job)
    try:
        running = [entry for entry in context.scheduler.jobs() if entry.state is JobState.RUNNING and entry.user == failed_job.user]
    except Unavailable:
        running = []
    nodes = list(dict.fromkeys([*failed_job.nodes[:2], *(node for entry in running for node in entry.nodes)]))
    answer = _locks_on(context, nodes, paths)
    for row in answer["holders"]:
        process = f"process {row['pid']} ({row['program']}) of {row['user']} on {row['node']}"
        return {"status": WAITING, "note": f"{process} holds a lock on {row['path']}"}
    if answer["held"]:
        return {"status": WAITING, "note": f"a lock on {answer['held'][0]} is held, and no node that was asked shows by whom"}
    open_paths = [path for path in paths if path not in answer["free"] and path not in answer["missing"]]
    if open_paths:
        return {"status": WAITING, "note": f"no node can tell whether {open_paths[0]} is locked"}
    return {"status": MAY_RESTART, "note": f"nobody holds a lock on {', '.join(paths[:2])} any more"}


def _locks_on(context: Context, nodes: Sequence[str], paths: Sequence[str]) -> dict[str, Any]:
    files = [path for path in paths if path.startswith("/") and "\n" not in path][:MOST_FILES]
    if not nodes or not files:
        raise ToolError("looking for locks needs nodes and absolute paths")
    words = [f"{path}{ending}" for path in files for ending in LOCK_NAMES]
    command = ("sh", "-c", _PROGRAM, "sh", _TEST, *words)
    replies = context.transport.run(nodes[:MOST_NODES], command, timeout_s=min(LOOK_S, context.command_timeout_s))
    texts = {node: reply.out for node, reply in replies.items() if not _why_not(reply)}
    unknown = {node: why for node, reply in replies.items() if (why := _why_not(reply))}
    return {**locks_of(texts, files), "unknown": unknown}


def locks_of(texts: Mapping[str, str], files: Sequence[str]) -> dict[str, Any]:
    """Return holders, and which files are held, free or missing, of what the program printed on nodes; pure."""
    holders: list[dict[str, Any]] = []
    answers: dict[str, list[str]] = {path: [] for path in files}
    for node, text in texts.items():
        paths_by_id: dict[str, str] = {}
        own_holders: dict[tuple[str, int], dict[str, Any]] = {}
        stands = dict.fromkeys(files, False)
        for line in text.splitlines():
            if (file := _FILE.fullmatch(line)) and (path := _main(file[2], files)):
                paths_by_id[file[1]] = path
                stands[path] = stands[path] or file[2] == path
            elif (lock := _LOCK.fullmatch(line)) and lock[1] in paths_by_id:
                answers[paths_by_id[lock[1]]].append(lock[2])
            elif (match := PROCESS.fullmatch(line)) and match[1] in paths_by_id:
                job = match[3] if match[3] != "-" else match[4].removeprefix("-")
                path, pid = paths_by_id[match[1]], int(match[2])
                program = " ".join(match[6].split())
                own_holders[path, pid] = {"path": path, "node": node, "pid": pid, "user": match[5], "job": job, "program": program}
        holders += own_holders.values()
        for path, is_there in stands.items():
            answers[path] += [] if is_there else ["missing"]
    locked = [path for path in files if "held" in answers[path] or any(row["path"] == path for row in holders)]
    free = [path for path in files if path not in locked and "free" in answers[path] and "unknown" not in answers[path]]
    missing = [path for path in files if answers[path] and {*answers[path]} == {"missing"}]
    return {"holders": holders[:MOST_SHOWN], "held": locked, "free": free, "missing": missing}


def _main(path: str, files: Sequence[str]) -> str:
    return next((file for file in files if path in [f"{file}{ending}" for ending in LOCK_NAMES]), "")


def _why_not(reply: Reply) -> str:
    if not reply.reached:
        return reply.err or "it did not answer"
    return "" if reply.status == 0 and reply.out.rstrip().endswith("end") else f"status {reply.status}"
