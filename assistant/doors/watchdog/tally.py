"""Count what the audit tells: incidents, actions, approvals, how long recoveries took.

The counts live in the store, so no restart and no change of hands sets one back.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from assistant.records import EventKind, IncidentState
from assistant.store import AuditRow, Count, Store

__all__ = ["PASS_BUCKETS", "READER", "RECOVERY_BUCKETS", "catch_up", "observed"]

logger = logging.getLogger(__name__)

READER = "tally"
"""Name of the cursor."""
PAGE = 2_000
PAGES = 10
"""Of the audit in one pass: what is left is counted by the next."""
PASS_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
RECOVERY_BUCKETS = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0)
OTHER = "other"
"""In place of a reason that the content does not know any more, so that the number of series is bounded."""


def catch_up(store: Store, reasons: Iterable[str]) -> None:
    """Count the rows of the audit that are new since the last time, whoever counted them then.

    Raises:
        StoreError: It cannot be read or written.
    """
    known = frozenset(reasons)
    for _ in range(PAGES):
        with store.transaction():
            rows = store.audit_after(store.cursor(READER) or 0, PAGE)
            if not rows:
                return
            store.add_counts(_counted(rows, store, known))
            store.move_cursor(READER, rows[-1].id)


def observed(name: str, value: float, buckets: Sequence[float]) -> dict[Count, float]:
    """Return what an observation adds to a histogram: one to each bucket that it fits into, and its value to the sum."""
    fits = [f"{bound:g}" for bound in buckets if value <= bound] + ["+Inf"]
    return {**{Count(f"{name}_bucket", (("le", bound),)): 1 for bound in fits}, Count(f"{name}_sum"): value}


def _counted(rows: Sequence[AuditRow], store: Store, reasons: frozenset[str]) -> dict[Count, float]:
    found: dict[Count, float] = defaultdict(float)
    kinds = store.kinds_of([row.call for row in rows if row.call is not None])
    for row in rows:
        if row.what == "incident.opened":
            found[Count("incidents_opened", (("kind", _kind(row)),))] += 1
        elif row.what == "diagnosis" and row.incident is not None and store.is_first(row):
            found[Count("incidents", (("by", row.by), ("reason", _known(row.outcome, reasons))))] += 1
        elif row.what == "incident.state" and _ends(row):
            _count_end(row, store, reasons, found)
        elif row.what == "approval.answered":
            found[Count("approvals", (("answer", row.outcome),))] += 1
        elif row.call is not None and kinds.get(row.call, "read") != "read" and (outcome := _outcome(row)):
            found[Count("actions", (("kind", kinds[row.call]), ("outcome", outcome)))] += 1
    return found


def _kind(row: AuditRow) -> str:
    word = row.why.partition(":")[0]
    return word if word in tuple(EventKind) else OTHER


def _known(reason: str, reasons: frozenset[str]) -> str:
    return reason if reason in reasons else OTHER


def _ends(row: AuditRow) -> bool:
    before = str(row.detail.get("from", ""))
    return IncidentState(row.outcome).ended and not (before in tuple(IncidentState) and IncidentState(before).ended)


def _count_end(row: AuditRow, store: Store, reasons: frozenset[str], found: dict[Count, float]) -> None:
    incident = store.incident(row.incident or 0)
    diagnosis = store.diagnosis(incident.id)
    reason = _known(diagnosis.reason, reasons) if diagnosis is not None else "none"
    found[Count("incidents_ended", (("reason", reason), ("state", row.outcome)))] += 1
    if row.outcome == IncidentState.RECOVERED:
        seconds = max((row.at - (incident.failed_at or incident.opened)).total_seconds(), 0.0)
        for count, value in observed("recovery_seconds", seconds, RECOVERY_BUCKETS).items():
            found[count] += value


def _outcome(row: AuditRow) -> str:
    if row.what == "outcome":
        return "done" if row.outcome == "ok" else "failed"
    return {"call.denied": "denied", "call.undone": "undone", "approval.asked": "asked"}.get(row.what, "")
