"""A text that a list or a line cuts, whole: a command, a row of the audit."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer

from assistant.display import block, line
from assistant.tui.frame import Plain, panel_keys
from assistant.tui.widgets.filtering import COPIED


class TextScreen(Screen[None]):
    """Shows a text, wrapped."""

    DEFAULT_CSS = """
    TextScreen #whole { height: 1fr; border: round $primary; border-title-color: $primary; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Back"),
        Binding("y", "copy", "Copy"),
        Binding("j", "scroll('down')", show=False),
        Binding("k", "scroll('up')", show=False),
        *panel_keys("app.", show=False),
    ]

    def __init__(self, text: str, *, title: str) -> None:
        """Prepare the page.

        Args:
            text: Whatever others wrote.
            title: What it is.
        """
        super().__init__()
        self.text, self._title_text = block(text), title

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        with VerticalScroll(id="whole") as box:
            box.border_title = Content(line(self._title_text))
            yield (plain := Plain(self.text))
            plain.whole = True
        yield Footer(show_command_palette=False)

    def action_copy(self) -> None:
        """Copy it to the clipboard of the terminal."""
        self.app.copy_to_clipboard(self.text)
        self.notify(COPIED, markup=False)

    def action_scroll(self, direction: str) -> None:
        """Scroll."""
        box = self.query_one("#whole", VerticalScroll)
        (box.scroll_down if direction == "down" else box.scroll_up)(animate=False)
