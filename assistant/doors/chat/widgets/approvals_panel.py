"""What waits for me: changes that only a person may allow."""

from __future__ import annotations

from datetime import datetime

from textual.widgets import DataTable

from assistant.doors.chat.messages import OpenApproval
from assistant.doors.chat.seen import SeenApproval, StoreSeen
from assistant.doors.chat.widgets.panel import Panel
from assistant.doors.chat.widgets.rows import Cell, Row
from assistant.doors.chat.words import RISKS, age, short


class ApprovalsPanel(Panel):
    """The inbox."""

    NAME, TITLE, CALM = "approvals", "Waiting for you", "Nothing waits for you."
    COLUMNS = ("", "id", "left", "change")

    def store_read(self, seen: StoreSeen | None) -> None:
        """Show what waits."""
        if seen is not None:
            self.table.show([row_of(one, seen.at) for one in seen.approvals])
            self.count(len(seen.approvals))
            self.set_class(bool(seen.approvals), "-alarming")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the question."""
        event.stop()
        self.post_message(OpenApproval(int(str(event.row_key.value))))


def row_of(seen: SeenApproval, now: datetime) -> Row:
    """Return an approval as a row."""
    about = f"#{seen.call.incident} " if seen.call.incident is not None else ""
    return Row(
        str(seen.approval.id),
        (
            Cell("?", "accent"),
            str(seen.approval.id),
            Cell(age(seen.approval.expires, now), "text-muted"),
            Cell(short(f"{about}{seen.call.preview or seen.call.tool}", 200), RISKS[seen.risk][1]),
        ),
    )
