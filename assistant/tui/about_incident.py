"""All that the chat tells about one incident, read in one go on a lane and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant.errors import ToolError, Unavailable
from assistant.records import Call, CallStatus, Decision, Diagnosis, EventKind, Evidence, Incident, Job, Outcome, Risk
from assistant.recover.identity import RESTARTS
from assistant.store import Approval, Store
from assistant.tooling import found

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.engine.report import Moment
    from assistant.engine.times import Times
    from assistant.tui.playbook_progress import Play
from typing import TYPE_CHECKING

from assistant.errors import NightshiftError
from assistant.tui.snapshot import SeenIncident

if TYPE_CHECKING:
    from assistant.engine import Engine


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call and what became of it."""

    call: Call
    risk: Risk
    decision: Decision | None
    """The last one: who allowed or refused it."""
    outcome: Outcome | None
    undo: str
    """Name of the tool that takes it back; empty where there is none."""

    @property
    def can_be_undone(self) -> bool:
        """Whether it was done, and can be taken back."""
        return bool(self.undo) and self.call.status is CallStatus.DONE


@dataclass(frozen=True, slots=True)
class IncidentSeen:
    """One incident."""

    at: datetime
    incident: Incident
    diagnosis: Diagnosis | None
    times: Times
    moments: tuple[Moment, ...]
    """Oldest first."""
    evidence: tuple[Evidence, ...]
    calls: tuple[SeenCall, ...]
    play: Play
    job: Job | None
    """As the scheduler shows it; None where it shows none."""
    job_unknown: str
    """Why there is no job to show; empty where there is one, or where the incident is about a node."""
    restarts: tuple[Job, ...]
    """The jobs that it was restarted as, as far as the scheduler still knows them."""
    approvals: tuple[Approval, ...]
    """Questions of it that nobody has answered."""
    followers: tuple[int, ...]
    """Incidents of its restarts."""
    hung: bool
    """Whether the watch saw it stop."""

    @property
    def log(self) -> Path | None:
        """Where the job wrote its log, told by the scheduler or by the evidence; None when nobody says."""
        if self.job is not None and self.job.log is not None:
            return self.job.log
        paths = [evidence.facts.get("path") for evidence in self.evidence if evidence.source == "job log"]
        return Path(str(paths[-1])) if paths and paths[-1] else None

    @property
    def account(self) -> str:
        """With whose rights the job's files are read; empty: with our own."""
        if self.job is not None:
            return self.job.account
        accounts = [str(evidence.facts.get("account", "")) for evidence in self.evidence if evidence.source == "job log"]
        return accounts[-1] if accounts else ""

    @property
    def changes(self) -> tuple[SeenCall, ...]:
        """Calls that change something, oldest first."""
        return tuple(call for call in self.calls if call.risk is not Risk.READ)


def read_incident(engine: Engine, incident_id: int, jobs: Mapping[str, Job], now: datetime) -> IncidentSeen:
    """Return what is known about an incident.

    Args:
        engine: Its store and playbooks are read; the scheduler is asked only for jobs that are not known.
        incident_id: Which.
        jobs: Jobs by id, as the scheduler showed them last.
        now: The time.

    Raises:
        UsageError: There is no such incident.
    """
    from assistant.engine.report import timeline
    from assistant.engine.times import times_of
    from assistant.recover.page_facts import advice_left, facts_of_page
    from assistant.tui.playbook_progress import play_of

    store = engine.store
    incident = store.incident(incident_id)
    job, unknown = job_of(engine, incident.job, jobs)
    with store.snapshot():
        incident, diagnosis = store.incident(incident_id), store.diagnosis(incident_id)
        if diagnosis is not None:
            advice = advice_left(diagnosis.advice, facts_of_page(store, incident_id), incident, store)
            diagnosis = replace(diagnosis, advice=advice)
        calls = tuple(seen_call(store, call) for call in store.calls(incident_id))
        own = {record.call.id for record in calls}
        return IncidentSeen(
            now,
            incident,
            diagnosis,
            times_of(store, incident_id),
            tuple(timeline(store, incident_id)),
            tuple(store.evidence(incident_id)),
            calls,
            play_of(engine, incident, diagnosis, job, calls),
            job,
            unknown,
            tuple(_restarts(engine, calls, jobs)),
            tuple(record for record in store.approvals() if record.call in own),
            tuple(record.id for record in store.incidents(limit=200) if record.parent == incident_id),
            any(event.kind is EventKind.HANG for event in store.events(incident_id)),
        )


