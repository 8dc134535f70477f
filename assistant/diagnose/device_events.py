"""What a device code in a line means: an XID of a GPU, an SXID of an NVSwitch, an error code of an Ascend NPU.

The number decides, by the tables in knowledge/ (`content.device_codes`), never the words around it; only the severity that a line
states and the recovery that XID 154 asks for go before the table. A number that no table knows makes its node suspect: it is to be
tested, and nobody is blamed. Codes of one device within some minutes are one event, whose cause is the hardware code among them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from assistant.content.device_codes import CodeKind, DeviceCode, ascend_codes, sxids, xids
from assistant.content.reasons import Role
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
class Meaning:
    """What an event says about the failure of a job."""

    reason: str
    role: Role
    weight: float
    blames: bool
    action: Action | None
    rule: str


class Moment(Protocol):
    """What is needed of a kernel line to set its event against others."""

    @property
    def host(self) -> str | None: ...

    @property
    def event(self) -> DeviceEvent | None: ...

    def apart(self, other: Moment) -> timedelta | None:
        """Return how far two lines lie apart in time, None where that is not known."""


def event_of(text: str) -> DeviceEvent | None:
    """Return the event that a line reports, None for other lines."""
    if "id" in text or "ID" in text:
        if match := _SXID.search(text):
            return DeviceEvent("sxid", match[2], match[1], _severity(text))
        if (match := _XID.search(text)) and not text[: match.start() + 1].endswith("SX"):
            recovery = _RECOVERY.search(text)
            return DeviceEvent("xid", match[2] or match[3], match[1], _severity(text), recovery[1] if recovery else "")
    if ("07" in text or "EI" in text or "EJ" in text) and (match := _ASCEND.search(text)):
        return DeviceEvent("ascend", match[1] or match[2] or match[3])
    return None


def meaning_of(event: DeviceEvent, site: Path | None = None) -> Meaning | None:
    """Return what an event means by itself; None for a code of Ascend's that no table knows: its words say more."""
    if event.family == "sxid":
        return _of_switch(event, site)
    row = xids(site).get(int(event.code)) if event.family == "xid" else ascend_codes(site).get(event.code)
    if row is None:
        unknown = Meaning("cuda_error", Role.ROOT, UNCLEAR_WEIGHT, False, Action.CORDON_AND_RESTART, _unlisted(event))
        return unknown if event.family == "xid" else None
    return _of_row(event, row)


def combined(moments: Sequence[Moment], place: int, site: Path | None = None) -> Meaning | None:
    """Return what the event of one line means among the others of its device.

    Args:
        moments: All lines of the kernel logs that report a code.
        place: Which of them.
        site: The site's folder.
    """
    own = moments[place]
    meaning = meaning_of(own.event, site) if own.event is not None else None
    if own.event is None or meaning is None or meaning.role is not Role.ROOT or own.event.family != "xid":
        return meaning
    around = [other for n, other in enumerate(moments) if n != place and _same_device(own, other)]
    if meaning.blames:
        return meaning
    if any(_proves(other, site) for other in around):
        return replace(meaning, role=Role.SYMPTOM, rule=f"{meaning.rule}, beside a fault of the device")
    wanted = next((other.event.recovery for other in around if other.event is not None and other.event.recovery), "")
    if wanted and wanted != _HARMLESS:
        return replace(
            meaning, blames=True, weight=0.9, action=Action.CORDON_AND_RESTART, rule=f"{meaning.rule}; the driver wants: {wanted}"
        )
    return meaning


def _of_row(event: DeviceEvent, row: DeviceCode) -> Meaning:
    reason = row.reason if row.reason != "cascade" else "cuda_error"
    vendor = f"; NVIDIA: {row.vendor}" if event.family == "xid" else ""
    rule = f"{event.family} {event.code} ({row.meaning}{vendor})"
    if not row.root:
        symptom = row.kind is CodeKind.FOLLOWS and row.reason != "cascade" and event.family == "ascend"
        return Meaning(reason, Role.SYMPTOM if symptom else Role.CASCADE, 0.6, False, row.action, rule)
    if row.kind in (CodeKind.UNCLEAR, CodeKind.UNUSED):
        return Meaning(reason, Role.ROOT, UNCLEAR_WEIGHT if event.family == "xid" else 0.8, False, row.action, rule)
    if event.fatal is False:
        return Meaning(reason, Role.SYMPTOM, 0.6, False, row.action, rule)
    weight = 0.9 if row.blames_node else 0.6 if event.family == "xid" else 0.85
    return Meaning(reason, Role.ROOT, weight, row.blames_node, row.action, rule)


def _of_switch(event: DeviceEvent, site: Path | None) -> Meaning:
    row = sxids(site).get(event.code)
    fatal = event.fatal if event.fatal is not None else row.fatal if row is not None else None
    if row is None and fatal is None:
        return Meaning("nvlink_error", Role.ROOT, UNCLEAR_WEIGHT, False, Action.CORDON_AND_RESTART, _unlisted(event))
    words = f" ({row.meaning}; NVIDIA: {row.vendor})" if row is not None else ""
    if fatal:
        return Meaning("nvlink_error", Role.ROOT, 0.95, True, None, f"fatal sxid {event.code}{words}")
    return Meaning("nvlink_error", Role.SYMPTOM, 0.5, False, None, f"sxid {event.code}{words}")


def _proves(moment: Moment, site: Path | None) -> bool:
    meaning = meaning_of(moment.event, site) if moment.event is not None and moment.event.family == "xid" else None
    return meaning is not None and meaning.blames and meaning.role is Role.ROOT


def _same_device(one: Moment, other: Moment) -> bool:
    if one.event is None or other.event is None or one.host != other.host or one.event.device != other.event.device:
        return False
    apart = one.apart(other)
    return apart is None or apart <= ONE_EVENT


def _severity(text: str) -> bool | None:
    if _NONFATAL.search(text):
        return False
    return True if _FATAL.search(text) else None


def _unlisted(event: DeviceEvent) -> str:
    return f"{event.family} {event.code}, in no catalogue"
