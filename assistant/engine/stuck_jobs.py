"""Tell a person of a job that was to go on with a run and waits in the queue for what does not come by itself.

A job that Slurm queued again, that its owner submitted again, or that Nightshift restarted settles nothing while it cannot begin:
its nodes are down, a limit forbids it, somebody holds it. Some of it passes, so that there is a limit of patience. Jobs of no
incident are their owners' business alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from assistant.errors import Fenced, NightshiftError, ToolError, Unavailable
from assistant.nodeset import expand, fold
from assistant.records import Incident, IncidentState, Job, JobState, NodeState
from assistant.recover.identity import is_claim, restart_of
from assistant.recover.verify import queue_note

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["STUCK", "StuckJobs", "patience_with"]

logger = logging.getLogger(__name__)

STUCK = "stuck"
"""Stage of an incident that was handed to a person since the job that was to go on with its run cannot begin."""
MOST_INCIDENTS = 500
"""Newest ones among which the one is looked for that a successor had settled."""
MOST_NAMED = 4
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
    return _patience_with(job.reason) if job.state is JobState.PENDING and not is_claim(job) else None


@lru_cache(maxsize=1024)
def _patience_with(reason: str) -> timedelta | None:
    if _RESERVED.search(reason):
        return None
    words = reason.replace("_", " ")
    return next((patience for pattern, patience in _PATIENCE if pattern.search(reason) or pattern.search(words)), None)


@dataclass
class StuckJobs:
    """Since when jobs have not begun for a reason that does not pass by itself."""

    since: dict[tuple[str, int], datetime] = field(default_factory=dict)
    """By job and attempt."""
    free: set[tuple[str, int]] = field(default_factory=set)
    """Pending jobs that were seen to wait for their turn only."""

    def look(self, engine: Engine, jobs: Sequence[Job]) -> None:
        """Hand incidents to a person whose job has not begun for too long, and take back those whose job has.

        Raises:
            Fenced: Another watch leads.
        """
        pending = {(job.id, job.attempt): job for job in jobs if job.state is JobState.PENDING}
        self.since = {key: since for key, since in self.since.items() if key in pending and patience_with(pending[key]) is not None}
        self.free = {key for key in self.free if key in pending}
        for key, job in pending.items():
            if patience_with(job) is None:
                self.free.add(key)
                continue
            try:
                self._judge(engine, job, key)
            except Fenced:
                raise
            except NightshiftError as error:
                logger.warning("job=%s whether it can begin is not known: %s", job.id, error)
        self._take_back(engine, {job.id: job for job in jobs})

    def overdue(self, engine: Engine, job: Job) -> str:
        """Return why a job has not begun for longer than its reason is waited out, for people; empty while it may begin."""
        patience, start = patience_with(job), self.since.get((job.id, job.attempt))
        if patience is None or start is None or engine.clock.now() - start < patience:
            return ""
        return f"{queue_note(job)[1]}; it waits for that since {start:%H:%M} UTC{_nodes_in_words(engine, job)}"

    def _judge(self, engine: Engine, job: Job, key: tuple[str, int]) -> None:
        if key in self.since and not self.overdue(engine, job):
            return
        incident = _incident_of(engine, job)
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

    def _take_back(self, engine: Engine, jobs: dict[str, Job]) -> None:
        """Close the incidents that were handed to a person for it once their job runs; a restart of ours is watched on."""
        for incident in engine.store.incidents(state=IncidentState.ESCALATED, limit=MOST_INCIDENTS):
            if not incident.note.startswith("the run does not go on: job ") or STUCK not in engine.store.stages(incident.id):
                continue
            job = jobs.get(incident.note.removeprefix("the run does not go on: job ").partition(" ")[0])
            if job is None or job.state is JobState.PENDING or job.state is JobState.UNKNOWN:
                continue
            is_restart = incident.playbook is not None and restart_of(engine.store, job) is not None
            note = f"job {job.id} has begun since ({job.state}){f' on {fold(job.nodes)}' if job.nodes else ''}"
            if is_restart:
                engine.store.set_state(incident.id, IncidentState.VERIFYING, note=note)
            else:
                engine.store.set_state(incident.id, IncidentState.CLOSED, note=f"settled elsewhere: {note}")


def _incident_of(engine: Engine, job: Job) -> Incident | None:
    """Return the incident with whose run a pending job is to go on; None for a job of no incident."""
    call = restart_of(engine.store, job)
    if call is not None and call.incident is not None:
        return engine.store.incident(call.incident)
    if job.attempt:
        own = [incident for incident in engine.store.incidents(job=job.id) if incident.attempt == job.attempt - 1]
        return own[0] if own else None
    settled = engine.store.incidents(state=IncidentState.CLOSED, limit=MOST_INCIDENTS)
    return next((incident for incident in settled if f"as job {job.id} (" in incident.note), None)


def _nodes_in_words(engine: Engine, job: Job) -> str:
    """Return the nodes that a job waits for with their states, and what lets it run elsewhere; empty where none is named."""
    unavailable = _UNAVAILABLE.search(job.reason)
    try:
        node_names = set(expand(unavailable[1])) if unavailable is not None else set()
        nodes = [node for node in engine.scheduler.nodes() if node.name in node_names]
        spec = engine.scheduler.job(job.id).spec
    except (NightshiftError, ToolError, Unavailable, ValueError):
        return ""
    out = [node for node in nodes if node.state in (NodeState.DOWN, NodeState.DRAINED, NodeState.DRAINING)]
    words = "; ".join(f"node {node.name} is {node.state}{f' ({node.reason})' if node.reason else ''}" for node in out[:MOST_NAMED])
    is_pinned = spec is not None and _PINNED.search("\n".join([spec.script, " ".join(spec.options)]))
    pinned = (
        f"; its submission names the nodes: `scontrol update JobId={job.id} ReqNodeList=` lets it run on others"
        if is_pinned
        else ""
    )
    return f"; {words}{pinned}" if words or pinned else ""
