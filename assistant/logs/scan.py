r"""Read a log once: find what the signatures match, note which lines the filters cover, and keep what is worth showing.

The unit of matching is a *segment*: what stands between two of `\n` and `\r`. So an error that was printed behind a progress bar is
found although no `\n` stands before it; numbers count `\n` only. Per block of 4 MiB everything that grows with the number of lines
is done in NumPy.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, cast

from assistant.content.filters import Filter
from assistant.content.reasons import Herring, Signature
from assistant.errors import InputError
from assistant.logs.keeping import Block, Keeper, Runs
from assistant.logs.lines import Lines, clean, strip_ansi
from assistant.logs.reading import blocks, open_log, rotated
from assistant.logs.segments import Segments, joined, line_cover, segments_of
from assistant.logs.shapes import Shapes, worth_a_shape

if TYPE_CHECKING:
    pass

logger = logging.getLogger(__name__)

FIRST_HITS, LAST_HITS = 200, 50
"""How many hits of one entry are kept, from the start and from the end."""
KEEP_BYTES = 16 << 20
WORTH, TRIES = 32, 6
"""Lines of a block that a filter must cover before shapes are learnt from them, and from how many of them."""
SIGNATURE, HERRING, FILTER, WHOLE, ALARM = range(5)


class Matcher(Protocol):
    """All patterns at once; `assistant.rules.matching.Patterns` is one."""

    kinds: bytes
    """Kind of each pattern number: 0 signature, 1 herring, 2 filter, 3 filter of a whole line, 4 alarm word."""

    def telling(self, block: bytes) -> list[int]:
        """Return pattern number and end offset, in turn, of every match of a signature, herring or alarm word."""
        ...

    def routine(self, block: bytes) -> list[int]:
        """Return pattern number and end offset, in turn, of every match of a filter."""
        ...

    def telling_digits(self, line: bytes) -> list[tuple[int, int]] | None:
        """Return (start, end) of where other digits might make a signature match; None when one does, or an alarm word."""
        ...

    def entry(self, number: int) -> Signature | Herring | Filter:
        """Return what a pattern number below the alarm words stands for."""
        ...


class Hit(NamedTuple):
    """A line that a signature or herring matches."""

    entry: Signature | Herring
    line: int
    text: str
    """The segment that matched, cleaned."""


class Part(NamedTuple):
    """A file of a log that was rotated."""

    name: str
    first: int
    """Number of its first line, counted over all parts from 1."""


@dataclass(frozen=True)
class Scan:
    """What one pass over a log found."""

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
    uncovered: Runs
    """Numbers of lines that no filter covers and that are not blank, as far as they fit."""
    folds: dict[str, str] = field(default_factory=dict)
    """What the lines of a filter are, by its id."""
    covered: tuple[tuple[int, int, str], ...] = ()
    """(first line, last line, filter id) of runs of covered lines, in order, as far as they fit."""
    parts: tuple[Part, ...] = ()
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
                parts.append(Part(part.name, scanner.begin()))
                scanner.read(stream)
        except InputError as error:
            logger.warning("%s is left out: %s", part, error)
    with open_log(path) as stream:
        parts.append(Part(path.name, scanner.begin()))
        scanner.read(stream)
        return replace(scanner.result(str(path), stream.truncated), parts=tuple(parts))


def scan_stream(stream: BinaryIO, matcher: Matcher, *, name: str = "job.log", keep_bytes: int = KEEP_BYTES) -> Scan:
    """Scan what was opened already."""
    scanner = _Scanner(matcher, keep_bytes)
    scanner.read(stream)
    return scanner.result(name, False)


class _Scanner:
    """State of a pass."""

    def __init__(self, matcher: Matcher, keep_bytes: int) -> None:
        import numpy as np

        self._np = np
        self._matcher = matcher
        self._kinds = np.frombuffer(matcher.kinds, dtype=np.uint8)
        self._whole = np.append(self._kinds, 0)[np.arange(-1, len(self._kinds))] == WHOLE  # by cover: number + 1
        self._shapes = Shapes()
        self._per_filter = np.zeros(len(matcher.kinds) + 2, dtype=np.int64)
        self._hits: dict[int, tuple[list[Hit], deque[Hit]]] = {}
        self._hit_lines: dict[int, int] = {}
        self._keeper = Keeper(keep_bytes)
        self._size = 0
        self._next = 1  # number of the line with which the next block starts
        self._unfinished = False

    def begin(self) -> int:
        """Let the next line begin a file of its own and return its number."""
        self._next += self._unfinished
        self._unfinished = False
        return self._next

    def read(self, stream: BinaryIO) -> None:
        for raw in blocks(stream):
            self._size += len(raw)
            block = strip_ansi(raw)
            if b"\r" in block:
                block = block.replace(b"\r\n", b"\n")
            if block:
                self._take(block)

    def _take(self, block: bytes) -> None:
        np = self._np
        segments = segments_of(block)
        cover = self._shapes.recognise(segments.data, segments.starts, segments.ends)
        rest = np.flatnonzero(cover == 0)
        hit_lines = self._look_at(block, segments, rest, cover) if len(rest) else rest
        if segments.line_of is not None:
            cover = line_cover(cover, segments.line_of, segments.lines)
        self._per_filter += np.bincount(cover + 1, minlength=len(self._per_filter))
        self._keeper.add(Block(self._next, block, segments.line_ends(), cover.astype(np.int16), hit_lines))
        self._next += segments.lines - (not segments.finished)
        self._unfinished = not segments.finished

    def _look_at(self, block: bytes, segments: Segments, rest: Any, cover: Any) -> Any:
        """Let the matcher see some segments; fill in what covers them and return the lines with hits."""
        np = self._np
        left = joined(block, segments, rest)
        left_ends = np.cumsum(segments.ends[rest] - segments.starts[rest] + 1) - 1
        numbers, at, match_kinds = self._matches(self._matcher.telling(left), left_ends)
        own = self._own_cover(left, left_ends)
        own[segments.ends[rest] == segments.starts[rest]] = -1
        own[at[match_kinds == SIGNATURE]] = 0
        alarms = at[match_kinds == ALARM]
        own[alarms[~self._whole[own[alarms]]]] = 0
        cover[rest] = own
        self._learn(left, left_ends, own)
        hits = (match_kinds == SIGNATURE) | ((match_kinds == HERRING) & (own[at] == 0))
        return self._note_hits(block, segments, numbers[hits], rest[at[hits]])

    def _matches(self, flat: list[int], ends: Any) -> tuple[Any, Any, Any]:
        """Return number, segment and kind of each match."""
        np = self._np
        matches = np.array(flat, dtype=np.int64)
        return matches[0::2], np.searchsorted(ends, np.maximum(matches[1::2] - 1, 0)), self._kinds[matches[0::2]]

    def _own_cover(self, left: bytes, left_ends: Any) -> Any:
        """Return n + 1 for each segment that filter n covers, 0 for the others."""
        own = self._np.zeros(len(left_ends), dtype=self._np.int64)
        numbers, at, match_kinds = self._matches(self._matcher.routine(left), left_ends)
        for kind in (FILTER, WHOLE):
            chosen = match_kinds == kind
            own[at[chosen]] = numbers[chosen] + 1
        return own

    def _learn(self, left: bytes, left_ends: Any, own: Any) -> None:
        """Learn the shapes of lines that a filter covers often."""
        np = self._np
        counts = np.bincount(np.maximum(own, 0))
        for number in (np.flatnonzero(counts[1:] >= WORTH) + 1).tolist():
            places = np.flatnonzero(own == number)
            for place in places[:: max(len(places) // TRIES, 1)].tolist():
                line = left[int(left_ends[place - 1]) + 1 if place else 0 : int(left_ends[place]) + 1]
                firm = self._matcher.telling_digits(line) if worth_a_shape(line) else None
                if firm is not None:
                    self._shapes.learn(line, number - 1, firm)

    def _note_hits(self, block: bytes, segments: Segments, numbers: Any, at: Any) -> Any:
        """Keep the hits of a block and return the 0-based lines on which they stand, ascending."""
        np = self._np
        if not len(numbers):
            return np.empty(0, np.int64)
        pairs = np.unique(np.stack((numbers, at), axis=1), axis=0)
        for number in np.unique(pairs[:, 0]).tolist():
            places = pairs[pairs[:, 0] == number, 1]
            first, last = self._hits.setdefault(number, ([], deque(maxlen=LAST_HITS)))
            self._hit_lines[number] = self._hit_lines.get(number, 0) + len(places)
            room = FIRST_HITS - len(first)
            first += [self._hit(block, segments, number, place) for place in places[:room].tolist()]
            last.extend(self._hit(block, segments, number, place) for place in places[max(room, 0) :][-LAST_HITS:].tolist())
        hit_segments = np.unique(pairs[:, 1])
        return hit_segments if segments.line_of is None else np.unique(segments.line_of[hit_segments])

    def _hit(self, block: bytes, segments: Segments, number: int, place: int) -> Hit:
        line = place if segments.line_of is None else int(segments.line_of[place])
        entry = cast(Signature | Herring, self._matcher.entry(number))
        return Hit(entry, self._next + line, clean(block[int(segments.starts[place]) : int(segments.ends[place])]))

    def result(self, path: str, truncated: bool) -> Scan:
        hits = [hit for first, last in self._hits.values() for hit in (*first, *last)]
        entries = {n: self._matcher.entry(n) for n, kind in enumerate(self._matcher.kinds) if kind in (FILTER, WHOLE)}
        lines, uncovered, covered = self._keeper.result()
        return Scan(
            path=path,
            lines_total=self._next - 1 + self._unfinished,
            size_bytes=self._size,
            truncated=truncated,
            hits=sorted(hits, key=lambda hit: hit.line),
            hit_counts={self._matcher.entry(number).id: count for number, count in self._hit_lines.items()},
            filtered={entry.id: int(self._per_filter[n + 2]) for n, entry in entries.items() if self._per_filter[n + 2]},
            lines=lines,
            uncovered=uncovered,
            folds={entry.id: entry.folds for entry in entries.values() if isinstance(entry, Filter)},
            covered=tuple((first, last, entries[number].id) for first, last, number in covered),
        )
