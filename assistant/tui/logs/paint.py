"""How a row of a log is drawn: number, rank, what it is cited for, folds, matches."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from assistant.display import line
from assistant.logs.combined import LinePlace
from assistant.tui.logs.rows import Highlighter, LogCitation, LogRow

RANK_HUES = 6
NARROW = 44
"""Below this width numbers are left out: the text needs the room."""
_LOUD = re.compile(
    r"(?P<error>\b(?:\w*(?:Error|Exception)|ERROR|FATAL|CRITICAL|Traceback)\b|\bXid\b)|(?P<warning>\b(?:WARN(?:ING)?|\w*Warning)\b)"
)
_BAD = ("root", "symptom")


class LogLook(NamedTuple):
    """What rows are drawn with."""

    width: int
    numbers: int
    """Digits of a line number; 0 for no numbers."""
    ranks: int
    """Digits of a rank; 0 for no ranks."""
    first_column: int
    """Cells of text that are scrolled away."""
    wrap: bool
    pattern: Highlighter | None
    style: Callable[[str], Style]
    """Gives the style of a part by its name: number, rank-0, cited-root, fold, match, error, warning."""


def rows_of_text(row: LogRow, cited: LogCitation | None, look: LogLook) -> list[Strip]:
    """Return the lines of the screen that a row takes: one, or as many as wrapping needs."""
    gutter = _gutter(row, cited, look)
    width = max(look.width - sum(segment.cell_length for segment in gutter), 1)
    body = _body(row, cited, look)
    if not look.wrap:
        text = Strip(body)
        cropped = text.crop(look.first_column, look.first_column + width)
        return [Strip([*gutter, *cropped]).adjust_cell_length(look.width, look.style("text"))]
    pieces = _wrapped(body, width)
    blank = [Segment(" " * (look.width - width), look.style("number"))]
    return [
        Strip([*(blank if place else gutter), *piece]).adjust_cell_length(look.width, look.style("text"))
        for place, piece in enumerate(pieces)
    ]


def _gutter(row: LogRow, cited: LogCitation | None, look: LogLook) -> list[Segment]:
    segments: list[Segment] = []
    if look.numbers:
        number = str(row.place.number) if row.place.number > 0 else "·"
        segments.append(Segment(f"{number:>{look.numbers}} ", look.style(f"cited-{_tone(cited)}" if cited else "number")))
    if look.ranks:
        rank = "" if row.rank is None else str(row.rank)
        hue = look.style(f"rank-{row.rank % RANK_HUES}" if row.rank is not None else "number")
        segments.append(Segment(f"{rank:>{look.ranks}}", hue))
        segments.append(Segment("▌" if row.rank is not None else " ", hue))
    return segments or [Segment("", look.style("text"))]


def _tone(cited: LogCitation) -> str:
    if cited.role in _BAD:
        return "root"
    return "cascade" if cited.role in ("cascade", "teardown", "confirmation") else "benign"


def _body(row: LogRow, cited: LogCitation | None, look: LogLook) -> list[Segment]:
    segments: list[Segment] = []
    if cited is not None:
        segments += [Segment(f" {line(cited.role)} ", look.style(f"cited-{_tone(cited)}")), Segment(" ", look.style("text"))]
    if row.label:
        label = line(row.label)
        segments.append(Segment(f"{label} " if row.text else label, look.style("again" if row.text else "fold")))
    text = line(row.text.expandtabs(8))
    return segments + _painted(text, look)


def _painted(text: str, look: LogLook) -> list[Segment]:
    """Return the text with words that are loud, and matches, in their styles."""
    marks = [(match.start(), match.end(), match.lastgroup or "text") for match in _LOUD.finditer(text[:4_000])]
    if look.pattern is not None:
        spans = list(look.pattern.spans(text))
        marks = [mark for mark in marks if not any(mark[0] < stop and start < mark[1] for start, stop in spans)]
        marks = sorted([*marks, *((start, stop, "match") for start, stop in spans)])
    segments: list[Segment] = []
    at = 0
    for start, stop, name in marks:
        if start > at:
            segments.append(Segment(text[at:start], look.style("text")))
        segments.append(Segment(text[start:stop], look.style(name)))
        at = stop
    return [*segments, Segment(text[at:], look.style("text"))]


def _wrapped(body: Sequence[Segment], width: int) -> list[list[Segment]]:
    """Cut segments into lines of at most `width` cells; at least one line."""
    lines: list[list[Segment]] = [[]]
    room = width
    for text, style, _ in body:
        remaining = text
        while remaining:
            piece = _fitting(remaining, room)
            if not piece and lines[-1]:
                lines.append([])
                room = width
                continue
            piece = piece or remaining[0]  # wider than the whole line: it is cut when it is drawn
            lines[-1].append(Segment(piece, style))
            room -= cell_len(piece)
            remaining = remaining[len(piece) :]
    return lines


def _fitting(text: str, room: int) -> str:
    """Return as much of the start of a text as fits."""
    if room <= 0:
        return ""
    if cell_len(text) <= room:
        return text
    piece = chop_cells(text, room)[0]
    return piece if cell_len(piece) <= room else ""


def over(strip: Strip, style: Style) -> Strip:
    """Put a background under the parts of a strip that have no colour of their own there."""
    back = Style(bgcolor=style.bgcolor)
    plain = {segment.style.bgcolor for segment in strip if segment.style is not None}
    ground = strip._segments[-1].style.bgcolor if strip._segments and strip._segments[-1].style else None
    return Strip(
        [
            Segment(text, (own or Style()) + back if own is None or own.bgcolor == ground or len(plain) == 1 else own)
            for text, own, _ in strip
        ],
        strip.cell_length,
    )


# The rows of a log that are at hand, and what they look like: drawn once, until they change.

MOST_CACHED_ROWS = 500
"""Rows that are kept in memory."""


class LogStrips:
    """Rows by number, and their lines of the screen."""

    def __init__(self, look: Callable[[], LogLook], cited: dict[LinePlace, LogCitation]) -> None:
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
        if len(self.rows) > MOST_CACHED_ROWS:
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
            cached = self.rows.get(row)
            if cached is None:
                return []
            self._strips[row] = rows_of_text(cached, self.cited.get(cached.place), self._look())
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
        if any(position == cursor for position, _ in table) and table[-1] != (cursor, 0):
            return table
        table = []
        row = min(cursor, top + height - 1)
        while len(table) < height and row >= 0:
            table = [*self._parts(row), *table]
            row -= 1
        return table[-height:]

    def _parts(self, row: int) -> list[tuple[int, int]]:
        return [(row, part) for part in range(max(len(self.strips(row)), 1))]
