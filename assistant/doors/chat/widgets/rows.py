"""A table of records that is changed only where they changed, so that a thousand rows cost nothing while nothing happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual.binding import BindingType
from textual.widgets import DataTable

from assistant.display import line
from assistant.doors.chat.keys import vi_keys


class Cell(NamedTuple):
    """What stands in one cell."""

    text: str
    colour: str = ""
    """Name of a variable of the theme, `error`; empty for the plain colour."""


class Row(NamedTuple):
    """One record."""

    key: str
    """Tells it from all others of the table, for as long as it lives."""
    cells: tuple[Cell | str, ...]


class Rows(DataTable[Text]):
    """Shows records; the cursor stays on its record while others come and go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *vi_keys(
            down="cursor_down", up="cursor_up", first="scroll_top", last="scroll_bottom", page_down="page_down", page_up="page_up"
        ),
    ]

    def __init__(self, columns: Sequence[str], *, id: str | None = None) -> None:
        super().__init__(cursor_type="row", zebra_stripes=False, id=id)
        self._titles = tuple(columns)
        self._shown: dict[str, Row] = {}
        self._drawn_in = ""

    def on_mount(self) -> None:
        """Make the columns."""
        self.cell_padding = 0
        for place, title in enumerate(self._titles):
            self.add_column(Text(line(f"{title} ")), key=str(place))
        # a header that is drawn between new rows and the measuring of their columns stays in Textual's cache with the old widths
        self.watch(self, "virtual_size", self.notify_style_update, init=False)
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.show(list(self._shown.values())))

    def show(self, rows: Sequence[Row]) -> None:
        """Show these records in this order."""
        wanted = {row.key: row for row in rows}
        same_order = [key for key in self._shown if key in wanted] == [row.key for row in rows if row.key in self._shown]
        appended = list(wanted)[: len(self._shown)] == list(self._shown)
        if self._drawn_in == self.app.theme and (list(wanted) == list(self._shown) or (same_order and appended)):
            self._change(wanted)
        else:
            self._draw_anew(rows)
        self._shown, self._drawn_in = wanted, self.app.theme

    def _change(self, wanted: dict[str, Row]) -> None:
        for key, row in wanted.items():
            if key not in self._shown:
                self.add_row(*self._drawn(row), key=key)
            elif row != self._shown[key]:
                for place, (cell, before) in enumerate(zip(row.cells, self._shown[key].cells, strict=True)):
                    if cell != before:
                        self.update_cell(key, str(place), self._text(cell), update_width=True)

    def _draw_anew(self, rows: Sequence[Row]) -> None:
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
        keys = list(self._shown)
        return keys[self.cursor_row] if 0 <= self.cursor_row < len(keys) else ""

    def _drawn(self, row: Row) -> list[Text]:
        return [self._text(cell) for cell in row.cells]

    def _text(self, cell: Cell | str) -> Text:
        if isinstance(cell, str):
            return Text(line(f"{cell} "), no_wrap=True, end="")
        colour = self.app.theme_variables.get(cell.colour, "")
        return Text(line(f"{cell.text} "), style=colour if colour.startswith("#") else "", no_wrap=True, end="")
