"""The rows of a log that are at hand, and what they look like: drawn once, until they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.strip import Strip

from assistant.doors.chat.log_rows import Cited, LogRow
from assistant.doors.chat.widgets.log_paint import Look, rows_of_text
from assistant.logs.merged import Place

KEPT = 500
"""Rows that are kept in memory."""


class LogStrips:
    """Rows by number, and their lines of the screen."""

    def __init__(self, look: Callable[[], Look], cited: dict[Place, Cited]) -> None:
        """Begin with no rows.

        Args:
            look: Gives what rows are drawn with at the moment.
            cited: What lines are cited for.
        """
        self.rows: dict[int, LogRow] = {}
        self.cited = cited
        self._look = look
        self._strips: dict[int, list[Strip]] = {}

    def take(self, first: int, rows: Sequence[LogRow], *, near: range) -> None:
        """Keep rows; those that are the same need not be drawn again. Of too many, those that are `near` stay."""
        if len(self.rows) > KEPT:
            for far in [row for row in self.rows if row not in near]:
                self.forget(far)
        for place, row in enumerate(rows, first):
            if self.rows.get(place) != row:
                self.rows[place] = row
                self._strips.pop(place, None)

    def forget(self, row: int) -> None:
        """Drop a row."""
        self.rows.pop(row, None)
        self._strips.pop(row, None)

    def clear(self) -> None:
        """Drop all rows: their numbers mean other lines now."""
        self.rows.clear()
        self._strips.clear()

    def repaint(self) -> None:
        """Draw all anew."""
        self._strips.clear()

    def strips(self, row: int) -> list[Strip]:
        """Return the lines of the screen that a row takes; none for one that is not at hand."""
        if row not in self._strips:
            found = self.rows.get(row)
            if found is None:
                return []
            self._strips[row] = rows_of_text(found, self.cited.get(found.place), self._look())
        return self._strips[row]

    def table(self, top: int, height: int, cursor: int, count: int) -> list[tuple[int, int]]:
        """Return (row, part of it) for each line of a screen on which rows are wrapped.

        Args:
            top: The first row; a later one where else the cursor would be out of sight.
            height: Lines of the screen.
            cursor: A row that is to be in sight.
            count: Rows of the log.
        """
        table: list[tuple[int, int]] = []
        row = top
        while len(table) < height and row < count:
            table += self._parts(row)
            row += 1
        table = table[:height]
        if any(shown == cursor for shown, _ in table) and table[-1] != (cursor, 0):
            return table
        table = []
        row = min(cursor, top + height - 1)
        while len(table) < height and row >= 0:
            table = [*self._parts(row), *table]
            row -= 1
        return table[-height:]

    def _parts(self, row: int) -> list[tuple[int, int]]:
        return [(row, part) for part in range(max(len(self.strips(row)), 1))]
