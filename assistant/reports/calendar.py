"""Days, weeks and hours of a site's own clock, also where that is set forward and back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from assistant.reports.statistics import Values

SLOT_S = 900
"""Every zone is a whole number of quarters of an hour from UTC since 1990."""
MOST_DAYS = 28
MOST_WEEKS = 110
LONGEST_YEARS = 60


class Arrivals(NamedTuple):
    """Submissions by weekday (Monday first) and hour."""

    counts: Values
    """Shape (7, 24)."""
    hours: Values
    """How many such hours there were, shape (7, 24)."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """Steps of time between a first and a last moment."""

    step: str
    """`day`, `week` or `month`."""
    edges: Values
    """Seconds since 1970, one more than there are steps."""
    labels: tuple[str, ...]
    zone: str

    def arrivals(self, moments: Values) -> Arrivals:
        """Return how many moments lie in each hour of the week, and how many such hours there were between the first and last."""
        if not len(moments):
            return Arrivals(np.zeros((7, 24)), np.zeros((7, 24)))
        zone = ZoneInfo(self.zone)
        first = int(moments.min() // SLOT_S)
        slot_count = int(moments.max() // SLOT_S) - first + 1
        offsets = _offsets(first, slot_count, zone)
        local = (np.arange(first, first + slot_count) * SLOT_S + offsets) // 3600
        # 1970-01-01 was a Thursday
        place = ((local // 24 + 3) % 7 * 24 + local % 24).astype(np.int64)
        by_slot = np.bincount((moments // SLOT_S).astype(np.int64) - first, minlength=slot_count)
        counts = np.bincount(place, weights=by_slot, minlength=168).astype(np.float64)
        hours = np.bincount(place, minlength=168).astype(np.float64) * (SLOT_S / 3600)
        return Arrivals(counts.reshape(7, 24), hours.reshape(7, 24))


def _offsets(first: int, count: int, zone: ZoneInfo) -> Values:
    """Return how many seconds a zone is ahead of UTC in each slot; asked where it may change, day by day and then slot by slot."""

    def offset(slot: int) -> float:
        shift = datetime.fromtimestamp(slot * SLOT_S, UTC).astimezone(zone).utcoffset()
        return shift.total_seconds() if shift is not None else 0.0

    day = 86400 // SLOT_S
    offsets = np.empty(count)
    before = offset(first)
    for begin in range(0, count, day):
        end = min(begin + day, count)
        after = offset(first + end)
        offsets[begin:end] = before if before == after else [offset(first + slot) for slot in range(begin, end)]
        before = after
    return offsets


def calendar_of(first_s: float, last_s: float, zone: str) -> Calendar:
    """Return days, weeks (from Monday) or months that cover a time, as fits its length."""
    place = ZoneInfo(zone)
    first = datetime.fromtimestamp(first_s, place).date()
    last = datetime.fromtimestamp(last_s, place).date()
    days = (last - first).days + 1
    step = "day" if days <= MOST_DAYS else "week" if days <= 7 * MOST_WEEKS else "month"
    begin = first if step == "day" else first - timedelta(days=first.weekday()) if step == "week" else first.replace(day=1)
    starts = [begin]
    while starts[-1] <= last and len(starts) < 12 * LONGEST_YEARS:
        starts.append(_next(starts[-1], step))
    edges = np.array([datetime(day.year, day.month, day.day, tzinfo=place).timestamp() for day in starts])
    labels = tuple(f"{day:%Y-%m}" if step == "month" else f"{day:%Y-%m-%d}" for day in starts[:-1])
    return Calendar(step, edges, labels, zone)


def _next(day: date, step: str) -> date:
    if step == "month":
        return (day.replace(day=1) + timedelta(days=32)).replace(day=1)
    return day + timedelta(days=1 if step == "day" else 7)
