"""What is wrong now: unfinished incidents first, then those that wait for a person's hands, then what is over."""

from __future__ import annotations

from datetime import datetime

from textual.widgets import DataTable

from assistant.doors.chat.messages import OpenIncident
from assistant.doors.chat.seen import SeenIncident, StoreSeen
from assistant.doors.chat.widgets.panel import Panel
from assistant.doors.chat.widgets.rows import Cell, Row
from assistant.doors.chat.words import INCIDENTS, about, age, short


class IncidentsPanel(Panel):
    """Incidents."""

    NAME, TITLE, CALM = "incidents", "Incidents", "Nothing is wrong."
    COLUMNS = ("", "id", "what", "state", "reason", "since", "by")

    def store_read(self, seen: StoreSeen | None) -> None:
        """Show the incidents."""
        if seen is not None:
            self.table.show([row_of(one, seen.at) for one in seen.incidents])
            self.count(len(seen.incidents))
            self.set_class(seen.unfinished > 0, "-alarming")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the incident."""
        event.stop()
        self.post_message(OpenIncident(int(str(event.row_key.value))))


def row_of(seen: SeenIncident, now: datetime) -> Row:
    """Return an incident as a row."""
    one = seen.incident
    look = INCIDENTS[one.state]
    dim = "text-muted" if one.state.ended and look.colour != "error" else ""
    state = f"{one.state} ({seen.waits})" if seen.waits else str(one.state)
    holder = (one.owner or "").partition("@")[0]
    return Row(
        str(one.id),
        (
            Cell(look.sign, look.colour),
            Cell(str(one.id), dim),
            Cell(short(about(one), 18), dim),
            Cell(state, look.colour),
            Cell(short(seen.reason or one.kind, 20), dim),
            Cell(age(one.failed_at or one.opened, now), dim),
            Cell(short(holder, 12), "text-muted"),
        ),
    )
