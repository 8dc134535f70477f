"""Put the lines of a case on one clock: the one that the job printed.

Programs print local time or UTC, kernels seconds since the boot, and hardly anybody says which. Here only what is said counts: a
zone printed after a stamp, the kernel's own note of the wall clock, a process id that both the kernel and the job name. What stays
unsaid is compared with a slack by `weighing`.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from assistant.diagnose.kernel import KernelLine
from assistant.diagnose.streams import NumberedLine
from assistant.diagnose.times import Span, stamp

_ZONE = re.compile(
    r"\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?P<far>[+-]\d\d):?(?P<minutes>\d\d)\b|(?P<zulu>Z)\b"
    r"| (?P<name>[A-Z]{3,4})(?= (?:19|20)\d\d\b|\]|\s|$))"
)
_NAMED = {
    "UTC": 0, "GMT": 0, "WET": 0, "CET": 60, "CEST": 120, "BST": 60, "EET": 120, "EEST": 180, "MSK": 180, "JST": 540, "KST": 540,
    "EST": -300, "EDT": -240, "CDT": -300, "MST": -420, "MDT": -360, "PST": -480, "PDT": -420, "AEST": 600, "AEDT": 660,
    "HKT": 480, "SGT": 480,
}  # fmt: skip
"""Minutes east of UTC; names that mean several zones (CST, IST) are left out."""
_WALL = re.compile(r"setting system clock to ((?:19|20)\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?: UTC|Z)")
_PID = re.compile(r"\b(?:pid|process|PID)[ =:('\"]{1,3}(\d{3,8})\b")
_ENDS = ("exitcode", "signal", "Signal", "killed", "Killed")
_EDGE = 400
NOT_SET = timedelta(days=300)
"""A kernel that is so far ahead of the job had no clock yet, or a wrong one."""


def zone_of(texts: Iterable[str]) -> timedelta | None:
    """Return how far east of UTC the stamps of a text are, as most of its lines say; None where none says it."""
    told: Counter[timedelta] = Counter()
    for text in texts:
        if ":" in text and (match := _ZONE.search(text[:120])) and (zone := _read(match)) is not None:
            told[zone] += 1
    return told.most_common(1)[0][0] if told else None


def _read(match: re.Match[str]) -> timedelta | None:
    if match["zulu"]:
        return timedelta()
    if match["far"]:
        hours = int(match["far"])
        return timedelta(hours=hours, minutes=int(match["minutes"]) * (-1 if match["far"][0] == "-" else 1))
    minutes = _NAMED.get(match["name"])
    return timedelta(minutes=minutes) if minutes is not None else None


def on_one_clock(kernel: Sequence[KernelLine], lines: Sequence[NumberedLine], span: Span) -> list[KernelLine]:
    """Return kernel lines with their times as the job's clock would show them.

    Args:
        kernel: Lines as read; those of monotonic logs have no time yet.
        lines: Of the job log.
        span: From when to when the job printed.
    """
    if not kernel:
        return []
    job = zone_of(line.text for line in (*lines[:_EDGE], *lines[-_EDGE:]))
    boots = _boots(kernel, job, lines, span.end.year if span.end else None)
    return [_placed(line, job, boots, span) for line in kernel]


def _placed(line: KernelLine, job: timedelta | None, boots: Mapping[str | None, datetime], span: Span) -> KernelLine:
    at = line.at
    if at is None and line.uptime is not None and line.host in boots:
        return dataclasses.replace(line, at=boots[line.host] + timedelta(seconds=line.uptime))
    if at is None:
        return line
    known = [end for end in span if end is not None]
    if at.year < 2000 or (known and at - max(known) > NOT_SET):
        return dataclasses.replace(line, at=None)
    match = _ZONE.search(line.text[:80]) if job is not None else None
    own = _read(match) if match is not None else None
    return dataclasses.replace(line, at=at + job - own) if job is not None and own is not None and own != job else line


def _boots(
    kernel: Sequence[KernelLine], job: timedelta | None, lines: Sequence[NumberedLine], year: int | None
) -> dict[str | None, datetime]:
    """Return when each host with a monotonic log booted, by the job's clock, where that can be known."""
    boots: dict[str | None, datetime] = {}
    monotonic = [line for line in kernel if line.uptime is not None]
    if not monotonic:
        return boots
    for line in monotonic:
        # without a word about the job's zone UTC is as likely as any
        if match := _WALL.search(line.text):
            wall = datetime.fromisoformat(match.group(1).replace(" ", "T"))
            boots[line.host] = wall + (job or timedelta()) - timedelta(seconds=line.uptime or 0.0)
    missing = [line for line in monotonic if line.host not in boots]
    died = _deaths(lines, year) if missing else {}
    for line in missing if died else ():
        pid = next((pid for pid in _PID.findall(line.text) if pid in died), None)
        if pid is not None and line.host not in boots:
            boots[line.host] = died[pid] - timedelta(seconds=line.uptime or 0.0)
    return boots


def _deaths(lines: Sequence[NumberedLine], year: int | None) -> dict[str, datetime]:
    """Return when the job's launchers say that a process ended, by process id."""
    died: dict[str, datetime] = {}
    for line in lines[-2 * _EDGE :]:
        text = line.text
        told = any(word in text for word in _ENDS) and ("pid" in text or "PID" in text)
        if told and (at := stamp(text, year)) is not None:
            died |= {pid: at for pid in _PID.findall(text) if pid not in died}
    return died
