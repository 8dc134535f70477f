"""What is wrong now: unfinished incidents first, then those that wait for a person's hands, then what is over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import DataTable, Static

from assistant.display import line
from assistant.tui.messages import OpenIncident
from assistant.tui.snapshot import SeenIncident, StoreSeen
from assistant.tui.widgets.panel import Panel
from assistant.tui.widgets.rows import Cell, Row, Rows
from assistant.tui.words import INCIDENTS, about, age, short


class IncidentsPanel(Panel):
    """Incidents."""

    NAME, TITLE, CALM = "incidents", "Incidents", "Nothing is wrong."
    COLUMNS = ("", "id", "what", "state", "reason", "since", "by")

    def store_read(self, snapshot: StoreSeen | None) -> None:
        """Show the incidents."""
        if snapshot is not None:
            self.table.show([incident_row(incident, snapshot.at) for incident in snapshot.incidents])
            self.count(len(snapshot.incidents))
            self.set_class(snapshot.unfinished > 0, "-alarming")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the incident."""
        event.stop()
        self.post_message(OpenIncident(int(str(event.row_key.value))))


def incident_row(snapshot: SeenIncident, now: datetime) -> Row:
    """Return an incident as a row."""
    incident = snapshot.incident
    look = INCIDENTS[incident.state]
    dim = "text-muted" if incident.state.ended and look.colour != "error" else ""
    state = f"{incident.state} ({snapshot.waits})" if snapshot.waits else str(incident.state)
    holder = (incident.owner or "").partition("@")[0]
    return Row(
        str(incident.id),
        (
            Cell(look.sign, look.colour),
            Cell(str(incident.id), dim),
            Cell(short(about(incident), 18), dim),
            Cell(state, look.colour),
            Cell(short(snapshot.reason or incident.kind, 20), dim),
            Cell(age(incident.failed_at or incident.opened, now), dim),
            Cell(short(holder, 12), "text-muted"),
        ),
    )


# Incidents about one job or node, newest first.


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
        self.table.show([incident_row(incident, now) for incident in incidents])
