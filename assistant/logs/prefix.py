"""What launchers, loggers and kernels put before a line: rank, host and time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple


class Prefix(NamedTuple):
    """The marks of one line."""

    rank: int | None
    """Global or local rank, as the launcher counts; None where the line names none."""
    host: str | None
    at: datetime | None
    """When it was printed; naive times are taken as UTC, a missing year is `DEFAULT_YEAR`."""
    rest: str
    """The line without its marks."""


DEFAULT_YEAR = 2000
"""Stands for a year that the format does not carry (glog, syslog): compare such times among themselves only. A leap year."""

_MONTHS = {m: n for n, m in enumerate(("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1)}
_CLOCK = r"(?P<h>\d{2}):(?P<mi>\d{2}):(?P<s>\d{2})(?:[.,](?P<f>\d{1,9}))?"
_ZONE = r"(?P<z>Z|[+-]\d{2}:?\d{2}| UTC)?"
_RANK = re.compile(
    r"\[?(?:rank|default|Rank |RANK )(?P<rank>\d{1,6})\]?:\s?|\[(?P<bare>\d{1,6})\](?::|<std(?:out|err)>:)\s?|(?P<srun>\d{1,6}): "
)
_HOST = re.compile(
    r"\[?(?P<host>[A-Za-z](?=[\w.-]*[\d.-])[\w.-]{1,62})\]?: (?!\d+\])"
    r"|(?P<pod>[a-z0-9][\w.-]*-(?:master|worker|launcher|server)-\d+) \| ?"
)
_NAMES_NO_HOST = re.compile(r".*(?:Error|Exception|Warning|\.py|\.cc|\.cpp|\.cu|\.h|\.so)$|CUDA|NCCL|NVRM|torch\.|wandb$|H100|A100")
_TIMES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\[?(?P<y>\d{{4}})[-/](?P<mo>\d{{2}})[-/](?P<d>\d{{2}})[T ]{_CLOCK}{_ZONE}\]?,?(?:[:\s]\s*|$)",
        rf"\[?(?P<mo>\d{{2}})/(?P<d>\d{{2}})/(?P<y>\d{{4}}) {_CLOCK}\]?\s*",
        rf"\[?(?P<mo>\d{{2}})/(?P<d>\d{{2}}) {_CLOCK}\]?\s*",
        rf"\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<mon>[A-Z][a-z]{{2}}) {{1,2}}(?P<d>\d{{1,2}}) {_CLOCK} (?P<y>\d{{4}})\]?:?\s*",
        rf"\[?(?P<mon>[A-Z][a-z]{{2}}) {{1,2}}(?P<d>\d{{1,2}}) {_CLOCK}\]?:?\s+",
        rf"\[?[IWEFD](?P<mo>\d{{2}})(?P<d>\d{{2}}) {_CLOCK}\s+(?:\d+ )?",
        rf"\[NeMo [IWED] (?P<y>\d{{4}})-(?P<mo>\d{{2}})-(?P<d>\d{{2}}) {_CLOCK}\s*",
        rf"\[(?:INFO|WARNING|ERROR)\|[\w.]+:\d+\] (?P<y>\d{{4}})-(?P<mo>\d{{2}})-(?P<d>\d{{2}}) {_CLOCK} >> ",
    )
)


def parse(text: str) -> Prefix:
    """Return rank, host and time that stand before a line, in any order, and the rest of it."""
    rank: int | None = None
    host: str | None = None
    at: datetime | None = None
    for _ in range(5):
        text = text.lstrip(" ") if at is None and text[:2] == " [" else text
        if match := _RANK.match(text):
            prefix_rank = int(match["rank"] or match["bare"] or match["srun"])
            rank = prefix_rank if rank is None or match["rank"] else rank
        elif at is None and (match := _first_time(text)):
            at = _time(match)
            if at is None:
                break
            if (
                syslog := re.compile(r"(?P<host>[A-Za-z][\w.-]{0,62}) (?=[\w.()/-]+(?:\[\d+\])?: )").match(text, match.end())
            ) and "mon" in match.groupdict():
                host, match = syslog["host"], syslog
        elif host is None and (match := _HOST.match(text)) and not _NAMES_NO_HOST.match(match["host"] or match["pod"]):
            host = match["host"] or match["pod"]
        else:
            break
        text = text[match.end() :]
    return Prefix(rank, host, at, text)


def _first_time(text: str) -> re.Match[str] | None:
    for pattern in _TIMES:
        if match := pattern.match(text):
            return match
    return None


def _time(match: re.Match[str]) -> datetime | None:
    part = match.groupdict()
    month = int(part["mo"]) if part.get("mo") else _MONTHS.get(part.get("mon") or "", 0)
    micro = int((part["f"] or "0").ljust(6, "0")[:6])
    try:
        naive = datetime(
            int(part.get("y") or DEFAULT_YEAR), month, int(part["d"]), int(part["h"]), int(part["mi"]), int(part["s"]), micro
        )
    except ValueError:
        return None
    return naive.replace(tzinfo=_zone(part.get("z"))).astimezone(UTC)


def _zone(text: str | None) -> timezone:
    if text is None or text in ("Z", " UTC"):
        return UTC
    digits = text.replace(":", "")
    minutes = int(digits[1:3]) * 60 + int(digits[3:5])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))
