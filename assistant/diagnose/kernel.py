"""Read kernel logs of one or many nodes: which host wrote a line, when, and which device code it reports.

A `dmesg.log` may be plain `dmesg`, `dmesg -T`, syslog, a serial console, or many of these behind headers such as
`===== node017 =====`, `# gpu-12` or `gpu-12:` before each line (pdsh).

`dmesg --time-format iso` writes the driver where syslog writes the host (`2026-11-27T08:18:16 mlx5_core 0000:14:00.0: ...`), so
that under the header of a node only a word that cannot be a driver takes a line away from that node.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from assistant.diagnose.device_events import DeviceEvent, Moment, kernel_event
from assistant.diagnose.readers.streams import NumberedLine, host_like, stamp

_LINE = re.compile(
    r"^\s*(?:\[\s*\d+\.\d+\]|\[[A-Z][a-z]{2} [A-Z][a-z]{2} |[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d |\d{4}-\d\d-\d\d[T ]|<\d+>)"
)
_UPTIME = re.compile(r"^(?:[\w.-]+: ?)?(?:<\d+>)?\[ *(\d+\.\d+)\]")
_SYSLOG = re.compile(
    r"^(?:[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?) ([\w.-]+) "
    r"(?:(?P<daemon>(?:kernel|systemd|slurmd)\b|[\w./-]+\[\d+\]:)|nvidia|nv-|[\w./-]+:)"
)
_ON_BUS = re.compile(r" [0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""What follows a driver's name and no host's: the address of its device."""
_TIMELESS = re.compile(r"^([A-Za-z][\w.-]*) [a-z][\w-]*\[\d+\]: ")
_PDSH = re.compile(r"^\[?([A-Za-z][\w.-]*)\]?(?::| \|) ?(?=\[|<\d|[A-Z][a-z]{2} +\d|\d{4}-)")
_WORDS = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class KernelLine:
    """A line of a kernel log."""

    number: int
    text: str
    host: str | None
    at: datetime | None
    event: DeviceEvent | None
    """The device code that it reports."""
    uptime: float | None = None
    """Seconds since the boot, where the line tells no other time."""

    def apart(self, other: Moment) -> timedelta | None:
        """Return how far two lines lie apart in time, None where that is not known."""
        if not isinstance(other, KernelLine):
            return None
        if self.at is not None and other.at is not None:
            return abs(self.at - other.at)
        if self.uptime is not None and other.uptime is not None:
            return timedelta(seconds=abs(self.uptime - other.uptime))
        return None


def read_kernel(lines: Iterable[NumberedLine], hosts: Collection[str] = (), year: int | None = None) -> list[KernelLine]:
    """Return the lines of a kernel log with host and time.

    Args:
        lines: The lines with their numbers.
        hosts: Hosts that are known from elsewhere; they count as names even where they hold no digit.
        year: Year for syslog stamps.
    """
    known = {host.split(".")[0] for host in hosts}
    section: str | None = None
    read: list[KernelLine] = []
    for line in lines:
        number, text = line.number, line.text
        header = _header(text, known)
        if header is not None:
            section = header
        up = _UPTIME.match(text)
        read.append(
            KernelLine(
                number,
                text,
                _host(text, known, section) or section,
                stamp(text, year),
                kernel_event(text),
                float(up[1]) if up else None,
            )
        )
    return read


def _host(text: str, hosts: Collection[str], section: str | None) -> str | None:
    """Return the host that a line names itself, None where it names none or the word may as well be a driver's."""
    if match := _SYSLOG.match(text):
        sure = match["daemon"] is not None or match.group(1).split(".")[0] in hosts
        driver = _ON_BUS.match(text, match.end(1)) is not None
        return match.group(1) if sure or (section is None and not driver) else None
    if (match := _TIMELESS.match(text)) and (host_like(match.group(1)) or match.group(1).split(".")[0] in hosts):
        return match.group(1)
    if (match := _PDSH.match(text)) and (host_like(match.group(1)) or match.group(1).split(".")[0] in hosts):
        return match.group(1)
    return None


def _header(text: str, known: Collection[str]) -> str | None:
    """Return the host that a section header names, None for any other line."""
    if len(text) > 140 or _LINE.match(text) or _SYSLOG.match(text) or _PDSH.match(text) or not text.strip():
        return None
    words = _WORDS.findall(text)
    marked = not text[0].isalnum() or text.rstrip().endswith(":") or len(words) <= 2 or "dmesg" in text or "journalctl" in text
    if not marked or len(words) > 12:
        return None
    named = [word for word in words if word.split(".")[0] in known]
    return next(iter(named or [word for word in words if host_like(word)]), None)
