"""Read kernel logs of many nodes: which host wrote a line, when, its device code, and whose memory the OOM killer found.

A `dmesg.log` may be plain `dmesg`, `dmesg -T`, syslog, a serial console, or many of these behind headers such as
`===== node017 =====`, `# gpu-12` or `gpu-12:` before each line (pdsh).

`dmesg --time-format iso` writes the driver where syslog writes the host (`2026-11-27T08:18:16 mlx5_core 0000:14:00.0: ...`), so
that under the header of a node only a word that cannot be a driver takes a line away from that node.

A device code is an XID of a GPU, an SXID of an NVSwitch, or an error code of an Ascend NPU. The number decides, by the tables in
knowledge/ (`content.device_codes`), never the words around it; only the severity that a line states and the recovery that XID 154
asks for go before the table. A number that no table knows makes its node suspect: it is to be tested, and nobody is blamed. Codes
of one device within some minutes are one event, whose cause is the hardware code among them.

The kernel names each process that it kills for want of memory with its account, and mostly all processes in a table before that. A
limit of a cgroup is the job's own affair and no line of this.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from assistant.content.devices import CodeKind, DeviceCode, ascend_codes, sxids, xids
from assistant.content.reasons import Role
from assistant.diagnose.readers.streams import NumberedLine, host_like, stamp
from assistant.records import Action

_XID = re.compile(
    r"\bXid \((?:PCI:)?([0-9a-fA-F:.]{1,64}+)[^)]{0,200}\): (\d{1,18})|\b(?:XID|Xid|xid)(?: error| code)?[ :=#]+(\d{1,3})\b"
)
_SXID = re.compile(r"\bSXid \((?:PCI:)?([0-9a-fA-F:.]{1,64}+)\): (\d{1,6})\b")
_ASCEND = re.compile(
    r"\b(E[IJ]\d{4})\b|\b(?:[Ee]rror ?[Cc]ode|retCode|errno|ret)\b(?: is)?[ :=\[]{1,3}([125]07\d{3})\b"
    r"|\b(?:ACL|aclrt\w*|rt[A-Z]\w+)\b.{0,80}\b([125]07\d{3})\b"
)
_NONFATAL = re.compile(r"\b[Nn]on-?fatal\b|, Severity 0\b")
_FATAL = re.compile(r"(?<![Nn]on-)\bFatal\b|, Severity 1\b")
_RECOVERY = re.compile(r"[Rr]ecovery action changed from .{1,40} to 0x[0-9a-fA-F]+ \(([^)]{1,40})\)")
_HARMLESS = "None"
ONE_EVENT = timedelta(minutes=10)
"""Codes of one device that lie further apart have nothing to do with each other."""
UNCLEAR_WEIGHT = 0.55
MOST_CODES = 200
"""Of one device: a driver may print the same code thousands of times."""


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """A device code as a line tells it."""

    family: str
    """`xid`, `sxid` or `ascend`."""
    code: str
    device: str | None = None
    """PCI address as printed; None where the line has none."""
    fatal: bool | None = None
    """The severity that the line states; None where it states none."""
    recovery: str = ""
    """What XID 154 says that the driver wants done; empty for all others."""


@dataclass(frozen=True, slots=True)
class CodeMeaning:
    """What an event says about the failure of a job."""

    reason: str
    role: Role
    weight: float
    blames: bool
    action: Action | None
    rule: str


class DatedEvent(Protocol):
    """A device code of a kernel line, with its host and time, as far as it is compared with others."""

    @property
    def host(self) -> str | None:
        """The host whose kernel printed it."""

    @property
    def event(self) -> DeviceEvent | None:
        """The code that it reports."""

    def apart(self, later: DatedEvent) -> timedelta | None:
        """Return how far two lines lie apart in time, None where that is not known."""


def event_of(text: str) -> DeviceEvent | None:
    """Return the event that a line of a job reports, None for other lines."""
    event = kernel_event(text)
    if event is None and ("07" in text or "EI" in text or "EJ" in text) and (match := _ASCEND.search(text)):
        return DeviceEvent("ascend", match[1] or match[2] or match[3])
    return event


_GPU_INDEX = re.compile(r"\bGPU[ #:]{0,2}\[?(\d{1,2})(?![\w-]|[.:]\w)")


def named_gpu(text: str) -> int | None:
    """Return the index of the GPU that a line with an XID names, as nvidia-smi counts; None where it names an address."""
    match = _GPU_INDEX.search(text) if kernel_event(text) is not None else None
    return int(match[1]) if match is not None else None


def kernel_event(text: str) -> DeviceEvent | None:
    """Return the XID or SXID that a line reports, None for other lines; Ascend's codes stand in no kernel log."""
    if "Xid" not in text and "XID" not in text and "xid" not in text:
        return None
    if match := _SXID.search(text):
        return DeviceEvent("sxid", match[2], match[1], _severity(text))
    if (match := _XID.search(text)) and not text[: match.start() + 1].endswith("SX"):
        recovery = _RECOVERY.search(text)
        return DeviceEvent("xid", match[2] or match[3], match[1], _severity(text), recovery[1] if recovery else "")
    return None


