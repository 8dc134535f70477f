"""Lines of a kernel log with their times: only those that count, each once, whatever tool and file they came from.

`dmesg` works the time of a line out anew at every call, from a clock that is corrected meanwhile, so the same line may move by
some seconds. The identity of a line is therefore its text and its time to about ten seconds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding
from assistant.tooling import Probe

COMMAND = ("dmesg", "--time-format", "iso")
NEAR_S = 10
ANY_ZONE = timedelta(hours=14)
"""A time without a zone may be that much older than it looks; a line too many is better than one too few."""

_STAMP = re.compile(
    r"(?:(?:kern|user|daemon|syslog)\s*:\w+\s*:\s*)?"
    r"(?:(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[,.]\d+)?(?P<zone>Z|[+-]\d\d:?\d\d)?"
    r"|\[(?P<ctime>\w{3} \w{3}\s+\d+ \d\d:\d\d:\d\d \d{4})\]"
    r"|\[\s*(?P<uptime>\d+\.\d+)\]"
    r"|(?P<syslog>[A-Z][a-z]{2}\s+\d+ \d\d:\d\d:\d\d))\s*"
    r"(?:\S+ kernel:\s*)?(?:\[\s*\d+\.\d+\]\s*)?"
)


@dataclass(frozen=True, slots=True)
class KernelLine:
    """A line of the kernel."""

    at: datetime | None
    text: str
    """Without the time and what stands before it."""
    whole: str
    identity: str


def lines(reply: Reply, circumstances: Circumstances, words: Sequence[str] = ("",)) -> list[KernelLine]:
    """Return the lines that count: with one of some words, since the beginning of the window, and not counted before."""
    start = circumstances.since or circumstances.now - timedelta(hours=circumstances.limits.node.kernel_window_h)
    counted: dict[str, KernelLine] = {}
    for raw in reply.out.split("\n"):
        if not any(word in raw for word in words):
            continue
        whole = raw.strip()
        stamp = _STAMP.match(whole)
        text = whole[stamp.end() :] if stamp else whole
        if not text:
            continue
        at, slack = _time(stamp, circumstances) if stamp else (None, timedelta())
        if at is not None and at + slack < start:
            continue
        names = _names(text, at)
        if not circumstances.seen.isdisjoint(names):
            continue
        counted.setdefault(names[0], KernelLine(at, text, whole, names[0]))
    return list(counted.values())


def kernel_probe(name: str, parse: Callable[[Reply, Circumstances], Sequence[Finding]], source: str, **more: Any) -> Probe:
    """Return a probe that reads the kernel log."""
    return Probe(
        name=name,
        command=COMMAND,
        needs="dmesg",
        parse=partial(_readable, parse),
        source=source,
        package="util-linux",
        witness="kernel",
        reading="kernel_log",
        keeps="tail",
        **more,
    )


def _readable(
    parse: Callable[[Reply, Circumstances], Sequence[Finding]], reply: Reply, circumstances: Circumstances
) -> Sequence[Finding]:
    from assistant.probing import unknown

    sample = [line for line in reply.out.split("\n") if line.strip()][:200]
    strange = sum("\ufffd" in line or "\x00" in line for line in sample)
    if sample and strange * 2 > len(sample):
        return [unknown("the kernel log is no text")]
    return parse(reply, circumstances)


def _time(stamp: re.Match[str], circumstances: Circumstances) -> tuple[datetime | None, timedelta]:
    """Return when a line was written and by how much that may be too early; None where it cannot be told."""
    try:
        if stamp["iso"]:
            text = stamp["iso"].replace(" ", "T")
            zone = (stamp["zone"] or "").replace("Z", "+00:00")
            if zone:
                return datetime.fromisoformat(text + zone).astimezone(UTC), timedelta(seconds=NEAR_S)
            return datetime.fromisoformat(text).replace(tzinfo=UTC), ANY_ZONE
        if stamp["ctime"]:
            parsed = datetime.strptime(" ".join(stamp["ctime"].split()), "%a %b %d %H:%M:%S %Y")
            return parsed.replace(tzinfo=UTC), ANY_ZONE
        if stamp["syslog"]:
            return _this_year(" ".join(stamp["syslog"].split()), circumstances.now), ANY_ZONE
    except ValueError:
        return None, timedelta()
    if circumstances.booted is None:
        return None, timedelta()
    return circumstances.booted + timedelta(seconds=float(stamp["uptime"])), timedelta(seconds=NEAR_S)


def _this_year(text: str, now: datetime) -> datetime:
    """Return the latest such day that is not in the future; syslog leaves the year out."""
    for year in (now.year, now.year - 1):
        parsed = datetime.strptime(f"{year} {text}", "%Y %b %d %H:%M:%S").replace(tzinfo=UTC)
        if parsed <= now + timedelta(days=1):
            return parsed
    return parsed


def _names(text: str, at: datetime | None) -> tuple[str, ...]:
    """Return the identity of a line, and those that it may have had at an earlier reading."""
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    if at is None:
        return (digest,)
    near = int(at.timestamp()) // NEAR_S
    return (f"{digest}@{near}", f"{digest}@{near - 1}", f"{digest}@{near + 1}")
