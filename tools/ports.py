"""See who holds a port or GPU memory of a node: a process, its user, and the job that it belongs to. It only looks."""

from __future__ import annotations

import re
from typing import Any

from assistant.errors import ToolError
from assistant.ports import Reply
from assistant.records import Risk
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
_PROGRAM = (
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
    command = ("sh", "-c", _PROGRAM, "sh", str(port))
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
    whole = reply.status == 0 and reply.out.rstrip().endswith("end")
    return "" if whole else (reply.err or reply.out).strip()[:200] or f"status {reply.status}"
