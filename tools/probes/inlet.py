"""How warm the air is that a node draws in."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, judged, ok, unknown
from assistant.tooling import Probe

READING = re.compile(r"^\s*inlet[^|\n]*?\s\+?(-?\d+(?:\.\d+)?)\s*C\b", re.IGNORECASE | re.MULTILINE)


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read `ipmitool dcmi get_temp_reading`; of several inlets the warmest counts."""
    found = [float(match) for match in READING.findall(reply.out)]
    if not found:
        return [unknown("the board names no inlet temperature")]
    limits, most = circumstances.limits.node, max(found)
    status = judged(most, limits.inlet_warning_c, limits.inlet_critical_c)
    if status is Health.OK:
        return [ok(f"inlet at {most:.0f} C", most, limits.inlet_warning_c, "C")]
    limit = limits.inlet_critical_c if status is Health.CRITICAL else limits.inlet_warning_c
    return [
        Finding(status, f"inlet at {most:.0f} C, limit {limit:.0f} C", most, limit, "C", "look at the room's cooling", Weight.NEVER)
    ]


PROBE = Probe(
    name="inlet",
    command=("ipmitool", "dcmi", "get_temp_reading"),
    needs="ipmitool",
    parse=parse,
    source="ASHRAE TC 9.9, classes A1 and A3",
    package="ipmitool",
    witness="bmc",
    hardware="bmc",
)
