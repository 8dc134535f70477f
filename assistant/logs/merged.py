"""The logs of many ranks as one, ordered by time.

Each file keeps its own order: a line without a time, or with an earlier one than the line before it, stays behind that line. Lines
before the first time of a file go with it; a file without any time stands first. Kept per line are its file and number, six bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from assistant.logs.document import Document
from assistant.logs.marks import times_of, year_of

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
        """Lines in order."""
        return len(self._sources)

    @property
    def share(self) -> float:
        """How much is done, 0..1."""
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
