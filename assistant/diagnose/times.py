"""Read the time stamps that programs, kernels and Slurm print, well enough to tell before from after.

Time zones are rarely printed, so all times are naive and compared with a slack; nothing here is stored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

_MONTHS = {name: number for number, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_ISO = re.compile(r"(?<!\d)((?:19|20)\d\d)[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)")
_CTIME = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?: [A-Z]{3,4})? (\d{4})")
_SYSLOG = re.compile(r"^(?:[\w.-]+: )?([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) ")
_AMERICAN = re.compile(r"(?<!\d)(\d\d)/(\d\d)/((?:19|20)\d\d) (\d\d):(\d\d):(\d\d)")


class Span(NamedTuple):
    """From when to when a log tells, naive; None where it has no stamps."""

    start: datetime | None
    end: datetime | None


def stamp(text: str, year: int | None = None) -> datetime | None:
    """Return the first time in a line.

    Args:
        text: The line.
        year: Year for syslog stamps, which have none; they count as no time when it is None.
    """
    if match := _ISO.search(text):
        return _made(*(int(group) for group in match.groups()))
    if match := _CTIME.search(text):
        month, day, hour, minute, second, found_year = match.groups()
        return _made(int(found_year), _MONTHS.get(month, 0), int(day), int(hour), int(minute), int(second))
    if match := _AMERICAN.search(text):
        month, day, found_year, hour, minute, second = match.groups()
        return _made(int(found_year), int(month), int(day), int(hour), int(minute), int(second))
    if year is not None and (match := _SYSLOG.match(text)):
        month, day, hour, minute, second = match.groups()
        return _made(year, _MONTHS.get(month, 0), int(day), int(hour), int(minute), int(second))
    return None


def span(texts: Sequence[str], edge: int = 400) -> Span:
    """Return the first and the last time of a log, looking at this many lines at either end."""
    start = next((found for text in texts[:edge] if (found := stamp(text))), None)
    end = next((found for text in reversed(texts[-edge:]) if (found := stamp(text))), None)
    return Span(start, end)


def _made(year: int, month: int, day: int, hour: int, minute: int, second: int) -> datetime | None:
    try:
        return datetime(year, month, day, hour, minute, second)  # naive on purpose: logs hardly ever name the zone
    except ValueError:
        return None
