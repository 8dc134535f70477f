"""All that the chat tells about one incident, read in one go on a lane and never changed; also where its playbook stands.

A playbook is played again with the outcomes that the store has, up to the first call that has none, and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant.content.playbooks import REFERENCE, Playbook, PlaybookLimits, Step, Verify
from assistant.errors import NightshiftError, ToolError, Unavailable
from assistant.gate.running import ENDED, stands
from assistant.records import Call, CallStatus, Decision, Diagnosis, EventKind, Evidence, Incident, Job, Outcome, Risk
from assistant.recover.identity import RESTARTS
from assistant.store import Approval, Store
from assistant.tooling import found
from assistant.tui.snapshot import IncidentEntry

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.engine.report import Moment, Times
    from assistant.recover.directives import Budget


MOST_CALLS = 5_000
"""More than any playbook has made."""


class At(StrEnum):
    """Where a step is."""

    DONE = "done"
    FAILED = "failed"
    NOW = "now"
    """It is its turn."""
    WAITS = "waits"
    """It waits for a person's answer."""
    SKIPPED = "not taken"
    """It was not needed, or never reached."""
    NEXT = "next"


@dataclass(frozen=True, slots=True)
class StepEntry:
    """A step or verify of a playbook."""

    name: str
    tool: str
    at: At
    verify: bool
    why: str
    outcome: str
    """Outcome of the step, in short."""
    expects: str = ""
    """What it waits to be told, and how long; empty for a step that is made once."""
    calls: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Play:
    """A playbook and where its steps stand."""

    name: str = ""
    """Empty where there is no playbook."""
    title: str = ""
    steps: tuple[StepEntry, ...] = ()
    has_begun: bool = False
    """Whether it runs or ran; else it is the one that would be taken."""
    note: str = ""
    """Why there is none, or what else must be known."""
    limits: PlaybookLimits | None = None
    budget: Budget | None = None
    ends: str = ""
    """How it ended, or ends when all goes well."""


def play_of(engine: Engine, incident: Incident, diagnosis: Diagnosis | None, job: Job | None, calls: Sequence[CallEntry]) -> Play:
    """Return the playbook of an incident, or the one that its diagnosis would choose, and where it stands."""
    from assistant.engine.retry_policy import situation_of

    if diagnosis is None:
        return Play(note="No diagnosis yet: the playbook is chosen by it.")
    is_begun = incident.playbook is not None
    if incident.playbook is not None:
        book, why = engine.playbooks.get(incident.playbook), f"playbook {incident.playbook} is no longer there"
    else:
        book, why = engine.playbook_for(diagnosis, job)
    if book is None:
        return Play(note=why)
    changed = (
        "The file has changed since it was chosen: steps may differ."
        if is_begun and book.digest != incident.playbook_digest
        else ""
    )
    values = situation_of(engine.store, incident, diagnosis, job)
    standing = PlaybookStanding({}, None, "")
    if is_begun:
        standing = replace(stand(book, values, calls), over=incident.state.ended)
    steps = tuple(_step_entry(entry, standing, values, has_begun=is_begun) for entry in book.entries)
    budget = engine.budget(book, diagnosis, job) if book.restarts else None
    ends = standing.ended or f"ends {book.ends} when all goes well"
    return Play(book.name, book.title, steps, is_begun, changed, book.limits, budget, ends)


@dataclass(frozen=True, slots=True)
class PlaybookStanding:
    """Progress of a playbook: the calls made, the entry whose turn it is, and how it ended."""

    calls_of: Mapping[str, tuple[CallEntry, ...]]
    """Calls of each entry, by its name."""
    now: str | None
    """The entry whose turn it is; None when it has ended or cannot be told."""
    ended: str
    """How it ended; empty while it runs."""
    order: tuple[str, ...] = ()
    """Names of all entries."""
    over: bool = False
    """Whether nobody goes on with it."""


def stand(book: Playbook, values: Mapping[str, Any], calls: Sequence[CallEntry]) -> PlaybookStanding:
    """Return how far a playbook came, by playing it with the outcomes of the calls that were made."""
    from assistant.recover.playbook import play

    order = tuple(entry.name for entry in book.entries)
    by_key = {call_entry.call.step: call_entry for call_entry in calls if call_entry.call.step}
    calls_by_entry: dict[str, tuple[CallEntry, ...]] = {}
    for call_entry in calls:
        if call_entry.call.step:
            name = _entry_of(call_entry.call.step)
            calls_by_entry[name] = (*calls_by_entry.get(name, ()), call_entry)
    running = play(book, values, look_s=0)
    try:
        step = next(running)
        for _ in range(MOST_CALLS):
            recorded = by_key.get(step.key)
            if recorded is None or recorded.outcome is None:
                return PlaybookStanding(calls_by_entry, _entry_of(step.key), "", order)
            step = running.send(recorded.outcome)
    except StopIteration as stop:
        return PlaybookStanding(calls_by_entry, None, f"ended {stop.value.state}: {stop.value.note}", order)
    except NightshiftError:
        # the file is another one than the one that was played
        return PlaybookStanding(calls_by_entry, None, "", order)
    finally:
        running.close()
    return PlaybookStanding(calls_by_entry, None, "", order)


