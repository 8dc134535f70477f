"""See which processes hold what of a node: a port, GPU memory, files open for writing, host memory; and which files changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from assistant.errors import ToolError, Unavailable
from assistant.ports import Reply
from assistant.records import JobState, Risk
from assistant.tooling import Context, tool

LOOK_S = 20.0
MOST_NODES = 8
MOST_SHOWN = 16
"""Processes of one socket: children keep what their parent has opened."""
LISTENS = "0A"
"""State of a socket in /proc/net/tcp. Source: proc(5), include/net/tcp_states.h."""
OWNER_LINE = (
    "group=$(sed -n 's/.*slurm[^:]*\\/job_\\([0-9]*\\).*/\\1/p' /proc/$p/cgroup | head -n 1); "
    "own=$(tr '\\0' '\\n' </proc/$p/environ | sed -n 's/^SLURM_JOB_ID=\\([0-9]*\\)$/\\1/p' | head -n 1); "
    "words=$(tr '\\0\\n' '  ' </proc/$p/cmdline | head -c 200); "
    'printf "process %s %s %s %s\\t%s\\t%s\\n" "$of" "$p" "${group:--}" "${own:--}" "$(stat -c %U /proc/$p)" "$words"; '
)
"""Shell words that print whose process `$p` is, which holds `$of`."""
_PORT_PROGRAM = (
    'LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/local/bin:/usr/bin:/bin; exec 2>/dev/null; port=$(printf %04X "$1"); '
    "cat /proc/net/tcp /proc/net/tcp6 | "
    'awk -v p="$port" \'{ n = split($2, a, ":"); if (a[n] == p && $10 ~ /^[1-9][0-9]*$/) print $4, $10 }\' | sort -u | head -n 8 | '
    'while read -r state of; do echo "socket $state $of"; '
    'for p in $(timeout -k 1 8 find /proc/[0-9]*/fd -lname "socket:\\[$of\\]" | cut -d/ -f3 | sort -un | head -n 16); do '
    f"{OWNER_LINE}done; done; echo end"
)
_GPU_PROGRAM = (
    "LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/local/bin:/usr/bin:/bin; exec 2>/dev/null; "
    "timeout -k 1 10 nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits | "
    "tr -d ' ' | head -n 64 | while IFS=, read -r of p used; do "
    'case $p in ""|*[!0-9]*) continue ;; esac; echo "gpu $of $p $used"; '
    f"{OWNER_LINE}done; timeout -k 1 10 nvidia-smi --query-gpu=index,uuid,memory.total --format=csv,noheader,nounits | "
    "tr -d ' ' | head -n 64 | while IFS=, read -r index of total; do echo \"card $index $of $total\"; done; echo end"
)
PROCESS = re.compile(r"process (\S{1,80}) (\d{1,10}) (\d{1,18}|-) (\d{1,18}|-)\t([^\t]{0,256})\t(.*)")

_APP = re.compile(r"gpu (\S{1,80}) (\d{1,10}) (\d{1,9})", re.MULTILINE)
_CARD = re.compile(r"card (\d{1,4}) (\S{1,80}) (\d{1,9})", re.MULTILINE)


@tool(risk=Risk.READ)
def port_holders(context: Context, nodes: list[str], port: int) -> dict[str, Any]:
    """Show who holds a TCP port of nodes: `holders` by node, `free` nodes where nobody does, `unknown` those without an answer.

    A holder has `pid`, `user`, `program`, `listens`, and `job`, the number of the Slurm job that it belongs to: by its control
    group, else by its own SLURM_JOB_ID, which its user may set at will; empty where neither names one. `pid` is 0 where its process
    may not be seen from this account.

    Args:
        nodes: Names of nodes; eight are asked.
        port: 1 to 65535.
    """
    if not nodes or not 1 <= port <= 65_535:
        raise ToolError(f"port_holders needs nodes and a port from 1 to 65535, not {port}")
    command = ("sh", "-c", _PORT_PROGRAM, "sh", str(port))
    replies = context.transport.run(nodes[:MOST_NODES], command, timeout_s=min(LOOK_S, context.command_timeout_s))
    unknown = {node: why for node, reply in replies.items() if (why := _why_not(reply))}
    holders = {node: holders_of(reply.out) for node, reply in replies.items() if node not in unknown}
    return {
        "holders": {node: those for node, those in holders.items() if those},
        "free": [node for node, those in holders.items() if not those],
        "unknown": unknown,
    }


@tool(risk=Risk.READ)
def gpu_holders(context: Context, nodes: list[str]) -> dict[str, Any]:
    """Show which processes hold memory of GPUs: `holders` by node, `free` nodes without any, `unknown` those without an answer.

    A holder has what one of `port_holders` has, without `listens`, and `gpu`, the index on its node, `used_mib` and `total_mib`.
    `pid` is that of the node; `user` and `program` are empty where the process has gone by now or may not be seen.

    Args:
        nodes: Names of nodes; eight are asked.
    """
    if not nodes:
        raise ToolError("gpu_holders needs nodes")
    replies = context.transport.run(
        nodes[:MOST_NODES], ("sh", "-c", _GPU_PROGRAM), timeout_s=min(LOOK_S, context.command_timeout_s)
    )
    unknown = {node: why for node, reply in replies.items() if (why := _why_not(reply) or _no_card(reply.out))}
    holders = {node: gpu_holders_of(reply.out) for node, reply in replies.items() if node not in unknown}
    return {
        "holders": {node: rows for node, rows in holders.items() if rows},
        "free": [node for node, rows in holders.items() if not rows],
        "unknown": unknown,
    }


def gpu_holders_of(text: str) -> list[dict[str, Any]]:
    """Return the holders that the program for GPUs printed on one node; pure."""
    cards = {match[2]: (int(match[1]), int(match[3])) for line in text.splitlines() if (match := _CARD.fullmatch(line))}
    users = {(match[1], match[2]): match for line in text.splitlines() if (match := PROCESS.fullmatch(line))}
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        app = _APP.fullmatch(line)
        if app is None or app[1] not in cards:
            continue
        process = users.get((app[1], app[2]))
        index, total = cards[app[1]]
        job = "" if process is None else process[3] if process[3] != "-" else process[4].removeprefix("-")
        rows.append(
            {
                "pid": int(app[2]),
                "user": "" if process is None or process[5] == "UNKNOWN" else process[5],
                "job": job,
                "program": "" if process is None else " ".join(process[6].split()),
                "gpu": index,
                "used_mib": int(app[3]),
                "total_mib": total,
            }
        )
    return rows[:MOST_SHOWN]


def _no_card(text: str) -> str:
    return "" if _CARD.search(text) else "nvidia-smi shows no GPU"


def holders_of(text: str) -> list[dict[str, Any]]:
    """Return the holders that the program printed on one node; pure."""
    states: dict[str, str] = {}
    holders: list[dict[str, Any]] = []
    for line in text.splitlines():
        words = line.split(" ")
        if words[0] == "socket" and len(words) == 3:
            states[words[2]] = words[1]
        elif (match := PROCESS.fullmatch(line)) and match[1] in states:
            job = match[3] if match[3] != "-" else match[4].removeprefix("-")
            program = " ".join(match[6].split())
            listens = states[match[1]] == LISTENS
            holders.append({"pid": int(match[2]), "user": match[5], "job": job, "program": program, "listens": listens})
    if states and not holders:
        holders = [{"pid": 0, "user": "", "job": "", "program": "", "listens": LISTENS in states.values()}]
    return holders[:MOST_SHOWN]


def _why_not(reply: Reply) -> str:
    if not reply.reached:
        return reply.err or "it did not answer"
    complete = reply.status == 0 and reply.out.rstrip().endswith("end")
    return "" if complete else (reply.err or reply.out).strip()[:200] or f"status {reply.status}"


MOST_PLACES = 12
"""Files and folders that are looked at."""
MOST_CHANGED = 64
"""Changed files of one place, in the order of its folder."""
MOST_FILES = 16
"""Files whose writers are looked for."""
QUIET_S = 60
"""Seconds without a change after which nobody is taken to write a file any more."""
WAITING, MAY_RESTART = "waiting", "may_restart"
_PREPARED = "LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/local/bin:/usr/bin:/bin; exec 2>/dev/null; "
_CHANGED = (
    _PREPARED + 'since=$1; shift; printf "now %s\\0" "$(date +%s)"; for p; do '
    f'timeout -k 1 6 find -H "$p" -maxdepth 1 -type f -newermt "@$since" -printf \'file %s %T@ %u %p\\0\' | '
    f"head -z -n {MOST_CHANGED}; done; printf 'end\\0'"
)
_WRITERS = (
    _PREPARED + 'printf "now %s\\n" "$(date +%s)"; for f; do of=$(stat -L -c "%d:%i" -- "$f") || { echo "missing $f"; continue; }; '
    'stat -L -c "file $of %s %Y %U %n" -- "$f"; '
    'timeout -k 1 8 find -L $(printf "%s " /proc/[0-9]*/fd) -maxdepth 1 -type f -samefile "$f" | while read -r at; do '
    'p=${at#/proc/}; p=${p%%/*}; grep -qE "^flags:[[:space:]]+0[0-7]*[1256]$" "/proc/$p/fdinfo/${at##*/}" || continue; '
    f"{OWNER_LINE}done; done; echo end"
)
"""The last digit of the flags of an open file is the mode: 1 and 2 are for writing, 5 and 6 too. Source: proc(5), open(2)."""
_CHANGE = re.compile(r"file (\d{1,18}) (\d{1,12})(?:\.\d{1,12})? (\S{1,256}) (/.{1,4096})", re.DOTALL)
_STATE = re.compile(r"file (\S{1,40}) (\d{1,18}) (\d{1,12}) (\S{1,256}) (/.{1,4096})")
_NOW = re.compile(r"now (\d{1,12})")


@tool(risk=Risk.READ)
def files_changed(context: Context, nodes: list[str], paths: list[str], since_s: int) -> dict[str, Any]:
    """Show which regular files of some places were modified since a time: `files`, `now_s`, and `node`, which answered.

    A file has `path`, `size_bytes`, `modified_s` (seconds since 1970) and `user`, its owner. Nodes are asked one after another
    until one answers: the paths are taken to lie on storage that they share. `node` is empty where none did.

    Args:
        nodes: Names of nodes, the best first; eight are asked.
        paths: Absolute paths of files, or of folders, of which the files in them count and no deeper ones; twelve are looked at.
        since_s: Seconds since 1970.
    """
    places = [path for path in paths if path.startswith("/") and "\n" not in path][:MOST_PLACES]
    if not nodes or not places or since_s < 0:
        raise ToolError("files_changed needs nodes, absolute paths and a time since 1970")
    command = ("sh", "-c", _CHANGED, "sh", str(since_s), *places)
    for node in nodes[:MOST_NODES]:
        reply = context.transport.run([node], command, timeout_s=_patience_s(context))[node]
        records = reply.out.split("\0") if reply.reached and reply.status == 0 else []
        if "end" not in records[-2:]:
            continue
        files = [match for record in records if (match := _CHANGE.fullmatch(record))]
        now = next((int(match[1]) for record in records if (match := _NOW.fullmatch(record))), 0)
        rows = [{"path": each[4], "size_bytes": int(each[1]), "modified_s": int(each[2]), "user": each[3]} for each in files]
        return {"files": rows, "now_s": now, "node": node}
    return {"files": [], "now_s": 0, "node": ""}


@tool(risk=Risk.READ)
def file_writers(context: Context, nodes: list[str], paths: list[str]) -> dict[str, Any]:
    """Show which processes have files open for writing: `writers`, `files` as they are, `unknown` nodes without an answer.

    A writer has `path`, `node`, and what a holder of `port_holders` has. A file has `path`, `size_bytes`, `modified_s`, `user`
    and `quiet_s`, seconds since it was modified by the clock of the node. Processes of others are seen only with root's rights.

    Args:
        nodes: Names of nodes; eight are asked.
        paths: Absolute paths of files; 16 are looked at.
    """
    return _writers_on(context, nodes, paths)


@tool(risk=Risk.READ)
def wait_unwritten(
    context: Context, job: str, paths: list[str], writers: list[str] | None = None, timeout_s: float = 60.0
) -> dict[str, Any]:
    """Tell whether files that a job reads are written no more; `status` is may_restart or waiting, and `note` says by whom.

    They are written while one of the jobs `writers` has not ended, while a process of another job has one of them open for writing,
    and until nothing has changed them for a minute. Where no node can tell, the status is waiting.

    Args:
        job: Scheduler job id of the job that failed.
        paths: Absolute paths of the files.
        writers: Scheduler job ids of jobs that were seen to write them.
        timeout_s: Not used: it looks once, for the caller decides when to look again.
    """
    del timeout_s
    failed_job = context.scheduler.job(job)
    for writer in writers or ():
        try:
            entry = context.scheduler.job(writer)
        except ToolError:
            continue  # the scheduler knows it no more: it has ended
        if not entry.state.ended:
            return {"status": WAITING, "note": f"job {entry.id} ({entry.name}) of {entry.user} still writes {paths[0]}"}
    try:
        running = [entry for entry in context.scheduler.jobs() if entry.state is JobState.RUNNING and entry.id != failed_job.id]
    except Unavailable:
        running = []
    nodes = list(dict.fromkeys([*failed_job.nodes[:1], *(node for entry in running for node in entry.nodes)]))
    answer = _writers_on(context, nodes, paths)
    if not answer["files"]:
        missing = "it is not there now" if not answer["unknown"] else f"no answer from {', '.join(answer['unknown'])}"
        return {"status": WAITING, "note": f"{paths[0]} could not be looked at: {missing}"}
    for row in answer["writers"]:
        process = f"process {row['pid']} ({row['program']}) of {row['user']} on {row['node']}"
        return {"status": WAITING, "note": f"{process} writes {row['path']}"}
    latest = min(answer["files"], key=lambda state: int(state["quiet_s"]))
    if latest["quiet_s"] < QUIET_S:
        return {"status": WAITING, "note": f"{latest['path']} was modified {latest['quiet_s']} s ago"}
    size = f"it has {latest['size_bytes']} bytes since {_clock(latest)}"
    return {"status": MAY_RESTART, "note": f"{latest['path']} is written no more: {size}"}


def _writers_on(context: Context, nodes: Sequence[str], paths: Sequence[str]) -> dict[str, Any]:
    files = [path for path in paths if path.startswith("/") and "\n" not in path][:MOST_FILES]
    if not nodes or not files:
        raise ToolError("looking for writers needs nodes and absolute paths")
    replies = context.transport.run(nodes[:MOST_NODES], ("sh", "-c", _WRITERS, "sh", *files), timeout_s=_patience_s(context))
    unknown = {node: why for node, reply in replies.items() if (why := _why_unlisted(reply))}
    writers: list[dict[str, Any]] = []
    states: dict[str, dict[str, Any]] = {}
    for node, reply in replies.items():
        if node in unknown:
            continue
        own_states, own_writers = writers_of(reply.out)
        writers += [{"node": node, **row} for row in own_writers]
        for row in own_states:
            states[row["path"]] = max(states.get(row["path"], row), row, key=lambda state: state["modified_s"])
    return {"writers": writers, "files": list(states.values()), "unknown": unknown}


def writers_of(text: str) -> tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]:
    """Return the files and their writers that the program printed on one node; pure."""
    now = next((int(match[1]) for line in text.splitlines() if (match := _NOW.fullmatch(line))), 0)
    states: dict[str, dict[str, Any]] = {}
    writers: list[dict[str, Any]] = []
    for line in text.splitlines():
        if match := _STATE.fullmatch(line):
            modified = int(match[3])
            row = {"path": match[5], "size_bytes": int(match[2]), "modified_s": modified, "user": match[4]}
            states[match[1]] = {**row, "quiet_s": max(0, now - modified)}
        elif (match := PROCESS.fullmatch(line)) and match[1] in states:
            job = match[3] if match[3] != "-" else match[4].removeprefix("-")
            row = {"path": states[match[1]]["path"], "pid": int(match[2]), "user": match[5], "job": job}
            writers.append({**row, "program": " ".join(match[6].split())})
    return list(states.values()), writers


def _clock(state: Mapping[str, Any]) -> str:
    return f"{datetime.fromtimestamp(state['modified_s'], UTC):%H:%M:%S} UTC"


def _patience_s(context: Context) -> float:
    return min(LOOK_S, context.command_timeout_s)


def _why_unlisted(reply: Reply) -> str:
    if not reply.reached:
        return reply.err or "it did not answer"
    return "" if reply.status == 0 and reply.out.rstrip().endswith("end") else f"status {reply.status}"


MOST_MEMORY_NODES = 32
MOST_PROCESSES = 16
_MEMORY_PROGRAM = (
    'grep -E "^Mem(Total|Available):" /proc/meminfo; for p; do u=$(stat -c %u -- "/proc/$p" 2>/dev/null) || continue; '
    'printf "process %s %s %s\\n" "$p" "$u" "$(cat "/proc/$p/comm")"; done; echo end'
)
_AMOUNT = re.compile(r"^(MemTotal|MemAvailable):\s+(\d{1,15}) kB", re.MULTILINE)
_LIVE_PROCESS = re.compile(r"^process (\d{1,10}) (\d{1,10}) (.{0,64})$", re.MULTILINE)


@tool(risk=Risk.READ)
def host_memory(context: Context, nodes: list[str], pids: list[int] | None = None) -> dict[str, Any]:
    """Show the memory of nodes: under `rows` one for each node, under `unknown` those that did not say.

    A row has `total_bytes`, `available_bytes`, and `processes` with `pid`, `uid` and `name` of those that were asked for and live.

    Args:
        nodes: Names of nodes; 32 are asked.
        pids: Processes that are looked for on each of them; 16 are.
    """
    if not nodes:
        raise ToolError("host_memory needs nodes")
    command = ("sh", "-c", _MEMORY_PROGRAM, "sh", *(str(pid) for pid in (pids or ())[:MOST_PROCESSES]))
    replies = context.transport.run(nodes[:MOST_MEMORY_NODES], command, timeout_s=min(15.0, context.command_timeout_s))
    rows: list[dict[str, Any]] = []
    unknown: dict[str, str] = {}
    for node, reply in replies.items():
        amounts = {name: int(kib) * 1024 for name, kib in _AMOUNT.findall(reply.out)}
        if not reply.reached or len(amounts) != 2 or not reply.out.rstrip().endswith("end"):
            unknown[node] = (reply.err or reply.out).strip()[:200] or f"status {reply.status}"
            continue
        processes = [{"pid": int(pid), "uid": int(uid), "name": name} for pid, uid, name in _LIVE_PROCESS.findall(reply.out)]
        amount = {"total_bytes": amounts["MemTotal"], "available_bytes": amounts["MemAvailable"]}
        rows.append({"node": node, **amount, "processes": processes})
    return {"rows": rows, "unknown": unknown}
