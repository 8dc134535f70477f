"""Jobs that were queued again and what keeps them from going on: a second copy of the run, or a wait that does not end by itself.

Both copies of a doubled run save into one folder and overwrite each other's checkpoints; which of them goes on is for their owner
to say. A successor that cannot begin (nodes down, a limit, a hold) settles nothing; a person is told once its patience is over.
Whether a job queues itself again, and how far each of its attempts came, is read off its script and its log: Slurm ends the lines
of an attempt that it queues again with a line of its own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from assistant.errors import Fenced, NightshiftError, ToolError, Unavailable
from assistant.logs.attempt import names_job
from assistant.logs.lines import Line
from assistant.logs.metrics import metric_points
from assistant.logs.phases import learn_series, read_series
from assistant.logs.shell import commands
from assistant.logs.tail import END_OF_ATTEMPT
from assistant.nodeset import expand, fold
from assistant.records import Incident, IncidentState, Job, JobState, NodeState
from assistant.recover.identity import is_claim, restart_of
from assistant.recover.joblog import log_parts
from assistant.recover.restart import same_run
from assistant.recover.runs import SaveFolders, one_folder
from assistant.recover.verify import queue_note
from assistant.redact import head_of
from assistant.untrusted import reading_as

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

LAST_LOG_LINES = 200
_REQUEUED = re.compile(r"\bscontrol requeue(?:hold)?\b|\brequeu?e?(?:ing|ed|e)?\b[^\n]{0,80}", re.IGNORECASE)


class AttemptSteps(NamedTuple):
    """How far the last two attempts of a job came, by their lines in one log."""

    last: int
    """Last step of the attempt before."""
    own: Sequence[int]
    """Steps of the attempt that came next."""


def steps_of_attempts(job: Job) -> AttemptSteps | None:
    """Return what the last two attempts of a job counted; None where their lines cannot be told apart, or count nothing.

    Args:
        job: As it is now, with the number of its attempt.
    """
    if not job.attempt:
        return None
    # as of a first attempt: the lines of all of them are wanted
    for path, lines in log_parts(replace(job, attempt=0)):
        if not names_job(str(path), job):
            continue
        attempts = _attempts(job, list(lines))
        if len(attempts) != job.attempt + 1:
            continue
        before, after = attempts[-2:]
        last = [point.step for point in metric_points(before) if not point.counted]
        own = [point.step for point in metric_points(after) if not point.counted]
        if not last and (series := learn_series(before)) is not None:
            last = [point.step for point in series.points]
            later = read_series(after, series.form)
            own = [point.step for point in later.points] if later is not None else []
        if last:
            return AttemptSteps(max(last), own)
    return None


def _attempts(job: Job, lines: Sequence[Line]) -> list[list[Line]]:
    """Return the lines of each attempt; words that a program says while it ends stand with those of the next one."""
    ids = {job.id, job.raw_id}
    attempts: list[list[Line]] = [[]]
    for line in lines:
        match = END_OF_ATTEMPT.search(line.text) if "CANCELLED AT" in line.text else None
        if match is not None and match["job"] in ids:
            if attempts[-1]:
                attempts.append([])
        else:
            attempts[-1].append(line)
    return attempts


def requeues_itself(job: Job, before: Job) -> str:
    """Return the words by which a job's own script or log shows that it queues itself again; empty where neither does.

    Args:
        job: As it is now, with its script.
        before: The attempt that ended, as it was last seen.
    """
    script = job.spec.script if job.spec is not None else ""
    for command in commands(script):
        words = [word.source for word in command.words]
        at = next((place for place, word in enumerate(words[:3]) if word.rpartition("/")[2] == "scontrol"), None)
        if at is not None and any(word in ("requeue", "requeuehold") for word in words[at + 1 : at + 3]):
            return head_of(" ".join(words), 200)
    then = replace(job, state=JobState.RUNNING, attempt=before.attempt, started=before.started, ended=None)
    for _, lines in log_parts(then):
        for line in reversed(list(lines)[-LAST_LOG_LINES:]):
            match = _REQUEUED.search(line.text)
            if (
                match is not None
                and not END_OF_ATTEMPT.search(line.text)
                and any(_names_requeue(match[0], job_id) for job_id in (job.id, job.raw_id))
            ):
                return head_of(line.text.strip(), 200)
    return ""


def _names_requeue(text: str, job_id: str) -> bool:
    return bool(job_id) and re.search(rf"(?<!\d){re.escape(job_id)}(?!\d)", text) is not None


DOUBLED = "doubled"
"""Stage of an incident that was handed to a person since two jobs of one run are in the queue."""
DOUBLED_NOTE = "two jobs of one run: job "
"""Of the note of such an incident."""
MOST_REQUEUE_INCIDENTS = 500
MOST_COMPARED = 16
"""Other jobs of one owner and folder that one requeued job is compared with."""


@dataclass
class DoubledRuns:
    """Pairs of jobs that were compared."""

    compared: set[tuple[str, int, str]] = field(default_factory=set)
    """A requeued job, its attempt, and another one that is no copy of it."""

    def look(self, engine: EnginePort, jobs: Sequence[Job]) -> None:
        """Hand the incident of a requeue to a person once a second copy of its run is in the queue; take it back when one has gone.

        Args:
            engine: Its store holds the incidents.
            jobs: Of the scheduler's last answer.

        Raises:
            Fenced: Another watch leads.
        """
        requeued = [job for job in jobs if job.attempt and _is_alive(job) and not job.held and not is_claim(job)]
        living = {job.id: job for job in jobs if _is_alive(job)} if requeued else {}
        self.compared = {key for key in self.compared if key[0] in living and key[2] in living}
        for job in requeued:
            copies = [candidate for candidate in living.values() if self._may_be_copy(engine, job, candidate)]
            incident = _requeue_incident(engine, job) if copies else None
            if incident is None:
                continue
            for candidate in copies[:MOST_COMPARED]:
                if candidate.submitted is not None and candidate.submitted > (incident.failed_at or incident.opened):
                    self._compare(engine, incident, job, candidate)
        self._take_back(engine, jobs)

    def _may_be_copy(self, engine: EnginePort, job: Job, candidate: Job) -> bool:
        return (
            candidate.id != job.id
            and (candidate.user, candidate.work_dir) == (job.user, job.work_dir)
            and not candidate.held
            and (job.id, job.attempt, candidate.id) not in self.compared
            and restart_of(engine.store, candidate) is None
        )

    def _compare(self, engine: EnginePort, incident: Incident, job: Job, candidate: Job) -> None:
        try:
            first, second = engine.scheduler.job(job.id), engine.scheduler.job(candidate.id)
            if first.state.ended or second.state.ended or first.attempt != job.attempt:
                return
            with reading_as(job.account):
                folders = [SaveFolders(copy, engine.checkpoint_folders) for copy in (first, second)]
                shared = one_folder(*folders)
        except (NightshiftError, OSError) as error:
            logger.info("job=%s whether job %s is a copy of it is not known: %s", job.id, candidate.id, error)
            return
        if shared is False or not same_run(first, second) or _waits_for(first, second) or _waits_for(second, first):
            self.compared.add((job.id, job.attempt, candidate.id))
            return
        waiting = first if first.state is JobState.PENDING else second if second.state is JobState.PENDING else None
        advice = f"as long as job {waiting.id} has not begun, scancel {waiting.id} loses nothing" if waiting is not None else ""
        advice = advice or f"end one of them: scancel {first.id} or scancel {second.id}"
        at = f" at {second.submitted:%H:%M} UTC" if second.submitted is not None else ""
        folder = folders[0].certain or folders[1].certain
        into = f"both save into {folder}" if shared and folder is not None else f"both run the same commands in {first.work_dir}"
        note = (
            f"{DOUBLED_NOTE}{first.id} ({first.state}) was queued again under its own id, and job {second.id} ({second.state}) of "
            f"{second.user}, submitted{at}, is the same run; {into} and may "
            f"overwrite each other's checkpoints. Nothing was ended: {advice}"
        )
        engine.store.mark_stage(incident.id, DOUBLED)
        engine.store.mark_stage(incident.id, "escalated")
        engine.store.set_state(incident.id, IncidentState.ESCALATED, note=note)
        logger.error("incident=%s needs a person: jobs %s and %s are one run", incident.id, first.id, second.id)

    def _take_back(self, engine: EnginePort, jobs: Sequence[Job]) -> None:
        """Close the incidents that were handed to a person for it once one of the two jobs has gone."""
        living: set[str] = set()
        for incident in engine.store.incidents(state=IncidentState.ESCALATED, limit=MOST_REQUEUE_INCIDENTS):
            if not incident.note.startswith(DOUBLED_NOTE) or DOUBLED not in engine.store.stages(incident.id):
                continue
            ids = [text.partition(" ")[0] for text in incident.note.split("job ")[1:3]]
            living = living or {job.id for job in jobs if _is_alive(job)}
            remaining = [job_id for job_id in ids if job_id in living]
            if len(remaining) < len(ids):
                words = f"only job {remaining[0]} of the two is left" if remaining else "both jobs have ended"
                engine.store.set_state(incident.id, IncidentState.CLOSED, note=f"settled elsewhere: {words}")


def _is_alive(job: Job) -> bool:
    return not job.state.ended and job.state is not JobState.UNKNOWN


def _requeue_incident(engine: EnginePort, job: Job) -> Incident | None:
    """Return the closed incident about the attempt before, which the scheduler's requeue settled; None where there is none."""
    own = [incident for incident in engine.store.incidents(job=job.id) if incident.attempt == job.attempt - 1]
    closed = [incident for incident in own if incident.state is IncidentState.CLOSED]
    return next((incident for incident in closed if DOUBLED not in engine.store.stages(incident.id)), None)


