"""One incident for what several jobs failed of at once: a service, a path, a node, an error.

The members are attached to it before anything is done about them, so that one message names them all and no owner is blamed for
what all of them lost. The cause is probed through the gate; when it answers, members restart by their playbooks, one after the
other. An incident of this kind is worked on by nobody and ends with the last of its members.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.content.playbooks import DRIVER, Playbook
from assistant.display import shorten
from assistant.engine.drivers import GOES_ON, DriverTurn, driver_turn
from assistant.engine.faulty_nodes import failure_of, set_aside_at_once, set_aside_proven
from assistant.engine.intake import PASSED
from assistant.engine.outcomes.moved_servers import ServerState, server_behind
from assistant.engine.shared_words import left_words, some_names
from assistant.errors import NightshiftError, ToolError, Unavailable
from assistant.records import Action, Diagnosis, Event, EventKind, Incident, IncidentState, Job
from assistant.recover.advised_way import advised_way
from assistant.recover.directives import task_line
from assistant.redact import head_of
from assistant.watch.outages import (
    SETTLING,
    CauseKind,
    JobFailure,
    Outage,
    SharedCause,
    causes_of,
    files_missed,
    joins,
    members_of,
    outages,
    paths_of,
    probe_pause_s,
    shared_by,
)

PLAIN_RESTART = "restart"
"""The playbook of a job that needs nothing but what it lost and has back."""

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

LOOK_BACK = timedelta(hours=2)
MOST = 2_000
LONGEST_SETTLES = 5
"""Times `settle_s`: after so long a failure no longer waits for the diagnoses of others, one of which may hang."""
SAMPLE = 5
"""Members whose own paths a probe asks for."""
LINE_SHOWN = 300
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=1), timedelta(minutes=30)
"""After a restart that failed of a cause that nobody can ask about."""
FASTER_OFF_NODE = 4
RESTARTED = "restarted"
"""Stage: the job was started again."""
ANSWERED, NOT_ASKED = "cause_answers", "not_asked"
PROBED = "probe of the cause"
"""Source of the evidence that keeps what a probe said."""


@dataclass(frozen=True)
class OutageLimits:
    """How long and how far apart the members of a shared cause wait; set by `[watch]`."""

    settle_s: float = 60.0
    """How long a failure waits for others of the same cause before it counts as alone."""
    apart_s: float = 20.0
    """Between two restarts of the members."""
    patience_s: float = 7200.0
    """For how long a cause is probed before a person has to restart the members."""

    def apart_of(self, cause: SharedCause) -> float:
        """Return the seconds between two restarts: fewer where they only leave a node, since none has to show anything first."""
        return self.apart_s / FASTER_OFF_NODE if cause.kind is CauseKind.NODE else self.apart_s


class Turn(NamedTuple):
    """How a member of a shared cause, or a failure that may become one, is treated in this pass."""

    note: str = ""
    """Why it waits; empty when it need not."""
    incident: Incident | None = None
    """The incident of the shared cause; None for a failure of its own."""
    over: str = ""
    """Why a person has to go on with it; empty while it may be restarted."""
    settled: str = ""
    """Why nothing is left to do about it; empty where something is."""
    playbook: str = ""
    """Name of the playbook by which it goes on; empty where its diagnosis tells it."""


@dataclass
class Outages:
    """Finds, probes and ends shared causes; keeps failures as they were read, by incident."""

    limits: OutageLimits = field(default_factory=OutageLimits)
    _read: dict[int, JobFailure | None] = field(default_factory=dict)
    _undriven: set[int] = field(default_factory=set)
    """Incidents whose job no driver submitted, and that is none: that does not change."""
    _turns: dict[int, datetime] = field(default_factory=dict)
    """When a member of each shared cause was given its turn last."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def look(self, engine: EnginePort) -> list[Incident]:
        """Open an incident for each new shared cause, attach what joins one that stands, probe causes, end what is over."""
        with self._lock:
            self._attach(engine)
            standing = [
                candidate for candidate in engine.store.incidents(open_only=True, limit=MOST) if candidate.kind is EventKind.OUTAGE
            ]
            for incident in standing:
                if not _ended(engine, incident):
                    self._probe(engine, incident)
            return [engine.store.incident(incident.id) for incident in standing]

    def forget(self, incident: int) -> None:
        """Read the failure of an incident anew the next time: its diagnosis is another one."""
        self._read.pop(incident, None)

    def turn(self, engine: EnginePort, incident: Incident, diagnosis: Diagnosis) -> Turn:
        """Return how a diagnosed incident is treated: it waits for others or for the cause, goes on, or is left to a person."""
        if incident.kind is not EventKind.JOB_ENDED:
            return Turn()
        driver = driver_turn(engine, incident, diagnosis) if incident.id not in self._undriven else DriverTurn()
        if driver.waits:
            set_aside_proven(engine, incident, diagnosis)
        if driver != DriverTurn():
            return Turn(driver.waits, over=driver.over, settled=driver.settled, playbook=DRIVER if driver.restarts else "")
        self._undriven.add(incident.id)
        with self._lock:
            parent = shared_by(engine.store.events(incident.id))
            if parent is None:
                set_aside_at_once(engine, incident, diagnosis)
                if waits := self._settles(engine, incident, diagnosis):
                    return Turn(waits)
                if incident.id in self._attach(engine):
                    return Turn(f"{diagnosis.summary} Waits while other jobs that failed at the same time are diagnosed.")
                parent = shared_by(engine.store.events(incident.id))
            return Turn() if parent is None else self._of_member(engine, engine.store.incident(parent), incident)

    def _settles(self, engine: EnginePort, incident: Incident, diagnosis: Diagnosis) -> str:
        """Return why a failure waits before it counts as one of its own; empty when it need not, as in a replay."""
        if engine.replays:
            return ""
        now, store = engine.clock.now(), engine.store
        failure = self._failure(engine, incident)
        causes = causes_of(failure) if failure is not None else ()
        settle, age = timedelta(seconds=self.limits.settle_s), now - incident.opened
        if not causes or (age >= settle and not self._awaited(store.incidents(open_only=True, limit=MOST), incident.opened, now)):
            return ""
        if all(cause.kind in (CauseKind.ERROR, CauseKind.NODE) for cause in causes):
            near = timedelta(seconds=self.limits.settle_s)
            candidates = [
                candidate
                for candidate in store.incidents(limit=MOST)
                if candidate.id != incident.id
                and candidate.kind is EventKind.JOB_ENDED
                and abs(candidate.opened - incident.opened) <= near
            ]
            if not any(candidate.state is IncidentState.OPEN or self._alike(engine, candidate, causes) for candidate in candidates):
                return ""
        store.mark_stage(incident.id, SETTLING)
        return f"{diagnosis.summary} Waits {self.limits.settle_s:g} s for other jobs that fail of {causes[0].title}."

    def _awaited(self, incidents: Sequence[Incident], since: datetime, now: datetime) -> bool:
        """Tell whether failures of the same time have no diagnosis yet: what they share is known only then. Not for ever."""
        settle = timedelta(seconds=self.limits.settle_s)
        if now - since >= LONGEST_SETTLES * settle:
            return False
        return any(
            incident.state is IncidentState.OPEN and incident.kind is EventKind.JOB_ENDED and abs(incident.opened - since) <= settle
            for incident in incidents
        )

    def _alike(self, engine: EnginePort, candidate: Incident, causes: Sequence[SharedCause]) -> bool:
        failure = self._failure(engine, candidate)
        return failure is not None and bool({*causes} & {*causes_of(failure)})

    def _of_member(self, engine: EnginePort, parent: Incident, incident: Incident) -> Turn:
        """Return a member's turn: after the cause answers, one after the other, the oldest first."""
        if parent.state.ended:
            return Turn(incident=parent, over=f"incident {parent.id} ({parent.subject}) has ended: {parent.note}")
        about = _about(engine, parent)
        if over := str(about.get("over", "")):
            return Turn(incident=parent, over=over)
        if not about.get("answers"):
            return Turn(f"waits for incident {parent.id}: {about.get('probe') or f'{parent.subject} is probed'}", parent)
        return Turn(incident=parent)

    def playbook_of(self, engine: EnginePort, turn: Turn, diagnosis: Diagnosis, job: Job | None) -> tuple[Playbook | None, str]:
        """Return the playbook of an incident whose turn it is, or None and why there is none to run."""
        if turn.playbook:
            return engine.playbooks.get(turn.playbook), f"there is no playbook {turn.playbook}"
        if turn.incident is None:
            return engine.playbook_for(diagnosis, job)
        return self._playbook_of_member(engine, turn.incident, diagnosis, job)

    def _playbook_of_member(
        self, engine: EnginePort, shared: Incident, diagnosis: Diagnosis, job: Job | None
    ) -> tuple[Playbook | None, str]:
        """Return the playbook of a job that failed of what others failed of: its own where that restarts, else a plain restart.

        What can be asked answers by now, so a job whose own reason would be its owner's to mend restarts. Of an error that nobody
        can ask about only those restart whose own reason allows it.
        """
        own, why = engine.playbook_for(diagnosis, job)
        if own is None or own.restarts:
            return own, why
        if SharedCause.of_title(shared.service or "").kind not in (CauseKind.SERVICE, CauseKind.PATH):
            has_advice = bool(_owners_turn(engine, shared, SharedCause.of_title(shared.service or "")))
            return None, f"belongs to incident {shared.id}{'' if has_advice else f': {shared.note}'}"
        plain = engine.playbooks.get(PLAIN_RESTART)
        if plain is None:
            return None, f"{shared.subject} answers again, and there is no playbook {PLAIN_RESTART} to restart with"
        budget = engine.budget(plain, diagnosis, job)
        return (plain, "") if budget.allowed else (None, budget.why)

    def take_turn(self, engine: EnginePort, parent: Incident) -> str:
        """Give a member the turn to restart; return why it waits where another one has had it a moment ago.

        A member also waits while the policy's hard limits of an hour are used up: asked for now, its restart would be denied.
        """
        with self._lock:
            apart_s = self.limits.apart_of(SharedCause.of_title(parent.service or ""))
            now, apart = engine.clock.now(), timedelta(seconds=apart_s)
            if waits := _waits_for_the_first(engine, parent, now):
                return waits
            stages = [engine.store.stages(number) for number in members_of(engine.store.events(parent.id))]
            last = [at for stage in stages if (at := stage.get("planned")) is not None]
            last += [self._turns[parent.id]] if parent.id in self._turns else []
            if last and now - max(last) < apart:
                return f"waits for its turn: a job of incident {parent.id} restarted less than {apart_s:g} s ago"
            if full := engine.gate.hourly_hard_limit("resubmit"):
                return f"waits for its turn: {full}"
            self._turns = {parent.id: now} | {number: at for number, at in self._turns.items() if now - at < apart}
            return ""

    def _attach(self, engine: EnginePort) -> set[int]:
        """Open and extend incidents of shared causes; return the incidents of those that wait until all failures are diagnosed."""
        now, store = engine.clock.now(), engine.store
        recent = [entry for entry in store.incidents(limit=MOST) if entry.opened >= now - LOOK_BACK or not entry.state.ended]
        numbers = {entry.id for entry in recent}
        self._read = {number: failure for number, failure in self._read.items() if number in numbers}
        standing = [entry for entry in recent if entry.kind is EventKind.OUTAGE and not entry.state.ended]
        members = {
            number for entry in recent if entry.kind is EventKind.OUTAGE for number in members_of(store.events(entry.id))
        }  # also of those that have ended
        alone = [entry for entry in recent if entry.id not in members]
        failures = [failure for entry in alone if (failure := self._failure(engine, entry)) is not None]
        for parent in standing:
            cause = SharedCause.of_title(parent.service or "")
            late = [
                entry for entry in failures if entry.at >= (parent.failed_at or parent.opened) - LOOK_BACK and joins(cause, entry)
            ]
            late = [entry for entry in late if not store.incident(entry.incident).state.ended]
            if late:
                self._note(engine, cause, late, parent)
                failures = [entry for entry in failures if entry not in late]
        settle = timedelta(seconds=self.limits.settle_s)
        postponed: set[int] = set()
        for outage in outages(failures):
            first = min(store.incident(member.incident).opened for member in outage.members)
            alive = any(not store.incident(member.incident).state.ended for member in outage.members)
            if alive and self._awaited(alone, first, now):
                postponed |= {member.incident for member in outage.members}
            elif alive and now - first >= settle:
                self._note(engine, outage.cause, outage.members, None, outage)
        return postponed

    def _note(
        self,
        engine: EnginePort,
        cause: SharedCause,
        failures: Sequence[JobFailure],
        parent: Incident | None,
        outage: Outage | None = None,
    ) -> None:
        """Open the incident of a cause, or add members to it, and attach them."""
        store = engine.store
        since = outage.since if outage is not None else failures[0].at
        detail: dict[str, Any] = {
            "service": cause.title,
            "jobs": [failure.job for failure in failures],
            "incidents": [failure.incident for failure in failures],
            "owners": sorted({failure.user for failure in failures if failure.user}),
            "line": next((text for failure in failures for text in failure.texts), ""),
            "lines": list(dict.fromkeys(head_of(text, LINE_SHOWN) for failure in failures for text in failure.texts[:1]))[:SAMPLE],
        }
        event = Event(EventKind.OUTAGE, None, None, since, detail, service=cause.title)
        if parent is None:
            parent, new = store.open_incident(event)
            if new:
                store.mark_stage(parent.id, "opened")
        else:
            store.add_event(parent.id, event)
        for failure in failures:
            member = Event(EventKind.OUTAGE, failure.job, None, since, {"incident": parent.id}, service=cause.title)
            store.add_event(failure.incident, member)
        many = len(members_of(store.events(parent.id)))
        logger.warning("incident=%s %s failed for %d jobs", parent.id, cause.title, many)
        self._state(engine, parent, f"{_headline(engine, parent)}; {_owners_turn(engine, parent, cause) or self._plan(cause)}")

    def _plan(self, cause: SharedCause) -> str:
        if cause.kind is CauseKind.ERROR:
            return f"what may be restarted is, one job first, then {self.limits.apart_s:g} s apart"
        if cause.kind is CauseKind.NODE:
            return f"which of them can go on without it is looked at next, {self.limits.apart_of(cause):g} s apart"
        return f"what may be restarted is when it answers, {self.limits.apart_s:g} s apart"

    def _state(self, engine: EnginePort, parent: Incident, note: str) -> None:
        if (parent.state, parent.note) != (IncidentState.VERIFYING, note):
            engine.store.set_state(parent.id, IncidentState.VERIFYING, note=note)

    def _probe(self, engine: EnginePort, parent: Incident) -> None:
        """Ask whether a cause answers again, the rarer the longer it lasts; write down what was said and when it is given up."""
        store, now = engine.store, engine.clock.now()
        about, cause = _about(engine, parent), SharedCause.of_title(parent.service or "")
        if about.get("answers") or about.get("over"):
            return
        waited_s = (now - parent.opened).total_seconds()
        probed_at = datetime.fromisoformat(about["asked"]) if "asked" in about else None
        if probed_at is not None and (now - probed_at).total_seconds() < probe_pause_s(waited_s):
            return
        many = len(members_of(store.events(parent.id)))
        if cause.kind in (CauseKind.ERROR, CauseKind.NODE):
            answer, text, target = NOT_ASKED, "nothing about it can be asked", cause.title
        else:
            answer, text, target = self._probe_answer(engine, parent, cause)
        detail: dict[str, Any] = {"asked": now.isoformat(), "probe": text, "answers": answer in (ANSWERED, NOT_ASKED)}
        detail["unasked"] = answer == NOT_ASKED
        if not detail["answers"] and waited_s >= self.limits.patience_s:
            detail["over"] = f"{cause.title} has not answered for {waited_s / 60:.0f} min: {text}"
        if not detail["answers"]:
            self._state(engine, parent, f"{_headline(engine, parent)}; {self._plan(cause)}; {text}")
        elif answer == NOT_ASKED and cause.kind is CauseKind.SERVICE:
            plan = f"what may be restarted is, one job first, then {self.limits.apart_s:g} s apart"
            self._state(engine, parent, f"{_headline(engine, parent)}; {text}; {plan}")
        elif answer == ANSWERED:
            self._state(engine, parent, f"{target} answers again; {many} jobs restart, {self.limits.apart_s:g} s apart")
        store.add_evidence(parent.id, PROBED, text, detail)

    def _probe_answer(self, engine: EnginePort, parent: Incident, cause: SharedCause) -> tuple[str, str, str]:
        """Return what a probe of a cause says, the words, and what was asked: of a server that moved, where it serves now."""
        members = members_of(engine.store.events(parent.id))
        failures = [failure for number in members if (failure := self._failure(engine, engine.store.incident(number)))]
        paths_by_failure = [paths_of(failure.reason, failure.texts) for failure in failures]
        below = [path for paths in paths_by_failure for path in paths if path == cause.name or path.startswith(f"{cause.name}/")]
        missed = [path for path in files_missed(failures) if path in below]
        job = _job(engine, failures[-1].job) if failures and cause.kind is CauseKind.SERVICE else None
        moved = server_behind(engine, job, cause.name) if job is not None else None
        words = f"{moved.sentence}; " if moved is not None else ""
        if moved is not None and moved.state is ServerState.COMES_BACK:
            return "waiting", moved.sentence, cause.title
        address = moved.address if moved is not None else None
        target = f"{address.host}:{address.port}" if address is not None else cause.title
        arguments = {
            "cause": target,
            "paths": list(dict.fromkeys([*missed[:SAMPLE], *below]))[:SAMPLE],
            "missed": missed[:SAMPLE],
            "job": failures[-1].job if failures else "",
        }
        try:
            outcome = engine.gate.call(
                "probe_cause", arguments, why="jobs restart only when it answers", by="watch", incident=parent.id
            )
        except NightshiftError as error:
            return "waiting", f"{words}{error}", target
        if not outcome.ok or not isinstance(outcome.value, Mapping):
            return "waiting", f"{words}{outcome.error or 'the probe gave no answer'}", target
        return str(outcome.value.get("status", "")), f"{words}{outcome.value.get('note', '')}", target

    def _failure(self, engine: EnginePort, incident: Incident) -> JobFailure | None:
        """Return what is known of a failure; None before its diagnosis, and for what is no failed job."""
        if incident.job is None or incident.kind is not EventKind.JOB_ENDED:
            return None
        if GOES_ON in engine.store.stages(incident.id):
            return None  # a driver failed of its jobs alone
        if incident.id not in self._read:
            diagnosis = engine.store.diagnosis(incident.id)
            if diagnosis is None:
                return None
            self._read[incident.id] = failure_of(incident, diagnosis, _job(engine, incident.job))
        return self._read[incident.id]


