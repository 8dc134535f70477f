"""How often a job should save: Young's and Daly's formulas, and what an interval costs. Pure.

Sources:
    J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17 (1974).
    J. T. Daly, A higher order estimate of the optimum checkpoint interval, FGCS 22 (2006), equation 37.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

MINUTE_S = 60.0
DAY_S = 86_400.0
FEW_FAILURES = 3
"""Fewer of a task tell nothing about the time between them."""


def young(cost_s: float, between_failures_s: float) -> float:
    """Return the seconds between two saves that lose the least time, to the first order.

    Args:
        cost_s: How long a save holds up training; above 0.
        between_failures_s: Mean time between failures; above 0.
    """
    return math.sqrt(2 * cost_s * between_failures_s)


def daly(cost_s: float, between_failures_s: float) -> float:
    """Return the same by Daly's higher-order estimate, which also holds where a save is not cheap against the failures."""
    if cost_s >= 2 * between_failures_s:
        return between_failures_s
    share = math.sqrt(cost_s / (2 * between_failures_s))
    return young(cost_s, between_failures_s) * (1 + share / 3 + share * share / 9) - cost_s


def lost_share(interval_s: float, cost_s: float, between_failures_s: float) -> float:
    """Return the share of the time, 0 to 1, that saves take and failures throw away: half an interval each."""
    return min(1.0, cost_s / interval_s + interval_s / (2 * between_failures_s))


@dataclass(frozen=True, slots=True)
class Failures:
    """What is known of the time between failures."""

    between_s: float
    """Mean, for this job as wide as it is."""
    count: int
    how: str
    """For people: `4 failures of llm-7b since 2026-01-05`."""


def of_task(times: Sequence[datetime], name: str) -> Failures | None:
    """Return the mean time between the failures of one task; None when there are too few.

    Args:
        times: When its runs failed.
        name: The task, for people.
    """
    ordered = sorted(times)
    if len(ordered) < FEW_FAILURES:
        return None
    between_s = (ordered[-1] - ordered[0]).total_seconds() / (len(ordered) - 1)
    return (
        Failures(between_s, len(ordered), f"{len(ordered)} failures of {name} since {ordered[0]:%Y-%m-%d}") if between_s else None
    )


def of_cluster(times: Sequence[datetime], *, now: datetime, nodes: int, cluster_nodes: int) -> Failures | None:
    """Return the time between failures of a job as wide, from those of the whole cluster; None when there are too few.

    Args:
        times: When jobs of the cluster failed.
        now: The time.
        nodes: How many the job has; failures come in proportion.
        cluster_nodes: How many there are.
    """
    ordered = sorted(times)
    if len(ordered) < FEW_FAILURES or now <= ordered[0]:
        return None
    between_s = (now - ordered[0]).total_seconds() / len(ordered) * max(1.0, cluster_nodes / max(1, nodes))
    how = f"{len(ordered)} failures on {cluster_nodes} nodes since {ordered[0]:%Y-%m-%d}, for a job of {nodes}"
    return Failures(between_s, len(ordered), how)


@dataclass(frozen=True, slots=True)
class SaveCost:
    """What a save costs."""

    blocked_s: float
    """Training stands still so long."""
    persist_s: float
    """The next save cannot begin earlier; 0.0 where it is not known."""
    every_s: float | None
    """As often as the job saves now; None where that is not known."""
    how: str
    """For people: `the median of 12 saves, from their manifests`."""


@dataclass(frozen=True, slots=True)
class Advice:
    """How often to save."""

    young_s: float
    daly_s: float
    every_s: float
    """Young's, or as long as a save takes in the background where that is more."""
    cost: SaveCost
    failures: Failures
    gpus: int

    def gpu_hours_a_day(self, interval_s: float) -> float:
        """Return what is lost in a day of running with an interval."""
        return lost_share(interval_s, self.cost.blocked_s, self.failures.between_s) * 24 * self.gpus

    @property
    def gpu_hours_a_minute(self) -> float:
        """What each further minute between two saves loses in a day, by failures that throw away half a minute more."""
        return MINUTE_S / 2 / self.failures.between_s * 24 * self.gpus

    @property
    def gpu_hours_a_save(self) -> float:
        """What each save costs."""
        return self.cost.blocked_s / 3600 * self.gpus


def advise(cost: SaveCost, failures: Failures, gpus: int) -> Advice:
    """Return how often to save."""
    first = young(cost.blocked_s, failures.between_s)
    higher = daly(cost.blocked_s, failures.between_s)
    return Advice(first, higher, max(first, cost.persist_s), cost, failures, gpus)
