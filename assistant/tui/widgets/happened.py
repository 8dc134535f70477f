"""What happened: the panel of the audit, newest first, without readings and leases."""

from __future__ import annotations

from datetime import datetime

from textual.widgets import DataTable

from assistant.store import AuditRow
from assistant.tui.messages import OpenIncident
from assistant.tui.snapshot import StoreSnapshot
from assistant.tui.widgets.panels import Panel
from assistant.tui.widgets.tables import Cell, TableRow
from assistant.tui.words import clock, short

_COLOURS = {"incident.opened": "error", "approval.asked": "accent", "diagnosis": "primary"}
_WORDS = {"incident.opened": "noticed", "incident.event": "again", "approval.asked": "asks", "diagnosis": "found"}


class HappenedPanel(Panel):
    """The recent past."""

    NAME, TITLE, CALM = "happened", "What happened", "Nothing has happened yet."
    COLUMNS = ("at", "#", "what", "by")

    def __init__(self) -> None:
        super().__init__()
        self._incidents: dict[str, int] = {}

    def store_read(self, snapshot: StoreSnapshot | None) -> None:
        """Show the rows."""
        if snapshot is not None:
            self._incidents = {str(row.id): row.incident for row in snapshot.happened if row.incident is not None}
            self.table.show([audit_row(row, snapshot.at) for row in snapshot.happened])
            self.count(len(snapshot.happened))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the incident that the row is about."""
        event.stop()
        about = self._incidents.get(str(event.row_key.value))
        if about is not None:
            self.post_message(OpenIncident(about))


def audit_row(row: AuditRow, now: datetime) -> TableRow:
    """Return a row of the audit as a row."""
    return TableRow(
        str(row.id),
        (
            Cell(clock(row.at, now), "text-muted"),
            str(row.incident or ""),
            Cell(short(audit_text(row), 120), _COLOURS.get(row.what, "")),
            Cell(short(row.by.partition("@")[0], 16), "text-muted"),
        ),
    )


def audit_text(row: AuditRow) -> str:
    """Return what a row of the audit says, in words."""
    if row.what == "incident.state":
        return f"{row.outcome}: {row.why}" if row.why else row.outcome
    if row.what == "approval.answered":
        return f"{'allowed' if row.outcome == 'allow' else 'refused'}: {row.preview}"
    if row.what == "outcome":
        return f"done: {row.preview}" if row.outcome == "ok" else f"failed: {row.preview}: {row.outcome}"
    word = _WORDS.get(row.what, row.what.replace(".", " ").replace("_", " "))
    return f"{word}: {row.preview or row.why}".rstrip(": ")
