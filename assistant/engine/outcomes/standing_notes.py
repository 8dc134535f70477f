"""Notes of incidents that are over, brought up to date by what became since of the jobs that they name.

A run that goes on as another job was not proven to when its incident was closed, and a restart that was called "not recovered" may
show later that it is. What is seen is written into the note, on the record. Only `judge_restart` calls an incident recovered.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from assistant.engine.intake import PASSED
from assistant.engine.outcomes.failed_restarts import is_being_stopped
from assistant.engine.outcomes.restart_cost import lost_words
from assistant.engine.outcomes.restart_verdict import OTHER_CHECKPOINT, restarted_job, resumed_chosen, verdict_on
from assistant.engine.outcomes.settlement import NOT_PROVEN
from assistant.errors import NightshiftError, ToolError
from assistant.records import Incident, IncidentState, Job, JobState
from assistant.recover.joblog import log_points, marks_before
from assistant.recover.playbook import Ended
from assistant.recover.verify import Standing, Verdict
from assistant.redact import head_of
from assistant.store import SETTLED_SINCE
from assistant.untrusted import reading_as
from assistant.watch.attempts import ADVICE

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

MOST_NOTES = 200
"""Of the newest incidents of a state."""
KEPT_FOR = timedelta(days=7)
"""After its end a note is history."""
JUDGED_EVERY = timedelta(seconds=60)
"""A restart that runs is judged again so often, for as long as its incident says that it is not recovered."""
MOST_OF_NOTE = 600
SINCE = "; since then: "
NOT_RECOVERED, ELSEWHERE = "not recovered: ", "settled elsewhere: "
_TAKEN_OVER = re.compile(r"\bas job (\d[\d_+]{0,30}) \((pending|running|unknown)\)")
_STOP_IT = re.compile(r", and if it does, end it: scancel \S+")


@dataclass
class StandingNotes:
    """What was looked at already, so that a pass costs nothing where nothing has changed."""

    judged: dict[int, tuple[JobState, datetime]] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    """Incidents whose job the scheduler has forgotten."""

    def look(self, engine: EnginePort, jobs: Sequence[Job]) -> None:
        """Bring the notes up to date; one that cannot be now is left for the next pass.

        Args:
            engine: After its look.
            jobs: Of the scheduler's last answer.
        """
        if engine.replays:
            return
        since, listed = engine.clock.now() - KEPT_FOR, {job.id: job for job in jobs}
        for state, bring_up in ((IncidentState.CLOSED, self._tell_successor), (IncidentState.ESCALATED, self._judge_again)):
            for incident in engine.store.incidents(state=state, limit=MOST_NOTES):
                if incident.id in self.unknown or (incident.closed or incident.opened) < since:
                    continue
                try:
                    bring_up(engine, incident, listed)
                except ToolError:
                    self.unknown.add(incident.id)
                except (NightshiftError, OSError) as error:
                    logger.info("incident=%s its note is not brought up to date now: %s", incident.id, error)

    def _tell_successor(self, engine: EnginePort, incident: Incident, listed: dict[str, Job]) -> None:
        """Say what became of the job as which a run was to go on."""
        takeover = _TAKEN_OVER.search(incident.note) if incident.note.startswith(ELSEWHERE) else None
        if takeover is None:
            return
        job = listed.get(takeover[1]) or engine.scheduler.job(takeover[1])
        if not self._is_meant(engine, incident, job):
            return
        trains = job.state is JobState.RUNNING and NOT_PROVEN in incident.note and _step_now(engine, job) is not None
        if not job.state.ended and not trains:
            return
        verb = "was to go on" if job.started is None else "went on" if job.state.ended else "goes on"
        note = incident.note.partition(SINCE)[0]
        if trains or (job.started is not None and _last_step(engine, job) is not None):
            note = note.replace(f"; {NOT_PROVEN}", "")
        elif job.state.ended:
            verb = "was to go on"
            note = note.replace(f"; {NOT_PROVEN}", "; that it did is not proven: no step of it was seen")
        note = note.replace(takeover[0], f"as job {job.id} ({job.state})")
        note = re.sub(rf"\b(?:is to go|goes) on (?=as job {re.escape(job.id)} )", f"{verb} ", note)
        since = _end_words(engine, incident, job) if job.state.ended else f"it trains, and has logged step {_step_now(engine, job)}"
        engine.store.set_state(incident.id, IncidentState.CLOSED, note=f"{note}{SINCE}{since}")

    def _is_meant(self, engine: EnginePort, incident: Incident, job: Job) -> bool:
        """Tell whether a job is the one that a note names: a scheduler gives a number to another job in time."""
        if incident.closed is not None and job.submitted is not None and job.submitted > incident.closed:
            return False
        return incident.job is None or engine.scheduler.job(incident.job).user == job.user

    def _judge_again(self, engine: EnginePort, incident: Incident, listed: dict[str, Job]) -> None:
        """Judge a restart again of which an incident says that it is not recovered, by what its job has shown since."""
        if not incident.note.startswith(NOT_RECOVERED) or SINCE in incident.note or is_being_stopped(engine.store, incident):
            return
        diagnosis, restarted = engine.store.diagnosis(incident.id), restarted_job(engine, incident, Ended(incident.state, "", {}))
        if diagnosis is None or restarted is None or restarted.call is None:
            return
        now, job = engine.clock.now(), listed.get(restarted.job) or engine.scheduler.job(restarted.job)
        over = job.ended is not None and incident.closed is not None and job.ended <= incident.closed
        state, at = self.judged.get(incident.id, (None, None))
        if over or job.state is JobState.PENDING or (at is not None and state is job.state and now - at < JUDGED_EVERY):
            return
        self.judged[incident.id] = job.state, now
        if any(entry.id > incident.id and entry.kind not in ADVICE for entry in engine.store.incidents(job=job.id)):
            return  # that incident tells of the job
        with reading_as(job.account):
            verdict = verdict_on(engine, incident, diagnosis, restarted)
            # what was doubted is proven by its own lines, or nothing is: they may have become too many to be read
            proven = OTHER_CHECKPOINT in incident.note and resumed_chosen(engine, restarted)
        if proven and verdict.passed and PASSED not in engine.store.stages(incident.id):
            engine.store.mark_stage(incident.id, PASSED)
        if proven and verdict.standing is Standing.RECOVERED:
            at_step = (restarted.job, restarted.step, restarted.checkpoint)
            lost = lost_words(engine, incident, diagnosis, *at_step, by_saves=verdict.step is None)
            self._correct(engine, incident, f"{verdict.note}{lost}")
        elif job.state.ended:
            _add_end(engine, incident, job, verdict)

    def _correct(self, engine: EnginePort, incident: Incident, proof: str) -> None:
        if engine.store.incident(incident.id) != incident:
            return  # somebody was faster
        before = head_of(_STOP_IT.sub("", incident.note), MOST_OF_NOTE)
        note = f"{proof}; this corrects what was said before: {before}"
        if incident.id not in engine.store.unacknowledged():
            # a person has it: it stays theirs
            engine.store.set_state(incident.id, IncidentState.ESCALATED, note=f"{before}{SINCE}{proof}; nothing has to be ended")
            return
        engine.store.mark_stage(incident.id, SETTLED_SINCE)
        engine.store.mark_stage(incident.id, "recovered")
        engine.store.set_state(incident.id, IncidentState.RECOVERED, note=note)
        logger.info("incident=%s is recovered after all: %s", incident.id, proof)


def _add_end(engine: EnginePort, incident: Incident, job: Job, verdict: Verdict) -> None:
    """Add that a doubted restart has ended, so that nobody ends it any more; that is no proof of a recovery."""
    words = "is over: nothing of it has to be ended"
    proof = f"; whether it is the run that was to go on is still not proven ({verdict.note})" if verdict.note else ""
    note = f"{_STOP_IT.sub('', incident.note)}{SINCE}job {job.id} {job.state}, and {words}{proof}"
    engine.store.set_state(incident.id, IncidentState.ESCALATED, note=note)


def _end_words(engine: EnginePort, incident: Incident, job: Job) -> str:
    full, step = engine.scheduler.job(job.id), _last_step(engine, job)
    at = f" at step {step}" if step is not None else ""
    if not full.ended_badly and full.state is JobState.COMPLETED:
        return f"job {job.id} completed with exit code 0{at}"
    later = [entry for entry in engine.store.incidents(job=job.id) if entry.id > incident.id and entry.kind not in ADVICE]
    notice = f"; incident {later[0].id} is about that" if later else ""
    return f"job {job.id} {job.state}{at}{notice}"


def _last_step(engine: EnginePort, job: Job) -> int | None:
    full = engine.scheduler.job(job.id)
    try:
        points = log_points(full, marks=marks_before(engine.store, full), sure=True)
    except (NightshiftError, OSError):
        return None
    return points[-1].step if points else None


def _step_now(engine: EnginePort, job: Job) -> int | None:
    view = engine.watcher.view(job.id, job.attempt)
    return view.last_step if view is not None else None
