"""Record what the scheduler's own requeues cost: which attempt, which node failed, and the steps, minutes and GPU hours lost.

Slurm queues a job again under its own id when a node fails or a higher priority takes its nodes. Nothing has to be done then, and
the state of the attempt that ended is often never shown: only the number of the attempt tells. The record is an incident about that
attempt, closed at once; what was lost is added when the job is back where it was, or has ended. A requeued job that begins anew
although its run had saved is never ended here (docs/decisions/0016): a person is told.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.engine.outcomes.job_processes import RAN_ON, FormerProcesses
from assistant.engine.outcomes.lost_nodes import LostNodes
from assistant.engine.outcomes.pending_jobs import DoubledRuns, StuckJobs, requeues_itself, steps_of_attempts
from assistant.engine.report import cost_in_words
from assistant.errors import Fenced, NightshiftError, ToolError, Unavailable
from assistant.logs.lines import Lines
from assistant.ports import ControllerLog
from assistant.records import Checkpoint, Event, EventKind, Evidence, Incident, IncidentState, Job, JobState, MetricPoint
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.recover.identity import RESTARTS
from assistant.recover.joblog import log_lines, log_points, marks_before, whole_lines
from assistant.recover.loaded import loaded_checkpoint
from assistant.recover.wrong_start import proof_of_wrong_start
from assistant.watch.attempts import ADVICE, about

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

FEWEST_STEPS = 2
"""Distinct steps that tell where an attempt begins and how often it logs one."""


def newest_checkpoint(engine: EnginePort, job: Job, *, before: datetime | None) -> Checkpoint | None:
    """Return the newest checkpoint of a job's run that was saved before a time; None where there is none, or it is not known."""
    try:
        lines = (line.text for line in log_lines(job))
        inventory = search_checkpoints(job, engine.checkpoint_folders, lines, now=engine.clock.now()).inventory
    except (ToolError, Unavailable) as error:
        logger.info("job=%s whether it had saved before it was queued again is not known: %s", job.id, error)
        return None
    checkpoints = (
        [checkpoint for checkpoint in inventory.checkpoints if before is None or checkpoint.saved_at < before]
        if inventory is not None
        else []
    )
    return max(checkpoints, key=lambda checkpoint: (checkpoint.saved_at, checkpoint.step), default=None)


def checkpoint_facts(checkpoint: Checkpoint | None) -> dict[str, Any] | None:
    """Return a checkpoint as facts of evidence."""
    if checkpoint is None:
        return None
    at = checkpoint.saved_at.isoformat()
    return {"path": str(checkpoint.path), "step": checkpoint.step, "format": checkpoint.format, "saved_at": at}


def _checkpoint_of(facts: Mapping[str, Any]) -> Checkpoint | None:
    saved = facts.get("saved")
    if not isinstance(saved, Mapping):
        return None
    at = datetime.fromisoformat(str(saved["saved_at"]))
    return Checkpoint(Path(str(saved["path"])), int(saved["step"]), str(saved["format"]), 0, at, healthy=True, problems=())


def begins_anew(engine: EnginePort, job: Job, facts: Mapping[str, Any], points: Sequence[MetricPoint], lines: Lines | None) -> str:
    """Return what shows that an attempt begins anew although its run had saved; empty where it does not, or that is not known.

    Args:
        engine: Everything.
        job: The attempt that runs.
        facts: Of the requeue's evidence: `last_step`, `first_loss`, `last_loss` and `saved` of the attempt before.
        points: The attempt's own, proven to be so.
        lines: All of its own lines; None where they are not known.
    """
    steps = list(dict.fromkeys(point.step for point in points))
    last = facts.get("last_step")
    if len(steps) < FEWEST_STEPS or last is None or lines is None or steps[0] >= int(last):
        return ""
    saved = _checkpoint_of(facts) or newest_checkpoint(engine, job, before=job.started)
    if saved is None:
        return ""
    loaded = loaded_checkpoint(lines)
    proof = proof_of_wrong_start(saved, loaded, points, [], reached=int(last))
    if not proof and (loaded.loads or not _at_the_start(steps) or _loss_is_kept(points, facts)):
        return ""
    step_words = proof or f"its first step is {steps[0]}, and it says of no checkpoint that it loads it"
    before = f"the attempt before had come to step {last} and saved {saved.path.name} (in {saved.path.parent})"
    return f"it begins anew: {step_words}; {before}"


