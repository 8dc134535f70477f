"""How often a job should save, by the formulas of Young and Daly, and what a save costs it.

The cost is read from its manifests, else its metrics.jsonl, else the times in its log.

Sources: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17 (1974). J. T. Daly, A higher order
estimate of the optimum checkpoint interval, FGCS 22 (2006), equation 37.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from assistant.logs.phases import BEGINS, OVER, LogPhase
from assistant.logs.prefix import parse
from assistant.recover.checkpoints.entry import Format
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.shards import saves_of
from assistant.untrusted import finite_number, parse_json, read_end

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


LEAST_S = 1e-4
"""A save that is said to take less was rounded to nothing."""
TAIL_BYTES = 8 << 20
_BEGINS = dict(BEGINS)[LogPhase.CHECKPOINT]
_OVER = OVER[LogPhase.CHECKPOINT]


def save_cost(inventory: Inventory | None, metrics: Path | None, log_lines: Iterable[str]) -> SaveCost | None:
    """Return what a save costs; None when nothing tells.

    Args:
        inventory: The job's checkpoints.
        metrics: Its metrics.jsonl.
        log_lines: Of its log.
    """
    every_s = _every(inventory)
    return _of_manifests(inventory, every_s) or _of_metrics(metrics, every_s) or _of_log(log_lines, every_s)


def _every(inventory: Inventory | None) -> float | None:
    times = sorted(checkpoint.saved_at for checkpoint in inventory.checkpoints) if inventory else []
    gaps = [(after - before).total_seconds() for before, after in pairwise(times)]
    return median(gaps) if gaps and median(gaps) > 0 else None


def _of_manifests(inventory: Inventory | None, every_s: float | None) -> SaveCost | None:
    saves = [saves_of(entry) for entry in inventory.entries if entry.format is Format.NIGHTSHIFT] if inventory else []
    costs_known = [costs for save in saves if (costs := _costs(save)) is not None]
    # a wait for the save before is no cost of saving but of saving too often
    blocked = [max(LEAST_S, costs.blocked_s - costs.wait_s) for costs in costs_known]
    if not blocked:
        return None
    persist_s = median(costs.persist_s for costs in costs_known)
    return SaveCost(median(blocked), persist_s, every_s, f"the median of {len(blocked)} saves, from their manifests")


class _Costs(NamedTuple):
    blocked_s: float
    wait_s: float
    persist_s: float


def _costs(save: Mapping[str, Any]) -> _Costs | None:
    try:
        return _Costs(*(finite_number(save.get(name, 0.0)) for name in _Costs._fields)) if "blocked_s" in save else None
    except ValueError:
        return None


def _of_metrics(metrics: Path | None, every_s: float | None) -> SaveCost | None:
    took = [number for line in _tail(metrics) if (number := _save_s(line)) > 0]
    if not took:
        return None
    return SaveCost(median(took), 0.0, every_s, f"the median of {len(took)} saves, from metrics.jsonl")


def _of_log(log_lines: Iterable[str], every_s: float | None) -> SaveCost | None:
    took, save_began = list[float](), None
    for text in log_lines:
        if "sav" not in text.lower() or not (at := parse(text).at):
            continue
        if _OVER.search(text) is None:
            save_began = at if _BEGINS.search(text) else save_began
        elif save_began is not None:
            took.append(max(LEAST_S, (at - save_began).total_seconds()))
            save_began = None
    return SaveCost(median(took), 0.0, every_s, f"the median of {len(took)} saves, from the times in its log") if took else None


def _tail(path: Path | None) -> Sequence[str]:
    if path is None:
        return ()
    try:
        return read_end(path, TAIL_BYTES).raw.decode("utf-8", "replace").splitlines()
    except OSError:
        return ()


def _save_s(line: str) -> float:
    if '"save_s"' not in line:
        return 0.0
    try:
        return finite_number(parse_json(line)["save_s"])
    except (ValueError, KeyError, TypeError):
        return 0.0
