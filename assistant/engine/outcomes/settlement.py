"""Ends of incidents without a verified restart: settled by others, or the training is over.

Others may have started the run again, or the job completed. An incident that a person was asked about is closed by its owner's
own job only while nobody has taken it, once that job has gone on, and where a machine is at fault only once it is out of service.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from assistant.engine.outcomes.completed_jobs import failure_behind, open_hidden_failure
from assistant.errors import NightshiftError, ToolError
from assistant.logs.spikes import find_spike
from assistant.records import (
    Action,
    CallStatus,
    Category,
    Diagnosis,
    EventKind,
    Incident,
    IncidentState,
    Job,
    JobState,
    NodeState,
    tags_in,
)
from assistant.recover.drivers import never_begin
from assistant.recover.identity import RESTARTS, other_store, restart_of
from assistant.recover.joblog import log_points
from assistant.recover.runs import successor_of, twin_of
from assistant.store import SETTLED_SINCE
from assistant.untrusted import reading_as
from assistant.watch.attempts import ADVICE, Remark, hidden_failure_in
from assistant.watch.progress import loss_in_words

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)


def settled_elsewhere(
    engine: EnginePort, incident: Incident, diagnosis: Diagnosis | None, *, among: Collection[str] | None = None
) -> str:
    """Return how others have settled what an incident is about, and that nothing is left to be done; empty where they have not.

    Settled is a job that Slurm or somebody queued again, that completed, or whose run goes on as another job that was submitted or
    begun since, unless this store itself restarted it for the incident. Of another job that has made no step the words say so.

    Args:
        engine: Everything.
        incident: About a job.
        diagnosis: Of it.
        among: Ids of the only jobs as which the run may go on; None for any, also one that has not begun.

    Raises:
        Unavailable: The scheduler did not answer.
    """
    if engine.replays or incident.job is None or incident.kind in (EventKind.REQUESTED, EventKind.OUTAGE):
        return ""
    calls = engine.store.calls(incident.id)
    if any(call.tool in RESTARTS and call.status is CallStatus.DONE and _trained(engine, call.id) for call in calls):
        return ""
    try:
        job = engine.scheduler.job(incident.job)
    except ToolError:
        return ""
    if job.attempt > incident.attempt and any(
        (tag.store, tag.incident) == (engine.store.store_id, incident.id) for tag in tags_in(job.comment)
    ):
        return ""  # its own call queued it again, and did not finish
    if job.attempt > incident.attempt:
        failed = ", ".join(diagnosis.faulty_nodes) if diagnosis is not None else ""
        steps = f"; its last step was {diagnosis.step}" if diagnosis is not None and diagnosis.step is not None else ""
        why = f" after {diagnosis.reason}" if diagnosis is not None else ""
        on = f" on {failed}" if failed else ""
        requeue_words = f"job {job.id} was queued again under its own id{why}{on}"
        return f"settled elsewhere: {requeue_words} (attempt {job.attempt}, {job.state}){steps}"
    if job.state is JobState.COMPLETED and not job.exit_code and job.ended is not None and job.ended > incident.opened:
        if _run_away(incident, job):
            return ""
        if hidden_failure_in(engine.store.events(incident.id)):
            return _as_another_job(engine, incident, job, among)
        if failure := failure_behind(job, engine.knowledge):
            open_hidden_failure(engine, job, failure)
            return ""
        return f"settled elsewhere: job {job.id} completed meanwhile"
    if not job.state.ended:
        return ""
    settled = _as_another_job(engine, incident, job, among)
    blames = diagnosis is not None and bool(diagnosis.faulty_nodes)  # the node has to be seen to all the same
    return settled or (_replaced_by_copy(engine, job) if among is None and not blames else "")


def _replaced_by_copy(engine: EnginePort, job: Job) -> str:
    """Return that a copy of a job does its work, so that nobody misses the one that failed; empty where there is none."""
    if job.state is not JobState.FAILED:
        return ""
    with reading_as(job.account):
        twin = twin_of(engine.scheduler, engine.checkpoint_folders, job)
    if twin is None:
        return ""
    return (
        f"settled elsewhere: job {twin.id} ({twin.state}) of {job.user or 'its owner'} runs the same script with the same "
        f"arguments in the same folder, and began before job {job.id} ended: submitted twice. Job {twin.id} does the work, and "
        f"both write into one folder; job {job.id} is not started again beside it. Copies need folders of their own"
    )


def lost_training(engine: EnginePort, incident: Incident, job: Job | None) -> str:
    """Return that a job completed although its loss had run away for good, with what it left that is healthy; empty otherwise.

    An exit code of 0 says nothing about what was learned: what such a job saved since must not be used, and a person has to know.
    """
    words = _run_away(incident, job) if job is not None and not engine.replays else ""
    if not words or job is None:
        return ""
    outcome = engine.gate.call("escalate", {"why": words, "job": job.id}, why=words, by="engine", incident=incident.id)
    value = outcome.value if outcome.ok and isinstance(outcome.value, Mapping) else {}
    return " ".join(part for part in (f"{words}.", str(value.get("saved", ""))) if part)


def _run_away(incident: Incident, job: Job) -> str:
    if job.state is not JobState.COMPLETED or incident.kind is not EventKind.LOSS_SPIKE:
        return ""
    spike = find_spike(log_points(job))
    if spike is None:
        return ""
    loss_words = f"its loss stood {loss_in_words(spike)} and never came back"
    return f"job {job.id} completed, but {loss_words}: what it saved since must not be used"


class FinishedTraining(NamedTuple):
    """Whether a training is over, so that nothing of it is left to be restarted."""

    note: str
    """Empty where that is not known."""
    needs_owner: bool = False
    """Whether something else failed behind it than the exit of its program."""


def finished_training(engine: EnginePort, incident: Incident, job: Job | None, diagnosis: Diagnosis) -> FinishedTraining:
    """Return that the training of a job is over and saved, so that nothing is left to be restarted.

    What failed behind it, an upload or an export, is its owner's to do again. A program that was aborted at its exit, with nothing
    left to do, has failed nothing: that is a remark.
    """
    if diagnosis.tail or engine.replays or job is None or not job.state.ended or incident.kind is EventKind.REQUESTED:
        return FinishedTraining("")
    if job.hidden_failure:
        return FinishedTraining("")  # its log was read for just that
    why = "is there anything left to train?"
    outcome = engine.gate.call("training_finished", {"job": job.id}, why=why, by="engine", incident=incident.id)
    value = outcome.value if outcome.ok and isinstance(outcome.value, Mapping) else {}
    if not value.get("finished"):
        return FinishedTraining("")
    note, abort = f"{value.get('note')}; nothing is left to be restarted", str(value.get("at_exit") or "")
    if not job.ended_badly:
        return FinishedTraining(note)
    if not abort:
        owner = f"{job.user or 'Its owner'} must see what failed behind it: {diagnosis.summary}"
        return FinishedTraining(f"{note}. {owner}", needs_owner=True)
    remark = f"job {job.id} finished its training and saved it; its program was aborted only at its exit: {abort}"
    engine.good_runs.remarks.append(Remark(f"job {job.id} aborted at its exit", remark))
    return FinishedTraining(f"{note}; its program was aborted only at its exit: {abort}")


def _as_another_job(engine: EnginePort, incident: Incident, job: Job, among: Collection[str] | None) -> str:
    def passed_over(successor: Job) -> bool:
        # what somebody else runs is no answer of the owner's; a restart of this store is watched by another incident
        return (among is not None and (successor.id not in among or successor.user != job.user)) or restart_of(
            engine.store, successor
        ) is not None

    failed_links = ""
    for successor in successor_of(engine.scheduler, engine.checkpoint_folders, job, passed_over=passed_over):
        if successor.state.ended and successor.state is not JobState.COMPLETED:
            # it did not bring the run further; where it has an incident of its own, that one is about the run now
            failed_links = failed_links or _as_failed_link(engine, incident, job, successor)
            continue
        owner = "its owner" if successor.user == job.user else successor.user
        submitter = "another Nightshift" if other_store(engine.store, successor.comment) and tags_in(successor.comment) else owner
        waiting = never_begin(engine.scheduler, job.id, successor.id)
        if job.ended is not None and successor.submitted is not None and successor.submitted <= job.ended:
            if _fails_alike(engine, incident, job):
                return ""
            verb, unproven = ("is to go on", f"; {NOT_PROVEN}") if _awaits_proof(engine, successor) else ("goes on", "")
            goes_on = f"{verb} as job {successor.id} ({successor.state}), submitted before"
            return f"settled elsewhere: the run of job {job.id} {goes_on}{unproven}{waiting}"
        submitted = f"submitted the run of job {job.id} again as job {successor.id} ({successor.state})"
        unproven = f"; {NOT_PROVEN}" if _awaits_proof(engine, successor) else ""
        return f"settled elsewhere: {submitter} {submitted}{unproven}{waiting}"
    return failed_links


def _as_failed_link(engine: EnginePort, incident: Incident, job: Job, successor: Job) -> str:
    """Return that the run of a job failed again as a later one, whose own incident tells of both; empty where that has none."""
    later = [entry for entry in engine.store.incidents(job=successor.id) if entry.id > incident.id and entry.kind not in ADVICE]
    if not later or job.ended is None or successor.started is None or successor.started < job.ended:
        return ""
    return (
        f"settled elsewhere: the run of job {job.id} went on as job {successor.id}, which {successor.state}, too: incident "
        f"{later[0].id} is about the run"
    )


NOT_PROVEN = "not yet proven: it has made no step of its own that was seen, and is watched like any other job"


def _awaits_proof(engine: EnginePort, successor: Job) -> bool:
    """Tell whether a job that takes a run over has yet to show that it trains: one that only loads may fail, too."""
    return successor.state is not JobState.COMPLETED and not _makes_steps(engine, successor)


def _fails_alike(engine: EnginePort, incident: Incident, job: Job) -> bool:
    """Tell whether the job before in a chain ended of the same thing, which only its owner can mend: the next one will, too."""
    diagnosis = engine.store.diagnosis(incident.id)
    if diagnosis is None or diagnosis.action is not Action.FIX_AND_RESUBMIT:
        return False
    for former in engine.store.incidents(state=IncidentState.CLOSED, limit=MOST_FORMER):
        taken_over = any(f" {verb} on as job {job.id} " in former.note for verb in ("goes", "go", "went"))
        if taken_over and (earlier := engine.store.diagnosis(former.id)) is not None:
            return (earlier.reason, earlier.action) == (diagnosis.reason, diagnosis.action)
    return False


def _trained(engine: EnginePort, call: int) -> bool:
    outcome = engine.store.outcome(call)
    return outcome is not None and outcome.ok


MOST_FORMER = 200
ANSWER_WITHIN = timedelta(hours=24)
"""After which a question is left to the person: what runs then need not be an answer."""
ANSWERABLE = (Category.NONE, Category.SCRIPT, Category.FRAMEWORK)
"""Causes that the owner alone can settle."""
OUT_OF_SERVICE = (NodeState.DRAINING, NodeState.DRAINED, NodeState.DOWN)


@dataclass
class EscalatedIncidents:
    """Escalated incidents, each judged anew for each job of its owner that has gone on since."""

    looked_at: set[tuple[int, str, JobState]] = field(default_factory=set)

    def look(self, engine: EnginePort, jobs: Sequence[Job]) -> None:
        """Close the incidents whose run the owner has taken further; one that cannot be looked at is left for the next pass.

        Args:
            engine: After its look; its watcher knows the steps.
            jobs: Of the scheduler's last answer.
        """
        if engine.replays or not (waiting := engine.store.unacknowledged()):
            return
        went_on = [job for job in jobs if job.state is JobState.COMPLETED or _makes_steps(engine, job)]
        for incident in map(engine.store.incident, waiting) if went_on else ():
            try:
                self._look_at(engine, incident, went_on)
            except NightshiftError as error:
                logger.info("incident=%s is not looked at again now: %s", incident.id, error)

    def _look_at(self, engine: EnginePort, incident: Incident, went_on: Sequence[Job]) -> None:
        since = incident.failed_at or incident.opened
        fresh = [
            (incident.id, job.id, job.state)
            for job in went_on
            if job.id != incident.job and job.submitted is not None and since < job.submitted < since + ANSWER_WITHIN
        ]
        if set(fresh) <= self.looked_at or not _is_answerable(engine, incident, diagnosis := engine.store.diagnosis(incident.id)):
            return
        settled = settled_elsewhere(engine, incident, diagnosis, among=frozenset(job for _, job, _ in fresh))
        self.looked_at.update(fresh)
        if not settled or incident.id not in engine.store.unacknowledged():
            return
        engine.store.mark_stage(incident.id, SETTLED_SINCE)
        engine.store.set_state(incident.id, IncidentState.CLOSED, note=f"{settled}; asked before: {incident.note}")
        logger.info("incident=%s %s", incident.id, settled)


def _is_answerable(engine: EnginePort, incident: Incident, diagnosis: Diagnosis | None) -> bool:
    """Tell whether the owner's own job can be the answer to what was asked."""
    if incident.kind is not EventKind.JOB_ENDED or incident.parent is not None or diagnosis is None:
        return False
    if not diagnosis.nodes:
        return diagnosis.category in ANSWERABLE
    blamed_nodes = {finding.node for finding in diagnosis.nodes}
    return blamed_nodes <= {node.name for node in engine.scheduler.nodes() if node.state in OUT_OF_SERVICE}


def _makes_steps(engine: EnginePort, job: Job) -> bool:
    view = engine.watcher.view(job.id, job.attempt) if job.state is JobState.RUNNING else None
    return view is not None and view.last_step is not None
