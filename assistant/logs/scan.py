r"""Read a log once: find what the signatures match, note which lines the filters cover, and keep what is worth showing.

The unit of matching is a *segment*: what stands between two of `\n` and `\r`. So an error that was printed behind a progress bar is
found although no `\n` stands before it; numbers count `\n` only. Per block of 4 MiB everything that grows with the number of lines
is done in NumPy.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, cast

from assistant.content.filters import Filter
from assistant.content.reasons import Herring, Signature
from assistant.logs.keeping import Block, Keeper, Runs
from assistant.logs.lines import Lines, clean, strip_ansi
from assistant.logs.reading import blocks, open_log
from assistant.logs.shapes import Shapes, worth_a_shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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


def scan_stream(stream: BinaryIO, matcher: Matcher, *, name: str = "job.log", keep_bytes: int = KEEP_BYTES) -> Scan:
    """Scan what was opened already."""
    scanner = _Scanner(matcher, keep_bytes)
    scanner.read(stream)
    return scanner.result(name, False)


class _Segments(NamedTuple):
    """Where the segments of a block start and end, and which line each belongs to."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    r"""Offset of the `\n` or `\r` behind each segment (the length of the block for an unfinished one)."""
    line_of: NDArray[np.int64] | None
    """0-based line within the block; None when every segment is a line."""
    lines: int
    """Lines of the block, an unfinished one included."""
    finished: bool
    r"""Whether the block ends with `\n`."""

    def line_ends(self) -> NDArray[np.int64]:
        """Return the offsets behind the lines."""
        import numpy as np

        return self.ends if self.line_of is None else self.ends[np.flatnonzero(np.diff(self.line_of, append=-1))]


def _segments(block: bytes) -> _Segments:
    import numpy as np

    data = np.frombuffer(block, dtype=np.uint8)
    finished = block.endswith(b"\n")
    several = b"\r" in block
    ends = np.flatnonzero((data == 10) | (data == 13) if several else data == 10)
    is_line = data[ends] == 10 if several else None
    if not finished:
        ends = np.append(ends, len(block))
        is_line = None if is_line is None else np.append(is_line, True)
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    if is_line is None:
        return _Segments(data, starts, ends, None, len(ends), finished)
    line_of = np.concatenate(([0], np.cumsum(is_line)[:-1]))
    return _Segments(data, starts, ends, line_of, int(is_line.sum()), finished)


def _joined(block: bytes, segments: _Segments, rest: Any) -> bytes:
    r"""Return some segments of a block, each with a `\n` behind it."""
    import numpy as np

    text = block if segments.line_of is None else block.replace(b"\r", b"\n")
    if len(rest) == len(segments.ends):
        return text
    breaks = np.flatnonzero(np.diff(rest) > 1)
    firsts = segments.starts[np.concatenate((rest[:1], rest[breaks + 1]))].tolist()
    lasts = segments.ends[np.concatenate((rest[breaks], rest[-1:]))].tolist()
    return b"".join([text[first : last + 1] for first, last in zip(firsts, lasts, strict=True)])


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
        segments = _segments(block)
        cover = self._shapes.recognise(segments.data, segments.starts, segments.ends)
        rest = np.flatnonzero(cover == 0)
        hit_lines = self._look_at(block, segments, rest, cover) if len(rest) else rest
        if segments.line_of is not None:
            cover = _line_cover(cover, segments.line_of, segments.lines)
        self._per_filter += np.bincount(cover + 1, minlength=len(self._per_filter))
        self._keeper.add(Block(self._next, block, segments.line_ends(), cover.astype(np.int16), hit_lines))
        self._next += segments.lines - (not segments.finished)
        self._unfinished = not segments.finished

    def _look_at(self, block: bytes, segments: _Segments, rest: Any, cover: Any) -> Any:
        """Let the matcher see some segments; fill in what covers them and return the lines with hits."""
        np = self._np
        left = _joined(block, segments, rest)
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

    def _note_hits(self, block: bytes, segments: _Segments, numbers: Any, at: Any) -> Any:
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

    def _hit(self, block: bytes, segments: _Segments, number: int, place: int) -> Hit:
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


def _line_cover(cover: Any, line_of: Any, lines: int) -> Any:
    """Return the cover of lines: uncovered where one segment is, else that of the last segment that is not blank."""
    import numpy as np

    line_cover = np.full(lines, -1, dtype=np.int64)
    text = cover != -1
    line_cover[line_of[text]] = cover[text]
    line_cover[line_of[cover == 0]] = 0
    return line_cover
