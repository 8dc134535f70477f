"""Lists that a person filters by typing, sorts, and copies from; while an order of their own is on, the lower edge says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message

from assistant.display import block, line, removed

if TYPE_CHECKING:
    from textual.widget import Widget as _Base
else:
    # Textual takes styles and keys of the first widget among the bases only: this one is none
    _Base = object

MOST_FILTER = 80
"""Characters of a filter."""
COPIED = "Copied, where the terminal allows it."


FILTER_KEYS: tuple[BindingType, ...] = (
    Binding("slash", "filter", "Filter", show=False),
    Binding("s", "sort_by_next", "Sort by the next column", show=False),
    Binding("y", "copy_row", "Copy the row", show=False),
)
"""Keys of such a list."""


class FilteredList(_Base):
    """What all such lists have in common, for a widget; a list says how it is drawn and what its cursor is on."""

    class CommandTyped(Message):
        """What was typed as a filter matches nothing here, and is the line of a command."""

        def __init__(self, line: str) -> None:
            super().__init__()
            self.line = line

    filter_text = ""
    is_typing = False
    """Whether keys go into the filter."""
    sort_column: int | None = None
    """Place of the column by which the person sorts; None for the order of the records."""

    @property
    def sort_titles(self) -> Sequence[str]:
        """What it can be sorted by, in its columns' order; an empty title is passed over."""
        raise NotImplementedError

    @property
    def counts(self) -> tuple[int, int]:
        """How many records are shown, and how many there are."""
        raise NotImplementedError

    @property
    def row_text(self) -> str:
        """The whole text of what the cursor is on; empty for nothing."""
        raise NotImplementedError

    def draw_chosen(self) -> None:
        """Draw the records that the filter lets through, in the order of the person."""
        raise NotImplementedError

    def say_arrangement(self) -> None:
        """Say at the lower edge what is filtered and how it is sorted."""
        parts = []
        if self.filter_text or self.is_typing:
            cursor, (matches, count) = "▏" if self.is_typing else "", self.counts
            parts.append(f"/{self.filter_text}{cursor} {matches:,} of {count:,} · Esc: all")
        if self.sort_column is not None:
            parts.append(f"by {self.sort_titles[self.sort_column]}, s: next")
        self.border_subtitle = Content(line(" · ".join(parts)))
        self.set_class(bool(parts), "-arranged")

    def filter_by(self, text: str) -> None:
        """Show only the records that have all words of a text; all of them where it is empty."""
        self.filter_text = removed(text)[:MOST_FILTER]
        self.draw_chosen()
        self.say_arrangement()

    def action_filter(self) -> None:
        """Let the person type a filter."""
        self.is_typing = True
        self.say_arrangement()

    def action_sort_by_next(self) -> None:
        """Sort by the next column that has a title; behind the last one comes the order of the records."""
        places = [place for place, title in enumerate(self.sort_titles) if title]
        further = [place for place in places if self.sort_column is None or place > self.sort_column]
        self.sort_column = further[0] if further else None
        self.draw_chosen()
        self.say_arrangement()

    def action_copy_row(self) -> None:
        """Copy the whole record to the clipboard of the terminal."""
        text = self.row_text
        if text:
            self.app.copy_to_clipboard(block(text))
            self.app.notify(COPIED, markup=False)

    async def _on_key(self, event: events.Key) -> None:
        if self._takes(event):
            event.stop()
            event.prevent_default()

    def _takes(self, event: events.Key) -> bool:
        """Take a key that is meant for the filter, and tell whether it was."""
        if event.key == "escape" and (self.is_typing or self.filter_text):
            self.is_typing = False
            self.filter_by("")
            return True
        if not self.is_typing:
            return False
        if event.key == "enter":
            self._end_typing()
        elif event.key == "backspace":
            self.is_typing = bool(self.filter_text)
            self.filter_by(self.filter_text[:-1])
        elif event.is_printable and event.character is not None:
            self.filter_by(f"{self.filter_text}{event.character}")
        else:
            return False
        return True

    def _end_typing(self) -> None:
        from assistant.tui.commands import is_known_command

        self.is_typing = False
        typed = f"/{self.filter_text}"
        if not self.counts[0] and is_known_command(typed):
            self.filter_by("")
            self.post_message(self.CommandTyped(typed))
        else:
            self.say_arrangement()

    def on_blur(self) -> None:
        """Leave the filter as it is when the person goes elsewhere."""
        if self.is_typing:
            self.is_typing = False
            self.say_arrangement()

    def on_paste(self, event: events.Paste) -> None:
        """Take what is pasted into the filter; else it goes to the prompt."""
        if self.is_typing:
            event.stop()
            self.filter_by(f"{self.filter_text}{' '.join(event.text.split())}")


def has_words(text: str, filter_text: str) -> bool:
    """Tell whether a text has all words of a filter, in any case of letters."""
    folded_text = text.casefold()
    return all(word in folded_text for word in filter_text.casefold().split())
