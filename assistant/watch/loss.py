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

from assistant.logs.spikes import LEVEL, MIN_POINTS, NO_GRADIENTS, Spike, find_spike, is_no_number, last_run
from assistant.records import MetricPoint

KEPT_POINTS = 300
"""Steps of each job that are remembered."""
NOT_A_NUMBER_STEPS = 5
"""Logged steps without a number after which nothing comes back. One or two are skipped steps of a loss scaler."""
HEIGHT = 1.35
"""Times its level that a loss must reach where no gradient norm rose with it: new data of another kind lifts it by less."""
SMOOTH = 5
"""Steps whose median is the loss now."""
RAISED, LEAST_RAISED = 0.1, 0.05
"""A loss that is higher than its best by such a share, and a little, is looked at closely."""
RETURNING = 0.5
"""Share of the peak's height below which a loss counts as on its way back."""
NO_NORM = -1.0
"""In place of a norm that was not logged: NaN is one that was."""
SHORT_RUN = 25
"""Logged steps that a loss gets at least to come back in a run that has logged few before it left its level."""
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
    if spike is None or not (spike.no_gradients or _tall(spike)):
        return None
    losses = [point.loss for point in last_run(points) if point.line >= spike.line and point.loss is not None]
    if spike.no_gradients:
        return spike if len(losses) >= limits.persist_steps else None
    if math.isnan(spike.height):
        return spike if len(losses) >= min(NOT_A_NUMBER_STEPS, limits.persist_steps) else None
    logged_before = sum(point.line < spike.line and point.loss is not None for point in last_run(points))
    patience = min(limits.persist_steps, max(SHORT_RUN, logged_before))  # a short run must not end before anybody is told
    if _returning(losses, spike.level):
        patience = limits.persist_steps * MOST_PATIENCE
    return spike if len(losses) >= patience else None


def loss_in_words(spike: Spike) -> str:
    """Say how far a loss is off and since when: `at 9.5 since step 70 (3.74 before)`, `no number since step 62 (5.38 before)`."""
    before = f" ({spike.level:.4g} before)" if math.isfinite(spike.level) else ""
    if spike.no_gradients:
        return f"of weights that have not changed since step {spike.step}, where the gradients became no numbers"
    height = "no number" if math.isnan(spike.height) else f"at {spike.height:.4g}"
    return f"{height} since step {spike.step}{before}"


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
        self._best = math.inf
        self._raised = self._no_gradients = 0

    def add(self, points: Iterable[MetricPoint]) -> Spike | None:
        """Take new points and return the spike that has lasted long enough, None while all is well or may still be."""
        for point in points:
            if point.loss is not None:
                self._take(point, math.nan if is_no_number(point) else point.loss)
        if len(self._losses) > KEPT_POINTS + LEVEL:
            for series in (self._steps, self._lines, self._losses, self._norms):
                del series[:-KEPT_POINTS]
        if self._raised > KEPT_POINTS:
            self._best, self._raised = median(self._losses[-LEVEL:]), 0  # that is its level now
        if not (self._raised or self._no_gradients >= NO_GRADIENTS) or len(self._losses) < MIN_POINTS:
            return None
        return lasting_spike(self._points(), self._limits)

    def _take(self, point: MetricPoint, loss: float) -> None:
        self._steps.append(point.step)
        self._lines.append(point.line)
        self._losses.append(loss)
        self._norms.append(point.grad_norm if point.grad_norm is not None else NO_NORM)
        self._no_gradients = self._no_gradients + 1 if math.isnan(self._norms[-1]) else 0
        usual = median(self._losses[-SMOOTH:])
        if math.isfinite(usual) and len(self._losses) >= SMOOTH:
            self._best = min(self._best, usual)
        # as long as it is raised it is looked at closely: that is rare, and far from every raised loss is a spike
        self._raised = self._raised + 1 if not usual <= self._best + RAISED * abs(self._best) + LEAST_RAISED else 0

    def _points(self) -> list[MetricPoint]:
        rows = zip(self._steps, self._losses, self._norms, self._lines, strict=True)
        return [MetricPoint(step, loss, None if norm == NO_NORM else norm, line) for step, loss, norm, line in rows]
