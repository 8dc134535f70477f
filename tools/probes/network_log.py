"""What the kernel says about network links: flaps, cables, heat and power of adapters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, judged, ok
from assistant.tools.probes._kernel import kernel_probe, lines

DOWN = re.compile(
    r"(?P<device>(?:mlx\d_core|bnxt_en|ice|i40e|ixgbe|hfi1|irdma) [\w:.]+)[^\n]{0,240}?(?:Link (?:is )?[Dd]own|Cable unplugged)"
)
SIGNS = (
    (re.compile(r"Port module event.{0,240}High Temperature", re.I), "a transceiver is too hot", "look at airflow and transceiver"),
    (
        re.compile(r"[Ii]nsufficient power on the PCIe slot"),
        "an adapter gets too little power",
        "reseat it; look at slot and power cable",
    ),
    (
        re.compile(r"bond\d+: now running without any active interface"),
        "a bond has no link left",
        "look at its cables and switches",
    ),
    (
        re.compile(r"mlx5_core .{0,240}(?:health compromised|Fatal error|device's health)", re.I),
        "an adapter's firmware is ill",
        "power cycle the node",
    ),
)
CABLE = "reseat or replace cable and transceiver; look at the switch port"

WORDS = ("Link ", "unplugged", "High Temperature", "nsufficient power", "running without", "health", "Fatal error")
"""One of these stands in every line that is looked for."""


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Count links that went down, and name what else speaks against an adapter."""
    kept = lines(reply, circumstances, WORDS)
    downs = Counter(match["device"] for line in kept if (match := DOWN.search(line.text)))
    limits, found = circumstances.limits.node, []
    for device, count in downs.items():
        status = judged(count, limits.flaps_warning, limits.flaps_critical)
        if status is not Health.OK:
            found.append(Finding(status, f"{device}: link went down {count} times", count, limits.flaps_warning, "times", CABLE))
    for pattern, text, remedy in SIGNS:
        said = [line for line in kept if pattern.search(line.text)]
        if said:
            events = tuple(line.identity for line in said)
            found.append(Finding(Health.CRITICAL, f"{text}: {said[-1].whole}", len(said), 0, "lines", remedy, events=events))
    return found or [ok("no network link went down", sum(downs.values()), limits.flaps_warning, "times")]


PROBE = kernel_probe("network_log", parse, "arXiv 2403.07648, Table 3: Network Error; flaps: limits of our own")
