"""Tables of records, which a person filters, sorts and copies from.

A table is changed only where its records changed, so that a thousand rows cost nothing while nothing happens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import DataTable

from assistant.display import line
from assistant.tui.frame import vi_keys
from assistant.tui.widgets.filtering import FILTER_KEYS, FilteredList, has_words


class Cell(NamedTuple):
    """The text and the style of one cell."""

    text: str
    colour: str = ""
    """Name of a variable of the theme, `error`; empty for the plain colour."""


class TableRow(NamedTuple):
    """A record as a row: its key and its cells."""

    key: str
    """Tells it from all others of the table, for as long as it lives."""
    cells: tuple[Cell | str, ...]

    @property
    def texts(self) -> list[str]:
        """The texts of the cells."""
        return [cell if isinstance(cell, str) else cell.text for cell in self.cells]


def nothing_more(_: str) -> str:
    """Return that a record has no text beyond its cells."""
    return ""


class Rows(FilteredList, DataTable[Text]):
    """Shows records; the cursor stays on its record while others come and go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *vi_keys(
            down="cursor_down", up="cursor_up", first="scroll_top", last="scroll_bottom", page_down="page_down", page_up="page_up"
        ),
        *FILTER_KEYS,
    ]

    class WholeWanted(Message):
        """Enter on a row that leads nowhere, whose whole text is longer than its cells."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, columns: Sequence[str], *, id: str | None = None) -> None:
        super().__init__(cursor_type="row", zebra_stripes=False, id=id)
        self._titles = tuple(columns)
        self._records: tuple[TableRow, ...] = ()
        """All of them, those that the filter hides as well."""
        self._rows_by_key: dict[str, TableRow] = {}
        """What is on the screen, in its order."""
        self._drawn_in = ""
        self.whole_of: Callable[[str], str] = nothing_more
        """Returns the whole text of a record by its key, where the cells cut it; empty where they do not."""
        self.leads_somewhere: Callable[[str], bool] = bool
        """Tells by the key whether Enter opens something of the record."""

    def on_mount(self) -> None:
        """Make the columns."""
        self.cell_padding = 0
        for place, title in enumerate(self._titles):
            self.add_column(Text(line(f"{title} ")), key=str(place))
        # a header that is drawn between new rows and the measuring of their columns stays in Textual's cache with the old widths
        self.watch(self, "virtual_size", self.notify_style_update, init=False)
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.show(self._records))

    def show(self, rows: Sequence[TableRow]) -> None:
        """Show these records in this order, or in that of the person; those that the filter hides stay hidden."""
        self._records = tuple(rows)
        self.draw_chosen()
        if self.filter_text:
            self.say_arrangement()

    def draw_chosen(self) -> None:
        """Draw the records that the filter lets through, in the order of the person."""
        self._draw(arranged(self._records, self.filter_text, self.sort_column, self.whole_of))

    def _draw(self, rows: Sequence[TableRow]) -> None:
        rows_by_key = {row.key: row for row in rows}
        same_order = [key for key in self._rows_by_key if key in rows_by_key] == [
            row.key for row in rows if row.key in self._rows_by_key
        ]
        appended = list(rows_by_key)[: len(self._rows_by_key)] == list(self._rows_by_key)
        if self._drawn_in == self.app.theme and (list(rows_by_key) == list(self._rows_by_key) or (same_order and appended)):
            self._change(rows_by_key)
        else:
            self._draw_anew(rows)
        self._rows_by_key, self._drawn_in = rows_by_key, self.app.theme

    def _change(self, rows_by_key: dict[str, TableRow]) -> None:
        for key, row in rows_by_key.items():
            if key not in self._rows_by_key:
                self.add_row(*self._drawn(row), key=key)
            elif row != self._rows_by_key[key]:
                for place, (cell, old_cell) in enumerate(zip(row.cells, self._rows_by_key[key].cells, strict=True)):
                    if cell != old_cell:
                        self.update_cell(key, str(place), self._text(cell), update_width=True)

    def _draw_anew(self, rows: Sequence[TableRow]) -> None:
        # where nobody is reading, what is newest stays in sight
        at = self.cursor_key if self.has_focus or self.cursor_row else ""
        top = self.scroll_y if at else 0
        self.clear()
        for row in rows:
            self.add_row(*self._drawn(row), key=row.key)
        places = [row.key for row in rows]
        if at in places:
            self.move_cursor(row=places.index(at), scroll=False)
        self.scroll_to(y=top, animate=False, force=True)

    @property
    def cursor_key(self) -> str:
        """Key of the record that the cursor is on; empty in an empty table."""
        keys = list(self._rows_by_key)
        return keys[self.cursor_row] if 0 <= self.cursor_row < len(keys) else ""

    def _drawn(self, row: TableRow) -> list[Text]:
        return [self._text(cell) for cell in row.cells]

    def _text(self, cell: Cell | str) -> Text:
        if isinstance(cell, str):
            return Text(line(f"{cell} "), no_wrap=True, end="")
        colour = self.app.theme_variables.get(cell.colour, "")
        return Text(line(f"{cell.text} "), style=colour if colour.startswith("#") else "", no_wrap=True, end="")

    @property
    def sort_titles(self) -> Sequence[str]:
        """The titles of the columns."""
        return self._titles

    @property
    def counts(self) -> tuple[int, int]:
        """How many records are shown, and how many there are."""
        return len(self._rows_by_key), len(self._records)

    @property
    def row_text(self) -> str:
        """The whole text of the record that the cursor is on; empty in an empty table."""
        row = self._rows_by_key.get(self.cursor_key)
        if row is None:
            return ""
        return self.whole_of(row.key) or "  ".join(filter(None, (text.strip() for text in row.texts)))

    def action_select_cursor(self) -> None:
        """Open the record; one that leads nowhere is shown whole."""
        key = self.cursor_key
        if key and not self.leads_somewhere(key) and self.whole_of(key):
            self.post_message(self.WholeWanted(self.whole_of(key)))
        else:
            super().action_select_cursor()


def arranged(
    rows: Sequence[TableRow], filter_text: str, sort_column: int | None, whole_of: Callable[[str], str] = nothing_more
) -> list[TableRow]:
    """Return the records that have all words of a filter, in any case of letters, sorted by a column.

    Args:
        rows: In the order that they have without a person's own.
        filter_text: Empty for all.
        sort_column: Place of the column; None for the order of the rows.
        whole_of: Returns the text of a record that its cells cut.
    """
    matching = [row for row in rows if not filter_text or has_words(f"{' '.join(row.texts)} {whole_of(row.key)}", filter_text)]
    if sort_column is None:
        return matching
    return sorted(matching, key=lambda row: _order(row.texts[sort_column]) if sort_column < len(row.cells) else ())


_AGE = re.compile(r"(\d{1,9})([smhd])\b.*")
_AGE_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NUMBERS = re.compile(r"(\d+(?:\.\d+)?)")
_MOST_SORTED = 200
"""Characters of a cell by which it is sorted."""


def _order(text: str) -> tuple[tuple[int, float, str], ...]:
    """Return what sorts cells as a person does: ages by their length, numbers within text by their value, nothing at the end."""
    text = text.strip()
    if not text:
        return ((2, 0.0, ""),)
    age = _AGE.fullmatch(text)
    if age is not None:
        return ((0, float(age[1]) * _AGE_S[age[2]], ""),)
    parts = _NUMBERS.split(re.sub(r"(?<=\d),(?=\d{3})", "", text[:_MOST_SORTED].casefold()))
    return tuple((0, float(part), "") if place % 2 else (1, 0.0, part) for place, part in enumerate(parts) if part)