def _at_the_start(steps: Sequence[int]) -> bool:
    """Tell whether the first step that was logged is the first there is to be logged."""
    return steps[0] <= max(1, steps[1] - steps[0])


def _loss_is_kept(points: Sequence[MetricPoint], facts: Mapping[str, Any]) -> bool:
    """Tell whether the first loss is that of the end of the attempt before, not of its beginning: only the counter is new."""
    own = next((point.loss for point in points if point.loss is not None), None)
    first, last = facts.get("first_loss"), facts.get("last_loss")
    if own is None or first is None or last is None:
        return False
    return abs(own - float(last)) < abs(own - float(first)) / 2


REQUEUE = "requeue"
"""Source of the evidence about the attempt that ended."""
COST = "requeue cost"
"""Source of the evidence about what was lost."""
_FAILED_NODE = re.compile(r"requeue job JobId=\S{1,40} due to failure of node ([A-Za-z0-9][\w.-]{0,254})$", re.MULTILINE)
_PREEMPTED = re.compile(r"preempted JobId=\S{1,40} has been requeued to reclaim resources for (JobId=\S{1,40})$", re.MULTILINE)
"""Source: Slurm's job_mgr.c (kill_running_job_by_node_name) and preempt.c."""


class _Attempt(NamedTuple):
    """A job as it was last seen."""

    job: Job
    step: int | None
    """Last step that its lines showed."""
    at: datetime
    """When it was last seen running."""
    loss: float | None = None
    """Last loss that its lines showed."""
    first_loss: float | None = None
    """The first one that was seen of it."""


