"""What the person said."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from assistant.display import block

MOST_LINES = 12


class Said(Static):
    """A question or a command, as it was typed."""

    def __init__(self, text: str) -> None:
        super().__init__("", markup=False)
        self.text = block(text)

    def on_mount(self) -> None:
        """Show it."""
        lines = self.text.split("\n")
        more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
        first, *rest = [*lines[:MOST_LINES], *more]
        shown = "\n".join([first, *(f"  {text}" for text in rest)])
        self.update(Content.styled("› ", "$accent bold") + Content.styled(block(shown), "bold"))