def tried_by_restart(parent: Incident | None) -> bool:
    """Return whether only a restart can show that a shared cause is over: an error that names nothing which could be asked."""
    return parent is not None and SharedCause.of_title(parent.service or "").kind is CauseKind.ERROR


def _waits_for_the_first(engine: EnginePort, parent: Incident, now: datetime) -> str:
    """Return why a member does not restart yet where only a restart can show whether the cause is over; empty where it may.

    One member restarts and shows it to the others. Where it fails of the same, the next one tries after a pause that doubles.
    """
    if not tried_by_restart(parent) and not _about(engine, parent).get("unasked"):
        return ""
    failed: list[datetime] = []
    for number in members_of(engine.store.events(parent.id)):
        member, stages = engine.store.incident(number), engine.store.stages(number)
        if "planned" not in stages:
            continue
        if PASSED in stages or member.state is IncidentState.RECOVERED:
            return ""
        if not member.state.ended:
            return f"waits for job {member.job} (incident {number}), restarted first to show whether {parent.subject} is over"
        if RESTARTED in stages:
            failed.append(member.closed or now)
    pause = min(FIRST_PAUSE * 2 ** max(0, len(failed) - 1), LONGEST_PAUSE)
    if failed and now - max(failed) < pause:
        return f"{parent.subject} was not over at the last restart; the next try is at {max(failed) + pause:%H:%M:%S} UTC"
    return ""


