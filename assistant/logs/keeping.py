"""Decide which lines of a log stay in memory, and remember in runs what covers the others.

A small log is kept whole. Of a large one: the start, the last 20,000 lines, and in between 30 lines around each hit and what no
filter covers, each within its share of bytes; of what lies between, the earliest and the latest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from assistant.logs.lines import Lines

TAIL_LINES, AROUND = 20_000, 30
_MIDDLE_FIRST, _MIDDLE_LAST, _TAIL_BYTES = 12 << 20, 8 << 20, 12 << 20
_MAX_RUNS = 100_000
_PER_CHUNK = 150  # what Python adds to the bytes of a chunk


class LineRuns:
    """Ascending line numbers, stored as runs."""

    def __init__(self, runs: list[tuple[int, int]]) -> None:
        self.runs = runs
        """(first, last), both included."""
        self._firsts = [first for first, _ in runs]

    def __iter__(self) -> Iterator[int]:
        for first, last in self.runs:
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.runs)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        place = bisect_right(self._firsts, number) - 1
        return place >= 0 and number <= self.runs[place][1]


class Block(NamedTuple):
    """A scanned block of whole lines."""

    first: int
    """Number of its first line."""
    text: bytes
    ends: Any
    """Offset behind each line's text."""
    cover: Any
    """Per line -1 blank, 0 uncovered, n + 1 for filter n."""
    hits: Any
    """0-based lines of the block with hits, ascending."""
    errors: Any
    """0-based lines of the block that a signature matches, or with an alarm word that nothing excuses; ascending."""


class Keeper:
    """Takes block after block; bounded in memory however long the log is.

    The newest blocks wait in the tail; what falls out of it is condensed.
    """

    def __init__(self, keep_bytes: int) -> None:
        self._head_room = keep_bytes
        self._head: list[tuple[int, bytes]] = []
        self._tail: deque[Block] = deque()
        self._tail_lines = self._tail_bytes = 0
        self._first: list[tuple[int, bytes]] = []
        self._first_room = _MIDDLE_FIRST
        self._last: deque[tuple[int, bytes]] = deque()
        self._last_bytes = 0
        self._hit_before = -AROUND
        self._uncovered = _Bounded()
        self._covered = _Bounded()

    def add(self, block: Block) -> None:
        """Take the next block."""
        self._note_runs(block)
        if self._head_room > 0:
            self._head_room -= len(block.text)
            self._head.append((block.first, block.text))
            return
        self._tail.append(block)
        self._tail_lines += len(block.cover)
        self._tail_bytes += len(block.text)
        while len(self._tail) > 1 and self._too_much(self._tail[0]):
            self._condense(self._tail.popleft())

    def result(self) -> tuple[Lines, LineRuns, list[tuple[int, int, int]]]:
        """Return the kept lines, the uncovered runs and the covered runs (first, last, filter number)."""
        tail = [(block.first, block.text) for block in self._tail]
        uncovered = LineRuns([(first, last) for first, last, _ in self._uncovered.all()])
        return Lines([*self._head, *self._first, *self._last, *tail]), uncovered, self._covered.all()

    def _too_much(self, oldest: Block) -> bool:
        enough_lines = self._tail_lines - len(oldest.cover) >= TAIL_LINES
        if not enough_lines and self._tail_bytes <= _TAIL_BYTES:
            return False
        self._tail_lines -= len(oldest.cover)
        self._tail_bytes -= len(oldest.text)
        return True

    def _note_runs(self, block: Block) -> None:
        import numpy as np

        edges = np.flatnonzero(np.diff(block.cover)) + 1
        starts = np.concatenate(([0], edges))
        stops = np.concatenate((edges, [len(block.cover)]))
        kinds = block.cover[starts]
        for is_kind, runs in ((kinds == 0, self._uncovered), (kinds > 0, self._covered)):
            first, last = starts[is_kind] + block.first, stops[is_kind] + (block.first - 1)
            runs.extend(list(zip(first.tolist(), last.tolist(), (kinds[is_kind] - 1).tolist(), strict=True)))

    def _condense(self, block: Block) -> None:
        """Keep what no filter covers and what stands around hits."""
        for start, stop in self._ranges(block):
            begin = int(block.ends[start - 1]) + 1 if start else 0
            text = block.text[begin : int(block.ends[stop - 1]) + 1]
            if self._first_room > 0:
                self._first_room -= len(text) + _PER_CHUNK
                self._first.append((block.first + start, text))
                continue
            self._last.append((block.first + start, text))
            self._last_bytes += len(text) + _PER_CHUNK
            while self._last_bytes > _MIDDLE_LAST:
                self._last_bytes -= len(self._last.popleft()[1]) + _PER_CHUNK

    def _ranges(self, block: Block) -> list[tuple[int, int]]:
        """Return runs [start, stop) of 0-based lines; runs with gaps of at most three lines are one."""
        import numpy as np

        count = len(block.cover)
        later = self._tail[0].hits[:1] + (self._tail[0].first - block.first)
        near = np.concatenate(([self._hit_before - block.first], block.hits, later))
        if len(block.hits):
            self._hit_before = int(block.hits[-1]) + block.first
        steps = np.zeros(count + 1, dtype=np.int64)
        np.add.at(steps, np.clip(near - AROUND, 0, count), 1)
        np.add.at(steps, np.clip(near + AROUND + 1, 0, count), -1)
        kept_lines = np.flatnonzero((np.cumsum(steps)[:count] > 0) | (block.cover == 0))
        if not len(kept_lines):
            return []
        breaks = np.flatnonzero(np.diff(kept_lines) > 4)
        starts = np.concatenate((kept_lines[:1], kept_lines[breaks + 1]))
        stops = np.concatenate((kept_lines[breaks], kept_lines[-1:])) + 1
        return list(zip(starts.tolist(), stops.tolist(), strict=True))


class _Bounded:
    """The first and the latest runs of a long row."""

    def __init__(self) -> None:
        self._first: list[tuple[int, int, int]] = []
        self._last: deque[tuple[int, int, int]] = deque(maxlen=_MAX_RUNS // 2)

    def extend(self, runs: list[tuple[int, int, int]]) -> None:
        room = max(_MAX_RUNS // 2 - len(self._first), 0)
        self._first += runs[:room]
        self._last.extend(runs[room:])

    def all(self) -> list[tuple[int, int, int]]:
        return [*self._first, *self._last]
