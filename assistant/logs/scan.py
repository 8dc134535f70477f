"""Read a log once: find what the signatures match, note which lines the filters cover, and keep what is worth showing.

An error that was printed behind a progress bar is found although no newline stands before it; numbers count newlines only.

A small log is kept whole. Of a large one: the start, the last 20,000 lines, and in between 30 lines around each hit and what no
filter covers, each within its share of bytes; of what lies between, the earliest and the latest.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from assistant.errors import InputError
from assistant.logs.covering import Block, Covering, Hit, Matcher
from assistant.logs.lines import Lines
from assistant.logs.reading import blocks, open_log, rotated

__all__ = [
    "AROUND",
    "TAIL_LINES",
    "Hit",
    "Keeper",
    "LineRuns",
    "LogPart",
    "Matcher",
    "Scan",
    "scan_log",
    "scan_rotated",
    "scan_stream",
]

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


logger = logging.getLogger(__name__)

KEEP_BYTES = 16 << 20


class LogPart(NamedTuple):
    """A file of a log that was rotated."""

    name: str
    first: int
    """Number of its first line, counted over all parts from 1."""


@dataclass(frozen=True)
class Scan:
    """The result of one pass over a log."""

    path: str
    lines_total: int
    size_bytes: int
    """Bytes read, after decompression."""
    truncated: bool
    """Whether a gzip ended early."""
    hits: list[Hit]
    """In order of line; of one entry at most the first 200 and the last 50. Herrings on lines that a filter covers are left out."""
    hit_counts: dict[str, int]
    """Lines by id of the entry, all of them."""
    filtered: dict[str, int]
    """Lines by id of the filter that covers them."""
    lines: Lines
    """All lines of a small log; else head, tail, lines that no filter covers and the surroundings of hits, as far as they fit."""
    uncovered: LineRuns
    """Numbers of lines that no filter covers and that are not blank, as far as they fit."""
    folds: dict[str, str] = field(default_factory=dict)
    """What the lines of a filter are, by its id."""
    covered: tuple[tuple[int, int, str], ...] = ()
    """(first line, last line, filter id) of runs of covered lines, in order, as far as they fit."""
    parts: tuple[LogPart, ...] = ()
    """The files, oldest first, when the log was rotated; empty when it is one file."""

    def place(self, line: int) -> tuple[str, int]:
        """Return the file in which a line stands and its number there; an empty name for the log itself."""
        part = next((part for part in reversed(self.parts) if part.first <= line), None)
        if part is None:
            return "", line
        return ("" if part is self.parts[-1] else part.name), line - part.first + 1


def scan_log(path: Path | str, matcher: Matcher, *, keep_bytes: int = KEEP_BYTES) -> Scan:
    """Scan a file, a `.gz` or `-`.

    Args:
        path: Of the log.
        matcher: The patterns.
        keep_bytes: Logs up to this size are kept whole.

    Raises:
        InputError: The path is missing, unreadable, a folder, empty or binary.
    """
    with open_log(path) as stream:
        scanner = _Scanner(matcher, keep_bytes)
        scanner.read(stream)
        return scanner.result(str(path), stream.truncated)


def scan_rotated(path: Path, matcher: Matcher, *, keep_bytes: int = KEEP_BYTES) -> Scan:
    """Scan a log with what logrotate has made of its earlier lines, as one log; lines are numbered over all parts.

    An older part that cannot be read is left out.

    Raises:
        InputError: The log itself cannot be read.
    """
    older = rotated(path)[:-1]
    if not older:
        return scan_log(path, matcher, keep_bytes=keep_bytes)
    scanner, parts = _Scanner(matcher, keep_bytes), []
    for part in older:
        try:
            with open_log(part) as stream:
                parts.append(LogPart(part.name, scanner.begin()))
                scanner.read(stream)
        except InputError as error:
            logger.warning("%s is left out: %s", part, error)
    with open_log(path) as stream:
        parts.append(LogPart(path.name, scanner.begin()))
        scanner.read(stream)
        return replace(scanner.result(str(path), stream.truncated), parts=tuple(parts))


def scan_stream(stream: BinaryIO, matcher: Matcher, *, name: str = "job.log", keep_bytes: int = KEEP_BYTES) -> Scan:
    """Scan an open stream."""
    scanner = _Scanner(matcher, keep_bytes)
    scanner.read(stream)
    return scanner.result(name, False)


class _Scanner:
    """State of a pass."""

    def __init__(self, matcher: Matcher, keep_bytes: int) -> None:
        import numpy as np

        self._np = np
        self._matcher = matcher
        self._covering = Covering(matcher)
        self._per_filter = np.zeros(len(matcher.kinds) + 2, dtype=np.int64)
        self._keeper = Keeper(keep_bytes)
        self._size = 0

    def begin(self) -> int:
        """Let the next line begin a file of its own and return its number."""
        return self._covering.begin()

    def read(self, stream: BinaryIO) -> None:
        for raw in blocks(stream):
            self._size += len(raw)
            block = self._covering.take(raw)
            if block is not None:
                self._per_filter += self._np.bincount(block.cover + 1, minlength=len(self._per_filter))
                self._keeper.add(block)

    def result(self, path: str, truncated: bool) -> Scan:
        covering, entries = self._covering, self._covering.filters
        lines, uncovered, covered = self._keeper.result()
        return Scan(
            path=path,
            lines_total=covering.next - 1 + covering.unfinished,
            size_bytes=self._size,
            truncated=truncated,
            hits=covering.hits,
            hit_counts={self._matcher.entry(number).id: count for number, count in covering.hit_lines.items()},
            filtered={entry.id: int(self._per_filter[n + 2]) for n, entry in entries.items() if self._per_filter[n + 2]},
            lines=lines,
            uncovered=uncovered,
            folds={entry.id: entry.folds for entry in entries.values()},
            covered=tuple((first, last, entries[number].id) for first, last, number in covered),
        )