def _entry_of(key: str) -> str:
    """Return the entry of a step's key: `isolate[node02]`, `progress#3`."""
    return key.partition("[")[0].partition("#")[0]


def _step_entry(entry: Step | Verify, standing: PlaybookStanding, values: Mapping[str, Any], *, has_begun: bool) -> StepEntry:
    calls = standing.calls_of.get(entry.name, ())
    expects = f"until it says {entry.expect}, within {entry.within_min:g} min" if entry.expect else ""
    return StepEntry(
        entry.name,
        entry.use,
        _at(entry, calls, standing) if has_begun else At.NEXT,
        isinstance(entry, Verify),
        calls[-1].call.why if calls and not expects else expected_reason(entry.why, values),
        found_by(calls),
        expects,
        tuple(call_entry.call.id for call_entry in calls),
    )


def expected_reason(why: str, values: Mapping[str, Any]) -> str:
    """Return why a step would be taken, with what is known already; what an earlier step must find first is told by its name."""
    from assistant.errors import ToolError
    from assistant.recover.playbook import look_up

    def value_or_name(path: re.Match[str]) -> str:
        if path[1] == "item":
            return "it"
        try:
            return str(look_up(path[1], values))
        except ToolError:
            return f"({path[1].replace('.', ' ')})"

    return REFERENCE.sub(value_or_name, why)


def _at(entry: Step | Verify, calls: Sequence[CallEntry], standing: PlaybookStanding) -> At:
    status = calls[-1].call.status if calls else None
    if status is CallStatus.DENIED:
        return At.FAILED
    turn = standing.now == entry.name
    if turn and not standing.over:
        return At.WAITS if status is CallStatus.PENDING else At.NOW
    if not calls:
        return At.NEXT if not standing.over and standing.now in standing.order and _is_after(entry.name, standing) else At.SKIPPED
    if entry.expect:
        return At.DONE if _status(calls[-1].outcome) == entry.expect else At.FAILED
    return At.FAILED if turn or any(call.outcome is not None and not call.outcome.ok for call in calls) else At.DONE


def _is_after(name: str, standing: PlaybookStanding) -> bool:
    return standing.now is not None and standing.order.index(name) > standing.order.index(standing.now)


def _status(outcome: Outcome | None) -> str:
    value = outcome.value if outcome is not None and outcome.ok else None
    return str(value.get("status", "")) if isinstance(value, Mapping) else ""


def found_by(calls: Sequence[CallEntry]) -> str:
    """Return what calls found, in a few words: the last of a verify's looks, each of a step's items."""
    findings = [_short(call_entry.outcome) for call_entry in calls if call_entry.outcome is not None]
    is_looping = (
        len({call_entry.call.step.partition("#")[0] for call_entry in calls if call_entry.call.step}) == 1 and len(findings) > 1
    )
    return f"{findings[-1]} ({len(findings)} looks)" if is_looping else "; ".join(dict.fromkeys(filter(None, findings)))


def _short(outcome: Outcome) -> str:
    if not outcome.ok:
        return outcome.error
    value = outcome.value
    if not isinstance(value, Mapping):
        return str(value)
    note = str(value.get("note") or value.get("text") or "")
    return note or ", ".join(f"{key} {item}" for key, item in value.items() if _tells(item))


