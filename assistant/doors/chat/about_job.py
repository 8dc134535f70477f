"""All that the chat tells about one job, read in one go on a lane and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from assistant.doors.chat.about_incident import job_of
from assistant.doors.chat.seen import SeenIncident
from assistant.errors import NightshiftError
from assistant.records import Job

if TYPE_CHECKING:
    from assistant.engine import Engine


@dataclass(frozen=True, slots=True)
class SeenCheckpoint:
    """A checkpoint, as `list_checkpoints` tells of it."""

    path: str
    step: int
    format: str
    size_bytes: int
    saved_at: datetime | None
    problems: tuple[str, ...]
    """Why it must not be loaded; empty when healthy."""


@dataclass(frozen=True, slots=True)
class CheckpointsSeen:
    """What a job saved."""

    found: tuple[SeenCheckpoint, ...] = ()
    """Oldest first."""
    note: str = ""
    """Where they are, or why they are not known."""

    @property
    def newest_healthy(self) -> int | None:
        """Step of the newest one that may be loaded."""
        return max((one.step for one in self.found if not one.problems), default=None)


@dataclass(frozen=True, slots=True)
class JobSeen:
    """One job."""

    at: datetime
    id: str
    job: Job | None
    unknown: str
    """Why there is no job."""
    incidents: tuple[SeenIncident, ...]
    """Newest first."""


def read_job(engine: Engine, job_id: str, known: Job | None, now: datetime) -> JobSeen:
    """Return what is known about a job; `known` is as the scheduler showed it last."""
    job, unknown = job_of(engine, job_id, {job_id: known} if known is not None else {})
    store = engine.store
    with store.snapshot():
        found = []
        for incident in store.incidents(job=job_id):
            diagnosis = store.diagnosis(incident.id)
            reason = (diagnosis.reason, diagnosis.confidence, diagnosis.faulty_nodes) if diagnosis is not None else ("", 0.0, ())
            found.append(SeenIncident(incident, *reason))
    return JobSeen(now, job_id, job, unknown, tuple(found))


def read_checkpoints(engine: Engine, job_id: str, by: str) -> CheckpointsSeen:
    """Return what a job saved, by the reading call of that name; what cannot be told is said."""
    try:
        outcome = engine.gate.call("list_checkpoints", {"job": job_id}, why="shown in the chat", by=by)
    except NightshiftError as error:
        return CheckpointsSeen(note=f"not known: {error}")
    if not outcome.ok or not isinstance(outcome.value, Mapping):
        return CheckpointsSeen(note=f"not known: {outcome.error}")
    value: Mapping[str, Any] = outcome.value
    doubt = [str(value["doubt"])] if value.get("doubt") else []
    notes = [*doubt, f"{value['folder']} ({value['found_by']})", *map(str, value.get("notes", ()))]
    return CheckpointsSeen(tuple(_checkpoint(one) for one in value.get("checkpoints", ())), " · ".join(notes))


def _checkpoint(told: Mapping[str, Any]) -> SeenCheckpoint:
    return SeenCheckpoint(
        str(told["path"]),
        int(told["step"]),
        str(told["format"]),
        int(told["size_bytes"]),
        datetime.fromisoformat(told["saved_at"]) if told.get("saved_at") else None,
        tuple(map(str, told.get("problems", ()))),
    )
