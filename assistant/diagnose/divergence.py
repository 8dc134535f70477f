"""The loss spike of a case: measured in its metrics, or seen by a watch while the job still ran."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from statistics import median

from assistant.diagnose.facts import Facts
from assistant.diagnose.loss_series import spike_in_series
from assistant.logs.spikes import MIN_POINTS, Spike, find_spike
from assistant.records import EventKind, MetricPoint

SHOWN = 3
"""Steps after the onset that are cited."""
FEWEST_LOST = 4
"""Lines with a loss that is no number, where none is one."""
MOST_OF_LINE = 2000
FIRST_STEPS = 3
"""Losses whose median is one level."""
FEWEST_STEPS = 8
RISEN = 1.2
"""Times the first loss that the last one is where it rose, and did not only stay."""
BEGIN = 10
"""Step up to which a log shows the begin of a run."""
_ANY_LOSS = re.compile(
    r"[lL]oss\w{0,20}['\"]?\s{0,30}[:=]\s{0,8}['\"]?([-+]?(?:\d{1,15}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|nan|inf(?:inity)?))\b",
    re.IGNORECASE,
)


def spike_of(facts: Facts) -> Spike | None:
    """Return the spike of the last leg, None when the loss is where it was.

    A watch may have seen one whose loss has wandered since; its onset then counts, and the earlier of both where both have one: a
    checkpoint from inside a spike must not be taken for healthy.
    """
    points = [point for point in facts.points if facts.metric_file != "job.log" or point.line >= facts.progress.leg]
    measured, seen = find_spike(points), _seen_by_watch(facts, points)
    if measured is None or seen is None:
        return measured or seen or _never_a_number(facts) or _of_unknown_form(facts, points)
    return (
        measured if measured.step <= seen.step else dataclasses.replace(measured, step=seen.step, line=seen.line, lines=seen.lines)
    )


def _of_unknown_form(facts: Facts, points: Sequence[MetricPoint]) -> Spike | None:
    """Return the spike of a loss that no known format reads; None where one that is known shows how training went."""
    known = sum(point.loss is not None for point in points)
    return spike_in_series(facts, max(facts.progress.leg, 1)) if known < MIN_POINTS else None


def _never_a_number(facts: Facts) -> Spike | None:
    """Return a spike where every loss that the last leg shows, of whatever data, is NaN or infinite; None where one is a number.

    Some programs log no loss of the steps, only of evaluations; an average of no losses is 0.
    """
    lost: list[int] = []
    for line in facts.lines:
        if line.number < facts.progress.leg or "oss" not in line.text:
            continue
        values = [float(value) for value in _ANY_LOSS.findall(line.text[:MOST_OF_LINE])]
        if any(math.isfinite(value) and value for value in values):
            return None
        lost += [line.number] if any(not math.isfinite(value) for value in values) else []
    if len(lost) < FEWEST_LOST:
        return None
    lines = tuple(lost[:SHOWN])
    return Spike(step=0, line=lost[0], lines=lines, level=math.nan, height=math.nan, grad_norm_rose=False)


def never_learned(facts: Facts, spike: Spike) -> tuple[float, float] | None:
    """Return the loss of the first steps and the lowest later on, where a run that began anew never came below its begin.

    A run whose loss rose from its first steps on was not thrown off by data.
    """
    points = [point for point in facts.points if facts.metric_file != "job.log" or point.line >= facts.progress.leg]
    losses = [point.loss for point in points if point.loss is not None and math.isfinite(point.loss) and point.line < spike.line]
    begun_anew = bool(points) and points[0].step <= BEGIN and not facts.progress.leg
    if not begun_anew or len(losses) < FEWEST_STEPS:
        return None
    first = median(losses[:FIRST_STEPS])
    lowest = min(median(losses[at : at + FIRST_STEPS]) for at in range(FIRST_STEPS, len(losses) - FIRST_STEPS + 1))
    return (first, lowest) if lowest > first and median(losses[-FIRST_STEPS:]) > RISEN * first else None


def _seen_by_watch(facts: Facts, points: Sequence[MetricPoint]) -> Spike | None:
    event = facts.case.event
    step = event.detail.get("step") if event is not None and event.kind is EventKind.LOSS_SPIKE else None
    after = [point for point in points if isinstance(step, int) and point.step >= step]
    if event is None or not isinstance(step, int) or not after:
        return None
    level = event.detail.get("level")
    height = after[-1].loss if after[-1].loss is not None else math.nan
    return Spike(
        step=step,
        line=after[0].line,
        lines=tuple(point.line for point in after[:SHOWN]),
        level=float(level) if isinstance(level, int | float) else math.nan,
        height=height,
        grad_norm_rose=False,
    )
