"""Tell a loss spike from noise: the loss leaves its level and does not come back before the log ends.

The level is the median of the steps before; noise is the median absolute deviation from a running median. A jump that comes back
is no spike (BLOOM and PaLM report many). A slow drift has no sharp edge, so what counts is not the jump but that the end of the
log lies well above the best level reached and stayed there; a gradient norm that rises along makes it surer. NaN at the end is
the plainest spike. Gradients that are no numbers, step after step, teach nothing any more, though a loss of old weights stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from assistant.records import MetricPoint

MIN_POINTS = 12
"""Fewer steps give no level to leave."""
FEWEST_BAD, FEWEST_FROM_START = 2, 4
"""Steps without a number at the end that count: after steps with one, and where there never was one."""
NO_GRADIENTS = 20
"""Steps in a row whose gradient norm is NaN: a loss scaler skips fewer on its way down to a scale that fits."""
LEARNING = 0.97
"""Share of its level that a loss must come below to show that it is learning, whatever its norms say."""
SUSTAINED, FEWEST_RETURNS = 6, 2
"""Steps above its level that are no single jump, and times of such steps from which a loss came back that make it its way."""
RISEN = 1.5
"""Times its level that a loss stands at before it is no number, where it was a rise that led there."""
LEVEL = 40
"""Steps whose median is the level before."""


class Rise(NamedTuple):
    """How a loss grew before it was no number any more."""

    step: int
    loss: float
    line: int
    """Of the first point above the level."""
    last_step: int
    last_loss: float
    last_line: int
    """Of the last point with a number."""
    lost_step: int
    lost_line: int
    """Of the first point without one."""


@dataclass(frozen=True, slots=True)
class Spike:
    """A spike that did not recover."""

    step: int
    line: int
    """Line of the first point above the level."""
    lines: tuple[int, ...]
    """What to show of it: the edge, the first point above 1.5 times the level, the middle of the rise."""
    level: float
    """Loss before it; NaN where it never was a number."""
    height: float
    """Loss at the end; NaN when it became NaN."""
    grad_norm_rose: bool
    counted: bool = False
    """Whether the step was only counted, so that no checkpoint is before or behind it."""
    no_gradients: bool = False
    """Whether it is not the loss that went off, but every gradient norm from here on that is NaN."""
    rise: Rise | None = None
    """Of a loss that grew step by step before it was lost; None where it was lost at once."""

    @property
    def weight(self) -> float:
        """How sure the spike is, 0..1."""
        if self.no_gradients:
            return 0.85
        if math.isnan(self.height) or self.height > 1.5 * self.level:
            return 0.93
        return 0.85 if self.grad_norm_rose else 0.75


def find_spike(points: Sequence[MetricPoint]) -> Spike | None:
    """Return the spike that lasts to the end of the points, None when there is none."""
    points = [point for point in points if point.loss is not None]
    if (not_a_number := _not_a_number(points)) is not None or len(points) < MIN_POINTS:
        return not_a_number
    run = _on_the_last_data(last_run(points))
    return _without_gradients(run) or _above_level(run)


def last_run(points: Sequence[MetricPoint]) -> Sequence[MetricPoint]:
    """Return the points since the steps last went back: a requeued job begins anew in the same log, high up as every run.

    Ranks that write side by side are a step or so apart, which is no going back.
    """
    begin = 0
    for at in range(1, len(points)):
        if at - begin >= 3 and points[at].step < min(point.step for point in points[at - 3 : at]):
            begin = at
    return points[begin:]


def _on_the_last_data(points: Sequence[MetricPoint]) -> Sequence[MetricPoint]:
    """Return the steps on the data that a run came to last, by its own lines, where it learns from them: their loss is another one.

    Data that it was trained on before, as where tasks take turns, begins nothing anew; neither does a loss that rises on new data.
    """
    data = points[-1].data if points else ""
    begin = next((at for at, point in enumerate(points) if point.data == data), 0)
    if not data or not begin or not points[begin - 1].data or any(point.data != data for point in points[begin:]):
        return points
    losses = [point.loss for point in points[begin:] if point.loss is not None and math.isfinite(point.loss)]
    third = len(losses) // 3
    rises = len(losses) < len(points) - begin or (third and median(losses[-third:]) > median(losses[:third]))
    return points if rises else points[begin:]


def _not_a_number(points: Sequence[MetricPoint]) -> Spike | None:
    bad: list[bool] = []
    for point in points:
        # the last line may be cut off behind its loss
        bad.append(is_no_number(point) or (point.loss == 0.0 and point.grad_norm is None and bool(bad) and bad[-1]))
    start = len(bad)
    while start > 0 and bad[start - 1]:
        start -= 1
    finite = [point.loss for point in points[:start] if point.loss is not None and math.isfinite(point.loss)]
    fewest = FEWEST_BAD if finite else FEWEST_FROM_START
    if len(bad) - start < fewest:
        return None
    spike = _spike(points, start, median(finite[-LEVEL:]) if finite else math.nan, math.nan)
    return _with_rise(spike, points, start)


def _with_rise(spike: Spike, points: Sequence[MetricPoint], start: int) -> Spike:
    """Return a loss that is no number any more with its onset where it began to grow: what was saved since holds the beginning."""
    before = [point for point in points[:start] if point.loss is not None and math.isfinite(point.loss)]
    risen = _above_level(last_run(before)) if before else None
    if risen is None or risen.level <= 0 or risen.height <= RISEN * risen.level:
        return spike
    last, first = before[-1], next(point for point in before if point.line == risen.line)
    rise = Rise(first.step, first.loss or 0.0, first.line, last.step, last.loss or 0.0, last.line, spike.step, spike.line)
    lines = tuple(dict.fromkeys((first.line, last.line, spike.line)))
    return replace(spike, step=first.step, line=first.line, lines=lines, level=risen.level, counted=first.counted, rise=rise)


def is_no_number(point: MetricPoint) -> bool:
    """Tell whether a step shows that the numbers are lost; a loss of exactly 0 beside a gradient that is NaN is no loss."""
    if point.loss is None or not math.isfinite(point.loss):
        return True
    return point.loss == 0.0 and point.grad_norm is not None and math.isnan(point.grad_norm)


def _without_gradients(points: Sequence[MetricPoint]) -> Spike | None:
    """Return from where on every gradient norm is NaN behind norms that were numbers, where the loss falls no further."""
    start = len(points)
    while start > 0 and math.isnan(points[start - 1].grad_norm or 0.0):
        start -= 1
    losses = [point.loss for point in points if point.loss is not None and math.isfinite(point.loss)]
    if len(points) - start < NO_GRADIENTS or len(losses) < len(points) or len(_norms(points[:start])) < MIN_POINTS:
        return None
    level, now = median(losses[max(0, start - 5) : start]), median(losses[-5:])
    if now < level - (1 - LEARNING) * abs(level):
        return None
    return replace(_spike(points, start, level, now), no_gradients=True)


def _above_level(points: Sequence[MetricPoint]) -> Spike | None:
    if len(points) < MIN_POINTS:
        return None
    losses = [point.loss if point.loss is not None and math.isfinite(point.loss) else math.nan for point in points]
    losses = [value if not math.isnan(value) else 1e9 for value in losses]
    smooth = [median(losses[max(0, at - 2) : at + 3]) for at in range(len(losses))]
    noise = 1.4826 * median(abs(value - level) for value, level in zip(losses, smooth, strict=True)) or 1e-6
    best_at = min(range(len(smooth) - 2), key=lambda at: (smooth[at], -at))  # of a flat loss the last
    if best_at < 5:
        return None
    level = median(losses[max(0, best_at - LEVEL) : best_at + 1])
    margin = max(6 * noise, 0.12 * abs(level), 0.08)
    tail = losses[-3:] if len(losses) < 60 else losses[-6:]
    if median(tail) < level + margin or min(tail) < level + margin / 2:
        return None
    if _comes_and_goes(smooth, level, margin, median(tail)):
        return None
    start = len(losses)
    while start > best_at and smooth[start - 1] > level + max(3 * noise, margin / 2.5):
        start -= 1
    start = _edge(losses, start, level, margin)
    if len(losses) - start < 3:
        return None
    return _spike(points, start, level, median(tail))


def _comes_and_goes(smooth: Sequence[float], level: float, margin: float, height: float) -> bool:
    """Tell whether the loss has been as high as now before, for long and more than once, and came back each time by itself.

    The loss of a game of two networks does so, and one whose task changes; what it begins with is no such time.
    """
    came_back, high, low = 0, 0, False
    peak = -math.inf
    for value in smooth:
        if value > level + margin:
            high, peak = high + low, max(peak, value)
        elif value <= level + margin / 2:
            came_back += high >= SUSTAINED and peak >= height
            high, low, peak = 0, True, -math.inf
    return came_back >= FEWEST_RETURNS


def _edge(losses: Sequence[float], start: int, level: float, margin: float) -> int:
    """Move the start to the first point that is really out of the level: smoothing blurs an edge by two steps."""
    for at in range(max(0, start - 2), min(len(losses), start + 3)):
        if losses[at] > level + margin / 2.5:
            return at
    return min(start, len(losses) - 1)


def _spike(points: Sequence[MetricPoint], start: int, level: float, height: float) -> Spike:
    before, after = _norms(points[max(0, start - LEVEL) : start]), _norms(points[start : start + LEVEL])
    rose = bool(before and after and median(after) > 2 * median(before))
    lines = tuple(dict.fromkeys(points[at].line for at in _telling(points, start, level, height)))
    return Spike(points[start].step, points[start].line, lines, level, height, rose, points[start].counted)


def _norms(points: Sequence[MetricPoint]) -> list[float]:
    return [point.grad_norm for point in points if point.grad_norm is not None and math.isfinite(point.grad_norm)]


def _telling(points: Sequence[MetricPoint], start: int, level: float, height: float) -> list[int]:
    """Return the places of the points that show the spike best, see `Spike.lines`."""
    marks = [1.5 * level, (level + height) / 2] if math.isfinite(height) else []
    places = [start]
    for mark in marks:
        places += [at for at in range(start, len(points)) if (points[at].loss or 0.0) > mark][:1]
    return [*places, *range(start + 1, min(start + 3, len(points)))][:3]
