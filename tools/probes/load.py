"""Whether processes pile up on a node: tasks that wait, or that hang in the kernel, for each processor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from assistant.ports import Reply
from assistant.tooling import Probe

WARNING_PER_CPU = 4.0


def parse(reply: Reply) -> Mapping[str, Any]:
    """Read /proc/loadavg and /proc/cpuinfo after it; high load is never more than a warning."""
    load = re.match(r"([\d.]+) ([\d.]+) ([\d.]+) \d+/\d+ \d+", reply.out)
    cpus = len(re.findall(r"^processor\s*:", reply.out, re.MULTILINE))
    if load is None:
        return {"status": "unknown", "text": "loadavg could not be read"}
    five = float(load.group(2))
    per_cpu = five / max(1, cpus)
    status = "warning" if per_cpu >= WARNING_PER_CPU else "ok"
    return {
        "status": status,
        "text": f"load {five:g} over five minutes on {cpus or 'unknown'} processors",
        "per_cpu": round(per_cpu, 2),
    }


PROBE = Probe(
    name="load",
    command=("cat", "/proc/loadavg", "/proc/cpuinfo"),
    needs="cat",
    parse=parse,
    source="limit of our own: 4 tasks a processor over five minutes",
)