def seen_call(store: Store, call: Call) -> SeenCall:
    """Return a call with what became of it."""
    tool = found().get(call.tool)
    decisions = store.decisions(call.id)
    # a tool that this version does not know may do anything
    risk = tool.risk if tool is not None else Risk.DISRUPT
    return SeenCall(call, risk, decisions[-1] if decisions else None, store.outcome(call.id), (tool.undo if tool else "") or "")


def job_of(engine: Engine, job_id: str | None, jobs: Mapping[str, Job]) -> tuple[Job | None, str]:
    """Return a job as the scheduler shows it, asked where it is not known, or None and why."""
    if job_id is None or job_id in jobs:
        return jobs.get(job_id or ""), ""
    try:
        return engine.scheduler.job(job_id), ""
    except ToolError as error:
        return None, str(error)
    except Unavailable as error:
        return None, f"the scheduler does not answer: {error}"


def _restarts(engine: Engine, calls: tuple[SeenCall, ...], jobs: Mapping[str, Job]) -> list[Job]:
    restarts: list[Job] = []
    for seen_call in calls:
        value: Any = seen_call.outcome.value if seen_call.outcome is not None and seen_call.outcome.ok else None
        if seen_call.call.tool in RESTARTS and isinstance(value, dict) and value.get("job"):
            job, _ = job_of(engine, str(value["job"]), jobs)
            restarts += [job] if job is not None else []
    return restarts


# All that the chat tells about one job, read in one go on a lane and never changed.


@dataclass(frozen=True, slots=True)
class SeenCheckpoint:
    """A checkpoint, as `list_checkpoints` tells of it."""

    path: str
    step: int
    format: str
    size_bytes: int
    saved_at: datetime | None
    problems: tuple[str, ...]
    """Why it must not be loaded, or why nobody can say that it may; empty when healthy."""
    undecided: bool = False
    """Whether nobody can judge it."""
    unread: str = ""
    """What of it was not judged."""


@dataclass(frozen=True, slots=True)
class CheckpointsSeen:
    """What a job saved."""

    checkpoints: tuple[SeenCheckpoint, ...] = ()
    """Oldest first."""
    note: str = ""
    """Where they are, or why they are not known."""

    @property
    def newest_healthy(self) -> int | None:
        """Step of the newest one that may be loaded."""
        return max((checkpoint.step for checkpoint in self.checkpoints if not checkpoint.problems), default=None)


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


def read_job(engine: Engine, job_id: str, listed_job: Job | None, now: datetime) -> JobSeen:
    """Return what is known about a job; `listed_job` is as the scheduler showed it last."""
    job, unknown = job_of(engine, job_id, {job_id: listed_job} if listed_job is not None else {})
    store = engine.store
    with store.snapshot():
        incidents = []
        for incident in store.incidents(job=job_id):
            diagnosis = store.diagnosis(incident.id)
            reason = (diagnosis.reason, diagnosis.confidence, diagnosis.faulty_nodes) if diagnosis is not None else ("", 0.0, ())
            incidents.append(SeenIncident(incident, *reason))
    return JobSeen(now, job_id, job, unknown, tuple(incidents))


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
    return CheckpointsSeen(tuple(_checkpoint(row) for row in value.get("checkpoints", ())), " · ".join(notes))


def _checkpoint(row: Mapping[str, Any]) -> SeenCheckpoint:
    return SeenCheckpoint(
        str(row["path"]),
        int(row["step"]),
        str(row["format"]),
        int(row["size_bytes"]),
        datetime.fromisoformat(row["saved_at"]) if row.get("saved_at") else None,
        tuple(map(str, row.get("problems", ()))),
        bool(row.get("undecided")),
        str(row.get("unread", "")),
    )
