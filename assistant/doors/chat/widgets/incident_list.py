"""Incidents about one job or node, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from assistant.display import line
from assistant.doors.chat.seen import SeenIncident
from assistant.doors.chat.widgets.incidents_panel import IncidentsPanel, row_of
from assistant.doors.chat.widgets.rows import Rows


class IncidentList(Vertical):
    """A list of incidents, or a calm sentence."""

    def __init__(self, calm: str) -> None:
        super().__init__()
        self.table = Rows(IncidentsPanel.COLUMNS)
        self.calm = Static(line(calm), classes="calm", markup=False)

    def compose(self) -> ComposeResult:
        """Put both there; one of them is shown."""
        yield self.calm
        yield self.table

    def tell(self, incidents: Sequence[SeenIncident], now: datetime) -> None:
        """Show them."""
        self.set_class(not incidents, "-empty")
        self.table.show([row_of(one, now) for one in incidents])
