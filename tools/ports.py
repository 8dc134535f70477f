"""See who holds a port of a node: a process, its user, and the job that it belongs to. It only looks; nothing is connected to."""

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
_PROGRAM = (
    'LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/local/bin:/usr/bin:/bin; exec 2>/dev/null; port=$(printf %04X "$1"); '
    "cat /proc/net/tcp /proc/net/tcp6 | "
    'awk -v p="$port" \'{ n = split($2, a, ":"); if (a[n] == p && $10 ~ /^[1-9][0-9]*$/) print $4, $10 }\' | sort -u | head -n 8 | '
    'while read -r state inode; do echo "socket $state $inode"; '
    'for p in $(timeout -k 1 8 find /proc/[0-9]*/fd -lname "socket:\\\\[$inode\\\\]" | cut -d/ -f3 | sort -un | head -n 16); do '
    "group=$(sed -n 's/.*slurm[^:]*\\/job_\\([0-9]*\\).*/\\1/p' /proc/$p/cgroup | head -n 1); "
    "own=$(tr '\\0' '\\n' </proc/$p/environ | sed -n 's/^SLURM_JOB_ID=\\([0-9]*\\)$/\\1/p' | head -n 1); "
    "words=$(tr '\\0\\n' '  ' </proc/$p/cmdline | head -c 200); "
    'printf "process %s %s %s %s\\t%s\\t%s\\n" "$inode" "$p" "${group:--}" "${own:--}" "$(stat -c %U /proc/$p)" "$words"; '
    "done; done; echo end"
)
_PROCESS = re.compile(r"process (\d{1,20}) (\d{1,10}) (\d{1,18}|-) (\d{1,18}|-)\t([^\t]{0,256})\t(.*)")


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


def holders_of(text: str) -> list[dict[str, Any]]:
    """Return the holders that the program printed on one node; pure."""
    states: dict[str, str] = {}
    holders: list[dict[str, Any]] = []
    for line in text.splitlines():
        words = line.split(" ")
        if words[0] == "socket" and len(words) == 3:
            states[words[2]] = words[1]
        elif (match := _PROCESS.fullmatch(line)) and match[1] in states:
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
