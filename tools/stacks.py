"""See where the ranks of a job stand: who waits for whom, and who does not."""

from __future__ import annotations

from typing import Any

from assistant.errors import ToolError
from assistant.nodeset import fold
from assistant.records import Risk
from assistant.tooling import Context, tool
from assistant.tools import _stacks
from assistant.tools._stacks import NodeStacks, RankStack, StackClass
from assistant.watch.witness import BUSY_SHARE

LONGEST_S = 40.0
"""Two dumps of up to eight seconds each, and the pause between them."""
SHOWN_FRAMES = 8


@tool(risk=Risk.READ)
def stack_classes(context: Context, job: str) -> dict[str, Any]:
    """Dump the Python stacks of all ranks of a running job, merged: `classes` of ranks at one place, and `odd` ranks apart.

    `text` says it in a sentence; `moved` counts ranks that went on between two dumps, `busy` those that used the CPU meanwhile at
    a place where nobody waits; `cpu` is the largest share of a core that a process of the job used, by node, also where no rank
    was found; `unknown` says why a node shows no rank. It needs py-spy on the nodes and the job's user or root there
    (commands.py_spy in the settings names another program).

    Args:
        job: Scheduler job id.
    """
    found = context.scheduler.job(job)
    if found.state.ended or not found.nodes:
        raise ToolError(f"job {job} is {found.state}: it has no processes to look at")
    program = tuple(context.commands.get("py_spy") or ("py-spy",))
    replies = context.transport.run(found.nodes, _stacks.command(job, program), timeout_s=LONGEST_S)
    nodes: dict[str, NodeStacks] = {}
    for node, reply in replies.items():
        if not reply.reached or reply.status:
            why = reply.err.strip()[:200] or f"ended with status {reply.status}"
            nodes[node] = NodeStacks((), why=why if not reply.reached else f"sh: {why}")
        else:
            nodes[node] = _stacks.node_stacks(node, reply.out)
    return merged(nodes)


def merged(nodes: dict[str, NodeStacks]) -> dict[str, Any]:
    """Return what all nodes said, merged; pure."""
    by_rank: dict[int, RankStack] = {}
    for stack in (stack for node in nodes.values() for stack in node.stacks):
        if stack.rank not in by_rank or stack.home == stack.node:
            by_rank[stack.rank] = stack
    stacks = list(by_rank.values())
    unknown = {node: one.why for node, one in nodes.items() if one.why}
    expected = max((one.world for one in nodes.values() if one.world is not None), default=None)
    classes = _stacks.classes_of(stacks)
    odd = _stacks.odd_ones(classes)
    known = {stack.rank for stack in stacks} | {rank for one in nodes.values() for rank in one.unseen}
    absent = sorted(set(range(expected or 0)) - known) if not unknown else []
    text = _stacks.sentence(classes, odd, unseen=unknown)
    cpu = {node: round(one.cpu_share, 3) for node, one in nodes.items() if one.cpu_share is not None}
    working = {node: share for node, share in cpu.items() if share >= BUSY_SHARE}
    if working and len(stacks) < max(expected or 0, 1):
        text = ", ".join(filter(None, (text, f"a process of the job works on the CPU of {fold(sorted(working))}")))
    if absent:
        text = ", ".join(filter(None, (text, f"rank {_stacks.numbers(absent)} has no process")))
    return {
        "text": text or "no rank was seen",
        "seen": len(stacks),
        "expected": expected,
        "moved": sum(stack.moved for stack in stacks),
        "busy": sum(stack.busy and not _stacks.place_of(stack.frames)[1] for stack in stacks),
        "cpu": cpu,
        "classes": [_told(one) for one in classes],
        "odd": [_rank(stack) for stack in odd],
        "absent": absent,
        "unknown": unknown,
    }


def _told(one: StackClass) -> dict[str, Any]:
    ranks = _stacks.numbers(stack.rank for stack in one.stacks)
    nodes = fold(sorted({stack.node for stack in one.stacks}))
    return {
        "where": one.where,
        "waits": one.waits,
        "ranks": len(one.stacks),
        "named": ranks,
        "nodes": nodes,
        "stack": _frames(one.stacks[0]),
    }


def _rank(stack: RankStack) -> dict[str, Any]:
    where, _ = _stacks.place_of(stack.frames)
    return {"rank": stack.rank, "node": stack.node, "where": where, "state": stack.state, "stack": _frames(stack)}


def _frames(stack: RankStack) -> list[str]:
    return [f"{frame.function} ({frame.file}:{frame.line})" for frame in stack.frames[:SHOWN_FRAMES]]
