"""Counters that only ever grow: judge them by their growth in an hour since an earlier check, and keep them between checks.

Keeping them cannot make a check fail: what cannot be read or written means only that there is no rate, and that is said.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from assistant.counting import Growth, Kept, Reading, after, past
from assistant.errors import StoreError
from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight
from assistant.tooling import Context

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Limits of a counter: 0 makes any count wrong, None makes none wrong."""

    warning: float | None = None
    critical: float | None = None

    def judge(self, value: float) -> tuple[Health, float | None]:
        """Return how a value is, and the limit it reached."""
        for status, limit in ((Health.CRITICAL, self.critical), (Health.WARNING, self.warning)):
            if limit is not None and value > 0 and value >= limit:
                return status, limit
        return Health.OK, None


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter of one device."""

    device: str
    """Name for people; the same finding of several devices is merged into one."""
    name: str
    """Name under which the count is stored between checks: unique on the node, and the same for the life of the device."""
    count: int
    words: str
    """What it counts, `#` where the number stands: `# symbol errors`."""
    total: Ceiling
    """Limits of the count itself, where no earlier check has it."""
    hourly: Ceiling
    remedy: str
    unit: str = "errors"
    until: str = "since boot"
    """Since when the total counts, for people."""
    averaged: bool = False
    """Whether the first reading is judged by its average since boot, and by the limits for an hour."""


Counters = Callable[[Reply, Circumstances], Iterable[Counter]]


def counts_by(counters: Counters) -> Callable[[Reply, Circumstances], Mapping[str, int]]:
    """Return the `counts` of a probe, made of the function that reads its counters."""
    return lambda reply, circumstances: {counter.name: counter.count for counter in counters(reply, circumstances)}


def judge_counters(counters: Iterable[Counter], circumstances: Circumstances) -> list[tuple[str, Finding]]:
    """Return a finding for each counter beyond its limits, with its device."""
    judged = ((counter.device, _judge_counter(counter, circumstances)) for counter in counters)
    return [(device, finding) for device, finding in judged if finding is not None]


def _judge_counter(counter: Counter, circumstances: Circumstances) -> Finding | None:
    """Return the finding of a counter beyond its limits; None of one within them."""
    past = circumstances.past
    growth, no_rate = past.growth(counter.name, counter.count), ""
    since = f"since {growth.since:%Y-%m-%dT%H:%M:%SZ}" if growth else counter.until
    if growth is None:
        no_rate = f" (no rate between checks: {past.no_growth(counter.name)})"
        growth = _since_boot(counter, circumstances) if counter.averaged else None
    value = growth.per_hour if growth else counter.count
    status, limit = (counter.hourly if growth else counter.total).judge(value)
    if status is Health.OK:
        return None
    if growth is None:
        text = f"{counter.words.replace('#', str(counter.count))} {since}{no_rate}"
        return Finding(status, f"{{}}: {text}", counter.count, limit, counter.unit, counter.remedy, Weight.COUNTS)
    rate = round(growth.per_hour, 1 if growth.per_hour >= 1 else 3)
    rate_text = f"{growth.per_hour:.0f}" if rate >= 10 else f"{rate:g}"
    text = f"{counter.words.replace('#', rate_text)} an hour {since}, {counter.count} in all{no_rate}"
    return Finding(status, f"{{}}: {text}", rate, limit, f"{counter.unit}/h", counter.remedy, Weight.COUNTS)


def _since_boot(counter: Counter, circumstances: Circumstances) -> Growth:
    now, window = circumstances.now, circumstances.past.window
    since = circumstances.booted or now - window
    return Growth(counter.count, since, max(now - since, window) / timedelta(hours=1))


@dataclass(slots=True)
class _CurrentCounts:
    """The counters of a node now."""

    at: datetime
    booted: datetime | None
    window: timedelta
    counts: dict[str, int] = field(default_factory=dict)


class NodeCounters:
    """The counters of nodes during a check: those of earlier checks, and those that are read now."""

    def __init__(self, context: Context, nodes: Sequence[str]) -> None:
        """Look up the counters that earlier checks of the nodes have kept."""
        self._readings = context.readings
        self._now: dict[str, _CurrentCounts] = {}
        self._earlier: dict[str, Kept] = {}
        self._why = "nothing is kept between checks here"
        if self._readings is not None and nodes:
            try:
                self._earlier = dict(self._readings.kept_readings(nodes))
                self._why = "first reading"
            except StoreError as error:
                self._why = f"earlier readings cannot be read: {error}"

    def with_past(self, node: str, circumstances: Circumstances) -> Circumstances:
        """Return the circumstances of a node with its counters at earlier checks."""
        window = timedelta(hours=circumstances.limits.node.counters_window_h)
        self._now[node] = _CurrentCounts(circumstances.now, circumstances.booted, window)
        earlier = self._earlier.get(node, Kept(why=self._why))
        return replace(circumstances, past=past(earlier, circumstances.now, circumstances.booted, window))

    def counts_of(self, node: str) -> dict[str, int]:
        """Return the counters of a node, to be filled in."""
        return self._now[node].counts

    def keep(self) -> None:
        """Store the counters that were read; a store that fails is only logged."""
        if self._readings is None:
            return
        new = {
            node: after(self._earlier.get(node, Kept()), Reading(now.at, now.booted, now.counts), now.window)
            for node, now in self._now.items()
            if now.counts
        }
        new = {node: readings for node, readings in new.items() if readings != self._earlier.get(node, Kept()).readings}
        try:
            if new:
                self._readings.keep_readings(new)
        except StoreError as error:
            logger.warning("counters were not kept, so the next check has no rates: %s", error)
