r"""Lines of a log as people see them, and a store of those that are worth keeping.

A line ends with `\n`; numbers are 1-based. Text is UTF-8 with what is broken replaced, without ANSI codes and control characters;
of each progress bar that redraws itself with `\r` the last state is left, and whatever else was printed in between.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from assistant.logs.cutting import cut_line

ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[@-Z\\^_=>])")
"""Escape sequences of terminals: colours, cursor moves, titles."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2066-\u2069\ufeff]")
_WORDS = re.compile(r"[A-Za-z_]{2,}|/\d{1,15}(?= \[)")
"""Words of a state, and the total of a bar: several programs may draw into one line, and each bar has its own."""


class Line(NamedTuple):
    """One line."""

    number: int
    text: str


def strip_ansi(block: bytes) -> bytes:
    """Return a block without escape sequences; the block itself when it holds none."""
    return ANSI.sub(b"", block) if b"\x1b" in block else block


def clean(raw: bytes) -> str:
    r"""Return the text of a raw line (without its `\n`)."""
    text = strip_ansi(cut_line(raw)).decode("utf-8", "replace").rstrip("\r")
    if "\r" in text:
        text = _last_state(text.split("\r"))
    return _CONTROL.sub("", text)


def _last_state(states: Sequence[str]) -> str:
    """Return the last state of a progress bar, after any earlier text that is no state of it."""
    latest_states: list[str] = []
    words: set[str] = set()
    for state in reversed(states[-500:]):
        own = set(_WORDS.findall(state))
        if state.strip() and (not latest_states or not own <= words):
            latest_states.append(state)
            words |= own
    return " ".join(reversed(latest_states))


class Lines(Sequence[Line]):
    """Lines in order of their numbers, with gaps where lines were not kept; cleaned when they are asked for."""

    def __init__(self, chunks: Sequence[tuple[int, bytes]] = ()) -> None:
        r"""Keep chunks of whole lines.

        Args:
            chunks: (number of the first line, bytes), ascending and not overlapping; a last `\n` ends a line, it starts none.
        """
        self._chunks = [(first, raw) for first, raw in chunks if raw]
        self._counts = [raw.count(b"\n") + (not raw.endswith(b"\n")) for _, raw in self._chunks]
        self._firsts = [first for first, _ in self._chunks]
        self._starts = [0]
        for count in self._counts:
            self._starts.append(self._starts[-1] + count)
        self._split: dict[int, list[bytes]] = {}

    @classmethod
    def of(cls, texts: Sequence[str]) -> Lines:
        """Return lines numbered from 1."""
        return cls([(1, "".join(f"{text}\n" for text in texts).encode("utf-8", "surrogatepass"))])

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Line]:
        for place in range(len(self._chunks)):
            yield from self._lines_of(place)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        """Return by position among the kept lines, not by number; `get` takes a number."""
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        place = bisect_right(self._starts, position) - 1
        return self._line(place, position - self._starts[place])

    def get(self, number: int) -> Line | None:
        """Return the line of a number, None where it was not kept or does not exist."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0 or number >= self._firsts[place] + self._counts[place]:
            return None
        return self._line(place, number - self._firsts[place])

    def window(self, first: int, last: int) -> list[Line]:
        """Return the kept lines from number `first` to number `last`, both included."""
        place = max(bisect_right(self._firsts, first) - 1, 0)
        lines: list[Line] = []
        while place < len(self._chunks) and self._firsts[place] <= last:
            start = max(first - self._firsts[place], 0)
            stop = min(last + 1 - self._firsts[place], self._counts[place])
            lines += [self._line(place, offset) for offset in range(start, stop)]
            place += 1
        return lines

    def tail(self, count: int) -> list[Line]:
        """Return the last `count` kept lines, oldest first."""
        return [self[position] for position in range(max(len(self) - count, 0), len(self))]

    def _raw(self, place: int) -> list[bytes]:
        if place not in self._split:
            if len(self._split) > 8:  # a split chunk weighs several times its bytes
                self._split.clear()
            self._split[place] = self._chunks[place][1].split(b"\n")
        return self._split[place]

    def _line(self, place: int, offset: int) -> Line:
        return Line(self._firsts[place] + offset, clean(self._raw(place)[offset]))

    def _lines_of(self, place: int) -> Iterator[Line]:
        raw = self._raw(place)
        for offset in range(self._counts[place]):
            yield Line(self._firsts[place] + offset, clean(raw[offset]))