@dataclass
class RequeueRecords:
    """Attempts that run, and requeues whose cost is not known yet."""

    attempts: dict[str, _Attempt] = field(default_factory=dict)
    open_costs: dict[tuple[str, int], Evidence | None] = field(default_factory=dict)
    """By job and number of the new attempt: the evidence about the one before; None where nothing has to be reckoned."""
    told_begins: set[tuple[str, int]] = field(default_factory=set)
    """Jobs and numbers of attempts whose beginning was judged."""
    stuck: StuckJobs = field(default_factory=StuckJobs)
    """Those that were queued again and cannot begin."""
    doubled: DoubledRuns = field(default_factory=DoubledRuns)
    """Those that were queued again while their owner submitted the run once more."""
    lost_nodes: LostNodes = field(default_factory=LostNodes)
    """Those that failed under a job and may still be out of service."""
    former: FormerProcesses = field(default_factory=FormerProcesses)
    """Those of which a program of the attempt before may live on."""

    def look(self, engine: EnginePort, jobs: Sequence[Job]) -> None:
        """Record requeues that are new, and the cost of those that are over; a record that fails is only logged.

        Args:
            engine: After its look; its watcher knows the steps.
            jobs: Of the scheduler's last answer.

        Raises:
            Fenced: Another watch leads.
        """
        now = engine.clock.now()
        visible = {job.id: job for job in jobs if "+" not in job.id or job.id.endswith("+0")}
        for job in visible.values():
            before = self.attempts.get(job.id)
            if before is None and not job.attempt and job.state is not JobState.RUNNING:
                continue  # nearly all of a long queue
            try:
                if before is not None and job.attempt > before.job.attempt and job.name == before.job.name:
                    record = self.open_costs[job.id, job.attempt] = _recorded(engine, before, job)
                    if record is not None:
                        self.lost_nodes.take(job.id, record)
                if job.attempt and not job.held and job.state is not JobState.PENDING:
                    self._reckon(engine, job, now)
            except Fenced:
                raise
            except NightshiftError as error:
                logger.warning("job=%s what its requeue cost is not recorded: %s", job.id, error)
            self._remember(engine, job, now)
        self.attempts = {job: attempt for job, attempt in self.attempts.items() if job in visible}
        self.open_costs = {key: evidence for key, evidence in self.open_costs.items() if key[0] in visible}
        self.told_begins = {key for key in self.told_begins if key[0] in visible}
        self.lost_nodes.look(engine, REQUEUE)
        self.stuck.look(engine, jobs)
        self.doubled.look(engine, jobs)
        self.former.look(engine, list(visible.values()), REQUEUE)

    def _remember(self, engine: EnginePort, job: Job, now: datetime) -> None:
        before = self.attempts.get(job.id)
        if job.state is JobState.RUNNING:
            step, loss = _watched_step(engine, job), _watched_loss(engine, job)
            first = loss
            if before is not None and before.job.attempt == job.attempt:
                step, loss = (before.step, before.loss) if step is None else (step, loss)
                first = before.first_loss if before.first_loss is not None else loss
            self.attempts[job.id] = _Attempt(job, step, now, loss, first)
        elif before is not None and (job.state in (JobState.CANCELLED, JobState.COMPLETED) or job.attempt > before.job.attempt):
            del self.attempts[job.id]  # what a person ended and queues again is no requeue of the scheduler

    def _reckon(self, engine: EnginePort, job: Job, now: datetime) -> None:
        """Add what was lost to the record once the job's own steps are past the one where it was, or it is over."""
        key = (job.id, job.attempt)
        if key not in self.open_costs:
            self.open_costs[key] = _unreckoned(engine, job)
        evidence = self.open_costs[key]
        if evidence is None:
            return
        back = not job.state.ended
        if _is_earlier(job, evidence):
            return
        if back:
            self._tell_new_begin(engine, job, evidence)
        silent = evidence.facts.get("last_step") is None and _watched_step(engine, job) is None
        if back and not silent and not _shows_return(engine, job, evidence):
            return
        full = engine.scheduler.job(job.id)
        counted = steps_of_attempts(full) if silent and full.attempt == job.attempt else None
        if silent and back and (counted is None or not counted.own):
            return
        own = _own_steps(engine, full) if counted is None else counted.own
        if counted is not None:
            evidence = replace(evidence, facts={**evidence.facts, "last_step": counted.last})
        if full.attempt != job.attempt or (back and not _is_back(own, evidence) and (own or not self._went_on(engine, job))):
            return  # what there is to read is still of the attempt before
        self.open_costs[key] = None
        _keep_cost(engine, full, evidence, own, until=now if back else job.ended or now, back=back)

    def _tell_new_begin(self, engine: EnginePort, job: Job, evidence: Evidence) -> None:
        """Hand the record to a person where the attempt begins anew although its run had saved; once, when its lines show it."""
        if (job.id, job.attempt) in self.told_begins or _watched_step(engine, job) is None:
            return
        full = engine.scheduler.job(job.id)
        marks = marks_before(engine.store, full)
        points = log_points(full, marks=marks, sure=full.dated_logs)
        if len({point.step for point in points}) < FEWEST_STEPS or full.attempt != job.attempt:
            return
        self.told_begins.add((job.id, job.attempt))
        incident = engine.store.incident(evidence.incident)
        sentence = begins_anew(engine, full, evidence.facts, points, whole_lines(full, marks))
        if not sentence or incident.state is not IncidentState.CLOSED:
            return
        was = incident.note.removeprefix("settled elsewhere: ")
        note = f"{was}; but {sentence}. It is no restart of ours and is left alone: if that is not meant, scancel {job.id}"
        engine.store.mark_stage(incident.id, "escalated")
        engine.store.set_state(incident.id, IncidentState.ESCALATED, note=f"{note} before it saves over the checkpoints of its run")
        logger.error("incident=%s needs a person: job %s %s", incident.id, job.id, sentence)

    def _went_on(self, engine: EnginePort, job: Job) -> bool:
        """Tell whether the step has grown since the last look at this attempt: what the attempt before left grows no more.

        Of a log that is appended to nothing else tells the lines of the attempts apart.
        """
        step, before = _watched_step(engine, job), self.attempts.get(job.id)
        if step is None or before is None or before.step is None or before.job.attempt != job.attempt:
            return False
        return before.job.started == job.started and step > before.step


