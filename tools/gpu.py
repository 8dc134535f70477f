"""See what the GPUs of a job are at: computing, spinning in a kernel that waits, or idle."""

from __future__ import annotations

from collections import Counter
from typing import Any

from assistant.errors import ToolError
from assistant.ports import Reply
from assistant.records import Risk
from assistant.tooling import Context, tool
from assistant.tools._gpu_activity import COMMAND, QUERY, Activity, activities, queried

LONGEST_S = 30.0
NO_PROGRAM = (126, 127)


@tool(risk=Risk.READ)
def gpu_activity(context: Context, job: str = "", nodes: list[str] | None = None) -> dict[str, Any]:
    """Look for ten seconds at what GPUs do: under `nodes` each GPU's counters and state (computing, spinning, idle, unknown).

    A collective that hangs looks busy: spinning means full utilisation with little power, no memory and no PCIe traffic. `unknown`
    says why a node shows nothing. No process is touched.

    Args:
        job: Scheduler job id, whose nodes are meant.
        nodes: Names of the nodes, where no job is given.
    """
    wanted = list(nodes or ())
    if job:
        found = context.scheduler.job(job)
        if found.state.ended:
            raise ToolError(f"job {job} is {found.state}: its GPUs are others' now")
        wanted = list(found.nodes)
    if not wanted:
        raise ToolError("gpu_activity needs a running job or nodes")
    command = tuple(context.commands.get("gpu_activity") or COMMAND)
    replies = context.transport.run(wanted, command, timeout_s=LONGEST_S)
    unknown = {node: why for node, reply in replies.items() if (why := _why_not(reply, command[0]))}
    told = {node: {"gpus": _gpus(activities(reply.out))} for node, reply in replies.items() if node not in unknown}
    again = [node for node in unknown if replies[node].reached and replies[node].status not in NO_PROGRAM]
    if again:
        for node, reply in context.transport.run(again, QUERY, timeout_s=LONGEST_S).items():
            if reply.reached and not reply.status and (gpus := queried(reply.out)):
                told[node] = {"gpus": _gpus(gpus)}
                del unknown[node]
    return {"text": _text(told, unknown), "nodes": told, "unknown": unknown}


def _gpus(gpus: list[Activity]) -> list[dict[str, Any]]:
    return [
        {
            "gpu": one.gpu,
            "state": one.state(),
            "sm": one.sm,
            "memory": one.memory,
            "power_w": one.power_w,
            "pcie_mb_s": one.pcie_mb_s,
        }
        for one in gpus
    ]


def _why_not(reply: Reply, program: str) -> str:
    if not reply.reached:
        return reply.err or "it did not answer"
    if reply.status in NO_PROGRAM:
        return f"{program} is not there"
    if reply.status:
        return f"{program} ended with status {reply.status}: {(reply.err or reply.out).strip()[:200]}"
    return "" if activities(reply.out) else f"{program} printed nothing that can be read"


def _text(told: dict[str, Any], unknown: dict[str, str]) -> str:
    states = Counter(gpu["state"] for node in told.values() for gpu in node["gpus"])
    parts = [f"{count} of {states.total()} GPUs {state}" for state, count in states.most_common()]
    parts += [f"{node}: {why}" for node, why in list(unknown.items())[:4]]
    return ", ".join(parts) or "no GPU was seen"
