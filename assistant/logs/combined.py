"""Several logs of one attempt as one text in order of time, as `srun --label` would have written it, with where each line stands.

Lines with a time are ordered by it, each file keeping its own order: a line without a time, or with an earlier one than the line
before it, stays behind that line. `Merged` orders the documents of the log browser, six bytes a line; lines before the first time
of a file go with it, and a file without any time stands first. `combine` orders what diagnosis reads: there a file without any time
is cut behind its last training step: what stands before goes first, what stands behind goes last, the file that was written last at
the very end. So an error at the end of one rank's file never looks as if training had gone on behind it because another rank's file
follows.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from assistant.errors import InputError
from assistant.logs.attempt import STREAMS, LogFile
from assistant.logs.declared import LogOrigin
from assistant.logs.document import Document
from assistant.logs.json_records import expanded
from assistant.logs.lines import Lines
from assistant.logs.metrics import metric_points
from assistant.logs.prefix import times_of, year_of
from assistant.logs.reading import open_log, refuse_binary, rotated
from assistant.untrusted import open_regular, status_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_LINES = 4_000_000
"""Lines that are merged; of more the last ones of each file."""


class LinePlace(NamedTuple):
    """A line of one of the files."""

    source: int
    """Position of its file, from 0."""
    number: int
    """1-based."""


class Merged:
    """Lines of several documents in order of time, as far as they were read."""

    def __init__(self, documents: Sequence[Document], most: int = MOST_LINES) -> None:
        """Begin; nothing is read before `build`."""
        import numpy as np

        self.documents = documents
        self.limited = False
        """Whether earlier lines were left out because there are too many."""
        self.complete = False
        self._most = most
        self._times: list[list[NDArray[np.int64]]] = [[] for _ in documents]
        self._next = [1 for _ in documents]
        self._firsts = [1 for _ in documents]
        self._keys = [0 for _ in documents]
        self._at = 0
        self._sources = np.empty(0, dtype=np.uint16)
        self._numbers = np.empty(0, dtype=np.uint32)
        self._by_source = self._bounds = np.empty(0, dtype=np.int64)
        self._positions_of = -1

    @property
    def count(self) -> int:
        """How many lines are in order."""
        return len(self._sources)

    @property
    def share(self) -> float:
        """How much of the files was ordered, 0..1."""
        return 1.0 if self.complete else self._at / max(2 * len(self.documents), 1)

    @property
    def has_unordered(self) -> bool:
        """Whether documents have numbered lines that are not in order yet."""
        return any(document.count >= first for document, first in zip(self.documents, self._next, strict=True))

    def build(self) -> bool:
        """Do one step: number some lines, read the times of some, or put all in order.

        Returns:
            Whether more is left to do.
        """
        if self.complete:
            return False
        files = len(self.documents)
        if self._at < files:
            if not self.documents[self._at].build():
                self._at += 1
            if self._at == files:
                self._limit()
        elif self._at < 2 * files:
            source = self._at - files
            if not self._read_times(source):
                self._at += 1
        else:
            self._append()
            self.complete = True
        return not self.complete

    def extend(self) -> int:
        """Put lines that the documents have more of behind the others, in order among themselves; return how many."""
        before = self.count
        for source in range(len(self.documents)):
            while self._read_times(source):
                pass
        self._append()
        return self.count - before

    def places(self, first: int, count: int) -> list[LinePlace]:
        """Return what stands from a position on, counted from 0."""
        part = slice(first, first + count)
        return [LinePlace(*pair) for pair in zip(self._sources[part].tolist(), self._numbers[part].tolist(), strict=True)]

    def position(self, place: LinePlace) -> int | None:
        """Return where a line stands; None when it is not (yet) among the merged ones."""
        index = place.number - self._firsts[place.source]
        positions = self.positions(place.source)
        return int(positions[index]) if 0 <= index < len(positions) else None

    def positions(self, source: int) -> NDArray[np.int64]:
        """Return where the lines of one file stand, from `first_of` on."""
        import numpy as np

        if self._positions_of != self.count:  # sorted once for all files
            self._by_source = np.argsort(self._sources, kind="stable")
            self._bounds = np.searchsorted(self._sources[self._by_source], np.arange(len(self.documents) + 1))
            self._positions_of = self.count
        return self._by_source[self._bounds[source] : self._bounds[source + 1]]

    def first_of(self, source: int) -> int:
        """Return the number of the first merged line of a file."""
        return self._firsts[source]

    def _limit(self) -> None:
        share = self._most // max(len(self.documents), 1)
        if sum(document.count for document in self.documents) <= self._most:
            return
        self.limited = True
        for source, document in enumerate(self.documents):
            self._next[source] = self._firsts[source] = max(document.count - share, 0) + 1

    def _read_times(self, source: int) -> bool:
        """Read the times of the next block of a file; tell whether there was one."""
        block = next(self.documents[source].blocks(self._next[source]), None)
        if block is None:
            return False
        lines = block[1].removesuffix(b"\n").split(b"\n")
        self._times[source].append(times_of(lines))
        self._next[source] += len(lines)
        return True

    def _append(self) -> None:
        import numpy as np

        waiting = [np.concatenate(times) if times else np.empty(0, np.int64) for times in self._times]
        self._times = [[] for _ in self.documents]
        year = next((file_year for times in waiting if (file_year := _year(times)) is not None), None)
        keys = [self._ordered(source, times, year) for source, times in enumerate(waiting)]
        order = np.argsort(np.concatenate(keys), kind="stable")
        sizes = [len(key) for key in keys]
        sources = np.repeat(np.arange(len(sizes), dtype=np.uint16), sizes)
        starts = [stop - size for stop, size in zip(self._next, sizes, strict=True)]
        numbers = np.concatenate([np.arange(s, s + n, dtype=np.uint32) for s, n in zip(starts, sizes, strict=True)])
        self._sources = np.concatenate((self._sources, sources[order]))
        self._numbers = np.concatenate((self._numbers, numbers[order]))

    def _ordered(self, source: int, times: NDArray[np.int64], year: int | None) -> NDArray[np.int64]:
        """Return keys that never fall, and remember the last one."""
        import numpy as np

        if year is not None:
            times = in_year(times, year)
        if not self._keys[source] and len(stamped := times[times > 0]):
            self._keys[source] = int(stamped[0])  # lines before it go with it
        keys = np.maximum.accumulate(np.maximum(times, self._keys[source]))
        if len(keys):
            self._keys[source] = int(keys[-1])
        return keys


def _year(times: NDArray[np.int64]) -> int | None:
    stamped = times[times > 0]
    return year_of(int(stamped[len(stamped) // 2])) if len(stamped) else None


def in_year(times: NDArray[np.int64], year: int) -> NDArray[np.int64]:
    """Return times with those that carry no year moved into that of the files that do."""
    import numpy as np

    start, later = (int(np.datetime64(f"{y}-01-01", "us").astype(np.int64)) for y in (2000, year))
    bare = (times >= start) & (times < start + 366 * 86_400 * 1_000_000)
    leap_day = 86_400 * 1_000_000 * (not _leap(year))  # DEFAULT_YEAR is a leap year
    march = start + 60 * 86_400 * 1_000_000
    moved = times - start + later - np.where(times >= march, leap_day, 0)
    return np.where(bare, moved, times)


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


MOST_BYTES = 32 << 20
"""Of all files together; of a longer file its beginning and, seven times as much, its end."""
MAIN = "job.log"
_BLOCK = 4 << 20
_FIRST, _LAST = -(1 << 62), 1 << 62


class FilePiece(NamedTuple):
    """Lines of one file that follow on one another."""

    name: str
    """Of the file, as citations give it."""
    numbers: NDArray[np.int64]
    """Of its lines, ascending; several lines of one record have the same."""
    lines: list[bytes]


@dataclass(frozen=True)
class Combined:
    """One text made of several logs."""

    text: bytes
    names: tuple[str, ...]
    """Of the files, as citations give them."""
    unread: tuple[str, ...]
    """Why a file is not part of it, each with its path."""
    _sources: NDArray[np.int32]
    _numbers: NDArray[np.int64]
    _labels: tuple[str, ...]
    _timed: tuple[bool, ...] = ()
    """Of each piece, whether its lines have times."""

    def place(self, line: int) -> tuple[str, int]:
        """Return the file and the number in it of a line of the text, both counted from 1; the line itself where it has none."""
        if not 1 <= line <= len(self._sources):
            return "", line
        name = self.names[self._sources[line - 1]]
        return "" if name == MAIN else name, int(self._numbers[line - 1])

    def line_of(self, name: str, number: int) -> int | None:
        """Return the line of the text at which a line of a file stands; None where that was not read."""
        import numpy as np

        sources = [place for place, source_name in enumerate(self.names) if source_name == name]
        at = np.flatnonzero(np.isin(self._sources, sources) & (self._numbers == number))
        return int(at[0]) + 1 if len(at) else None

    def comparable(self, line: int, other_line: int) -> bool:
        """Tell whether of two lines the later one was printed later: in one file always, else where both files have times."""
        if not (1 <= line <= len(self._sources) and 1 <= other_line <= len(self._sources)):
            return True
        file, other_file = int(self._sources[line - 1]), int(self._sources[other_line - 1])
        is_same = file == other_file or self.names[file] == self.names[other_file]
        return is_same or (self._timed[file] and self._timed[other_file])

    @property
    def apart(self) -> bool:
        """Whether the order of the files' lines is not known: there are several, and not all have times."""
        return len(set(self.names)) > 1 and not all(self._timed)

    def label_of(self, line: int) -> str:
        """Return what was put before a line of the text to say whose it is."""
        return self._labels[self._sources[line - 1]] if 1 <= line <= len(self._sources) else ""

    def stream(self) -> io.BytesIO:
        """Return the text for a scanner."""
        return io.BytesIO(self.text)


