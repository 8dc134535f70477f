"""Answers about what a running job is at: its GPUs, and where its ranks stand in the code."""

from __future__ import annotations

from collections.abc import Iterator

from assistant.agent.phrasing import counted
from assistant.agent.tell_jobs import failed
from assistant.agent.turn import Turn
from assistant.agent.wording import one_line

SHOWN = 8
"""Nodes or classes of ranks that are told; the rest is counted."""


def gpu_use(turn: Turn) -> Iterator[str]:
    """Tell whether the GPUs of a job compute, wait or idle."""
    found = turn.look("gpu_activity", job=turn.asked.job)
    if found.error:
        yield failed(turn, found)
        return
    mark = f"[{found.number}]"
    yield f"GPUs of job {turn.asked.job}: {one_line(found.value['text'], 400)} {mark}."
    nodes = found.value["nodes"]
    for node, told in list(nodes.items())[:SHOWN]:
        gpus = ", ".join(f"{gpu['gpu']} {gpu['state']}" for gpu in told["gpus"])
        yield f"  {node}: {one_line(gpus, 200)} {mark}"
    if len(nodes) > SHOWN:
        yield f"  and {counted(len(nodes) - SHOWN, 'more node')} {mark}"


def stacks(turn: Turn) -> Iterator[str]:
    """Tell where the ranks of a job stand, and which stand apart."""
    found = turn.look("stack_classes", job=turn.asked.job)
    if found.error:
        yield failed(turn, found)
        return
    mark = f"[{found.number}]"
    yield f"Ranks of job {turn.asked.job}: {one_line(found.value['text'] or 'no stack was seen', 600)} {mark}."
    unknown = found.value.get("unknown") or {}
    for node, why in list(unknown.items())[:SHOWN]:
        yield f"  {node}: not known, {one_line(why, 160)} {mark}"
