"""What was said before what is laid out."""

from __future__ import annotations

from textual.message import Message
from textual.widgets import Static

from assistant.doors.chat.widgets.plain import link


class Earlier(Static):
    """Stands for exchanges that are not laid out."""

    class Wanted(Message):
        """Somebody wants to see some of them."""

    def show(self, count: int) -> None:
        """Say how many there are."""
        self.display = count > 0
        self.update(link(f"… {count:,} earlier", "earlier"))

    def action_earlier(self) -> None:
        """Ask for some of them."""
        self.post_message(self.Wanted())
