"""How full the file system is in which commands run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assistant.ports import Reply
from assistant.tooling import Probe

WARNING_PERCENT = 90
CRITICAL_PERCENT = 98


def parse(reply: Reply) -> Mapping[str, Any]:
    """Read `df -P`: the fifth column of the second line is the share in use."""
    words = reply.out.splitlines()[-1].split() if reply.out.strip() else []
    if len(words) < 6 or not words[4].rstrip("%").isdigit():
        return {"status": "unknown", "text": "df printed nothing that could be read"}
    used = int(words[4].rstrip("%"))
    status = "critical" if used >= CRITICAL_PERCENT else "warning" if used >= WARNING_PERCENT else "ok"
    return {"status": status, "text": f"{used} % of {words[5]} is in use", "used_percent": used}


PROBE = Probe(name="disk", command=("df", "-P", "."), needs="df", parse=parse, source="limits of our own: 90 % and 98 %")
