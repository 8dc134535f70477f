"""What the chat reads of the store: incidents, approvals, what happened; and whether the file is still the one that was opened.

A store that was moved away or replaced is read no more: an open connection would go on with the old file, a new one would make an
empty one in its place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from assistant.errors import StoreError
from assistant.gate.stops import stopped_by
from assistant.overall_state import read_facts
from assistant.records import CallStatus, Incident, IncidentState, Risk
from assistant.store import Approval, AuditRow, Store
from assistant.store.audit import SEAL, row_of
from assistant.store.standing_decisions import why_open
from assistant.tooling import found
from assistant.tui.snapshot import ApprovalEntry, IncidentEntry, StoreSnapshot

if TYPE_CHECKING:
    from assistant.policy import PolicyStanding
    from assistant.store.connection import Now

MOST_INCIDENTS = 200
MOST_HAPPENED = 300

SILENT = frozenset(
    {
        SEAL,
        "incident.claimed",
        "incident.released",
        "decision",
        *(f"call.{status}" for status in CallStatus if status != "undone"),
    }
)
"""Rows of the audit that say nothing by themselves: seals, leases, steps of calls."""
_TOLD_OTHERWISE = (IncidentState.DIAGNOSED, IncidentState.WAITING)
"""States whose cause has a row of its own."""
PARTS = {
    IncidentState.WAITING: 0,
    IncidentState.OPEN: 1,
    IncidentState.DIAGNOSED: 1,
    IncidentState.RECOVERING: 1,
    IncidentState.VERIFYING: 1,
    IncidentState.ESCALATED: 2,
}
"""What comes first in the list of incidents; what is over comes last."""


class StoreFile:
    """The file that was opened: tells when another, or none, lies at its path."""

    def __init__(self, path: Path) -> None:
        """Note which file it is now."""
        self.path = path
        self._opened = _identity(path)

    def must_stand(self) -> None:
        """Make sure that it still lies there; ask before each use, for a use could make an empty file.

        Raises:
            StoreError: It was moved away, deleted or replaced.
        """
        identity = _identity(self.path)
        if identity is None:
            raise StoreError(f"{self.path}: the store is gone; bring the file back or start again to make a new one")
        if identity != self._opened:
            raise StoreError(
                f"{self.path}: the store was replaced by another file; bring the old one back, or leave and start again"
            )

    def store_or_refusal(self, store: Store) -> Store:
        """Return the store; where its file is away, what has its clock and refuses to record anything."""
        try:
            self.must_stand()
        except StoreError as error:
            return cast("Store", _MissingStore(store.clock, error))
        return store


class _MissingStore:
    """Stands for a store that is away, for what must work without one: the kill switch."""

    def __init__(self, clock: Now, why: StoreError) -> None:
        self.clock, self._why = clock, why

    def record(self, *_: object, **__: object) -> str:
        """Refuse to record.

        Raises:
            StoreError: Always.
        """
        raise StoreError(str(self._why))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - raises where a folder on the way is away, too
    except OSError:
        return None
    return status.st_dev, status.st_ino


def read_store(store: Store, now: datetime, policy: PolicyStanding, previous: StoreSnapshot | None = None) -> StoreSnapshot:
    """Return what the store says now, one state of it.

    Args:
        store: Which.
        now: The time.
        policy: What its files say now.
        previous: An earlier snapshot of the same store: what happened before it is taken from there.
    """
    with store.snapshot():
        facts = read_facts(store, policy, stopped_by(policy.policy.kill_switch), now)
        approvals = tuple(_approval(store, record) for record in store.approvals())
        waiting = [record.call.incident for record in approvals]
        incidents = [_incident(store, record, waiting) for record in store.incidents(limit=MOST_INCIDENTS)]
        newest_row = store.newest_row()
        happened = read_happened(store, previous)
        breaker, needs = why_open(store) or "", tuple(store.unacknowledged())
    incidents.sort(key=lambda record: (PARTS.get(record.incident.state, 3), -record.incident.id))
    return StoreSnapshot(now, tuple(incidents), approvals, happened, breaker, needs, facts, newest_row)


def _incident(store: Store, incident: Incident, waiting: Sequence[int | None]) -> IncidentEntry:
    diagnosis = store.diagnosis(incident.id)
    waits = waiting.count(incident.id)
    if diagnosis is None:
        return IncidentEntry(incident, waits=waits)
    return IncidentEntry(incident, diagnosis.reason, diagnosis.confidence, diagnosis.faulty_nodes, waits)


def _approval(store: Store, approval: Approval) -> ApprovalEntry:
    call = store.call(approval.call)
    tool = found().get(call.tool)
    # a tool that this version does not know may do anything
    undo = f"nightshift undo {call.id}" if tool is not None and tool.undo else ""
    return ApprovalEntry(approval, call, tool.risk if tool else Risk.DISRUPT, undo)


def read_happened(store: Store, previous: StoreSnapshot | None = None) -> tuple[AuditRow, ...]:
    """Return the rows of the audit that are news for a person, newest first: no readings, no leases, nothing twice in a row.

    The store leaves out the rest: a lease is written every few seconds, and would push out all that happened.
    """
    reading = [name for name, tool in found().items() if tool.risk is Risk.READ]
    states = [str(state) for state in _TOLD_OTHERWISE]
    sql = (
        f"SELECT * FROM audit WHERE id > ? AND what NOT IN ({_marks(SILENT)}) "
        f"AND NOT (what = 'incident.state' AND outcome IN ({_marks(states)})) "
        "AND NOT (what = 'outcome' AND call IS NOT NULL AND EXISTS "
        f"(SELECT 1 FROM calls WHERE calls.id = audit.call AND calls.tool IN ({_marks(reading)}))) "
        "ORDER BY id DESC LIMIT ?"
    )
    after, earlier = (previous.newest_row, previous.happened) if previous is not None else (0, ())
    rows = store.rows(sql, [after, *sorted(SILENT), *states, *reading, MOST_HAPPENED * 2])
    news = list(reversed(earlier))
    for row in map(row_of, reversed(rows)):
        if not news or (news[-1].what, news[-1].why, news[-1].preview) != (row.what, row.why, row.preview):
            news.append(row)
    return tuple(reversed(news[-MOST_HAPPENED:]))


def _marks(values: Sequence[str] | frozenset[str]) -> str:
    return ", ".join("?" * len(values))
