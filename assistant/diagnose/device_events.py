"""What a device code in a line means: an XID of a GPU, an SXID of an NVSwitch, an error code of an Ascend NPU.

The number decides, by the tables in knowledge/ (`content.device_codes`), never the words around it; only the severity that a line
states and the recovery that XID 154 asks for go before the table. A number that no table knows makes its node suspect: it is to be
tested, and nobody is blamed. Codes of one device within some minutes are one event, whose cause is the hardware code among them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from assistant.content.devices import CodeKind, DeviceCode, ascend_codes, sxids, xids
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
MOST_COMPARED = 200
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
    def host(self) -> str | None:
        """The host whose kernel printed it."""

    @property
    def event(self) -> DeviceEvent | None:
        """The code that it reports."""

    def apart(self, other: Moment) -> timedelta | None:
        """Return how far two lines lie apart in time, None where that is not known."""


def event_of(text: str) -> DeviceEvent | None:
    """Return the event that a line of a job reports, None for other lines."""
    event = kernel_event(text)
    if event is None and ("07" in text or "EI" in text or "EJ" in text) and (match := _ASCEND.search(text)):
        return DeviceEvent("ascend", match[1] or match[2] or match[3])
    return event


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


def meaning_of(event: DeviceEvent, site: Path | None = None) -> Meaning | None:
    """Return what an event means by itself; None for a code of Ascend's that no table knows: its words say more."""
    if event.family == "sxid":
        return _of_switch(event, site)
    row = xids(site).get(int(event.code)) if event.family == "xid" else ascend_codes(site).get(event.code)
    if row is None:
        unknown = Meaning("cuda_error", Role.ROOT, UNCLEAR_WEIGHT, False, Action.CORDON_AND_RESTART, _unlisted(event))
        return unknown if event.family == "xid" else None
    return _of_row(event, row)


def combined(moments: Sequence[Moment], site: Path | None = None) -> list[Meaning | None]:
    """Return what each event means among the others of its device.

    Args:
        moments: All lines of the kernel logs that report a code.
        site: The site's folder.
    """
    meanings = [meaning_of(moment.event, site) if moment.event is not None else None for moment in moments]
    proofs: dict[tuple[str | None, str | None], list[Moment]] = defaultdict(list)
    wishes: dict[tuple[str | None, str | None], list[Moment]] = defaultdict(list)
    for moment, meaning in zip(moments, meanings, strict=True):
        if moment.event is None or moment.event.family != "xid":
            continue
        if meaning is not None and meaning.blames and len(proofs[_device(moment)]) < MOST_COMPARED:
            proofs[_device(moment)].append(moment)
        if moment.event.recovery not in ("", _HARMLESS) and len(wishes[_device(moment)]) < MOST_COMPARED:
            wishes[_device(moment)].append(moment)
    return [
        _among(moment, meaning, proofs.get(_device(moment), ()), wishes.get(_device(moment), ()))
        for moment, meaning in zip(moments, meanings, strict=True)
    ]


def _among(own: Moment, meaning: Meaning | None, proofs: Sequence[Moment], wishes: Sequence[Moment]) -> Meaning | None:
    """Return what an event means beside a fault of its device, or where the driver wants its device reset."""
    if own.event is None or meaning is None or meaning.role is not Role.ROOT or meaning.blames or own.event.family != "xid":
        return meaning
    if any(_together(own, other) for other in proofs):
        return replace(meaning, role=Role.SYMPTOM, rule=f"{meaning.rule}, beside a fault of the device")
    wish = next((other.event.recovery for other in wishes if other.event is not None and _together(own, other)), "")
    if not wish:
        return meaning
    rule = f"{meaning.rule}; the driver wants: {wish}"
    return replace(meaning, blames=True, weight=0.9, action=Action.CORDON_AND_RESTART, rule=rule)


def _of_row(event: DeviceEvent, row: DeviceCode) -> Meaning:
    reason = row.reason if row.reason != "cascade" else "cuda_error"
    vendor = f"; NVIDIA: {row.vendor}" if event.family == "xid" else ""
    rule = f"{event.family} {event.code} ({row.meaning}{vendor})"
    if not row.root:
        symptom = row.kind is CodeKind.FOLLOWS and row.reason != "cascade" and event.family == "ascend"
        return Meaning(reason, Role.SYMPTOM if symptom else Role.CASCADE, 0.7 if symptom else 0.6, False, row.action, rule)
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


def _device(moment: Moment) -> tuple[str | None, str | None]:
    return moment.host, moment.event.device if moment.event is not None else None


def _together(own: Moment, other: Moment) -> bool:
    apart = own.apart(other)
    return apart is None or apart <= ONE_EVENT


def _severity(text: str) -> bool | None:
    if _NONFATAL.search(text):
        return False
    return True if _FATAL.search(text) else None


def _unlisted(event: DeviceEvent) -> str:
    return f"{event.family} {event.code}, in no catalogue"
