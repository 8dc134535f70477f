"""Notice a loss that ran away and stays away, while the job still runs.

Most spikes come back by themselves, so a raised loss is waited out; a loss on its way back gets more time, one that is no number
any more gets hardly any. Each step costs next to nothing: only a loss that left its level is looked at closely.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from assistant.logs.spikes import LEVEL, MIN_POINTS, Spike, find_spike, last_run
from assistant.records import MetricPoint

KEPT_POINTS = 300
"""Steps of each job that are remembered."""
NOT_A_NUMBER_STEPS = 5
"""Logged steps without a number after which nothing comes back. One or two are skipped steps of a loss scaler."""
HEIGHT = 1.35
"""Times its level that a loss must reach where no gradient norm rose with it: new data of another kind lifts it by less."""
RETURNING = 0.5
"""Share of the peak's height below which a loss counts as on its way back."""
MOST_PATIENCE = 4
"""Times the patience that a loss gets which is on its way back."""


@dataclass(frozen=True, slots=True)
class SpikeLimits:
    """When a loss that left its level counts as run away."""

    persist_steps: int
    """Logged steps that it must stay away: most spikes come back by themselves (BLOOM: within 200 steps)."""


def lasting_spike(points: Sequence[MetricPoint], limits: SpikeLimits) -> Spike | None:
    """Return the spike that has lasted long enough, None while the loss is at its level or may still come back.

    Args:
        points: Of one attempt, in order of step.
        limits: The site's limits.
    """
    spike = find_spike(points)
    if spike is None or not _tall(spike):
        return None
    losses = [point.loss for point in last_run(points) if point.step >= spike.step and point.loss is not None]
    if math.isnan(spike.height):
        return spike if len(losses) >= min(NOT_A_NUMBER_STEPS, limits.persist_steps) else None
    patience = limits.persist_steps * (MOST_PATIENCE if _returning(losses, spike.level) else 1)
    return spike if len(losses) >= patience else None


def _tall(spike: Spike) -> bool:
    """Tell whether it is more than what other data or another schedule does to a loss."""
    if math.isnan(spike.height) or spike.grad_norm_rose:
        return True
    return spike.height > HEIGHT * spike.level if spike.level > 0 else spike.height > spike.level + abs(spike.level)


def _returning(losses: Sequence[float], level: float) -> bool:
    """Tell whether a raised loss falls: its last third lies far under its peak, and under the third before."""
    finite = [loss for loss in losses if math.isfinite(loss)]
    third = len(finite) // 3
    if third < 2:
        return False
    before, last = median(finite[-2 * third : -third]), median(finite[-third:])
    peak = max(median(finite[at : at + 3]) for at in range(max(1, len(finite) - 2)))
    return last < before and last - level < RETURNING * (peak - level)


class LossTrack:
    """The loss of one attempt, remembered in a few kilobytes."""

    def __init__(self, limits: SpikeLimits) -> None:
        """Begin with no step."""
        self._limits = limits
        self._steps, self._lines = array("q"), array("q")
        self._losses, self._norms = array("d"), array("d")
        self._level, self._margin, self._fresh = math.nan, math.inf, 0
        self._raised = False

    def add(self, points: Iterable[MetricPoint]) -> Spike | None:
        """Take new points and return the spike that has lasted long enough, None while all is well or may still be."""
        for point in points:
            if point.loss is None:
                continue
            self._steps.append(point.step)
            self._lines.append(point.line)
            self._losses.append(point.loss)
            self._norms.append(point.grad_norm if point.grad_norm is not None else math.nan)
            self._fresh += 1
            self._raised |= not point.loss <= self._level + self._margin
        if len(self._losses) > KEPT_POINTS + LEVEL:
            for kept in (self._steps, self._lines, self._losses, self._norms):
                del kept[:-KEPT_POINTS]
        if len(self._losses) < MIN_POINTS:
            return None
        spike = lasting_spike(self._points(), self._limits) if self._raised else None
        if spike is None and self._calm():
            self._raised = False
            if self._fresh >= LEVEL // 2 or math.isnan(self._level):
                self._learn()
        return spike

    def _calm(self) -> bool:
        last = self._losses[-3:]
        return all(loss <= self._level + self._margin for loss in last) or math.isnan(self._level)

    def _learn(self) -> None:
        recent = [loss for loss in self._losses[-LEVEL:] if math.isfinite(loss)]
        self._fresh = 0
        if len(recent) >= MIN_POINTS:
            self._level = median(recent)
            noise = 1.4826 * median(abs(loss - self._level) for loss in recent)
            self._margin = max(4 * noise, 0.05 * abs(self._level), 0.03)

    def _points(self) -> list[MetricPoint]:
        rows = zip(self._steps, self._losses, self._norms, self._lines, strict=True)
        return [MetricPoint(step, loss, None if math.isnan(norm) else norm, line) for step, loss, norm, line in rows]
