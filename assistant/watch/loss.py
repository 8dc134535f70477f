"""Notice a loss that ran away and stays away, while the job still runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assistant.logs.spikes import Spike, find_spike, last_run
from assistant.records import MetricPoint


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
    if spike is None:
        return None
    away = sum(1 for point in last_run(points) if point.step >= spike.step and point.loss is not None)
    return spike if away >= limits.persist_steps else None
