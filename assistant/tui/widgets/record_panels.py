"""Panels of the first screen that list records of the store: incidents, approvals that wait, and the audit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import DataTable, Static

from assistant.display import line, unambiguous
from assistant.store import AuditRow
from assistant.tui.messages import OpenApproval, OpenIncident
from assistant.tui.snapshot import ApprovalEntry, IncidentEntry, StoreSnapshot
from assistant.tui.widgets.panel import Panel
from assistant.tui.widgets.plain import MUTED
from assistant.tui.widgets.rows import Cell, Rows, TableRow
from assistant.tui.words import INCIDENTS, RISK_WORDS, RISKS, about, age, clock, short


class IncidentsPanel(Panel):
    """Incidents."""

    NAME, TITLE, CALM = "incidents", "Incidents", "Nothing is wrong."
    COLUMNS = ("", "id", "what", "state", "reason", "since", "by")

    def store_read(self, snapshot: StoreSnapshot | None) -> None:
        """Show the incidents."""
        if snapshot is not None:
            self.table.show([incident_row(incident, snapshot.at) for incident in snapshot.incidents])
            self.count(len(snapshot.incidents))
            self.set_class(snapshot.unfinished > 0, "-alarming")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the incident."""
        event.stop()
        self.post_message(OpenIncident(int(str(event.row_key.value))))


def incident_row(snapshot: IncidentEntry, now: datetime) -> TableRow:
    """Return an incident as a row."""
    incident = snapshot.incident
    look = INCIDENTS[incident.state]
    dim = "text-muted" if incident.state.ended and look.colour != "error" else ""
    state = f"{incident.state} ({snapshot.waits})" if snapshot.waits else str(incident.state)
    holder = (incident.owner or "").partition("@")[0]
    return TableRow(
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

    def tell(self, incidents: Sequence[IncidentEntry], now: datetime) -> None:
        """Show the incidents."""
        self.set_class(not incidents, "-empty")
        self.table.show([incident_row(incident, now) for incident in incidents])


# What waits for me: changes that only a person may allow, each with its exact command, why, what it risks and the way back.

COLUMNS_FROM = 130
"""Cells from which all of it has room in one row; below the list it is told of the row that the cursor is on."""
NO_UNDO = "cannot be undone"


class ApprovalsPanel(Panel):
    """The inbox."""

    NAME, TITLE, CALM = "approvals", "Waiting for you", "Nothing waits for you."
    COLUMNS = ("", "id", "left", "change", "risk", "undo", "why")

    def __init__(self) -> None:
        super().__init__()
        self.detail = Static("", classes="detail", markup=False)
        self._waiting: tuple[ApprovalEntry, ...] = ()
        self._at: datetime | None = None

    def compose(self) -> ComposeResult:
        """Put what is told of one row below the list."""
        yield from super().compose()
        yield self.detail

    def store_read(self, snapshot: StoreSnapshot | None) -> None:
        """Show what waits."""
        if snapshot is not None:
            self._waiting, self._at = snapshot.approvals, snapshot.at
            self._show()
            self.count(len(snapshot.approvals))
            self.set_class(bool(snapshot.approvals), "-alarming")

    def on_resize(self) -> None:
        """Put it into columns where they have room."""
        self._show()

    def _show(self) -> None:
        if self._at is None:
            return
        at, room = self._at, room_of(self._waiting, self.scrollable_content_region.width)
        self.table.show([approval_row(approval, at, room) for approval in self._waiting])
        self.set_class(room is not None, "-columns")
        self._tell()

    def _tell(self) -> None:
        current = next((approval for approval in self._waiting if str(approval.approval.id) == self.table.cursor_key), None)
        self.detail.update(detail_of(current, whole=self.has_class("-chosen")) if current is not None else "")

    def on_data_table_row_highlighted(self) -> None:
        """Tell of the row that the cursor is on."""
        self._tell()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the question."""
        event.stop()
        self.post_message(OpenApproval(int(str(event.row_key.value))))


class Room(NamedTuple):
    """Cells of the columns that are cut where they are long."""

    change: int
    why: int


def room_of(waiting: Sequence[ApprovalEntry], width: int) -> Room | None:
    """Return how wide the columns are, so that all of them stand in the panel; None where there is no room for them."""
    if width < COLUMNS_FROM:
        return None
    # sign, number and time, and an empty cell behind each column
    spare = width - 16 - max((len(RISK_WORDS[approval.risk]) + len(approval.undo or NO_UNDO) for approval in waiting), default=0)
    change = min(max((len(_change(approval)) for approval in waiting), default=0), spare * 6 // 10)
    return Room(change, spare - change)


def approval_row(approval: ApprovalEntry, now: datetime, room: Room | None = None) -> TableRow:
    """Return an approval as a row; without room for columns nothing stands behind the change."""
    colour = RISKS[approval.risk][1]
    columns: tuple[Cell | str, ...] = ("", "", "")
    if room is not None:
        undo = approval.undo or Cell(NO_UNDO, "error")
        columns = (Cell(RISK_WORDS[approval.risk], colour), undo, Cell(short(approval.call.why, room.why), "text-muted"))
    return TableRow(
        str(approval.approval.id),
        (
            Cell("?", "accent"),
            str(approval.approval.id),
            Cell(age(approval.approval.expires, now), "text-muted"),
            Cell(short(_change(approval), room.change if room is not None else 200), colour),
            *columns,
        ),
    )


def _change(approval: ApprovalEntry) -> str:
    about = f"#{approval.call.incident} " if approval.call.incident is not None else ""
    return short(f"{about}{approval.call.preview or approval.call.tool}", 200)


def detail_of(approval: ApprovalEntry, *, whole: bool) -> Content:
    """Return what a row has no room for, each part on a line of its own; with the exact change where all of it has room."""
    risk, colour = RISKS[approval.risk]
    facts = (
        ("does", unambiguous(approval.call.preview or approval.call.tool) if whole else "", "bold"),
        ("why", short(approval.call.why, 400) or "nobody said why", ""),
        ("risk", risk, f"${colour}"),
        ("undo", approval.undo or NO_UNDO, "" if approval.undo else "$error"),
    )
    lines = [Content.styled(line(f"{name:<5}"), MUTED) + Content.styled(line(text), style) for name, text, style in facts if text]
    return Content("\n").join(lines)


# What happened: the audit, newest first, without readings.

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
