"""The lines that are looked at, in order: those of one file, of files merged, or of either only some ranks'."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from assistant.logs.document import Document
from assistant.logs.folding import FoldRun, KeyedLine
from assistant.logs.merged import LinePlace, Merged
from assistant.logs.passes import Cover, SearchHits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class LineSequence(Protocol):
    """Lines by position, from 0."""

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    def place(self, position: int) -> LinePlace:
        """Return which line stands at a position."""
        ...

    def position(self, place: LinePlace) -> int | None:
        """Return where a line stands; of one that is left out where the next one does, None where there is none."""
        ...

    def positions_of_hits(self, hits: SearchHits) -> NDArray[np.int64]:
        """Return the positions of lines that a pass found, ascending."""
        ...

    def runs(self, cover: Cover) -> list[FoldRun]:
        """Return covered runs by position."""
        ...

    def keyed_lines(self, cover: Cover) -> list[KeyedLine]:
        """Return uncovered lines by position."""
        ...


class Single:
    """All lines of one document."""

    def __init__(self, document: Document, source: int) -> None:
        """Look at a document; `source` is its position among all."""
        self.document, self.source = document, source

    @property
    def count(self) -> int:
        """How many have numbers."""
        return self.document.count

    def place(self, position: int) -> LinePlace:
        """Return the line of a position."""
        return LinePlace(self.source, position + 1)

    def position(self, place: LinePlace) -> int | None:
        """Return where a line stands; None for one of another document."""
        return place.number - 1 if place.source == self.source and 0 < place.number <= self.count else None

    def positions_of_hits(self, hits: SearchHits) -> NDArray[np.int64]:
        """Return positions of lines that were found."""
        import numpy as np

        return np.frombuffer(hits.numbers[self.source], dtype=np.uint32).astype(np.int64) - 1

    def runs(self, cover: Cover) -> list[FoldRun]:
        """Return covered runs by position."""
        return [FoldRun(first - 1, last - 1, kind) for first, last, kind in cover.runs[self.source]]

    def keyed_lines(self, cover: Cover) -> list[KeyedLine]:
        """Return uncovered lines by position."""
        return [KeyedLine(number - 1, key, rank) for number, key, rank in cover.uncovered_lines[self.source]]


class Interleaved:
    """The lines of several documents in order of time."""

    def __init__(self, merged: Merged) -> None:
        """Look at merged documents."""
        self.merged = merged

    @property
    def count(self) -> int:
        """How many are in order."""
        return self.merged.count

    def place(self, position: int) -> LinePlace:
        """Return the line of a position."""
        return self.merged.places(position, 1)[0]

    def position(self, place: LinePlace) -> int | None:
        """Return where a line stands."""
        return self.merged.position(place)

    def positions_of_hits(self, hits: SearchHits) -> NDArray[np.int64]:
        """Return positions of lines that were found."""
        import numpy as np

        parts = [self._at(source, numbers) for source, numbers in enumerate(hits.numbers) if len(numbers)]
        return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)

    def runs(self, cover: Cover) -> list[FoldRun]:
        """Return covered runs by position: one of a file is in several pieces here."""
        import numpy as np

        kinds = np.full(self.count, _NONE, dtype=np.int16)
        for source, runs in enumerate(cover.runs):
            positions, first = self.merged.positions(source), self.merged.first_of(source)
            for run in runs:
                kinds[positions[max(run.first - first, 0) : max(run.last + 1 - first, 0)]] = run.kind
        edges = np.concatenate(([0], np.flatnonzero(np.diff(kinds)) + 1, [len(kinds)])) if len(kinds) else np.zeros(1, int)
        covered = np.flatnonzero(kinds[edges[:-1]] != _NONE)
        firsts, lasts, own = edges[covered].tolist(), (edges[covered + 1] - 1).tolist(), kinds[edges[covered]].tolist()
        return [FoldRun(*run) for run in zip(firsts, lasts, own, strict=True)]

    def keyed_lines(self, cover: Cover) -> list[KeyedLine]:
        """Return uncovered lines by position."""
        lines: list[KeyedLine] = []
        for source, source_lines in enumerate(cover.uncovered_lines):
            positions, first = self.merged.positions(source), self.merged.first_of(source)
            block_lines = [line for line in source_lines if 0 <= line.position - first < len(positions)]
            lines += [KeyedLine(int(positions[line.position - first]), line.key, line.rank) for line in block_lines]
        return sorted(lines)

    def _at(self, source: int, numbers: Sequence[int]) -> NDArray[np.int64]:
        import numpy as np

        places = np.asarray(numbers, dtype=np.int64) - self.merged.first_of(source)
        positions = self.merged.positions(source)
        return positions[places[(places >= 0) & (places < len(positions))]]


_NONE = -2


class Picked:
    """Some lines of another sequence."""

    def __init__(self, of: LineSequence, picked: NDArray[np.int64]) -> None:
        """Keep the positions in `picked`, ascending."""
        self.of, self._picked = of, picked

    @property
    def count(self) -> int:
        """How many were picked."""
        return len(self._picked)

    def place(self, position: int) -> LinePlace:
        """Return the line of a position."""
        return self.of.place(int(self._picked[position]))

    def position(self, place: LinePlace) -> int | None:
        """Return where a line stands, or else the next one that was picked."""
        lower = self.of.position(place)
        if lower is None or not self.count:
            return None
        return min(bisect_left(self._picked, lower), self.count - 1)

    def positions_of_hits(self, hits: SearchHits) -> NDArray[np.int64]:
        """Return positions of lines that were found."""
        import numpy as np

        lower = self.of.positions_of_hits(hits)
        places = np.searchsorted(self._picked, lower)
        in_range = places < self.count
        places, lower = places[in_range], lower[in_range]
        picked: NDArray[np.int64] = places[self._picked[places] == lower]
        return picked

    def runs(self, cover: Cover) -> list[FoldRun]:
        """Return covered runs by position."""
        lower_runs = self.of.runs(cover)
        edges = self._edges(run.first for run in lower_runs), self._edges(run.last + 1 for run in lower_runs)
        pairs = zip(lower_runs, *edges, strict=True)
        return [FoldRun(first, stop - 1, run.kind) for run, first, stop in pairs if stop > first]

    def keyed_lines(self, cover: Cover) -> list[KeyedLine]:
        """Return uncovered lines by position."""
        lower_lines = self.of.keyed_lines(cover)
        starts, stops = self._edges(line.position for line in lower_lines), self._edges(line.position + 1 for line in lower_lines)
        return [KeyedLine(at, line.key, line.rank) for line, at, stop in zip(lower_lines, starts, stops, strict=True) if stop > at]

    def _edges(self, positions: Iterable[int]) -> list[int]:
        import numpy as np

        edges: list[int] = np.searchsorted(self._picked, np.fromiter(positions, dtype=np.int64)).tolist()
        return edges