def _waits_for(job: Job, candidate: Job) -> bool:
    """Tell whether a job begins only behind another one: a chain, or one of a kind at a time."""
    return job.state is JobState.PENDING and (candidate.id in job.dependency or "singleton" in job.dependency)


STUCK = "stuck"
"""Stage of an incident that was handed to a person since the job that was to go on with its run cannot begin."""
MOST_SETTLED_INCIDENTS = 500
"""Newest ones among which the one is looked for that a successor had settled."""
MOST_NAMED_NODES = 4
_PATIENCE = (
    (
        re.compile(
            r"DependencyNeverSatisfied|JobHeldAdmin|JobHoldMaxRequeue|launch failed|BadConstraints"
            r"|Partition(?:TimeLimit|NodeLimit|Config)|Invalid(?:QOS|Account)|AccountNotAllowed|QOSNotAllowed|(?:QOS|Assoc)Max\w{0,40}PerJob|(?:Assoc|QOS)Grp\w{0,40}Minutes"
            r"|AssocMaxWall|ReservationDeleted|ReservationInvalid",
            re.IGNORECASE,
        ),
        timedelta(minutes=2),
    ),
    (
        re.compile(r"UnavailableNodes:[^)\s]|NodeDown|Partition(?:Down|Inactive)|JobHeld|held state", re.IGNORECASE),
        timedelta(minutes=5),
    ),
    (re.compile(r"ReqNodeNotAvail|Nodes required for job", re.IGNORECASE), timedelta(minutes=15)),
)
"""For how long a reason of Slurm is waited out, by how likely it passes by itself.

Source: https://slurm.schedmd.com/job_reason_codes.html
"""
_UNAVAILABLE = re.compile(r"UnavailableNodes:([^)\s]+)")
_PINNED = re.compile(r"(?:^#SBATCH\s(?:.*\s)?|^|\s)(?:--nodelist[= ]|-w ?)\S", re.MULTILINE)
_RESERVED = re.compile(r"reserved for maintenance|\bmaint", re.IGNORECASE)


