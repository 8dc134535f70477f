"""Compare two attempts of a run whose logs number no step: by epochs, samples or tokens, with their losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.logs.lines import Lines
from assistant.logs.phases import counts_of
from assistant.records import MetricPoint

__all__ = ["Comparison", "compared_by_count"]


class Comparison(NamedTuple):
    """What two attempts count alike."""

    unit: str
    before: Sequence[MetricPoint]
    after: Sequence[MetricPoint]
    """On the scale of the first attempt: what counts anew although it resumed goes on behind that."""
    reached: int
    """How far the first one came."""
    began: int
    """The count behind which the second one began; 0 for the beginning."""


def compared_by_count(before: Lines, after: Lines, *, resumed: bool) -> Comparison | None:
    """Return what two attempts count alike; None where they do not, or one of them counts nothing.

    Args:
        before: Lines of the attempt that ended.
        after: Lines of the one that was started again.
        resumed: Whether that was to go on from a checkpoint. Many programs count anew then: its losses must go on from the last
            ones of the attempt before, for one that began at the start looks the same but for them.
    """
    own, other = counts_of(before), counts_of(after)
    if own is None or other is None or own.unit != other.unit:
        return None
    reached, first = max(point.step for point in own.points), other.points[0].step
    if first > own.points[0].step or not resumed:
        return Comparison(own.unit, own.points, other.points, reached, min(max(first - 1, 0), reached))
    shift = reached + 1 - first
    return Comparison(own.unit, own.points, [replace(one, step=one.step + shift) for one in other.points], reached, reached)
