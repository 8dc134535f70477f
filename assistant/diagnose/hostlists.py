"""Spread lists as Slurm writes them: hosts `node[001-003,7]`, tasks `0-3,7`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from assistant.diagnose.streams import host_like

_HOSTLIST = re.compile(r"(?:^|(?<=,))([^,\[]++(?:\[[^\[\]]*+\])?[^,\[]*+)(?:,|$)")
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
    """Return the names of a Slurm host list such as `node[001-003,7],login1`."""
    names: list[str] = []
    for match in _HOSTLIST.finditer(hostlist):
        part = match.group(1).strip()
        head, bracket, rest = part.partition("[")
        if not bracket:
            names += [part] if part and host_like(part) else []
            continue
        inside, _, tail = rest.partition("]")
        for item in inside.split(","):
            low, _, high = item.partition("-")
            if low.isdigit() and (high.isdigit() or not high):
                for number in range(int(low), min(int(high or low), int(low) + limit) + 1):
                    names.append(f"{head}{number:0{len(low)}}{tail}")
    return names[:limit]
