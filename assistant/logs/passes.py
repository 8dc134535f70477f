"""What the log browser reads of several documents: passes over them in the background, counts per rank, and their lines in order.

Passes go block by block and go on where lines were appended. The counts note which rank fell silent first: there a hang began. The
lines in order are those of one file, of files merged, or of either only some ranks'.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from assistant.logs.combined import LinePlace, Merged
from assistant.logs.compress import BLANK, FoldRun, KeyedLine, key_of
from assistant.logs.covering import Block, Covering, Matcher
from assistant.logs.document import Document
from assistant.logs.lines import clean, strip_ansi
from assistant.logs.prefix import NO_RANK, parse, ranks_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LOOKED_BACK = 12
"""Lines of a rank in which its last time is looked for: a traceback has none."""


@dataclass(slots=True)
class RankTally:
    """How many lines and errors one rank wrote, and when it wrote last."""

    rank: int
    """`NO_RANK` for lines that name none."""
    lines: int = 0
    errors: int = 0
    """Lines that a signature matches, or with an alarm word that nothing excuses."""
    source: int = 0
    """Position of the file of its last line, from 0."""
    last: int = 0
    """Number of its last line in that file."""
    last_at: datetime | None = None
    """The last time it printed."""


class RankCounts:
    """Tallies of all ranks, fed block after block."""

    def __init__(self) -> None:
        """Begin without a rank."""
        self._tallies: dict[int, RankTally] = {}

    def take(self, block: Block, *, source: int = 0, rank: int | None = None) -> Any:
        """Count the lines of a block and return the rank of each.

        Args:
            block: Covered lines.
            source: Position of their file.
            rank: Whose file it is; a line that names a rank is that one's.
        """
        import numpy as np

        ranks = ranks_of(block.text, block.ends)
        if rank is not None:
            ranks[ranks == NO_RANK] = rank
        order = np.argsort(ranks, kind="stable")
        block_ranks, starts = np.unique(ranks[order], return_index=True)
        errors = np.bincount(np.searchsorted(block_ranks, ranks[block.errors]), minlength=len(block_ranks))
        stops = [*starts[1:].tolist(), len(ranks)]
        for own, start, stop, wrong in zip(block_ranks.tolist(), starts.tolist(), stops, errors.tolist(), strict=True):
            tally = self._tallies.setdefault(own, RankTally(own))
            tally.lines += stop - start
            tally.errors += wrong
            latest = order[max(start, stop - LOOKED_BACK) : stop].tolist()
            tally.source, tally.last = source, block.first + latest[-1]
            at = _last_time(block, latest)
            if at is not None and (tally.last_at is None or at > tally.last_at):
                tally.last_at = at
        return ranks

    def tallies(self) -> list[RankTally]:
        """Return one tally a rank, by rank; lines without a rank come first."""
        return [self._tallies[rank] for rank in sorted(self._tallies)]


def by_silence(tallies: Iterable[RankTally]) -> list[RankTally]:
    """Return the ranks in the order in which they fell silent, the first one first.

    By their last times where all have one; else, within one file, by their last lines; ranks of several files without times cannot
    be told apart and the list is empty.
    """
    ranks = [tally for tally in tallies if tally.rank != NO_RANK]
    if ranks and all(tally.last_at is not None for tally in ranks):
        return sorted(ranks, key=lambda tally: (tally.last_at, tally.last))
    if len({tally.source for tally in ranks}) == 1:
        return sorted(ranks, key=lambda tally: tally.last)
    return []


def _last_time(block: Block, places: list[int]) -> datetime | None:
    """Return the time of the last of some lines that has one."""
    for place in reversed(places):
        start = int(block.ends[place - 1]) + 1 if place else 0
        at = parse(clean(block.text[start : min(int(block.ends[place]), start + 200)])).at
        if at is not None:
            return at
    return None


MOST_FOUND = 5_000_000
"""Line numbers that one pass keeps, over all documents."""
MOST_RUNS = 100_000
"""Runs of covered lines that are kept; lines behind them are not folded."""
MOST_SAID = 100_000
"""Uncovered lines that are compared with one another; those behind them are not folded."""


class Pass:
    """One reading of all documents; give each block to `take`."""

    def __init__(self, documents: Sequence[Document], take: Callable[[int, int, bytes], None]) -> None:
        """Begin before the first line.

        Args:
            documents: In order.
            take: Gets the position of the document, the number of the first line, and whole lines.
        """
        self._documents = documents
        self._take = take
        self._next = [1 for _ in documents]
        self._at = 0

    @property
    def share(self) -> float:
        """How much was read, 0..1."""
        total = sum(document.count for document in self._documents)
        return min(sum(number - 1 for number in self._next) / total, 1.0) if total else 1.0

    def step(self) -> bool:
        """Read one block; tell whether there was one."""
        while self._at < len(self._documents):
            source = self._at
            block = next(self._documents[source].blocks(self._next[source]), None)
            if block is not None:
                self._take(source, *block)
                self._next[source] += max(block[1].count(b"\n"), 1)
                return True
            self._at += 1
        return False

    def restart(self) -> None:
        """Look for lines that were appended."""
        self._at = 0


class SearchHits:
    """Numbers of lines, per document."""

    def __init__(self, sources: int) -> None:
        """Begin without hits."""
        self.numbers = [array("I") for _ in range(sources)]
        self.count = 0

    @property
    def full(self) -> bool:
        """Whether there are too many to keep more."""
        return self.count >= MOST_FOUND

    def add(self, source: int, numbers: Collection[int]) -> None:
        """Add lines of a document, ascending."""
        if not self.full:
            self.numbers[source].extend(numbers)
        self.count += len(numbers)


class Search(SearchHits):
    """Finds the lines that a pattern matches."""

    def __init__(self, sources: int, ends: Callable[[bytes], list[int]]) -> None:
        """Search with a function that gives the end offset of every match in a block."""
        super().__init__(sources)
        self._ends = ends

    def take(self, source: int, number: int, block: bytes) -> None:
        """Search a block."""
        text = strip_ansi(block)
        matched: list[int] = []
        place = counted_to = 0
        for end in self._ends(text):
            place += text.count(b"\n", counted_to, max(end - 1, counted_to))
            counted_to = max(end - 1, counted_to)
            if not matched or matched[-1] != number + place:
                matched.append(number + place)
        self.add(source, matched)


class OfRanks(SearchHits):
    """Finds the lines of some ranks."""

    def __init__(self, sources: int, ranks: Collection[int], file_ranks: Sequence[int | None]) -> None:
        """Find lines of `ranks`; a line that names none is of the rank of its file."""
        super().__init__(sources)
        self._ranks = sorted(ranks)
        self._file_ranks = file_ranks

    def take(self, source: int, number: int, block: bytes) -> None:
        """Note the lines of the wanted ranks in a block."""
        import numpy as np

        ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == 10)
        if not block.endswith(b"\n"):
            ends = np.append(ends, len(block))
        ranks = ranks_of(block, ends)
        own = self._file_ranks[source]
        if own is not None:
            ranks[ranks == NO_RANK] = own
        self.add(source, (np.flatnonzero(np.isin(ranks, self._ranks)) + number).tolist())


class Cover:
    """What covers the lines of each document, what the others say, and the tallies of the ranks."""

    def __init__(self, matcher: Matcher, file_ranks: Sequence[int | None]) -> None:
        """Begin before the first line of each document."""
        self.counts = RankCounts()
        self.runs: list[list[FoldRun]] = [[] for _ in file_ranks]
        """Positions are line numbers."""
        self.uncovered_lines: list[list[KeyedLine]] = [[] for _ in file_ranks]
        """Positions are line numbers."""
        self._covering = Covering(matcher)
        self._file_ranks = file_ranks
        self._runs_left, self._said_left = MOST_RUNS, MOST_SAID

    @property
    def names(self) -> dict[int, str]:
        """What the lines of a filter are, by its pattern number."""
        return {number: entry.folds for number, entry in self._covering.filters.items()}

    def take(self, source: int, number: int, block: bytes) -> None:
        """Take a block of a document."""
        import numpy as np

        covering = self._covering
        covering.next, covering.unfinished = number, False
        covered = covering.take(block)
        if covered is None:
            return
        ranks = self.counts.take(covered, source=source, rank=self._file_ranks[source])
        if self._runs_left > 0:
            edges = np.concatenate(([0], np.flatnonzero(np.diff(covered.cover)) + 1, [len(covered.cover)]))
            kinds = covered.cover[edges[:-1]]
            covered_runs = np.flatnonzero(kinds)
            self._runs_left -= len(covered_runs)
            self._note_runs(source, number + edges[covered_runs], number + edges[covered_runs + 1] - 1, kinds[covered_runs])
        uncovered = np.flatnonzero(covered.cover == 0)[: self._said_left]
        self._said_left -= len(uncovered)
        starts = np.concatenate(([0], covered.ends[:-1] + 1))
        for place in uncovered.tolist():
            text = clean(covered.text[int(starts[place]) : min(int(covered.ends[place]), int(starts[place]) + 500)])
            self.uncovered_lines[source].append(KeyedLine(number + place, key_of(text), int(ranks[place])))

    def _note_runs(self, source: int, firsts: NDArray[np.int64], lasts: NDArray[np.int64], kinds: Any) -> None:
        runs = self.runs[source]
        for first, last, kind in zip(firsts.tolist(), lasts.tolist(), kinds.tolist(), strict=True):
            own = kind - 1 if kind > 0 else BLANK
            if runs and runs[-1].kind == own and runs[-1].last + 1 == first:
                runs[-1] = FoldRun(runs[-1].first, last, own)
            else:
                runs.append(FoldRun(first, last, own))


def next_of(numbers: Sequence[int], number: int, *, forward: bool) -> int | None:
    """Return the next number after one, or the last one before it; None where there is none."""
    place = bisect_right(numbers, number) if forward else bisect_left(numbers, number) - 1
    return numbers[place] if 0 <= place < len(numbers) else None


class LineSequence(Protocol):
    """Lines by position, from 0."""

    @property
    def count(self) -> int:
        """How many lines the sequence has."""
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
        """How many lines have numbers."""
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
        """How many lines are in order."""
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
        """How many lines were picked."""
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
