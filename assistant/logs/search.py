"""Find the lines of a log that one pattern matches, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from assistant.logs.lines import Line, clean, strip_ansi
from assistant.logs.reading import blocks, open_log


class Found(NamedTuple):
    """Lines that match."""

    total: int
    """All of them."""
    lines: list[Line]
    """The first ones and the last ones, in order."""


def search(path: Path | str, ends: Callable[[bytes], list[int]], *, most: int = 50) -> Found:
    """Search a log.

    Args:
        path: Of the log.
        ends: Returns the end offset of every match in a block; `assistant.rules.matching.search_in` makes one.
        most: Lines to return: the first half of them from the start, the others from the end.

    Raises:
        InputError: The path is missing, unreadable, a folder, empty or binary.
    """
    first: list[Line] = []
    last: deque[Line] = deque(maxlen=max(most - most // 2, 1))
    count, number = 0, 1
    with open_log(path) as stream:
        for raw in blocks(stream):
            block = strip_ansi(raw)
            matched: dict[int, tuple[int, int]] = {}
            seen = place = 0
            for end in ends(block):
                place += block.count(b"\n", seen, max(end - 1, seen))
                seen = max(end - 1, seen)
                matched[place] = (block.rfind(b"\n", 0, seen) + 1, block.find(b"\n", seen))
            for place, (start, stop) in matched.items():
                line = Line(number + place, clean(block[start : stop if stop >= 0 else len(block)]))
                (first if len(first) < most // 2 else last).append(line)
            count += len(matched)
            number += block.count(b"\n")
    return Found(count, [*first, *last])