def names_of(files: Sequence[LogFile]) -> list[str]:
    """Return how citations name files: `job.log` for standard output, else the shortest end of the path that no other has."""
    names: list[str] = []
    paths = [file.path for file in files]
    for file in files:
        if file.origin is LogOrigin.OUTPUT:
            names.append(MAIN)
            continue
        parts = file.path.parts
        for count in range(1, len(parts) + 1):
            name = "/".join(parts[-count:])
            if name != MAIN and sum(path.parts[-count:] == parts[-count:] for path in paths) == 1:
                break
        names.append(name)
    return names


def combine(files: Sequence[LogFile], *, most_bytes: int = MOST_BYTES) -> Combined:
    """Return readable files as one text.

    Args:
        files: Of one attempt, as `job_logs` returns them; what cannot be read is left out and named in `unread`.
        most_bytes: Of all files together.
    """
    import numpy as np

    ranked = len({file.rank for file in files if file.rank is not None}) > 1
    placed = len({file.node for file in files if file.node}) > 1
    order = sorted(zip(names_of(files), files, strict=True), key=lambda pair: _place_in_row(pair[1]))
    share = max(most_bytes // max(1, len(files)), 64 << 10)
    pieces: list[FilePiece] = []
    labels: list[str] = []
    timed: list[bool] = []
    keys: list[NDArray[np.int64]] = []
    problems: list[str] = []
    stamped: list[tuple[int, NDArray[np.int64]]] = []
    for place, (name, file) in enumerate(order):
        try:
            own = _read(name, file, share)
        except (OSError, InputError) as error:
            problems.append(f"{file.path}: {error}")
            continue
        label = f"{file.rank}: " if ranked and file.rank is not None else f"{file.node}: " if placed and file.node else ""
        lines = [line for piece in own for line in piece.lines]
        times = times_of(lines)
        key = _untimed(lines, place) if not times.any() else times
        if times.any():
            stamped.append((len(keys), times))
        pieces += own
        labels += [label] * len(own)
        timed += [bool(times.any())] * len(own)
        keys.append(key)
    year = next((file_year for _, times in stamped if (file_year := _year(times)) is not None), None)
    for place, times in stamped:
        keys[place] = _timed(in_year(times, year) if year is not None else times)
    sources = np.repeat(np.arange(len(pieces), dtype=np.int32), [len(piece.lines) for piece in pieces])
    numbers = [piece.numbers for piece in pieces]
    ordered = np.argsort(np.concatenate(keys), kind="stable") if keys else np.empty(0, dtype=np.int64)
    labelled_lines = [_labelled(label, line) for piece, label in zip(pieces, labels, strict=True) for line in piece.lines]
    text = b"".join(labelled_lines[at] + b"\n" for at in ordered.tolist())
    all_numbers = np.concatenate(numbers) if numbers else np.empty(0, dtype=np.int64)
    return Combined(
        text,
        tuple(piece.name for piece in pieces),
        tuple(problems),
        sources[ordered],
        all_numbers[ordered],
        tuple(labels),
        tuple(timed),
    )


def _labelled(label: str, line: bytes) -> bytes:
    return label.encode() + line if label and line else line


def _place_in_row(file: LogFile) -> tuple[float, int, int]:
    """Return the order in which files without times end: the one that was written last at the end, errors behind output."""
    modified_s = file.written.timestamp() if file.written is not None else 0.0
    return round(modified_s, 1), {LogOrigin.OUTPUT: 0, LogOrigin.ERROR: 2}.get(file.origin, 1), file.rank or 0


def _read(name: str, file: LogFile, share: int) -> list[FilePiece]:
    """Return the lines of a file, those that logrotate moved away first.

    Raises:
        InputError: It is no log.
        OSError: It cannot be read.
    """
    pieces: list[FilePiece] = []
    if file.origin in STREAMS and not file.begin:
        for older in rotated(file.path)[:-1]:
            try:
                if file.written is None or status_of(older).st_ino == file.inode:
                    continue
                with open_log(older) as stream:
                    pieces.append(_piece(older.name, 1, stream.read(share)))
            except (OSError, InputError):
                continue
    return pieces + _cut(name, file, share)


def _cut(name: str, file: LogFile, share: int) -> list[FilePiece]:
    if file.path.suffix == ".gz":
        with open_log(file.path) as stream:
            return [_piece(name, 1, stream.read(share))]
    with open_regular(file.path) as raw:
        size = os.fstat(raw.fileno()).st_size
        first = 1 + _newlines(raw, 0, file.begin)
        raw.seek(file.begin)
        head = _up_to(raw, share // 8 if size - file.begin > share else share)
        if not head:
            return []
        refuse_binary(head[: 64 << 10], str(file.path))
        head_end = file.begin + len(head)
        if head_end >= size or size - file.begin <= share:
            return [_piece(name, first, head)]
        begin = max(head_end, size - share * 7 // 8)
        raw.seek(begin)
        tail = _up_to(raw, size - begin)
        # the cut may go through a line: what is left of it is dropped
        skipped = tail.find(b"\n") + 1
        head = head[: head.rfind(b"\n") + 1]
        number = first + _newlines(raw, file.begin, begin + skipped)
        return [_piece(name, first, head), _piece(name, number, tail[skipped:])]


def _up_to(raw: io.FileIO, count: int) -> bytes:
    parts: list[bytes] = []
    while count > 0 and (part := raw.read(min(count, _BLOCK))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _newlines(raw: io.FileIO, begin: int, end: int) -> int:
    count = 0
    raw.seek(begin)
    while begin < end and (part := raw.read(min(_BLOCK, end - begin))):
        count += part.count(b"\n")
        begin += len(part)
    return count


def _piece(name: str, first: int, raw: bytes) -> FilePiece:
    import numpy as np

    lines, positions = expanded(raw.removesuffix(b"\n").split(b"\n") if raw else [])
    return FilePiece(name, np.array(positions, dtype=np.int64) + first, lines)


def _untimed(lines: Sequence[bytes], place: int) -> NDArray[np.int64]:
    """Return the keys of a file without times: training first, what follows it last, in the order of the files."""
    import numpy as np

    points = metric_points(Lines([(1, b"\n".join(lines) + b"\n")]))
    last = points[-1].line if points else 0
    last = max(last, next((number for number in range(len(lines), last, -1) if b"%|" in lines[number - 1]), 0))
    keys = np.full(len(lines), _LAST + place, dtype=np.int64)
    keys[:last] = _FIRST
    return keys


def _timed(times: NDArray[np.int64]) -> NDArray[np.int64]:
    import numpy as np

    first = times[times > 0][0]  # lines before the first time go with it
    keys: NDArray[np.int64] = np.maximum.accumulate(np.maximum(times, first))
    return keys