def meaning_of(event: DeviceEvent, site: Path | None = None) -> CodeMeaning | None:
    """Return what an event means by itself; None for a code of Ascend's that no table knows: its words say more."""
    if event.family == "sxid":
        return _of_switch(event, site)
    row = xids(site).get(int(event.code)) if event.family == "xid" else ascend_codes(site).get(event.code)
    if row is None:
        unknown = CodeMeaning("cuda_error", Role.ROOT, UNCLEAR_WEIGHT, False, Action.CORDON_AND_RESTART, _unlisted(event))
        return unknown if event.family == "xid" else None
    return _of_row(event, row)


def combined(moments: Sequence[DatedEvent], site: Path | None = None) -> list[CodeMeaning | None]:
    """Return what each event means among the others of its device.

    Args:
        moments: All lines of the kernel logs that report a code.
        site: The site's folder.
    """
    meanings = [meaning_of(moment.event, site) if moment.event is not None else None for moment in moments]
    proofs: dict[tuple[str | None, str | None], list[DatedEvent]] = defaultdict(list)
    wishes: dict[tuple[str | None, str | None], list[DatedEvent]] = defaultdict(list)
    for moment, meaning in zip(moments, meanings, strict=True):
        if moment.event is None or moment.event.family != "xid":
            continue
        if meaning is not None and meaning.blames and len(proofs[_device(moment)]) < MOST_CODES:
            proofs[_device(moment)].append(moment)
        if moment.event.recovery not in ("", _HARMLESS) and len(wishes[_device(moment)]) < MOST_CODES:
            wishes[_device(moment)].append(moment)
    return [
        _among(moment, meaning, proofs.get(_device(moment), ()), wishes.get(_device(moment), ()))
        for moment, meaning in zip(moments, meanings, strict=True)
    ]


def _among(
    own: DatedEvent, meaning: CodeMeaning | None, proofs: Sequence[DatedEvent], wishes: Sequence[DatedEvent]
) -> CodeMeaning | None:
    """Return what an event means beside a fault of its device, or where the driver wants its device reset."""
    if own.event is None or meaning is None or meaning.role is not Role.ROOT or meaning.blames or own.event.family != "xid":
        return meaning
    if any(_together(own, moment) for moment in proofs):
        return replace(meaning, role=Role.SYMPTOM, rule=f"{meaning.rule}, beside a fault of the device")
    wish = next((moment.event.recovery for moment in wishes if moment.event is not None and _together(own, moment)), "")
    if not wish:
        return meaning
    rule = f"{meaning.rule}; the driver wants: {wish}"
    return replace(meaning, blames=True, weight=0.9, action=Action.CORDON_AND_RESTART, rule=rule)


def _of_row(event: DeviceEvent, row: DeviceCode) -> CodeMeaning:
    reason = row.reason if row.reason != "cascade" else "cuda_error"
    vendor = f"; NVIDIA: {row.vendor}" if event.family == "xid" else ""
    rule = f"{event.family} {event.code} ({row.meaning}{vendor})"
    if not row.root:
        symptom = row.kind is CodeKind.FOLLOWS and row.reason != "cascade" and event.family == "ascend"
        return CodeMeaning(reason, Role.SYMPTOM if symptom else Role.CASCADE, 0.7 if symptom else 0.6, False, row.action, rule)
    if row.kind in (CodeKind.UNCLEAR, CodeKind.UNUSED):
        return CodeMeaning(reason, Role.ROOT, UNCLEAR_WEIGHT if event.family == "xid" else 0.8, False, row.action, rule)
    if event.fatal is False:
        return CodeMeaning(reason, Role.SYMPTOM, 0.6, False, row.action, rule)
    weight = 0.9 if row.blames_node else 0.6 if event.family == "xid" else 0.85
    return CodeMeaning(reason, Role.ROOT, weight, row.blames_node, row.action, rule)


