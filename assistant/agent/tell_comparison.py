"""Two jobs side by side in the figure that was asked for: loss, steps, time, nodes; and both together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from assistant.agent.coverage import asked_attributes, last_figure
from assistant.agent.dialogue import QuestionTurn

_STEPS = re.compile(r"\b(?:steps?|iterations?|far|farther|further|progress|ahead)\b")
_TIME = re.compile(r"\b(?:longer|longest|shorter|shortest|long|time|hours?|duration)\b")
_NODES = re.compile(r"\b(?:more nodes|fewer nodes|how many nodes|number of nodes|bigger|larger|size)\b")
_SAME = re.compile(
    r"\b(?:same|common|one) (?:root )?(?:cause|reason|problem|issue|thing|error|failure|fault|bug)\b|\b(?:related|connected)\b"
)
_TOGETHER = re.compile(r"\b(?:together|in total|in sum|altogether|both of them|combined|sum)\b")


def comparison_told(turn: QuestionTurn) -> Iterator[str]:
    """Yield the figures of two jobs that a question names, and which is larger; nothing where it names none."""
    text = turn.request.names.sketch.lower()
    if _SAME.search(text):
        yield from _same_reason(turn)
    for row in asked_attributes(text):
        if row.line is not None:
            yield _comparison(turn, row.name, {job: last_figure(turn, row, job) for job in _jobs(turn)}, text)
    if _STEPS.search(text):
        yield _comparison(turn, "steps", {job: _step(turn, job) for job in _jobs(turn)}, text)
    if _TIME.search(text):
        yield _comparison(turn, "hours", {job: _hours(turn, job) for job in _jobs(turn)}, text)
    if _NODES.search(text):
        yield _comparison(turn, "nodes", {job: _nodes(turn, job) for job in _jobs(turn)}, text)


def _same_reason(turn: QuestionTurn) -> Iterator[str]:
    """Yield whether two jobs failed of the same reason, where both have a diagnosis."""
    why = {job: turn.look("explain_job", job=job) for job in _jobs(turn)}
    marks = "".join(f"[{source.number}]" for source in why.values())
    if any(source.error or source.value["reason"] in ("unknown", "no_failure") for source in why.values()):
        yield f"Not known: not both of them have a known reason {marks}."
        return
    reason_texts = [f"{job} {source.value['reason']}" for job, source in why.items()]
    is_same = len({source.value["reason"] for source in why.values()}) == 1
    yield f"{'Yes' if is_same else 'No'}: {', '.join(reason_texts)} {marks}."


def _jobs(turn: QuestionTurn) -> tuple[str, str]:
    return turn.request.job, turn.request.other_job


def _comparison(turn: QuestionTurn, name: str, figures: dict[str, tuple[float | None, int]], text: str) -> str:
    """Return one sentence about two figures, each with its source."""
    (first, (first_value, mark)), (second, (second_value, other_mark)) = figures.items()
    marks = f"[{mark}]" if mark == other_mark else f"[{mark}][{other_mark}]"
    figure_texts = [
        f"job {job} {'not known' if value is None else _plain(value)}"
        for job, value in ((first, first_value), (second, second_value))
    ]
    label = name.removeprefix("the ")
    head = f"{label[:1].upper()}{label[1:]}: {', '.join(figure_texts)} {marks}"
    if first_value is None or second_value is None:
        return f"{head}; so they cannot be compared in that."
    if _TOGETHER.search(text):
        return f"{_plain(first_value + second_value)} {label} together: {', '.join(figure_texts)} {marks}."
    if first_value == second_value:
        return f"{head}: the same."
    larger = first if first_value > second_value else second
    return f"{head}: job {larger} has more, by {_plain(abs(first_value - second_value))}."


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"


def _step(turn: QuestionTurn, job: str) -> tuple[float | None, int]:
    source = turn.look("job_progress", job=job, timeout_s=0.0)
    step = (source.value or {}).get("step")
    return (float(step) if isinstance(step, int) else None), source.number


def _hours(turn: QuestionTurn, job: str) -> tuple[float | None, int]:
    source = turn.look("show_job", job=job)
    start, ended = (source.value or {}).get("started"), (source.value or {}).get("ended")
    if not start:
        return None, source.number
    end = datetime.fromisoformat(ended) if ended else turn.now
    return (end - datetime.fromisoformat(start)).total_seconds() / 3600, source.number


def _nodes(turn: QuestionTurn, job: str) -> tuple[float | None, int]:
    source = turn.look("show_job", job=job)
    return (float(len(source.value["nodes"])) if source.value else None), source.number
