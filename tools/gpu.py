"""See what the GPUs of a job are at: computing, spinning in a kernel that waits, or idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from assistant.errors import ToolError
from assistant.ports import Reply
from assistant.records import Job, Risk
from assistant.recover.gpus import gpus_of
from assistant.tooling import Context, tool
from assistant.tools._gpu_activity import COMMAND, QUERY, Activity, activities, allotted, allotted_command, queried

LONGEST_S = 30.0
NO_PROGRAM = (126, 127)


@tool(risk=Risk.READ)
def gpu_activity(context: Context, job: str = "", nodes: list[str] | None = None) -> dict[str, Any]:
    """Look for ten seconds at what GPUs do: under `nodes` each GPU's counters and state (computing, spinning, idle, unknown).

    A collective that hangs looks busy: spinning means full utilisation with little power, no memory and no PCIe traffic. `unknown`
    says why a node shows nothing. Of a job's nodes only its own GPUs are shown, as its processes name them; where they do not, and
    the job asked for fewer than the node has, the node is unknown: others may compute on it. No process is touched.

    Args:
        job: Scheduler job id, whose nodes are meant.
        nodes: Names of the nodes, where no job is given.
    """
    wanted = list(nodes or ())
    found: Job | None = None
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
    answer = {node: {"gpus": _gpus(activities(reply.out))} for node, reply in replies.items() if node not in unknown}
    again = [node for node in unknown if replies[node].reached and replies[node].status not in NO_PROGRAM]
    if again:
        for node, reply in context.transport.run(again, QUERY, timeout_s=LONGEST_S).items():
            if reply.reached and not reply.status and (gpus := queried(reply.out)):
                answer[node] = {"gpus": _gpus(gpus)}
                del unknown[node]
    if found is not None and answer:
        answer, shared = _own_gpus(context, found, answer)
        unknown |= shared
    return {"text": _text(answer, unknown), "nodes": answer, "unknown": unknown}


def _own_gpus(context: Context, job: Job, shown_gpus: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the job's own GPUs are at, and why of some nodes they cannot be told from those of others."""
    number = job.raw_id or job.id.partition("+")[0]
    replies = context.transport.run(list(shown_gpus), allotted_command(number), timeout_s=LONGEST_S) if number.isdecimal() else {}
    requested = gpus_of(job) / max(1, len(job.nodes))
    own: dict[str, Any] = {}
    shared: dict[str, str] = {}
    for node, about in shown_gpus.items():
        reply = replies.get(node)
        text = reply.out if reply is not None and reply.reached and not reply.status else ""
        numbers = allotted(text, first=node == job.nodes[0])
        rows = [gpu for gpu in about["gpus"] if gpu["gpu"] in numbers] if numbers else about["gpus"]
        if rows and (numbers or not 0 < requested < len(rows)):
            own[node] = {**about, "gpus": rows}
        else:
            shared[node] = f"which of its {len(about['gpus'])} GPUs are the job's is not known"
    return own, shared


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