def _of_switch(event: DeviceEvent, site: Path | None) -> CodeMeaning:
    row = sxids(site).get(event.code)
    fatal = event.fatal if event.fatal is not None else row.fatal if row is not None else None
    if row is None and fatal is None:
        return CodeMeaning("nvlink_error", Role.ROOT, UNCLEAR_WEIGHT, False, Action.CORDON_AND_RESTART, _unlisted(event))
    words = f" ({row.meaning}; NVIDIA: {row.vendor})" if row is not None else ""
    if fatal:
        return CodeMeaning("nvlink_error", Role.ROOT, 0.95, True, None, f"fatal sxid {event.code}{words}")
    return CodeMeaning("nvlink_error", Role.SYMPTOM, 0.5, False, None, f"sxid {event.code}{words}")


def _device(moment: DatedEvent) -> tuple[str | None, str | None]:
    return moment.host, moment.event.device if moment.event is not None else None


def _together(own: DatedEvent, second: DatedEvent) -> bool:
    apart = own.apart(second)
    return apart is None or apart <= ONE_EVENT


def _severity(text: str) -> bool | None:
    if _NONFATAL.search(text):
        return False
    return True if _FATAL.search(text) else None


def _unlisted(event: DeviceEvent) -> str:
    return f"{event.family} {event.code}, in no catalogue"


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

    def apart(self, later: DatedEvent) -> timedelta | None:
        """Return how far two lines lie apart in time, None where that is not known."""
        if not isinstance(later, KernelLine):
            return None
        if self.at is not None and later.at is not None:
            return abs(self.at - later.at)
        if self.uptime is not None and later.uptime is not None:
            return timedelta(seconds=abs(self.uptime - later.uptime))
        return None


