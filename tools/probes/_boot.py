"""When a node was booted."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from assistant.ports import Reply

COMMAND = ("cat", "/proc/uptime")


def booted(reply: Reply, now: datetime) -> datetime | None:
    """Return when, from /proc/uptime and the time at which it was read; None when that cannot be read."""
    match = re.match(r"(\d+\.\d+) \d+\.\d+\s*$", reply.out)
    return (now - timedelta(seconds=float(match.group(1)))).astimezone(UTC) if match else None
