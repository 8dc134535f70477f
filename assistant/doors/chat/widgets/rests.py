"""What an answer rests on in the store."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from assistant.agent.answer import Answer
from assistant.display import line
from assistant.doors.chat.messages import OpenIncident
from assistant.doors.chat.widgets.plain import MUTED, link


class Rests(Static):
    """Names the evidence, and leads to the incident."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("", markup=False, classes="rests")
        self._answer = answer

    def on_mount(self) -> None:
        """Show it."""
        evidence = ", ".join(map(str, self._answer.evidence))
        parts = [Content.styled(line(f"evidence {evidence}"), MUTED)] if evidence else []
        parts += [link(f"incident {number}", "incident", number) for number in self._answer.incidents[:5]]
        self.update(Content.styled(" · ", MUTED).join(parts))

    def action_incident(self, number: int) -> None:
        """Open an incident."""
        self.post_message(OpenIncident(number))