def read_kernel(lines: Iterable[NumberedLine], hosts: Collection[str] = (), year: int | None = None) -> list[KernelLine]:
    """Return the lines of a kernel log with host and time.

    Args:
        lines: The lines with their numbers.
        hosts: Hosts that are known from elsewhere; they count as names even where they hold no digit.
        year: Year for syslog stamps.
    """
    host_names = {host.split(".")[0] for host in hosts}
    section: str | None = None
    read: list[KernelLine] = []
    for line in lines:
        number, text = line.number, line.text
        header = _header(text, host_names)
        if header is not None:
            section = header
        up = _UPTIME.match(text)
        read.append(
            KernelLine(
                number,
                text,
                _host(text, host_names, section) or section,
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


def _header(text: str, hosts: Collection[str]) -> str | None:
    """Return the host that a section header names, None for any other line."""
    if len(text) > 140 or _LINE.match(text) or _SYSLOG.match(text) or _PDSH.match(text) or not text.strip():
        return None
    words = _WORDS.findall(text)
    marked = not text[0].isalnum() or text.rstrip().endswith(":") or len(words) <= 2 or "dmesg" in text or "journalctl" in text
    if not marked or len(words) > 12:
        return None
    matching = [word for word in words if word.split(".")[0] in hosts]
    return next(iter(matching or [word for word in words if host_like(word)]), None)


FAR_MORE = 4
"""A process is the cause where it held so many times what all of the job's own processes held."""
COMPARED_CHARACTERS = 120
"""Characters of a cited line by which it is known again."""
KILLS_APART = timedelta(minutes=10)
"""Kills further from the one that is cited are another shortage."""
PAGE_KIB = 4
"""Of the table. Source: x86; where a page is larger all rows grow alike, and lines of kills count in KiB."""
_KILL = re.compile(
    r"(?<!cgroup )Out of memory(?: \(.{0,240}?\))?: Kill(?:ed)? process (?P<pid>\d{1,10}) \((?P<name>[^)]{1,64})\)"
    r"(?P<rest>.{0,400})"
)
_REQUESTER = re.compile(r"(?:^|[\s\]])(?:kernel:)?(?P<name>(?!kernel:)[^\s\[\]]{1,32}) invoked oom-killer:")
_RESIDENT = re.compile(r"(?:anon|file|shmem)-rss:(\d{1,15})kB")
_ACCOUNT = re.compile(r"\bUID:(\d{1,10})\b")
_GROUP = re.compile(r"oom-kill:constraint=CONSTRAINT_NONE\b.{0,600}?,pid=(?P<pid>\d{1,10})")
_JOB = re.compile(r"/job_(\d{1,10})\b")
_ROW = re.compile(
    r"\[\s{0,10}(?P<pid>\d{1,10})\]\s+(?P<uid>\d{1,10})\s+\d{1,10}\s+\d{1,15}\s+(?P<pages>\d{1,15})\s(?:.{0,200}\s)?(?P<name>\S{1,64})\s*$"
)


class _Line(NamedTuple):
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class MemoryUser:
    """A process as the kernel named it when memory had run out."""

    host: str | None
    pid: int
    name: str
    uid: int | None
    resident_kib: int
    killed: bool
    """Whether the kernel ended it."""
    job: str = ""
    """The job whose cgroup it was in, where the kernel says so."""

    @property
    def gib(self) -> float:
        """Its memory in GiB."""
        return self.resident_kib / 2**20


def memory_users(text: str, cited: Sequence[str], hosts: Iterable[str] = ()) -> list[MemoryUser]:
    """Return the processes that the kernel named within `KILLS_APART` of lines that a diagnosis cites, each once.

    Args:
        text: The kernel logs of the nodes of a job.
        cited: The lines that the diagnosis cites.
        hosts: Names of nodes.
    """
    users: dict[tuple[str | None, int], MemoryUser] = {}
    jobs: dict[tuple[str | None, int], str] = {}
    for line in _near_cited(text, cited, hosts):
        if match := _GROUP.search(line.text):
            job = _JOB.search(line.text)
            jobs[line.host, int(match["pid"])] = job[1] if job is not None else ""
        elif match := _KILL.search(line.text):
            resident_kib = sum(map(int, _RESIDENT.findall(match["rest"])))
            account = _ACCOUNT.search(match["rest"])
            row = users.get((line.host, int(match["pid"])))
            uid = int(account[1]) if account is not None else row.uid if row is not None else None
            users[line.host, int(match["pid"])] = MemoryUser(
                line.host, int(match["pid"]), match["name"], uid, resident_kib, killed=True
            )
        elif match := _ROW.search(line.text):
            place = line.host, int(match["pid"])
            row = MemoryUser(line.host, place[1], match["name"], int(match["uid"]), int(match["pages"]) * PAGE_KIB, killed=False)
            users.setdefault(place, row)
    return [replace(user, job=jobs.get(place, "")) for place, user in users.items()]


def _near_cited(text: str, cited: Sequence[str], hosts: Iterable[str]) -> list[KernelLine]:
    """Return the lines of kernel logs within `KILLS_APART` of lines that a diagnosis cites, on the same host."""
    numbered = [_Line(number, line) for number, line in enumerate(text.splitlines(), 1)]
    lines = read_kernel(numbered, tuple(hosts))
    begins = tuple(words[:COMPARED_CHARACTERS] for line in cited if (words := line.strip()))
    marks = [line for line in lines if begins and line.text.strip().startswith(begins)]
    return [line for line in lines if any(line.host == mark.host and _near(line, mark) for mark in marks)]


class MemoryRequester(NamedTuple):
    """The program or thread whose request for memory made the kernel end a process: any at work there, also of the kernel."""

    host: str | None
    name: str
    """As the kernel keeps it, without what stands before a space in it; a thread names itself."""


def memory_requesters(text: str, cited: Sequence[str], hosts: Iterable[str] = ()) -> list[MemoryRequester]:
    """Return the programs whose requests made the kernel end processes about cited lines, each once.

    Args: As of `memory_users`.
    """
    matches = [(line.host, match) for line in _near_cited(text, cited, hosts) if (match := _REQUESTER.search(line.text))]
    return list(dict.fromkeys(MemoryRequester(host, match["name"]) for host, match in matches))


def memory_hogs(users: Sequence[MemoryUser], uid: int, job: str) -> tuple[MemoryUser, tuple[MemoryUser, ...]] | None:
    """Return the foreign process that held far more than all of a job's, and the job's own; None where there is none.

    Args:
        users: Of one node.
        uid: Account of the job's owner.
        job: Its id as Slurm numbers it, without parts.
    """
    with_account = [user for user in users if user.uid is not None]
    own = tuple(user for user in with_account if (user.job == job if user.job else user.uid == uid))
    foreign = [user for user in with_account if user not in own]
    largest = max(foreign, key=lambda user: user.resident_kib, default=None)
    if (
        largest is None
        or len(with_account) < len(users)
        or largest.resident_kib < FAR_MORE * sum(user.resident_kib for user in own)
    ):
        return None
    return (largest, own) if any(user.killed for user in own) else None


def _near(line: KernelLine, mark: KernelLine) -> bool:
    apart = line.apart(mark)
    return apart is not None and apart <= KILLS_APART
