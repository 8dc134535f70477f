"""Ranges of time that a question names, by the clock of the state: since midnight, before 1 am, between A and B, at 02:00, tonight.

A time of the clock is the newest such time that is not in the future; the night begins at 18:00 of the evening before.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple

EVENING_H, MORNING_H = 18, 12
"""Hours at which a night begins, and until which it is still said to be tonight."""
BEFORE_POINT, BEHIND_POINT = timedelta(minutes=10), timedelta(minutes=20)
"""What counts as `at 02:00`."""
_UNITS = (
    r"(?!\s*(?:jobs?|runs?|nodes?|gpus?|steps?|hours?|hrs?|minutes?|mins?|days?|weeks?|failures?|incidents?|times|of|more|other)\b)"
)
_TIME = (
    r"(?:the )?(?P<{0}>midnight|noon|(?P<{0}h>\d{{1,2}})(?::(?P<{0}m>\d\d))?\s*(?P<{0}x>am|pm|a\.m\.?|p\.m\.?)?"
    r"(?:\s*(?:h|uhr|o'?clock|hours|utc))?)"
    r"(?![\w:])" + _UNITS
)
_BETWEEN = re.compile(rf"\b(?:between|from)\s+{_TIME.format('a')}\s+(?:and|to|till|until|-)\s+{_TIME.format('b')}")
_SINCE = re.compile(rf"\b(?:since|after|from)\s+{_TIME.format('a')}")
_BEFORE = re.compile(rf"\b(?:before|until|till|up to|by)\s+{_TIME.format('b')}")
_AT = re.compile(rf"\b(?:at|around|about|near|towards)\s+(?:about |around )?{_TIME.format('a')}")
_NIGHT = re.compile(r"\b(?:tonight|over ?night|(?:last|this|the|over|during the) night)(?:'s)?\b")
_YESTERDAY = re.compile(r"\byesterday(?:'s)?(?: (?P<part>morning|afternoon|evening|night))?\b")
_PARTS = {"morning": (6, 12), "afternoon": (12, 18), "evening": (18, 24), "night": (18, 24)}
_PLAIN_TIME = r"(?:midnight|noon|\d{1,2}(?::\d\d)?(?:\s*(?:am|pm))?(?:\s*(?:h|uhr|o'?clock|utc))?)(?![\w:])"
TIME_PHRASE = re.compile(
    rf"\b(?:between|from) {_PLAIN_TIME} (?:and|to|till|until) {_PLAIN_TIME}"
    rf"|\b(?:since|after|before|until|till|by|at|around|about) (?:about |around )?{_PLAIN_TIME}"
    r"|\b(?:today|this (?:morning|week|month)|last (?:week|month|hour)|since yesterday)(?:'s)?\b"
    r"|\b(?:tonight|over ?night|(?:last|this|the|over|during the) night)(?:'s)?\b"
    r"|\byesterday(?:'s)?(?: (?:morning|afternoon|evening|night))?\b"
    r"|\b(?:in |over |within |during )?(?:the )?(?:last|past) \d+ (?:minutes?|hours?|days?|weeks?)\b",
    re.IGNORECASE,
)
"""A phrase of time, wherever it stands."""


class TimeWindow(NamedTuple):
    """A range of time in the past."""

    start: datetime
    end: datetime
    text: str
    """As it is told, with the times that it came to."""
    is_open: bool = False
    """Whether it ends now."""
    by_clock: bool = True
    """Whether times of the clock name it; else a night or a part of a day."""

    def holds(self, at: datetime | None) -> bool:
        """Tell whether a time lies in it; the end alone is outside."""
        return at is not None and self.start <= at and (at <= self.end if self.is_open else at < self.end)


def asked_window(words: str, now: datetime) -> TimeWindow | None:
    """Return the range of time that a question names by the clock, or by the night; None where it names none.

    Args:
        words: In English, with its numbers.
        now: Of the state; times are UTC.
    """
    text = words.lower()
    if (match := _BETWEEN.search(text)) is not None:
        half = match["bx"]
        start, end = _clock(match, "a", now, half), _clock(match, "b", now)
        if start is None or end is None:
            return None
        end = end if end > start else end + timedelta(days=1)
        return TimeWindow(start, min(end, now), _range_text(start, end, now))
    since, before = _SINCE.search(text), _BEFORE.search(text)
    start, end = _clock(since, "a", now), _clock(before, "b", now)
    if end is not None:
        evening = (end - timedelta(days=end.hour <= MORNING_H)).replace(hour=EVENING_H if end.hour <= MORNING_H else 0, minute=0)
        start = start if start is not None and start < end else evening
        return TimeWindow(start, end, _range_text(start, end, now))
    if start is not None:
        return TimeWindow(start, now, f"since {start:%Y-%m-%d %H:%M} UTC", is_open=True)
    point = _clock(_AT.search(text), "a", now)
    if point is not None:
        return TimeWindow(point - BEFORE_POINT, point + BEHIND_POINT, f"at {point:%Y-%m-%d %H:%M} UTC")
    return _span(text, now)


def _span(text: str, now: datetime) -> TimeWindow | None:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if (match := _YESTERDAY.search(text)) is not None and match["part"]:
        first, last = _PARTS[match["part"]]
        start, end = midnight - timedelta(hours=24 - first), midnight - timedelta(hours=24 - last)
        return TimeWindow(start, end, _range_text(start, end, now), by_clock=False)
    if (night := _NIGHT.search(text)) is None:
        return None
    evening = midnight.replace(hour=EVENING_H)
    if now.hour < MORNING_H or ("last" in night.group() and now < evening):
        evening -= timedelta(days=1)
    if evening > now:
        return None
    if now.hour >= MORNING_H and "last" in night.group():
        morning = midnight.replace(hour=MORNING_H)
        return TimeWindow(evening, morning, _range_text(evening, morning, now), by_clock=False)
    return TimeWindow(evening, now, f"since {evening:%Y-%m-%d %H:%M} UTC", is_open=True, by_clock=False)


def _clock(match: re.Match[str] | None, group: str, now: datetime, half: str | None = None) -> datetime | None:
    """Return the newest time that a match names; None where it names none."""
    if match is None:
        return None
    word = match[group]
    if word in ("midnight", "noon"):
        hour, minute = (0 if word == "midnight" else 12), 0
    else:
        hour, minute, part = int(match[f"{group}h"]), int(match[f"{group}m"] or 0), (match[f"{group}x"] or half or "")[:1]
        hour = hour % 12 + (12 if part == "p" else 0) if part else hour
        hour %= 24
        if minute > 59 or int(match[f"{group}h"]) > 24:
            return None
    at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return at if at <= now else at - timedelta(days=1)


def _range_text(start: datetime, end: datetime, now: datetime) -> str:
    if start.date() == end.date():
        return f"between {start:%H:%M} and {end:%H:%M} UTC on {start:%Y-%m-%d}"
    return f"between {start:%Y-%m-%d %H:%M} and {end:%Y-%m-%d %H:%M} UTC"
