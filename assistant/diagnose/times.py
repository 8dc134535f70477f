"""Read the time stamps that programs, kernels and Slurm print, well enough to tell before from after.

Time zones are rarely printed, so all times are naive and compared with a slack; nothing here is stored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

_MONTHS = {
    name: number
    for number, name in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)
}
_ISO = re.compile(r"(?<!\d)((?:19|20)\d\d)[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)")
_CTIME = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?: [A-Z]{3,4})? (\d{4})")
_SYSLOG = re.compile(r"^(?:[\w.-]+: )?([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) ")
_GLOG = re.compile(r"(?:^|[ \[])[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)[. ]")
_SHORT = re.compile(r"^\W{0,3}\[(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d)\]")
_AMERICAN = re.compile(r"(?<!\d)(\d\d)/(\d\d)/((?:19|20)\d\d) (\d\d):(\d\d):(\d\d)")


class Span(NamedTuple):
    """From when to when a log tells, naive; None where it has no stamps."""

    start: datetime | None
    end: datetime | None


def stamp(text: str, year: int | None = None) -> datetime | None:
    """Return the first time in a line; a program's build date further to the right does not count.

    Args:
        text: The line.
        year: Year for stamps of syslog, glog and `[MM/DD hh:mm:ss]`, which have none; they count as no time when it is None.
    """
    forms = _FORMS if year is not None else _FULL_FORMS
    found = [(match.start(), made, match) for pattern, made in forms if (match := pattern.search(text))]
    if not found:
        return None
    _, made, match = min(found, key=lambda item: item[0])
    return made(match, year or 0)


def _iso(match: re.Match[str], _: int) -> datetime | None:
    return _made(*(int(group) for group in match.groups()))


def _ctime(match: re.Match[str], _: int) -> datetime | None:
    month, day, hour, minute, second, year = match.groups()
    return _made(int(year), _MONTHS.get(month, 0), int(day), int(hour), int(minute), int(second))


def _american(match: re.Match[str], _: int) -> datetime | None:
    month, day, year, hour, minute, second = (int(group) for group in match.groups())
    return _made(year, month, day, hour, minute, second)


def _glog(match: re.Match[str], year: int) -> datetime | None:
    month, day, hour, minute, second = (int(group) for group in match.groups())
    return _made(year, month, day, hour, minute, second)


def _syslog(match: re.Match[str], year: int) -> datetime | None:
    month, day, hour, minute, second = match.groups()
    return _made(year, _MONTHS.get(month, 0), int(day), int(hour), int(minute), int(second))


_FULL_FORMS = ((_ISO, _iso), (_CTIME, _ctime), (_AMERICAN, _american))
_FORMS = (*_FULL_FORMS, (_GLOG, _glog), (_SHORT, _glog), (_SYSLOG, _syslog))


def span(texts: Sequence[str], edge: int = 400) -> Span:
    """Return the first and the last time of a log, looking at this many lines at either end."""
    head, tail = texts[:edge], texts[-edge:]
    full = next((found for text in (*reversed(tail), *head) if (found := stamp(text))), None)
    year = full.year if full is not None else None
    start = next((found for text in head if (found := stamp(text, year))), None)
    end = next((found for text in reversed(tail) if (found := stamp(text, year))), None)
    return Span(start, end)


def _made(year: int, month: int, day: int, hour: int, minute: int, second: int) -> datetime | None:
    try:
        return datetime(year, month, day, hour, minute, second)  # naive on purpose: logs hardly ever name the zone
    except ValueError:
        return None
