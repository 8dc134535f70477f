"""The kernel log: its lines, each counted once, and the probe that judges NVIDIA's XID errors and the SXIDs of NVSwitches.

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

from assistant.content.devices import DeviceCode, xids
from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, merged, ok
from assistant.records import Action
from assistant.tooling import Probe

KERNEL_LOG_COMMAND = ("dmesg", "--time-format", "iso")
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
    """A line of the kernel log."""

    at: datetime | None
    text: str
    """Without the time and what stands before it."""
    full_text: str
    """As it stands in the log."""
    identity: str


def kernel_lines(reply: Reply, circumstances: Circumstances, words: Sequence[str] = ("",)) -> list[KernelLine]:
    """Return the lines with one of some words that are within the window and were not counted by an earlier check."""
    start = circumstances.since or circumstances.now - timedelta(hours=circumstances.limits.node.kernel_window_h)
    counted: dict[str, KernelLine] = {}
    for line in reply.out.split("\n"):
        if not any(word in line for word in words):
            continue
        full_text = line.strip()
        stamp = _STAMP.match(full_text)
        text = full_text[stamp.end() :] if stamp else full_text
        if not text:
            continue
        at, slack = _line_time(stamp, circumstances) if stamp else (None, timedelta())
        if at is not None and at + slack < start:
            continue
        names = _identities(text, at)
        if not circumstances.seen.isdisjoint(names):
            continue
        counted.setdefault(names[0], KernelLine(at, text, full_text, names[0]))
    return list(counted.values())


def kernel_probe(name: str, parse: Callable[[Reply, Circumstances], Sequence[Finding]], source: str, **more: Any) -> Probe:
    """Return a probe that reads the kernel log."""
    return Probe(
        name=name,
        command=KERNEL_LOG_COMMAND,
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


def _line_time(stamp: re.Match[str], circumstances: Circumstances) -> tuple[datetime | None, timedelta]:
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


def _identities(text: str, at: datetime | None) -> tuple[str, ...]:
    """Return the identity of a line, and those that it may have had at an earlier reading."""
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    if at is None:
        return (digest,)
    near = int(at.timestamp()) // NEAR_S
    return (f"{digest}@{near}", f"{digest}@{near - 1}", f"{digest}@{near + 1}")


XID_SOURCE = "NVIDIA XID catalogue, knowledge/xid.toml"
XID = re.compile(
    r"NVRM: (?:Xid \((?:PCI:)?(?P<device>[\w:.]+)\): (?P<code>\d+),?\s*(?P<rest>.{0,240})"
    r"|GPU (?P<lost>[\w:.]+?):? GPU has fallen off the bus)"
)
SXID = re.compile(
    r"nvidia-nvswitch\d+: SXid \(PCI:(?P<device>[\w:.]+)\): (?P<code>\d+), (?P<kind>Fatal|"
    r"Non-fatal), (?P<rest>.{0,240})"
)
RECOVERY = re.compile(
    r"recovery action changed.{0,240}\((?P<what>[^)]{0,120})\)"
    r"|\((?P<short>None|GPU Reset Required|Node Reboot Required|Drain[^)]{0,120})\)",
    re.I,
)
OFF_THE_BUS = 79
RECOVERY_CHANGED = 154
NVLINK_5 = range(144, 151)
MILD = ("RESTART_APP", "IGNORE", "CONTACT_SUPPORT")
"""Buckets that do not ask for a reset: such a code convicts a node only together with another sign."""
REMEDIES = {
    "RESTART_BM": "drain the node and power cycle it; ask for a replacement when it comes back",
    "RESET_GPU": "drain the node and reset the GPU: nvidia-smi --gpu-reset -i INDEX; replace it on repetition",
    "WORKFLOW_XID_48": "drain the node and reset the GPU; look for 63, 64, 94, 95 beside it; replace it on repetition",
}

XID_WORDS = ("NVRM: ", "SXid")
"""One of these stands in every line that is looked for."""


def parse_kernel_log(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Judge each XID since the window began; the same code of several GPUs is one finding."""
    judged = [verdict for line in kernel_lines(reply, circumstances, XID_WORDS) if (verdict := _judge_line(line)) is not None]
    bad = merged((device, finding) for device, finding in judged if finding.status is not Health.OK)
    first = {(finding.status, finding.text.split(" on ")[0]): finding for finding in reversed(bad)}
    return list(reversed(first.values())) or [ok("no XID that matters", len(judged))]


