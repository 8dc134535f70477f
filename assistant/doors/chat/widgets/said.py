"""What the person said."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from assistant.doors.cli.output import clean

MOST_LINES = 12


class Said(Static):
    """A question or a command, as it was typed."""

    def __init__(self, text: str) -> None:
        super().__init__("", markup=False)
        self.text = clean(text)

    def on_mount(self) -> None:
        """Show it."""
        lines = self.text.split("\n")
        more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
        first, *rest = [*lines[:MOST_LINES], *more]
        shown = "\n".join([first, *(f"  {line}" for line in rest)])
        self.update(Content.styled("› ", "$accent bold") + Content.styled(shown, "bold"))
