"""Rows on a screen and the positions they show, with folds between."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from assistant.logs.folding import Fold


class Sheet:
    """A sequence of lines of which some are folded."""

    def __init__(self, size: int, folds: Sequence[Fold] = ()) -> None:
        """Lay out `size` positions.

        Args:
            size: Lines of the sequence.
            folds: Ascending and apart from one another; those beyond the end are left out.
        """
        self.size = size
        self._folds = [fold for fold in folds if fold.last < size]
        self._firsts = [fold.first for fold in self._folds]
        self._rows: list[int] = []
        self._hidden = [0]
        for fold in self._folds:
            self._rows.append(fold.first - self._hidden[-1])
            self._hidden.append(self._hidden[-1] + fold.size - 1)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.size - self._hidden[-1]

    @property
    def hidden(self) -> int:
        """Lines that are out of sight."""
        return self._hidden[-1]

    def at(self, row: int) -> tuple[int, Fold | None]:
        """Return the first position that a row shows, and the fold it is."""
        place = bisect_right(self._rows, row) - 1
        if place >= 0 and self._rows[place] == row:
            return self._folds[place].first, self._folds[place]
        return row + self._hidden[place + 1], None

    def row_of(self, position: int) -> int:
        """Return the row in which a position is shown."""
        place = bisect_right(self._firsts, position) - 1
        if place >= 0 and position <= self._folds[place].last:
            return self._rows[place]
        return position - self._hidden[place + 1]
