"""Look again at incidents that a person was asked about: an owner who submits the run again answers the question by that.

Only what nobody has taken yet is closed, only once the owner's own job has gone on, and where a machine is at fault only once it is
out of service: that another job runs elsewhere proves nothing about it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from assistant.engine.settlement import settled_elsewhere
from assistant.errors import NightshiftError
from assistant.records import Category, Diagnosis, EventKind, Incident, IncidentState, Job, JobState, NodeState
from assistant.store import SETTLED_SINCE

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

logger = logging.getLogger(__name__)

AS_LONG_AS = timedelta(hours=24)
"""After which a question is left to the person: what runs then need not be an answer."""
ANSWERABLE = (Category.NONE, Category.SCRIPT, Category.FRAMEWORK)
"""Causes that the owner alone can settle."""
OUT = (NodeState.DRAINING, NodeState.DRAINED, NodeState.DOWN)


@dataclass
class AskedIncidents:
    """Escalated incidents, each looked at once more for each job of the owner that went on since."""

    looked_at: set[tuple[int, str, JobState]] = field(default_factory=set)

    def look(self, engine: Engine, jobs: Sequence[Job]) -> None:
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

    def _look_at(self, engine: Engine, incident: Incident, went_on: Sequence[Job]) -> None:
        since = incident.failed_at or incident.opened
        fresh = [
            (incident.id, job.id, job.state)
            for job in went_on
            if job.id != incident.job and job.submitted is not None and since < job.submitted < since + AS_LONG_AS
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


def _is_answerable(engine: Engine, incident: Incident, diagnosis: Diagnosis | None) -> bool:
    """Tell whether the owner's own job can be the answer to what was asked."""
    if incident.kind is not EventKind.JOB_ENDED or incident.parent is not None or diagnosis is None:
        return False
    if not diagnosis.nodes:
        return diagnosis.category in ANSWERABLE
    blamed_nodes = {finding.node for finding in diagnosis.nodes}
    return blamed_nodes <= {node.name for node in engine.scheduler.nodes() if node.state in OUT}


def _makes_steps(engine: Engine, job: Job) -> bool:
    view = engine.watcher.view(job.id, job.attempt) if job.state is JobState.RUNNING else None
    return view is not None and view.last_step is not None
