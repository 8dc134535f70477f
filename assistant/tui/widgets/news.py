"""Events that the chat announces in the conversation, each with a link to its incident or to the question that waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from assistant.display import block, line
from assistant.tui.frame import MUTED, is_covered, link
from assistant.tui.messages import OpenApproval, OpenIncident
from assistant.tui.news import MOST_LINES, NewsEvent, NewsKind, event_text, events_text
from assistant.tui.sessions import SessionEntry, SessionEntryKind
from assistant.tui.snapshot import StoreSnapshot
from assistant.tui.words import StateLook, clock

LOOKS: Mapping[NewsKind, StateLook] = {
    NewsKind.FAILURE: StateLook("✗", "error"),
    NewsKind.APPROVAL: StateLook("?", "accent"),
    NewsKind.RECOVERY: StateLook("✓", "success"),
    NewsKind.ESCALATION: StateLook("!", "error"),
}
_MANY = StateLook("●", "accent")
MOST_LINKS = 3


class NewsView(Static, can_focus=True):
    """Events that follow upon one another: a line each, or one line for many."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "Open")]

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._entries: list[SessionEntry] = []

    def on_mount(self) -> None:
        """Follow what becomes of the events: a diagnosis comes after its failure."""
        self.watch(self.app, "store_snapshot", self.look)

    def add(self, entry: SessionEntry) -> None:
        """Show one more entry."""
        self._entries.append(entry)
        self.look()

    @property
    def events(self) -> list[NewsEvent]:
        """All that is announced here, oldest first."""
        return [event for entry in self._entries for event in entry.events]

    def look(self) -> None:
        """Draw the lines anew from the latest snapshot."""
        if not self._entries or not self.is_attached or is_covered(self):
            return
        snapshot: StoreSnapshot | None = self.app.store_snapshot  # type: ignore[attr-defined]
        if self._entries[0].what is SessionEntryKind.AWAY:
            self._update([self._line(self._entries[0], _MANY, self._entries[0].text, self.events)])
        elif len(self.events) > MOST_LINES:
            self._update([self._line(self._entries[0], _MANY, events_text(self.events), self.events)])
        else:
            self._update(
                [
                    self._line(entry, LOOKS[event.kind], event_text(event, snapshot), [event])
                    for entry in self._entries
                    for event in entry.events
                ]
            )

    def _update(self, lines: Sequence[Content]) -> None:
        self.update(Content("\n").join(lines))

    def _line(self, entry: SessionEntry, look: StateLook, text: str, events: Sequence[NewsEvent]) -> Content:
        at = clock(entry.at, self.app.backend.now())  # type: ignore[attr-defined]
        parts = [
            Content.styled(line(f"{at} "), MUTED),
            Content.styled(line(f"{look.sign} "), f"${look.colour}"),
            Content(block(text)),
        ]
        for target in _links(events):
            parts += [Content.styled(" · ", MUTED), target]
        return Content("").join(parts)

    def action_open(self) -> None:
        """Open the first question that waits, else the incident; of many the panel."""
        approval = next((event.approval for event in self.events if event.approval is not None), None)
        incidents = {event.incident for event in self.events if event.incident is not None}
        if approval is not None:
            self.action_approval(approval)
        elif len(incidents) == 1:
            self.action_incident(incidents.pop())
        else:
            self.action_panel("incidents")

    def action_incident(self, number: int) -> None:
        """Open an incident."""
        self.post_message(OpenIncident(number))

    def action_approval(self, number: int) -> None:
        """Open what waits."""
        self.post_message(OpenApproval(number))

    def action_panel(self, name: str) -> None:
        """Open a panel."""
        self.app.action_panel(name)  # type: ignore[attr-defined]


def _links(events: Sequence[NewsEvent]) -> list[Content]:
    """Return the links of a line: what waits and the incidents by number, or the panel where they are many."""
    approvals = list(dict.fromkeys(event.approval for event in events if event.approval is not None))
    incidents = list(dict.fromkeys(event.incident for event in events if event.incident is not None))
    links = [link(f"approval {number}", "approval", number) for number in approvals[:MOST_LINKS]]
    links += [link("all that waits", "panel", "approvals")] if len(approvals) > MOST_LINKS else []
    if len(incidents) > MOST_LINKS:
        return [*links, link("incidents", "panel", "incidents")]
    return [*links, *(link(f"incident {number}", "incident", number) for number in incidents)]