def _watched_step(engine: EnginePort, job: Job) -> int | None:
    view = engine.watcher.view(job.id, job.attempt)
    return view.last_step if view is not None else None


def _watched_loss(engine: EnginePort, job: Job) -> float | None:
    view = engine.watcher.view(job.id, job.attempt)
    return view.last.loss if view is not None and view.last is not None else None


def _is_earlier(job: Job, evidence: Evidence) -> bool:
    """Tell whether what runs is the attempt before: Slurm counts the new one while it still clears that one away."""
    before = evidence.facts.get("started")
    return job.started is not None and before is not None and job.started <= datetime.fromisoformat(str(before))


def _shows_return(engine: EnginePort, job: Job, evidence: Evidence) -> bool:
    """Tell whether the watch has read the last step of the attempt before; it may have read it in what that attempt wrote."""
    step, goal = _watched_step(engine, job), evidence.facts.get("last_step")
    return step is not None and (goal is None or step >= int(goal))


def _own_steps(engine: EnginePort, job: Job) -> list[int]:
    """Return the steps that an attempt is proven to have logged; none where lines of earlier ones may stand among its own."""
    return [point.step for point in log_points(job, marks=marks_before(engine.store, job), sure=job.dated_logs)]


def _is_back(own: Sequence[int], evidence: Evidence) -> bool:
    goal = evidence.facts.get("last_step")
    return bool(own) and (goal is None or max(own) >= int(goal))


def _recorded(engine: EnginePort, before: _Attempt, job: Job) -> Evidence | None:
    """Record that the scheduler queued a job again; None where it was a call of Nightshift."""
    incidents = [
        earlier
        for earlier in engine.store.incidents(job=job.id)
        if earlier.attempt == before.job.attempt and earlier.kind not in ADVICE
    ]
    if any(call.tool in RESTARTS for earlier in incidents for call in engine.store.calls(earlier.id)):
        return None
    cause, nodes = _cause(engine, before.job)
    step = f"; its last step was {before.step}" if before.step is not None else ""
    node_words = f" on {', '.join(before.job.nodes[:8])}{' …' if len(before.job.nodes) > 8 else ''}" if not nodes else ""
    text = f"job {job.id} was queued again under its own id by {cause}{node_words} (attempt {job.attempt}){step}"
    facts: dict[str, Any] = {
        "attempt": before.job.attempt,
        "nodes": list(nodes),
        RAN_ON: list(before.job.nodes),
        "last_step": before.step,
        "first_loss": before.first_loss if before.first_loss is not None and isfinite(before.first_loss) else None,
        "last_loss": before.loss if before.loss is not None and isfinite(before.loss) else None,
        "saved": checkpoint_facts(_saved(engine, before.job)),
        "started": before.job.started.isoformat() if before.job.started is not None else None,
        "ended": before.at.isoformat(),
        "cause": cause,
    }
    if incidents:
        incident = incidents[-1]
    else:
        detail = {"state": "requeued", "cause": cause, "nodes": list(nodes), **about(before.job)}
        event = Event(EventKind.JOB_ENDED, job.id, None, before.at, detail, before.job.attempt)
        incident, new = engine.store.open_incident(event)
        if new:
            engine.store.set_state(incident.id, IncidentState.CLOSED, note=f"settled elsewhere: {text}")
    logger.info("incident=%s %s", incident.id, text)
    return engine.store.add_evidence(incident.id, REQUEUE, text, facts)


