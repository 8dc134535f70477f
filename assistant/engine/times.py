"""The figures of an incident: how long each part took and how much training was lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from assistant.records import CallStatus
from assistant.recover.identity import RESTARTS
from assistant.store import Store

COUNTED_OTHERWISE = "counted_otherwise"
"""Stage of an incident whose job numbers no step: what its log counts and the step of a checkpoint are not compared."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds between the stages of an incident; None while a stage has not been reached."""

    detect_s: float | None
    """From the failure to the opening of the incident."""
    diagnose_s: float | None
    """From the opening to the diagnosis."""
    resubmit_s: float | None
    """From the diagnosis to the new job."""
    recover_s: float | None
    """From the failure until training was seen to move on."""
    steps_lost: int | None
    """Training steps that have to be done again: last step seen minus step of the checkpoint."""
    restart_step: int | None
    """Step of the checkpoint that was chosen."""


def times_of(store: Store, incident_id: int) -> Times:
    """Return the figures of an incident as far as it has come."""
    incident, stages, diagnosis = store.incident(incident_id), store.stages(incident_id), store.diagnosis(incident_id)
    restart_step = restart_step_of(store, incident_id)
    failed = incident.failed_at or incident.opened
    lost = None
    if diagnosis is not None and diagnosis.step is not None and restart_step is not None:
        lost = max(0, diagnosis.step - restart_step) if COUNTED_OTHERWISE not in stages else None
    return Times(
        detect_s=_seconds(failed, incident.opened),
        diagnose_s=_seconds(incident.opened, stages.get("diagnosed")),
        resubmit_s=_seconds(stages["diagnosed"], _resubmitted_at(store, incident_id)) if "diagnosed" in stages else None,
        recover_s=_seconds(failed, stages.get("recovered")),
        steps_lost=lost,
        restart_step=restart_step,
    )


def restart_step_of(store: Store, incident_id: int) -> int | None:
    """Return the step from which the job was started again, None when it was not."""
    for call in reversed(store.calls(incident_id, status=CallStatus.DONE)):
        outcome = store.outcome(call.id)
        if call.tool in RESTARTS and outcome is not None:
            value: Any = outcome.value
            step = value.get("step") if isinstance(value, Mapping) else None
            return int(step) if step is not None else None
    return None


def _resubmitted_at(store: Store, incident_id: int) -> datetime | None:
    calls = [call for call in store.calls(incident_id, status=CallStatus.DONE) if call.tool in RESTARTS]
    outcome = store.outcome(calls[-1].id) if calls else None
    return outcome.at if outcome is not None else None


def _seconds(start: datetime, end: datetime | None) -> float | None:
    return None if end is None else max(0.0, (end - start).total_seconds())
