"""The line that the operator types in."""

from __future__ import annotations

from textual.message import Message
from textual.widgets import Input


class Prompt(Input):
    """Takes questions and commands."""

    class Asked(Message):
        """The person asks something, or gives a command that begins with a slash."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(placeholder="Ask, or / for commands", id=id)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Hand over what was typed."""
        event.stop()
        text = event.value.strip()
        if text:
            self.clear()
            self.post_message(self.Asked(text))