def _judge_line(line: KernelLine) -> tuple[str, Finding] | None:
    switch = SXID.search(line.text)
    if switch:
        return switch["device"], _judge_switch(switch, line)
    match = XID.search(line.text)
    if match is None:
        return None
    code = int(match["code"] or OFF_THE_BUS)
    device = re.sub(r"\.\d$", "", match["device"] or match["lost"] or "").lower()
    device = device if device.count(":") > 1 else f"0000:{device}"
    if code == RECOVERY_CHANGED:
        return device, _judge_recovery(match["rest"] or "", line)
    return device, _judge_xid(code, xids().get(code), line)


def _judge_xid(code: int, xid: DeviceCode | None, line: KernelLine) -> Finding:
    if xid is None:
        return _xid_finding(
            Health.WARNING, f"XID {code} on {{}}: unknown code: {line.full_text}", line, remedy="look it up at NVIDIA"
        )
    text = f"XID {code} on {{}}: {xid.meaning}: {line.full_text}"
    if xid.blames_node and xid.action is Action.CORDON_AND_RESTART:
        if code in NVLINK_5 and re.search(r"non-?fatal", line.text, re.IGNORECASE):
            return _xid_finding(Health.WARNING, text, line, xid)
        weight = Weight.COUNTS if xid.vendor.startswith(MILD) else Weight.STRONG
        return _xid_finding(Health.CRITICAL, text, line, xid, weight=weight)
    if not xid.root:
        return Finding(Health.OK, text, value=code, events=(line.identity,))
    return _xid_finding(Health.WARNING, text, line, xid)


def _judge_switch(match: re.Match[str], line: KernelLine) -> Finding:
    text = f"SXID {match['code']} on NVSwitch {{}}: {line.full_text}"
    if match["kind"] == "Fatal":
        remedy = "drain the node, reset all its GPUs and NVSwitches together, restart the fabric manager"
        return _xid_finding(Health.CRITICAL, text, line, weight=Weight.STRONG, remedy=remedy)
    return _xid_finding(Health.WARNING, text, line)


def _judge_recovery(message: str, line: KernelLine) -> Finding:
    """Judge XID 154 by the action that the driver asks for."""
    request = RECOVERY.search(message)
    action = ((request["what"] or request["short"]) if request else message).strip()
    text = f"XID 154 on {{}}: the driver asks for {action or 'something'}: {line.full_text}"
    if "none" in action.casefold():
        return Finding(Health.OK, text, events=(line.identity,))
    strong = re.search(r"reset|reboot", action, re.IGNORECASE)
    return _xid_finding(
        Health.CRITICAL, text, line, weight=Weight.STRONG if strong else Weight.COUNTS, remedy=f"do what the driver asks: {action}"
    )


def _xid_finding(
    status: Health,
    text: str,
    line: KernelLine,
    xid: DeviceCode | None = None,
    *,
    weight: Weight = Weight.COUNTS,
    remedy: str = "",
) -> Finding:
    bucket = xid.vendor.split(",")[0] if xid else ""
    return Finding(
        status,
        text,
        value=int(xid.code) if xid else None,
        remedy=remedy or REMEDIES.get(bucket, f"NVIDIA: {xid.vendor}" if xid else "look at NVIDIA's catalogue"),
        weight=weight,
        source=xid.source if xid else "",
        events=(line.identity,),
    )


KERNEL_LOG = kernel_probe("kernel_log", parse_kernel_log, XID_SOURCE)
