"""How much memory a node has left."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from assistant.ports import Reply
from assistant.tooling import Probe

WARNING_SHARE = 0.05
CRITICAL_SHARE = 0.01


def parse(reply: Reply) -> Mapping[str, Any]:
    """Read /proc/meminfo: MemAvailable over MemTotal."""
    found = {name: int(kib) for name, kib in re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", reply.out, re.MULTILINE)}
    total, left = found.get("MemTotal", 0), found.get("MemAvailable")
    if not total or left is None:
        return {"status": "unknown", "text": "meminfo holds no MemTotal and MemAvailable"}
    share = left / total
    status = "critical" if share < CRITICAL_SHARE else "warning" if share < WARNING_SHARE else "ok"
    return {"status": status, "text": f"{share:.0%} of {total / 2**20:.0f} GiB is available", "available_share": round(share, 4)}


PROBE = Probe(
    name="memory", command=("cat", "/proc/meminfo"), needs="cat", parse=parse, source="limits of our own: 5 % and 1 % available"
)