def _about(engine: EnginePort, parent: Incident) -> Mapping[str, Any]:
    """Return what the last probe of a cause said."""
    probe_facts = [evidence.facts for evidence in engine.store.evidence(parent.id) if evidence.source == PROBED]
    return probe_facts[-1] if probe_facts else {}


def _headline(engine: EnginePort, parent: Incident) -> str:
    """Return what failed for which jobs of whom, with what each of them missed of a path, or a line where no path has a name."""
    events = [event.detail for event in engine.store.events(parent.id) if event.kind is EventKind.OUTAGE and event.job is None]
    jobs = list(dict.fromkeys(str(job) for detail in events for job in detail.get("jobs", ())))
    owners = sorted({str(owner) for detail in events for owner in detail.get("owners", ())})
    lines = list(
        dict.fromkeys(str(line) for detail in events for line in (*detail.get("lines", ()), detail.get("line", "")) if line)
    )
    cause = SharedCause.of_title(parent.service or "")
    cause_words = ""
    if cause.kind is CauseKind.PATH:
        below = [path for line in lines for path in paths_of("", (line,)) if path.startswith(f"{cause.name}/")]
        cause_words = some_names(list(dict.fromkeys(path.removeprefix(f"{cause.name}/") for path in below)))
    elif (cause.kind is CauseKind.ERROR and "#" in cause.name) or cause.kind is CauseKind.NODE:
        cause_words = shorten(lines[0], LINE_SHOWN) if lines else ""
    of = f" of {some_names(owners)}" if owners else ""
    return f"{cause.title} failed for {len(jobs)} jobs ({some_names(jobs)}{of}){f': {cause_words}' if cause_words else ''}"