def patience_with(job: Job) -> timedelta | None:
    """Return for how long the reason is waited out for which a job does not begin; None where it only waits for its turn."""
    patience = _patience_with(job.reason) if job.state is JobState.PENDING else None
    return patience if patience is not None and not is_claim(job) else None


@lru_cache(maxsize=1024)
def _patience_with(reason: str) -> timedelta | None:
    if _RESERVED.search(reason):
        return None
    words = reason.replace("_", " ")
    return next((patience for pattern, patience in _PATIENCE if pattern.search(reason) or pattern.search(words)), None)


@dataclass
class StuckJobs:
    """Pending jobs whose reason does not pass by itself, with the time since when each has not begun."""

    since: dict[tuple[str, int], datetime] = field(default_factory=dict)
    """By job and attempt."""
    free: set[tuple[str, int]] = field(default_factory=set)
    """Pending jobs that were seen to wait for their turn only."""

    def look(self, engine: EnginePort, jobs: Sequence[Job]) -> None:
        """Hand incidents to a person whose job has not begun for too long, and take back those whose job has.

        Raises:
            Fenced: Another watch leads.
        """
        free: set[tuple[str, int]] = set()
        impatient: dict[tuple[str, int], Job] = {}
        for job in jobs:
            if job.state is JobState.PENDING:
                if patience_with(job) is None:
                    free.add((job.id, job.attempt))
                else:
                    impatient[job.id, job.attempt] = job
        self.since = {key: since for key, since in self.since.items() if key in impatient}
        self.free = free | (self.free & impatient.keys())
        for key, job in impatient.items():
            try:
                self._judge(engine, job, key)
            except Fenced:
                raise
            except NightshiftError as error:
                logger.warning("job=%s whether it can begin is not known: %s", job.id, error)
        self._take_back(engine, jobs)

    def overdue(self, engine: EnginePort, job: Job) -> str:
        """Return why a job has not begun for longer than its reason is waited out, for people; empty while it may begin."""
        patience, start = patience_with(job), self.since.get((job.id, job.attempt))
        if patience is None or start is None or engine.clock.now() - start < patience:
            return ""
        return f"{queue_note(job)[1]}; it waits for that since {start:%H:%M} UTC{_nodes_in_words(engine, job)}"

    def _judge(self, engine: EnginePort, job: Job, key: tuple[str, int]) -> None:
        if key in self.since and not self.overdue(engine, job):
            return
        incident = _settled_incident(engine, job)
        if incident is None:
            return
        if key not in self.since:
            # a watch that sees it for the first time has not seen when it began
            queued_at = incident.closed or engine.store.stages(incident.id).get("restarted")
            self.since[key] = engine.clock.now() if key in self.free or queued_at is None else queued_at
        words = self.overdue(engine, job)
        if not words or incident.state is not IncidentState.CLOSED:
            return
        was = incident.note.removeprefix("settled elsewhere: ")
        engine.store.mark_stage(incident.id, STUCK)
        engine.store.mark_stage(incident.id, "escalated")
        engine.store.set_state(incident.id, IncidentState.ESCALATED, note=f"the run does not go on: {words}. Before: {was}")
        logger.error("incident=%s needs a person: job %s cannot begin: %s", incident.id, job.id, job.reason)

    def _take_back(self, engine: EnginePort, jobs: Sequence[Job]) -> None:
        """Close the incidents that were handed to a person for it once their job runs; a restart of ours is watched on."""
        jobs_by_id: dict[str, Job] = {}
        for incident in engine.store.incidents(state=IncidentState.ESCALATED, limit=MOST_SETTLED_INCIDENTS):
            if not incident.note.startswith("the run does not go on: job ") or STUCK not in engine.store.stages(incident.id):
                continue
            jobs_by_id = jobs_by_id or {job.id: job for job in jobs}
            job = jobs_by_id.get(incident.note.removeprefix("the run does not go on: job ").partition(" ")[0])
            if job is None or job.state is JobState.PENDING or job.state is JobState.UNKNOWN:
                continue
            is_restart = incident.playbook is not None and restart_of(engine.store, job) is not None
            note = f"job {job.id} has begun since ({job.state}){f' on {fold(job.nodes)}' if job.nodes else ''}"
            if is_restart:
                engine.store.set_state(incident.id, IncidentState.VERIFYING, note=note)
            else:
                engine.store.set_state(incident.id, IncidentState.CLOSED, note=f"settled elsewhere: {note}")


