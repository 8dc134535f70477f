"""Find the lines of a log that one pattern matches, in bounded memory."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from assistant.linear_patterns import typed_pattern
from assistant.logs.lines import Line, clean, strip_ansi
from assistant.logs.reading import blocks, open_log

Ends = Callable[[bytes], list[int]]
"""Returns offsets in a block, ascending: each behind the last byte of a match, or behind the newline of a line that matches."""


_EACH_BYTE = "nightshift-each-byte"


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\x7f" * (error.end - error.start), error.end


codecs.register_error(_EACH_BYTE, _each_byte)


class SearchHit(NamedTuple):
    """Lines that match."""

    total: int
    """All of them."""
    lines: list[Line]
    """The first ones and the last ones, in order."""


def typed_search(pattern: str, *, caseless: bool) -> Ends:
    """Return a function that finds the lines of a block that match a pattern which somebody typed, or a model wrote.

    Args:
        pattern: For one line, as RE2 takes it; the time of a search grows with the length of the text alone.
        caseless: Capital and small letters are the same.

    Raises:
        UsageError: RE2 refuses it.
    """
    matcher = typed_pattern(pattern, caseless=caseless)

    def ends(block: bytes) -> list[int]:
        if not block.isascii():  # what is no UTF-8 would match nothing, not even `.`; every byte keeps its place
            block = block.decode("utf-8", _EACH_BYTE).encode()
        places: list[int] = []
        searched_to = 0
        while match := matcher.search(block, searched_to):
            start = match.start()
            if start == len(block) and block[-1:] in (b"", b"\n"):
                break  # no line begins there
            searched_to = block.find(b"\n", start) + 1
            places.append(searched_to or len(block) + 1)
            if not searched_to:
                break
        return places

    return ends


def matched_lines(block: bytes, ends: Ends, number: int) -> Iterator[Line]:
    """Yield the lines of a block that match, each once.

    Args:
        block: Whole lines, without escape sequences.
        ends: Finds the matches.
        number: Of the block's first line.
    """
    place, counted_to, last = number, 0, -1
    for end in ends(block):
        place += block.count(b"\n", counted_to, max(end - 1, counted_to))
        counted_to = max(end - 1, counted_to)
        if place == last:
            continue
        last = place
        stop = block.find(b"\n", counted_to)
        yield Line(place, clean(block[block.rfind(b"\n", 0, counted_to) + 1 : stop if stop >= 0 else len(block)]))


def search(path: Path | str, ends: Ends, *, most: int = 50) -> SearchHit:
    """Search a log.

    Args:
        path: Of the log.
        ends: Finds the matches in a block; `typed_search` makes one.
        most: Lines to return: the first half of them from the start, the others from the end.

    Raises:
        InputError: The path is missing, unreadable, a folder, empty or binary.
    """
    first: list[Line] = []
    last: deque[Line] = deque(maxlen=max(most - most // 2, 1))
    count, number = 0, 1
    with open_log(path) as stream:
        for block in map(strip_ansi, blocks(stream)):
            for line in matched_lines(block, ends, number):
                (first if len(first) < most // 2 else last).append(line)
                count += 1
            number += block.count(b"\n")
    return SearchHit(count, [*first, *last])
