"""Counters that only ever grow, judged by how fast they grow between two checks, and not by what came together since boot.

Of each node the last readings are kept, two at most. A reading of another boot is no measure, a counter that went back begins
anew, and a growth is spread over at least the smallest window, so that two checks one after the other never make a rate of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

SAME_BOOT_S = 120.0
"""The time of a boot is worked out from uptimes and clocks that drift; no server boots twice so fast."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the counters of one node stood at."""

    at: datetime
    booted: datetime | None
    """None when that could not be told; then nothing can be compared with it."""
    counts: Mapping[str, int]
    """By the name of device and counter: `port mlx5_0/1 symbol_error`."""

    def of_one_boot(self, reading: Reading) -> bool:
        """Whether the node was not booted between the two."""
        if self.booted is None or reading.booted is None:
            return False
        return abs((self.booted - reading.booted).total_seconds()) <= SAME_BOOT_S


@dataclass(frozen=True, slots=True)
class Growth:
    """By how much a counter grew, and since when."""

    count: int
    since: datetime
    hours: float
    """At least the smallest window."""

    @property
    def per_hour(self) -> float:
        """How fast it grew."""
        return self.count / self.hours


@dataclass(frozen=True, slots=True)
class Past:
    """The earlier reading that counters are judged against; without one `why` says why there is none."""

    reading: Reading | None = None
    now: datetime | None = None
    window: timedelta = timedelta(hours=1)
    why: str = "first reading"

    def growth(self, name: str, count: int) -> Growth | None:
        """Return how a counter grew; None when it was not read before, or went back and begins anew."""
        if self.reading is None or self.now is None:
            return None
        before = self.reading.counts.get(name)
        if before is None or count < before:
            return None
        return Growth(count - before, self.reading.at, max(self.now - self.reading.at, self.window) / timedelta(hours=1))

    def no_growth(self, name: str) -> str:
        """Say why there is no growth of a counter."""
        if self.reading is None:
            return self.why
        return "it began anew" if name in self.reading.counts else "first reading of it"

    @property
    def told(self) -> str:
        """Say against what counters are judged, for people."""
        return f"no rate: {self.why}" if self.reading is None else f"since {self.reading.at:%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True, slots=True)
class Kept:
    """What is known of a node's earlier readings."""

    readings: tuple[Reading, ...] = ()
    """Oldest first."""
    why: str = "first reading"
    """Why there is none."""


def past(kept: Kept, now: datetime, booted: datetime | None, window: timedelta) -> Past:
    """Choose the reading to judge against: the newest that is a window old, else the oldest there is."""
    current = Reading(now, booted, {})
    usable = [reading for reading in kept.readings if reading.of_one_boot(current) and reading.at <= now]
    if not usable:
        return Past(window=window, why=_why_none(kept, current))
    old_enough = [reading for reading in usable if now - reading.at >= window]
    return Past(old_enough[-1] if old_enough else usable[0], now, window)


def _why_none(kept: Kept, current: Reading) -> str:
    if not kept.readings:
        return kept.why
    if current.booted is None or all(reading.booted is None for reading in kept.readings):
        return "it is not known when the node was booted"
    if any(reading.of_one_boot(current) for reading in kept.readings):
        return "the clock went back"
    return "the node was booted since the last reading"


def after(kept: Kept, new: Reading, window: timedelta) -> tuple[Reading, ...]:
    """Return what to keep once a new reading was made: no two that are nearer than the window, and what went back from anew."""
    usable = [_anew(reading, new.counts) for reading in kept.readings if reading.of_one_boot(new) and reading.at <= new.at]
    if not usable:
        return (new,)
    if new.at - usable[-1].at < window:
        return tuple(usable)
    # a counter that could not be read this time keeps its last value
    return (usable[-1], replace(new, counts={**usable[-1].counts, **new.counts}))


def _anew(reading: Reading, counts: Mapping[str, int]) -> Reading:
    """Lower what went back to where it stands now, and add what is new."""
    lowered = {name: min(count, reading.counts.get(name, count)) for name, count in counts.items()}
    return replace(reading, counts={**reading.counts, **lowered})


def to_text(readings: Iterable[Reading]) -> str:
    """Return readings as text to keep."""
    return json.dumps(
        [
            {"at": reading.at.isoformat(), "booted": reading.booted and reading.booted.isoformat(), "counts": dict(reading.counts)}
            for reading in readings
        ],
        sort_keys=True,
    )


def from_text(text: str) -> tuple[Reading, ...]:
    """Return the readings of a text.

    Raises:
        ValueError: It is none that `to_text` wrote.
    """
    try:
        listed = json.loads(text)
    except RecursionError as error:
        raise ValueError("no list of readings") from error
    if not isinstance(listed, list):
        raise ValueError("no list of readings")
    return tuple(_reading(entry) for entry in listed)


def _reading(entry: Any) -> Reading:
    try:
        at, booted, counts = _time(entry["at"]), entry["booted"] and _time(entry["booted"]), entry["counts"]
        return Reading(at, booted or None, {str(name): int(count) for name, count in counts.items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no reading: {error}") from error


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time without its zone: {text}")
    return moment


__all__ = ["Growth", "Kept", "Past", "Reading", "after", "from_text", "past", "to_text"]
