"""A list of things that can be opened: a label on the left, text that wraps beside it; Enter opens what the cursor is on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.table import Table
from rich.text import Text
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from assistant.display import line
from assistant.tui.screen_basics import vi_keys


class StyledText(NamedTuple):
    """Text in one style."""

    text: str
    look: str = ""
    """Names of variables of the theme and of styles, `error`, `bold`; empty for the plain colour."""


class Item(NamedTuple):
    """A row of the list: its key, its label and its text."""

    key: str
    """Tells it from all others; what is opened is told by it. Empty for a heading."""
    label: StyledText
    """The label."""
    lines: tuple[tuple[StyledText, ...], ...] = ()
    """What stands beside it, line by line."""


LONGEST_LINE = 2_000
"""Characters of one line; the whole of it is seen where it is opened."""


def heading(text: str) -> Item:
    """Return a heading."""
    return Item("", StyledText(text, "bold primary"))


def item(key: str, label: StyledText | str, *lines: StyledText | str | tuple[StyledText, ...]) -> Item:
    """Return an item; a line of nothing is left out."""
    parts_of_lines = [line if isinstance(line, tuple) and not isinstance(line, StyledText) else (_part(line),) for line in lines]
    return Item(key, _part(label), tuple(line for line in parts_of_lines if any(part.text for part in line)))


def _part(text: StyledText | str) -> StyledText:
    return text if isinstance(text, StyledText) else StyledText(text)


class Openable(OptionList):
    """Shows items; the cursor stays on its item while others come and go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *vi_keys(down="cursor_down", up="cursor_up", first="first", last="last", page_down="page_down", page_up="page_up"),
    ]

    class ItemOpened(Message):
        """Enter or a click on an item."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, label_width: int, id: str | None = None, classes: str | None = None) -> None:
        """Prepare the list; `label_width` is the width of the labels in cells."""
        super().__init__(id=id, classes=classes, markup=False)
        self._label_width = label_width
        self._items: tuple[Item, ...] = ()
        self._drawn_in = ("", False, 0)

    def on_mount(self) -> None:
        """Draw anew when the theme changes."""
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.show(self._items))

    def show(self, items: Sequence[Item]) -> None:
        """Show these items."""
        if tuple(items) == self._items and self._drawn_in == self._drawn_for:
            return
        at, top = self.key_at_cursor, self.scroll_y
        self._items, self._drawn_in = tuple(items), self._drawn_for
        self.set_options(self._option(entry, number) for number, entry in enumerate(items))
        keys = [entry.key for entry in items]
        if at and at in keys:
            self.highlighted = keys.index(at)
            self.scroll_to(y=top, animate=False, force=True)
        elif keys:
            self.highlighted = next((number for number, key in enumerate(keys) if key), None)
            self.scroll_home(animate=False, force=True)

    @property
    def _drawn_for(self) -> tuple[str, bool, int]:
        """What items are drawn for: the theme, whether there is room for empty lines between the parts, the width of labels."""
        return self.app.theme, self.screen.has_class("-high"), min(self._label_width, max(4, self.size.width // 4))

    def on_resize(self) -> None:
        """Use the room."""
        self.show(self._items)

    @property
    def key_at_cursor(self) -> str:
        """Key of the item that the cursor is on; empty for none."""
        at = self.highlighted
        return self._items[at].key if at is not None and at < len(self._items) else ""

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Say what was chosen."""
        event.stop()
        if self.key_at_cursor:
            self.post_message(self.ItemOpened(self.key_at_cursor))

    def _option(self, entry: Item, number: int) -> Option:
        if not entry.key:
            room = Text("\n" if number and self._drawn_for[1] else "")
            return Option(room + self._text((entry.label,)), disabled=True)
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(width=self._drawn_for[2], no_wrap=True, overflow="ellipsis")
        grid.add_column(ratio=1)
        grid.add_row(self._text((entry.label,)), Text("\n").join(self._text(line) for line in entry.lines))
        return Option(grid, id=f"item-{number}")

    def _text(self, parts: tuple[StyledText, ...]) -> Text:
        text = Text(overflow="fold", end="")
        for part in parts:
            text.append(line(part.text.expandtabs(4), LONGEST_LINE), style=self._style(part.look))
        return text

    def _style(self, look: str) -> str:
        variables = self.app.theme_variables
        words = (variables.get(word, "") if word in variables else word for word in look.split())
        return " ".join(word for word in words if word.startswith("#") or word in ("bold", "dim", "italic"))
