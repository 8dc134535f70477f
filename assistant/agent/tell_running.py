"""Answers about what a running job is at: its GPUs, and where its ranks stand in the code."""

from __future__ import annotations

from collections.abc import Iterator

from assistant.agent.phrasing import counted
from assistant.agent.tell_jobs import failed
from assistant.agent.turn import QuestionTurn
from assistant.agent.wording import one_line

MOST_ROWS = 8
"""Nodes or classes of ranks that are told; the rest is counted."""


def gpu_use(turn: QuestionTurn) -> Iterator[str]:
    """Tell whether the GPUs of a job compute, wait or idle."""
    source = turn.look("gpu_activity", job=turn.request.job)
    if source.error:
        yield failed(turn, source)
        return
    mark = f"[{source.number}]"
    yield f"GPUs of job {turn.request.job}: {one_line(source.value['text'], 400)} {mark}."
    nodes = source.value["nodes"]
    for node, activity in list(nodes.items())[:MOST_ROWS]:
        gpus = ", ".join(f"{gpu['gpu']} {gpu['state']}" for gpu in activity["gpus"])
        yield f"  {node}: {one_line(gpus, 200)} {mark}"
    if len(nodes) > MOST_ROWS:
        yield f"  and {counted(len(nodes) - MOST_ROWS, 'more node')} {mark}"


def stacks(turn: QuestionTurn) -> Iterator[str]:
    """Tell where the ranks of a job stand, and which stand apart."""
    source = turn.look("stack_classes", job=turn.request.job)
    if source.error:
        yield failed(turn, source)
        return
    mark = f"[{source.number}]"
    yield f"Ranks of job {turn.request.job}: {one_line(source.value['text'] or 'no stack was seen', 600)} {mark}."
    unknown = source.value.get("unknown") or {}
    for node, why in list(unknown.items())[:MOST_ROWS]:
        yield f"  {node}: not known, {one_line(why, 160)} {mark}"
