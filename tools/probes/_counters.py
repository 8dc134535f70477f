"""Judge a counter that only ever grows: by what it grew in an hour since an earlier check, at the first check by its total."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from assistant.counting import Growth
from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight


@dataclass(frozen=True, slots=True)
class Ceiling:
    """From which value on something is wrong; 0 means anything at all, None nothing."""

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
    """As people are told of it; what is found of several devices alike becomes one finding."""
    name: str
    """As it is kept between checks: no other counter of the node has it, and the same device keeps it."""
    count: int
    words: str
    """What it counts, `#` where the number stands: `# symbol errors`."""
    total: Ceiling
    """Holds as long as there is nothing to compare with."""
    hourly: Ceiling
    remedy: str
    unit: str = "errors"
    until: str = "since boot"
    """Of the total: since when."""
    averaged: bool = False
    """Whether the first reading is judged by its average since boot, and by the limits for an hour."""


Counters = Callable[[Reply, Circumstances], Iterable[Counter]]


def counts(counters: Counters) -> Callable[[Reply, Circumstances], Mapping[str, int]]:
    """Return the function that a probe's `counts` is, of the one that reads its counters."""
    return lambda reply, circumstances: {one.name: one.count for one in counters(reply, circumstances)}


def judged(counter: Counter, circumstances: Circumstances) -> Finding | None:
    """Return what is wrong with a counter; None when nothing is."""
    past = circumstances.past
    growth, said = past.growth(counter.name, counter.count), ""
    since = f"since {growth.since:%Y-%m-%dT%H:%M:%SZ}" if growth else counter.until
    if growth is None:
        said = f" (no rate between checks: {past.no_growth(counter.name)})"
        growth = _since_boot(counter, circumstances) if counter.averaged else None
    value = growth.per_hour if growth else counter.count
    status, limit = (counter.hourly if growth else counter.total).judge(value)
    if status is Health.OK:
        return None
    if growth is None:
        text = f"{counter.words.replace('#', str(counter.count))} {since}{said}"
        return Finding(status, f"{{}}: {text}", counter.count, limit, counter.unit, counter.remedy, Weight.COUNTS)
    rate = round(growth.per_hour, 1 if growth.per_hour >= 1 else 3)
    shown = f"{growth.per_hour:.0f}" if rate >= 10 else f"{rate:g}"
    text = f"{counter.words.replace('#', shown)} an hour {since}, {counter.count} in all{said}"
    return Finding(status, f"{{}}: {text}", rate, limit, f"{counter.unit}/h", counter.remedy, Weight.COUNTS)


def _since_boot(counter: Counter, circumstances: Circumstances) -> Growth:
    now, window = circumstances.now, circumstances.past.window
    since = circumstances.booted or now - window
    return Growth(counter.count, since, max(now - since, window) / timedelta(hours=1))
