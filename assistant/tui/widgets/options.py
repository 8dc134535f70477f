"""What the person may say instead, when the agent asks back."""

from __future__ import annotations

from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from assistant.display import line
from assistant.tui.widgets.plain import link


class Options(Static):
    """What the person may say instead, numbered."""

    class Chosen(Message):
        """One was clicked."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, options: tuple[str, ...]) -> None:
        super().__init__("", markup=False)
        self.options = options

    def on_mount(self) -> None:
        """Show them."""
        lines = [
            Content.styled(line(f"{place + 1}  "), "$accent") + link(line(option), "choose", place)
            for place, option in enumerate(self.options)
        ]
        self.update(Content("\n").join(lines))

    def action_choose(self, place: int) -> None:
        """Say one."""
        self.post_message(self.Chosen(self.options[place]))
