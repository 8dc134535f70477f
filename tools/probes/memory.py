"""How much memory a node has left."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, ok, unknown
from assistant.tooling import Probe

REMEDY = "see what uses it: ps aux --sort=-rss | head; look at /dev/shm"


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read /proc/meminfo: MemAvailable over MemTotal."""
    found = {name: int(kib) for name, kib in re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", reply.out, re.MULTILINE)}
    total, left = found.get("MemTotal", 0), found.get("MemAvailable")
    if not total or left is None:
        return [unknown("meminfo holds no MemTotal and MemAvailable")]
    limits = circumstances.limits.node
    share = left / total
    text = f"{share:.0%} of {total / 2**20:.0f} GiB is available"
    if share >= limits.memory_warning_share:
        return [ok(text, round(share, 4), limits.memory_warning_share, "share")]
    critical = share < limits.memory_critical_share
    limit = limits.memory_critical_share if critical else limits.memory_warning_share
    status = Health.CRITICAL if critical else Health.WARNING
    return [Finding(status, text, round(share, 4), limit, "share", REMEDY, Weight.NEVER)]


PROBE = Probe(
    name="memory", command=("cat", "/proc/meminfo"), needs="cat", parse=parse, source="limits of our own: 5 % and 1 % available"
)
