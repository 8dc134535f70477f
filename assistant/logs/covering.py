r"""Tell of each line of a log which filter covers it and which signatures match it, block after block.

The unit of matching is a *segment*: what stands between two of `\n` and `\r`. Per block everything that grows with the number of
lines is done in NumPy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from assistant.content.reading import Filter
from assistant.content.reasons import Herring, Signature
from assistant.logs.lines import clean, cut_lines, strip_ansi

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FIRST_HITS, LAST_HITS = 200, 50
"""How many hits of one entry are kept, from the start and from the end."""
WORTH, TRIES = 32, 6
"""Lines of a block that a filter must cover before shapes are learnt from them, and from how many of them."""
SIGNATURE, HERRING, FILTER, WHOLE_LINE, ALARM = range(5)


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


class Covering:
    """What covers each line of one log, fed block after block."""

    def __init__(self, matcher: Matcher) -> None:
        """Begin at line 1."""
        import numpy as np

        self._np = np
        self._matcher = matcher
        self._kinds = np.frombuffer(matcher.kinds, dtype=np.uint8)
        self._covers_whole_line = np.append(self._kinds, 0)[np.arange(-1, len(self._kinds))] == WHOLE_LINE  # by cover: number + 1
        self._shapes = Shapes()
        self._hits: dict[int, tuple[list[Hit], deque[Hit]]] = {}
        self.hit_lines: dict[int, int] = {}
        """Lines by pattern number, all of them."""
        self.next = 1
        """Number of the line with which the next block starts."""
        self.unfinished = False
        """Whether the last line has no end yet: the next block goes on with it."""

    @property
    def hits(self) -> list[Hit]:
        """The first and the last lines that each signature and herring matches, in order of line."""
        hits = [hit for first, last in self._hits.values() for hit in (*first, *last)]
        return sorted(hits, key=lambda hit: hit.line)

    @property
    def filters(self) -> dict[int, Filter]:
        """The filters by pattern number."""
        return {
            n: cast(Filter, self._matcher.entry(n)) for n, kind in enumerate(self._matcher.kinds) if kind in (FILTER, WHOLE_LINE)
        }

    def begin(self) -> int:
        """Let the next line begin a file of its own and return its number."""
        self.next += self.unfinished
        self.unfinished = False
        return self.next

    def take(self, raw: bytes) -> Block | None:
        """Cover the next lines; None when nothing is left of them but escape sequences."""
        block = strip_ansi(raw)
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        return self._covered(cut_lines(block)) if block else None

    def _covered(self, block: bytes) -> Block:
        np = self._np
        segments = segments_of(block)
        cover = self._shapes.recognise(segments.data, segments.starts, segments.ends)
        uncovered = np.flatnonzero(cover == 0)
        hit_lines, error_lines = self._look_at(block, segments, uncovered, cover) if len(uncovered) else (uncovered, uncovered)
        if segments.line_of is not None:
            cover = line_cover(cover, segments.line_of, segments.lines)
        covered = Block(self.next, block, segments.line_ends(), cover.astype(np.int16), hit_lines, error_lines)
        self.next += segments.lines - (not segments.finished)
        self.unfinished = not segments.finished
        return covered

    def _look_at(self, block: bytes, segments: Segments, uncovered: Any, cover: Any) -> tuple[Any, Any]:
        """Let the matcher see some segments; fill in what covers them and return the lines with hits and those with errors."""
        np = self._np
        open_text = joined(block, segments, uncovered)
        left_ends = np.cumsum(segments.ends[uncovered] - segments.starts[uncovered] + 1) - 1
        numbers, at, match_kinds = self._matches(self._matcher.telling(open_text), left_ends)
        own = self._own_cover(open_text, left_ends)
        own[segments.ends[uncovered] == segments.starts[uncovered]] = -1
        own[at[match_kinds == SIGNATURE]] = 0
        alarms = at[match_kinds == ALARM]
        own[alarms[~self._covers_whole_line[own[alarms]]]] = 0
        cover[uncovered] = own
        self._learn(open_text, left_ends, own)
        hits = (match_kinds == SIGNATURE) | ((match_kinds == HERRING) & (own[at] == 0))
        errors = (match_kinds == SIGNATURE) | ((match_kinds == ALARM) & (own[at] == 0))
        excused = at[match_kinds == HERRING]
        error_segments = np.setdiff1d(at[errors], excused)
        error_lines = _lines_of(segments, uncovered[error_segments])
        return self._note_hits(block, segments, numbers[hits], uncovered[at[hits]]), error_lines

    def _matches(self, flat: list[int], ends: Any) -> tuple[Any, Any, Any]:
        """Return number, segment and kind of each match."""
        np = self._np
        matches = np.array(flat, dtype=np.int64)
        return matches[0::2], np.searchsorted(ends, np.maximum(matches[1::2] - 1, 0)), self._kinds[matches[0::2]]

    def _own_cover(self, open_text: bytes, left_ends: Any) -> Any:
        """Return n + 1 for each segment that filter n covers, 0 for the others."""
        own = self._np.zeros(len(left_ends), dtype=self._np.int64)
        numbers, at, match_kinds = self._matches(self._matcher.routine(open_text), left_ends)
        for kind in (FILTER, WHOLE_LINE):
            is_kind = match_kinds == kind
            own[at[is_kind]] = numbers[is_kind] + 1
        return own

    def _learn(self, open_text: bytes, left_ends: Any, own: Any) -> None:
        """Learn the shapes of lines that a filter covers often."""
        np = self._np
        counts = np.bincount(np.maximum(own, 0))
        for number in (np.flatnonzero(counts[1:] >= WORTH) + 1).tolist():
            places = np.flatnonzero(own == number)
            for place in places[:: max(len(places) // TRIES, 1)].tolist():
                line = open_text[int(left_ends[place - 1]) + 1 if place else 0 : int(left_ends[place]) + 1]
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
            self.hit_lines[number] = self.hit_lines.get(number, 0) + len(places)
            room = FIRST_HITS - len(first)
            first += [self._hit(block, segments, number, place) for place in places[:room].tolist()]
            last.extend(self._hit(block, segments, number, place) for place in places[max(room, 0) :][-LAST_HITS:].tolist())
        return _lines_of(segments, np.unique(pairs[:, 1]))

    def _hit(self, block: bytes, segments: Segments, number: int, place: int) -> Hit:
        line = place if segments.line_of is None else int(segments.line_of[place])
        entry = cast(Signature | Herring, self._matcher.entry(number))
        return Hit(entry, self.next + line, clean(block[int(segments.starts[place]) : int(segments.ends[place])]))


def _lines_of(segments: Segments, places: Any) -> Any:
    """Return the lines of some segments, ascending."""
    import numpy as np

    return places if segments.line_of is None else np.unique(segments.line_of[places])


# Cut a block into segments: what stands between two of `\n` and `\r`. All of it in NumPy, nothing per line.


class Segments(NamedTuple):
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


def segments_of(block: bytes) -> Segments:
    """Return the segments of a block that is not empty."""
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
        return Segments(data, starts, ends, None, len(ends), finished)
    line_of = np.concatenate(([0], np.cumsum(is_line)[:-1]))
    return Segments(data, starts, ends, line_of, int(is_line.sum()), finished)


def joined(block: bytes, segments: Segments, chosen_segments: Any) -> bytes:
    r"""Return some segments of a block, each with a `\n` behind it."""
    import numpy as np

    text = block if segments.line_of is None else block.replace(b"\r", b"\n")
    if len(chosen_segments) == len(segments.ends):
        return text
    breaks = np.flatnonzero(np.diff(chosen_segments) > 1)
    firsts = segments.starts[np.concatenate((chosen_segments[:1], chosen_segments[breaks + 1]))].tolist()
    lasts = segments.ends[np.concatenate((chosen_segments[breaks], chosen_segments[-1:]))].tolist()
    return b"".join([text[first : last + 1] for first, last in zip(firsts, lasts, strict=True)])


def line_cover(cover: Any, line_of: Any, lines: int) -> Any:
    """Return the cover of lines: uncovered where one segment is, else that of the last segment that is not blank."""
    import numpy as np

    line_cover = np.full(lines, -1, dtype=np.int64)
    text = cover != -1
    line_cover[line_of[text]] = cover[text]
    line_cover[line_of[cover == 0]] = 0
    return line_cover


# Know routine lines again, thousands at once, without asking the pattern engine.
#
# Routine lines come by the million and differ in their digits only. A *shape* is a whole line in which any digit may stand where
# a digit stood, except where the digits matter: `number of nan iterations:   0` with another digit would be a signature. It is
# learnt from a line that a filter covers and in which no signature or alarm word matches, so a line that has the shape needs no
# further look. (A filter must not care which digits stand in a line; a contract test holds all shipped ones to it.)

LONGEST_SHAPE = 1024
"""Bytes of a line that is worth a shape."""
MOST_SHAPES = 32
"""Shapes kept at a time; the one that was of least use lately goes first."""


class _Shape(NamedTuple):
    filter: int
    text: NDArray[np.uint8]
    """The line and its newline, `0` for every digit."""
    slack: NDArray[np.uint8]
    """9 where a digit stands, else 0: how far a byte may be from `text`, bit by bit."""


class Shapes:
    """The shapes learnt so far from one log."""

    def __init__(self) -> None:
        self._by_shape: dict[bytes, _Shape] = {}
        self._use: dict[bytes, int] = {}

    def recognise(self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each line 0, or the number + 1 of the filter whose shape it has.

        Args:
            data: The block.
            starts: Offset of each line; ascending.
            ends: Offset of the newline behind each.
        """
        import numpy as np

        cover = np.zeros(len(starts), dtype=np.int64)
        lengths = ends - starts + 1
        if self._by_shape and ends[-1] == len(data):
            lengths[-1] = 0  # an unfinished line has no newline to compare
        heads: dict[int, tuple[NDArray[np.int64], NDArray[np.uint8]]] = {}
        for key in sorted(self._by_shape, key=lambda shape_key: -self._use[shape_key]):
            size, shape = len(key), self._by_shape[key]
            if size not in heads:
                rows = np.flatnonzero(lengths == size)
                heads[size] = rows, _windows(data, size)[starts[rows]]
            rows, lines = heads[size]
            fits = ((lines ^ shape.text) <= shape.slack).all(axis=1)
            cover[rows[fits]] = shape.filter + 1
            heads[size] = rows[~fits], lines[~fits]
            self._use[key] = self._use[key] // 2 + int(fits.sum())
        return cover

    def learn(self, line: bytes, number: int, firm: Sequence[tuple[int, int]]) -> None:
        """Remember the shape of a line.

        Args:
            line: With its newline.
            number: Of the filter that covers it.
            firm: (start, end) of where digits must be the same.
        """
        import numpy as np

        text = bytearray(line.translate(_NO_DIGITS))
        free = np.frombuffer(text, dtype=np.uint8) == ord("0")
        for start, end in firm:
            text[start:end] = line[start:end]
            free[start:end] = False
        key = bytes(text)
        if key in self._by_shape:
            return
        if len(self._by_shape) >= MOST_SHAPES:
            least = min(self._use, key=lambda shape_key: self._use[shape_key])
            del self._by_shape[least], self._use[least]
        self._by_shape[key] = _Shape(number, np.frombuffer(key, dtype=np.uint8), np.where(free, 9, 0).astype(np.uint8))
        self._use[key] = len(key)


def _windows(data: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return every run of `size` bytes as a row, without copying."""
    import numpy as np

    return np.lib.stride_tricks.as_strided(data, (max(len(data) - size + 1, 0), size), (1, 1), writeable=False)


def worth_a_shape(line: bytes) -> bool:
    """Tell whether a line is finished and not too long."""
    return line.endswith(b"\n") and len(line) <= LONGEST_SHAPE


_NO_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
