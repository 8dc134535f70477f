"""What the kernel says about GPUs: NVIDIA's XID errors, judged by the XID table of the knowledge, and SXIDs of NVSwitches."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.content.devices import DeviceCode, xids
from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, merged, ok
from assistant.records import Action
from assistant.tools.probes._kernel import KernelLine, kernel_probe, lines

SOURCE = "NVIDIA XID catalogue, knowledge/xid.toml"
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

WORDS = ("NVRM: ", "SXid")
"""One of these stands in every line that is looked for."""


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Judge each XID since the window began; the same code of several GPUs is one finding."""
    judged = [found for line in lines(reply, circumstances, WORDS) if (found := _judge(line)) is not None]
    bad = merged((device, finding) for device, finding in judged if finding.status is not Health.OK)
    first = {(one.status, one.text.split(" on ")[0]): one for one in reversed(bad)}
    return list(reversed(first.values())) or [ok("no XID that matters", len(judged))]


def _judge(line: KernelLine) -> tuple[str, Finding] | None:
    switch = SXID.search(line.text)
    if switch:
        return switch["device"], _switch(switch, line)
    match = XID.search(line.text)
    if match is None:
        return None
    code = int(match["code"] or OFF_THE_BUS)
    device = re.sub(r"\.\d$", "", match["device"] or match["lost"] or "").lower()
    device = device if device.count(":") > 1 else f"0000:{device}"
    if code == RECOVERY_CHANGED:
        return device, _recovery(match["rest"] or "", line)
    return device, _xid(code, xids().get(code), line)


def _xid(code: int, known: DeviceCode | None, line: KernelLine) -> Finding:
    if known is None:
        return _said(Health.WARNING, f"XID {code} on {{}}: unknown code: {line.whole}", line, remedy="look it up at NVIDIA")
    text = f"XID {code} on {{}}: {known.meaning}: {line.whole}"
    if known.blames_node and known.action is Action.CORDON_AND_RESTART:
        if code in NVLINK_5 and re.search(r"non-?fatal", line.text, re.IGNORECASE):
            return _said(Health.WARNING, text, line, known)
        weight = Weight.COUNTS if known.vendor.startswith(MILD) else Weight.STRONG
        return _said(Health.CRITICAL, text, line, known, weight=weight)
    if not known.root:
        return Finding(Health.OK, text, value=code, events=(line.identity,))
    return _said(Health.WARNING, text, line, known)


def _switch(match: re.Match[str], line: KernelLine) -> Finding:
    text = f"SXID {match['code']} on NVSwitch {{}}: {line.whole}"
    if match["kind"] == "Fatal":
        remedy = "drain the node, reset all its GPUs and NVSwitches together, restart the fabric manager"
        return _said(Health.CRITICAL, text, line, weight=Weight.STRONG, remedy=remedy)
    return _said(Health.WARNING, text, line)


def _recovery(rest: str, line: KernelLine) -> Finding:
    """Obey what the driver asks for."""
    asked = RECOVERY.search(rest)
    what = ((asked["what"] or asked["short"]) if asked else rest).strip()
    text = f"XID 154 on {{}}: the driver asks for {what or 'something'}: {line.whole}"
    if "none" in what.casefold():
        return Finding(Health.OK, text, events=(line.identity,))
    strong = re.search(r"reset|reboot", what, re.IGNORECASE)
    return _said(
        Health.CRITICAL, text, line, weight=Weight.STRONG if strong else Weight.COUNTS, remedy=f"do what the driver asks: {what}"
    )


def _said(
    status: Health,
    text: str,
    line: KernelLine,
    known: DeviceCode | None = None,
    *,
    weight: Weight = Weight.COUNTS,
    remedy: str = "",
) -> Finding:
    bucket = known.vendor.split(",")[0] if known else ""
    return Finding(
        status,
        text,
        value=int(known.code) if known else None,
        remedy=remedy or REMEDIES.get(bucket, f"NVIDIA: {known.vendor}" if known else "look at NVIDIA's catalogue"),
        weight=weight,
        source=known.source if known else "",
        events=(line.identity,),
    )


PROBE = kernel_probe("kernel_log", parse, SOURCE)
