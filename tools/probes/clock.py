"""Whether a node's clock goes right: against the clock of the machine that asks, and by what chrony says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, judged, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._shell import CLOCK

REMEDY = "systemctl restart chronyd; chronyc tracking; collectives and credentials fail when clocks differ"
LEAP_LOST = "Not synchronised"


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Compare the node's time with when it was asked and when it answered: only what lies outside is an error."""
    match = re.match(r"(\d{9,11})(\.\d+)?", reply.out.strip())
    if match is None:
        return [unknown("date printed no time")]
    node = datetime.fromtimestamp(float(match.group()), UTC)
    asked = circumstances.asked or circumstances.now
    skew = max(0.0, (asked - node).total_seconds(), (node - circumstances.now).total_seconds())
    limits = circumstances.limits.node
    status = judged(skew, limits.skew_warning_s, limits.skew_critical_s)
    if status is not Health.OK:
        limit = limits.skew_critical_s if status is Health.CRITICAL else limits.skew_warning_s
        way = "behind" if node < asked else "ahead"
        return [Finding(status, f"clock is {skew:.1f} s {way}", round(skew, 3), limit, "s", REMEDY, Weight.NEVER)]
    fields = reply.out.strip().splitlines()[-1].split(",")
    if len(fields) >= 14 and fields[13].strip() == LEAP_LOST:
        return [Finding(Health.WARNING, "chrony has no time source", "Not synchronised", "Normal", "", REMEDY, Weight.NEVER)]
    return [ok("clock goes right", round(skew, 3), limits.skew_warning_s, "s")]


PROBE = Probe(name="clock", command=CLOCK, needs="date", parse=parse, source="limits of our own: 1 s and 10 s", package="coreutils")
