"""Text as it is: nothing in it is markup, what it cites can be opened, and a long one shows its beginning first."""

from __future__ import annotations

import re
from typing import Any

from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from assistant.doors.cli.output import clean

MOST_LINES, MOST_CHARACTERS = 40, 8_000
"""Shown before somebody asks for all of it."""
ALL_LINES, ALL_CHARACTERS = 2_000, 200_000
"""Shown at most."""
_CITED = re.compile(r"\[(\d{1,4})\]")
_LINK = "underline $primary"


class Plain(Static):
    """Shows a text."""

    class Cited(Message):
        """The person wants to see a source."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, text: str, *, cites: bool = False, most: int = MOST_LINES, classes: str | None = None) -> None:
        """Show a text.

        Args:
            text: Whatever others wrote.
            cites: Whether `[1]` in it leads to a source.
            most: Lines that are shown before somebody asks for all of it.
            classes: For the style.
        """
        super().__init__("", classes=classes, markup=False)
        self.text = clean(text)
        self._cites, self._most = cites, most
        self.whole = False

    def on_mount(self) -> None:
        """Show it."""
        self._draw()

    def action_cite(self, number: int) -> None:
        """Lead to a source."""
        self.post_message(self.Cited(number))

    def action_all(self) -> None:
        """Show all of it."""
        self.whole = True
        self._draw()

    def _draw(self) -> None:
        lines = self.text.split("\n")
        most, characters = (ALL_LINES, ALL_CHARACTERS) if self.whole else (self._most, MOST_CHARACTERS)
        shown = "\n".join(lines[:most])[:characters]
        content = cited(shown) if self._cites else Content(shown)
        left = len(lines) - shown.count("\n") - 1
        if len(shown) < len(self.text):
            rest = f"{left:,} more lines" if left > 0 else f"{len(self.text) - len(shown):,} more characters"
            content += Content("\n") + (Content.styled(f"… {rest}", "$text-muted") if self.whole else link(f"… show {rest}", "all"))
        self.update(content)


def link(text: str, action: str, *arguments: Any) -> Content:
    """Return text that does something when it is clicked."""
    call = f"{action}({', '.join(map(repr, arguments))})"
    # the text is handed over beside the markup: nothing in it is read as markup
    return Content.from_markup(f"[{_LINK} @click={call}]$text[/]", text=text)


def cited(text: str) -> Content:
    """Return text whose citations lead to their sources."""
    parts, end = [], 0
    for found in _CITED.finditer(text):
        parts += [Content(text[end : found.start()]), link(found.group(), "cite", int(found.group(1)))]
        end = found.end()
    return Content("").join([*parts, Content(text[end:])])
