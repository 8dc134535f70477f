"""Read several documents through in the background, block by block, and go on where lines were appended."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from assistant.logs.covering import Covering, Matcher
from assistant.logs.document import Document
from assistant.logs.folding import BLANK, FoldRun, KeyedLine, key_of
from assistant.logs.lines import clean, strip_ansi
from assistant.logs.marks import NO_RANK, ranks_of
from assistant.logs.rank_counts import RankCounts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
        """Begin with none of them."""
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
        """Find them in a block."""
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
        """Begin with nothing."""
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
