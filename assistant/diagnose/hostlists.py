"""Spread lists as Slurm writes them: hosts `node[001-003,7]`, tasks `0-3,7`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from assistant import nodeset
from assistant.diagnose.streams import host_like
from assistant.errors import UsageError

_NUMBERS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
MOST_NUMBERS = 100_000
"""Of one line: more ranks than any job has."""


def numbers(text: str) -> Iterable[int]:
    """Yield the numbers of a list such as `0-3,7`."""
    left = MOST_NUMBERS
    for part in text.split(","):
        match = _NUMBERS.fullmatch(part)
        if match is not None and left > 0:
            low, high = int(match[1]), int(match[2] or match[1])
            high = min(high, low + left - 1)
            left -= max(high - low + 1, 0)
            yield from range(low, high + 1)


def expand(hostlist: str, limit: int = 4096) -> list[str]:
    """Return the machines of a host list such as `node[001-003,7],login1`; none where it is no list or names more than `limit`."""
    try:
        names = nodeset.expand(hostlist, limit=limit)
    except UsageError:
        return []
    return [name for name in names if host_like(name)]
