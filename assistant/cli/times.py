"""Times for people: local zone with an age, and `--since 2h` back to a moment."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from assistant.errors import UsageError

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)")


def now() -> datetime:
    """Return the time of this machine, aware, UTC."""
    return datetime.now(UTC)


def local(at: datetime | None) -> str:
    """Return a moment in the zone of this machine, to the second; `-` for none."""
    return "-" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age(at: datetime | None, now: datetime) -> str:
    """Return how long ago a moment was, in one unit: `3 min ago`; `-` for none."""
    if at is None:
        return "-"
    seconds = (now - at).total_seconds()
    return f"in {span(-seconds)}" if seconds < -1 else f"{span(max(seconds, 0.0))} ago"


def span(seconds: float) -> str:
    """Return a length of time in the largest unit that keeps it above two: `90 s`, `45 min`, `20 h`, `3 d`."""
    for unit, size, end in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < end * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def since(text: str, now: datetime) -> datetime:
    """Return the moment that `2h`, `3d` or `2026-03-01[T12:00]` means.

    Raises:
        UsageError: It is neither a span nor a date.
    """
    match = _SPAN.fullmatch(text.strip())
    try:
        if match:
            return now - timedelta(seconds=float(match[1]) * _UNITS[match[2]])
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since {text!r}: neither a span such as 90s, 30m, 2h, 3d, 1w nor a date such as 2026-03-01T12:00"
        ) from None
    return moment.astimezone(UTC)