def _settled_incident(engine: EnginePort, job: Job) -> Incident | None:
    """Return the incident with whose run a pending job is to go on; None for a job of no incident."""
    call = restart_of(engine.store, job)
    if call is not None and call.incident is not None:
        return engine.store.incident(call.incident)
    if job.attempt:
        own = [incident for incident in engine.store.incidents(job=job.id) if incident.attempt == job.attempt - 1]
        return own[0] if own else None
    settled = engine.store.incidents(state=IncidentState.CLOSED, limit=MOST_SETTLED_INCIDENTS)
    return next((incident for incident in settled if f"as job {job.id} (" in incident.note), None)


def _nodes_in_words(engine: EnginePort, job: Job) -> str:
    """Return the nodes that a job waits for with their states, and what lets it run elsewhere; empty where none is named."""
    unavailable = _UNAVAILABLE.search(job.reason)
    try:
        node_names = set(expand(unavailable[1])) if unavailable is not None else set()
        nodes = [node for node in engine.scheduler.nodes() if node.name in node_names]
        spec = engine.scheduler.job(job.id).spec
    except (NightshiftError, ToolError, Unavailable, ValueError):
        return ""
    out = [node for node in nodes if node.state in (NodeState.DOWN, NodeState.DRAINED, NodeState.DRAINING)]
    words = "; ".join(
        f"node {node.name} is {node.state}{f' ({node.reason})' if node.reason else ''}" for node in out[:MOST_NAMED_NODES]
    )
    is_pinned = spec is not None and _PINNED.search("\n".join([spec.script, " ".join(spec.options)]))
    pinned = (
        f"; its submission names the nodes: `scontrol update JobId={job.id} ReqNodeList=` lets it run on others"
        if is_pinned
        else ""
    )
    return f"; {words}{pinned}" if words or pinned else ""
