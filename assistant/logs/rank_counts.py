"""Count lines and errors per rank, and note who spoke last: the rank that fell silent first is where a hang began."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from assistant.logs.keeping import Block
from assistant.logs.lines import clean
from assistant.logs.marks import NO_RANK, ranks_of
from assistant.logs.prefix import parse

LOOKED_BACK = 12
"""Lines of a rank in which its last time is looked for: a traceback has none."""


@dataclass(slots=True)
class RankTally:
    """What one rank wrote."""

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
        """Begin with nobody."""
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