def _saved(engine: EnginePort, job: Job) -> Checkpoint | None:
    """Return the newest checkpoint of the attempt that ended; None where there is none, or it is not known."""
    try:
        full = engine.scheduler.job(job.id)
    except (ToolError, Unavailable):
        return None
    # the new attempt may have begun; before that the log is still that of the old one
    return newest_checkpoint(engine, full, before=full.started if full.attempt > job.attempt else None)


def _cause(engine: EnginePort, job: Job) -> tuple[str, tuple[str, ...]]:
    """Return why an attempt ended, in words, and the node that failed where it is known."""
    text = ""
    if isinstance(engine.scheduler, ControllerLog):
        try:
            text = engine.scheduler.controller_log(job.id)
        except (ToolError, Unavailable) as error:
            logger.info("job=%s the controller's log does not tell why it was queued again: %s", job.id, error)
    # the last lines count: a job may be queued again more than once
    failed = [match[1] for match in _FAILED_NODE.finditer(text) if f"JobId={job.id} " in f"{match[0]} " and match[1] in job.nodes]
    preempted = [match[1] for match in _PREEMPTED.finditer(text) if f"preempted JobId={job.id} " in match[0]]
    if failed:
        return f"the scheduler after the failure of node {failed[-1]}", (failed[-1],)
    if preempted:
        return f"the scheduler, preempted for {preempted[-1]}", ()
    try:
        down = tuple(node.name for node in engine.scheduler.nodes() if node.name in job.nodes and node.state == "down")
    except Unavailable:
        down = ()
    if down:
        return f"the scheduler; node {', '.join(down[:4])} is down", down
    if own_words := _own_words(engine, job):
        return f"its own script, as it seems (`{own_words}`)", ()
    return "somebody who is not known", ()


def _own_words(engine: EnginePort, before: Job) -> str:
    """Return the words by which a job's own script or log shows that it queues itself again; empty where neither does."""
    try:
        job = engine.scheduler.job(before.id)
        return requeues_itself(job, before) if job.attempt == before.attempt + 1 else ""
    except (NightshiftError, OSError):
        return ""


def _unreckoned(engine: EnginePort, job: Job) -> Evidence | None:
    """Return the evidence about a requeue whose cost was not added, of an earlier watch; None where there is none."""
    for incident in engine.store.incidents(job=job.id):
        if incident.attempt == job.attempt - 1:
            evidence = engine.store.evidence(incident.id)
            requeues = [entry for entry in evidence if entry.source == REQUEUE]
            if requeues and not any(entry.source == COST for entry in evidence):
                return requeues[-1]
    return None


def _keep_cost(engine: EnginePort, job: Job, evidence: Evidence, own: Sequence[int], *, until: datetime, back: bool) -> None:
    facts: Mapping[str, Any] = evidence.facts
    last = facts.get("last_step")
    # the first step logged may not be the first made: what is lost is at most the logging interval more
    steps = max(0, int(last) - min(own) + 1) if last is not None and own else None
    minutes = max(0.0, (until - datetime.fromisoformat(str(facts["ended"]))).total_seconds() / 60)
    cost = cost_in_words(job, steps, minutes)
    outlook = "" if back else f"; job {job.id} {job.state} before it was back at step {last}"
    if last is None:
        ended = "" if back else f"; job {job.id} {job.state}"
        outlook = f"{ended}; which step it had reached before the requeue is not known"
    elif not back and _is_back(own, evidence):
        outlook = f"; job {job.id} {job.state}, and when it was back at step {last} was not noticed"
    engine.store.add_evidence(evidence.incident, COST, f"lost: {cost}{outlook}", {"steps": steps, "minutes": round(minutes, 1)})
    incident: Incident = engine.store.incident(evidence.incident)
    if incident.state is IncidentState.CLOSED:
        engine.store.set_state(incident.id, IncidentState.CLOSED, note=f"{incident.note}; lost: {cost}{outlook}")
    logger.info("incident=%s job=%s its requeue cost %s", evidence.incident, job.id, cost)
