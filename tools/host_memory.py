"""Look how much memory nodes have left, and whether processes that held it are still there."""

from __future__ import annotations

import re
from typing import Any

from assistant.errors import ToolError
from assistant.records import Risk
from assistant.tooling import Context, tool

MOST_NODES = 32
MOST_PROCESSES = 16
_PROGRAM = (
    'grep -E "^Mem(Total|Available):" /proc/meminfo; for p; do u=$(stat -c %u -- "/proc/$p" 2>/dev/null) || continue; '
    'printf "process %s %s %s\\n" "$p" "$u" "$(cat "/proc/$p/comm")"; done; echo end'
)
_AMOUNT = re.compile(r"^(MemTotal|MemAvailable):\s+(\d{1,15}) kB", re.MULTILINE)
_PROCESS = re.compile(r"^process (\d{1,10}) (\d{1,10}) (.{0,64})$", re.MULTILINE)


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
    command = ("sh", "-c", _PROGRAM, "sh", *(str(pid) for pid in (pids or ())[:MOST_PROCESSES]))
    replies = context.transport.run(nodes[:MOST_NODES], command, timeout_s=min(15.0, context.command_timeout_s))
    rows: list[dict[str, Any]] = []
    unknown: dict[str, str] = {}
    for node, reply in replies.items():
        amounts = {name: int(kib) * 1024 for name, kib in _AMOUNT.findall(reply.out)}
        if not reply.reached or len(amounts) != 2 or not reply.out.rstrip().endswith("end"):
            unknown[node] = (reply.err or reply.out).strip()[:200] or f"status {reply.status}"
            continue
        processes = [{"pid": int(pid), "uid": int(uid), "name": name} for pid, uid, name in _PROCESS.findall(reply.out)]
        amount = {"total_bytes": amounts["MemTotal"], "available_bytes": amounts["MemAvailable"]}
        rows.append({"node": node, **amount, "processes": processes})
    return {"rows": rows, "unknown": unknown}
