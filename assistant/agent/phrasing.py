"""How times, counts and sentences are said to people."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_SPANS = (("day", 86_400.0), ("h", 3600.0), ("min", 60.0))


def when(text: str | None, now: datetime) -> str:
    """Return a time as it is read: `2026-03-01 02:00 UTC, 4 h ago`; text that is no time stays as it is."""
    if not text:
        return "at no known time"
    try:
        at = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return text
    return f"{at:%Y-%m-%d %H:%M} UTC, {_distance((now - at).total_seconds())}"


def _distance(seconds: float) -> str:
    size = abs(seconds)
    if size < 60:
        return "just now"
    name, length = next((name, length) for name, length in _SPANS if size >= length)
    count = round(size / length)
    phrase = f"{count} {name}{'s' if name == 'day' and count > 1 else ''}"
    return f"{phrase} ago" if seconds > 0 else f"in {phrase}"


def counted(number: int, name: str) -> str:
    """Return `1 line`, `2 lines`."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def once(text: str) -> str:
    """Return text without sentences that it holds already."""
    return " ".join(dict.fromkeys(_SENTENCE.split(text)))


def without_quote(text: str, quote: str) -> str:
    """Return a summary without the line that is shown below it anyway."""
    place = text.find(quote[:40]) if len(quote) >= 12 else -1
    return f"{text[:place].rstrip(' :')}." if place > 0 else text
