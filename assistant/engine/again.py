"""Whether a restart may be tried again: not on a theory that did not hold, and not before its back-off is over."""

from __future__ import annotations

from datetime import datetime

from assistant.records import Diagnosis, EventKind, Incident, IncidentState
from assistant.recover.budget import Budget, refuted
from assistant.store import Store

__all__ = ["back_off", "refutation"]


def refutation(store: Store, incident: Incident, diagnosis: Diagnosis) -> str:
    """Return why nothing more is done on a theory that the restart before has refuted; empty when it has not."""
    before = store.incident(incident.parent) if incident.parent is not None else None
    theory = store.diagnosis(before.id) if before is not None else None
    if before is None or theory is None or before.state is not IncidentState.ESCALATED or incident.kind is EventKind.REQUESTED:
        return ""
    if not refuted(theory, diagnosis):
        return ""
    return f"no restart is left on this theory: that of incident {before.id} rested on it and did not hold ({before.note})"


def back_off(budget: Budget, now: datetime) -> str:
    """Return the note for a restart that has to wait; empty when it need not."""
    if budget.not_before is None or budget.not_before <= now:
        return ""
    return f"backs off: {budget.why}, not before {budget.not_before:%H:%M:%S}"