def _tells(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and value != ""


@dataclass(frozen=True, slots=True)
class CallEntry:
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
        """Whether all or some of it was done, and can be taken back."""
        return bool(self.undo) and self.call.status in ENDED and self.outcome is not None and stands(self.outcome)


@dataclass(frozen=True, slots=True)
class IncidentSnapshot:
    """All that the screen of an incident shows, at one moment."""

    at: datetime
    incident: Incident
    diagnosis: Diagnosis | None
    times: Times
    moments: tuple[Moment, ...]
    """Oldest first."""
    evidence: tuple[Evidence, ...]
    calls: tuple[CallEntry, ...]
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
    def changes(self) -> tuple[CallEntry, ...]:
        """Calls that change something, oldest first."""
        return tuple(call for call in self.calls if call.risk is not Risk.READ)


def read_incident(engine: Engine, incident_id: int, jobs: Mapping[str, Job], now: datetime) -> IncidentSnapshot:
    """Return what is known about an incident.

    Args:
        engine: Its store and playbooks are read; the scheduler is asked only for jobs that are not known.
        incident_id: Which.
        jobs: Jobs by id, as the scheduler showed them last.
        now: The time.

    Raises:
        UsageError: There is no such incident.
    """
    from assistant.engine.report import timeline, times_of
    from assistant.recover.situation import advice_left, facts_of_page

    store = engine.store
    incident = store.incident(incident_id)
    job, unknown = job_of(engine, incident.job, jobs)
    with store.snapshot():
        incident, diagnosis = store.incident(incident_id), store.diagnosis(incident_id)
        if diagnosis is not None:
            advice = advice_left(diagnosis.advice, facts_of_page(store, incident_id), incident, store)
            diagnosis = replace(diagnosis, advice=advice)
        calls = tuple(call_entry_of(store, call) for call in store.calls(incident_id))
        own = {record.call.id for record in calls}
        return IncidentSnapshot(
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


def call_entry_of(store: Store, call: Call) -> CallEntry:
    """Return a call with what became of it."""
    tool = found().get(call.tool)
    decisions = store.decisions(call.id)
    # a tool that this version does not know may do anything
    risk = tool.risk if tool is not None else Risk.DISRUPT
    return CallEntry(call, risk, decisions[-1] if decisions else None, store.outcome(call.id), (tool.undo if tool else "") or "")


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


def _restarts(engine: Engine, calls: tuple[CallEntry, ...], jobs: Mapping[str, Job]) -> list[Job]:
    restarts: list[Job] = []
    for call_entry in calls:
        value: Any = call_entry.outcome.value if call_entry.outcome is not None and call_entry.outcome.ok else None
        if call_entry.call.tool in RESTARTS and isinstance(value, dict) and value.get("job"):
            job, _ = job_of(engine, str(value["job"]), jobs)
            restarts += [job] if job is not None else []
    return restarts


# All that the chat tells about one job, read in one go on a lane and never changed.


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
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
class CheckpointsSnapshot:
    """What a job saved."""

    checkpoints: tuple[CheckpointEntry, ...] = ()
    """Oldest first."""
    note: str = ""
    """Where they are, or why they are not known."""

    @property
    def newest_healthy(self) -> int | None:
        """Step of the newest one that may be loaded."""
        return max((checkpoint.step for checkpoint in self.checkpoints if not checkpoint.problems), default=None)


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """All that the screen of a job shows, at one moment."""

    at: datetime
    id: str
    job: Job | None
    unknown: str
    """Why there is no job."""
    incidents: tuple[IncidentEntry, ...]
    """Newest first."""


def read_job(engine: Engine, job_id: str, listed_job: Job | None, now: datetime) -> JobSnapshot:
    """Return what is known about a job; `listed_job` is as the scheduler showed it last."""
    job, unknown = job_of(engine, job_id, {job_id: listed_job} if listed_job is not None else {})
    store = engine.store
    with store.snapshot():
        incidents = []
        for incident in store.incidents(job=job_id):
            diagnosis = store.diagnosis(incident.id)
            reason = (diagnosis.reason, diagnosis.confidence, diagnosis.faulty_nodes) if diagnosis is not None else ("", 0.0, ())
            incidents.append(IncidentEntry(incident, *reason))
    return JobSnapshot(now, job_id, job, unknown, tuple(incidents))


def read_checkpoints(engine: Engine, job_id: str, by: str) -> CheckpointsSnapshot:
    """Return what a job saved, by the reading call of that name; what cannot be told is said."""
    try:
        outcome = engine.gate.call("list_checkpoints", {"job": job_id}, why="shown in the chat", by=by)
    except NightshiftError as error:
        return CheckpointsSnapshot(note=f"not known: {error}")
    if not outcome.ok or not isinstance(outcome.value, Mapping):
        return CheckpointsSnapshot(note=f"not known: {outcome.error}")
    value: Mapping[str, Any] = outcome.value
    doubt = [str(value["doubt"])] if value.get("doubt") else []
    notes = [*doubt, f"{value['folder']} ({value['found_by']})", *map(str, value.get("notes", ()))]
    return CheckpointsSnapshot(tuple(_checkpoint(row) for row in value.get("checkpoints", ())), " · ".join(notes))


def _checkpoint(row: Mapping[str, Any]) -> CheckpointEntry:
    return CheckpointEntry(
        str(row["path"]),
        int(row["step"]),
        str(row["format"]),
        int(row["size_bytes"]),
        datetime.fromisoformat(row["saved_at"]) if row.get("saved_at") else None,
        tuple(map(str, row.get("problems", ()))),
        bool(row.get("undecided")),
        str(row.get("unread", "")),
    )