def _owners_turn(engine: EnginePort, parent: Incident, cause: SharedCause) -> str:
    """Return what the owner of jobs has to mend that all failed of one error of their own; empty where one may be restarted."""
    diagnoses = [engine.store.diagnosis(number) for number in members_of(engine.store.events(parent.id))]
    member_diagnoses = [diagnosis for diagnosis in diagnoses if diagnosis is not None]
    if (
        cause.kind is not CauseKind.ERROR
        or not member_diagnoses
        or any(entry.action is not Action.FIX_AND_RESUBMIT for entry in member_diagnoses)
    ):
        return ""
    return f"nothing is restarted, for nothing shows that another start alone helps: {member_diagnoses[0].advice}"


def _job(engine: EnginePort, job_id: str) -> Job | None:
    try:
        return engine.scheduler.job(job_id)
    except (ToolError, Unavailable):
        return None


def _task_words(engine: EnginePort, handed_over: Sequence[Incident]) -> str:
    """Return the command that starts the tasks of an array again which were not started; empty for jobs of any other kind."""
    jobs = [job for entry in handed_over if entry.job is not None and (job := _job(engine, entry.job)) is not None]
    way = advised_way(*(engine.store.diagnosis(entry.id) for entry in handed_over))
    line = task_line(jobs, way.excluded) if len(jobs) == len(handed_over) else ""
    return f"to start again as they were: {line}; " if line else ""


def _ended(engine: EnginePort, incident: Incident) -> bool:
    """End the incident of a shared cause once all of its members have ended; tell whether it has."""
    store = engine.store
    members = [store.incident(number) for number in members_of(store.events(incident.id))]
    if not members or not all(member.state.ended for member in members):
        return False
    escalated = [member for member in members if member.state is IncidentState.ESCALATED]
    if escalated:
        over = str(_about(engine, incident).get("over", ""))
        advice = _owners_turn(engine, incident, SharedCause.of_title(incident.service or ""))
        note = (
            f"{over}; " * bool(over)
            + f"{_headline(engine, incident)}; {f'{advice}; ' if advice else ''}{_task_words(engine, escalated)}"
            + left_words(members, escalated)
        )
        store.mark_stage(incident.id, "escalated")
        store.set_state(incident.id, IncidentState.ESCALATED, note=note)
        return True
    store.mark_stage(incident.id, "recovered")
    note = f"{incident.service} failed for {len(members)} jobs; all of them go on"
    store.set_state(incident.id, IncidentState.RECOVERED, note=note)
    return True
