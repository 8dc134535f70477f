"""Tell a person of a job that the scheduler queued again while its owner has submitted the same run once more.

Both copies save into one folder as soon as both run: each deletes and overwrites what the other has saved. Which of them is to go
on is for their owner to say, so that nothing is cancelled here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assistant.errors import NightshiftError
from assistant.records import Incident, IncidentState, Job, JobState
from assistant.recover.identity import is_claim, restart_of
from assistant.recover.restart import same_run
from assistant.recover.runs import SaveFolders, one_folder
from assistant.untrusted import reading_as

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["DOUBLED", "DoubledRuns"]

logger = logging.getLogger(__name__)

DOUBLED = "doubled"
"""Stage of an incident that was handed to a person since two jobs of one run are in the queue."""
BEGIN = "two jobs of one run: job "
"""Of the note of such an incident."""
MOST_INCIDENTS = 500
MOST_COMPARED = 16
"""Other jobs of one owner and folder that one requeued job is compared with."""


@dataclass
class DoubledRuns:
    """Pairs of jobs that were compared."""

    compared: set[tuple[str, int, str]] = field(default_factory=set)
    """A requeued job, its attempt, and another one that is no copy of it."""

    def look(self, engine: Engine, jobs: Sequence[Job]) -> None:
        """Hand the incident of a requeue to a person once a second copy of its run is in the queue; take it back when one has gone.

        Args:
            engine: Its store holds the incidents.
            jobs: Of the scheduler's last answer.

        Raises:
            Fenced: Another watch leads.
        """
        living = {job.id: job for job in jobs if not job.state.ended and job.state is not JobState.UNKNOWN}
        self.compared = {key for key in self.compared if key[0] in living and key[2] in living}
        for job in living.values():
            if not job.attempt or job.held or is_claim(job):
                continue
            copies = [candidate for candidate in living.values() if self._may_be_copy(engine, job, candidate)]
            incident = _incident_of(engine, job) if copies else None
            if incident is None:
                continue
            for candidate in copies[:MOST_COMPARED]:
                if candidate.submitted is not None and candidate.submitted > (incident.failed_at or incident.opened):
                    self._compare(engine, incident, job, candidate)
        self._take_back(engine, living)

    def _may_be_copy(self, engine: Engine, job: Job, candidate: Job) -> bool:
        return (
            candidate.id != job.id
            and (candidate.user, candidate.work_dir) == (job.user, job.work_dir)
            and not candidate.held
            and (job.id, job.attempt, candidate.id) not in self.compared
            and restart_of(engine.store, candidate) is None
        )

    def _compare(self, engine: Engine, incident: Incident, job: Job, candidate: Job) -> None:
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
            f"{BEGIN}{first.id} ({first.state}) was queued again under its own id, and job {second.id} ({second.state}) of "
            f"{second.user}, submitted{at}, is the same run; {into} and may "
            f"overwrite each other's checkpoints. Nothing was ended: {advice}"
        )
        engine.store.mark_stage(incident.id, DOUBLED)
        engine.store.mark_stage(incident.id, "escalated")
        engine.store.set_state(incident.id, IncidentState.ESCALATED, note=note)
        logger.error("incident=%s needs a person: jobs %s and %s are one run", incident.id, first.id, second.id)

    def _take_back(self, engine: Engine, living: dict[str, Job]) -> None:
        """Close the incidents that were handed to a person for it once one of the two jobs has gone."""
        for incident in engine.store.incidents(state=IncidentState.ESCALATED, limit=MOST_INCIDENTS):
            if not incident.note.startswith(BEGIN) or DOUBLED not in engine.store.stages(incident.id):
                continue
            ids = [text.partition(" ")[0] for text in incident.note.split("job ")[1:3]]
            remaining = [job_id for job_id in ids if job_id in living]
            if len(remaining) < len(ids):
                words = f"only job {remaining[0]} of the two is left" if remaining else "both jobs have ended"
                engine.store.set_state(incident.id, IncidentState.CLOSED, note=f"settled elsewhere: {words}")


def _incident_of(engine: Engine, job: Job) -> Incident | None:
    """Return the closed incident about the attempt before, which the scheduler's requeue settled; None where there is none."""
    own = [incident for incident in engine.store.incidents(job=job.id) if incident.attempt == job.attempt - 1]
    closed = [incident for incident in own if incident.state is IncidentState.CLOSED]
    return next((incident for incident in closed if DOUBLED not in engine.store.stages(incident.id)), None)


def _waits_for(job: Job, candidate: Job) -> bool:
    """Tell whether a job begins only behind another one: a chain, or one of a kind at a time."""
    return job.state is JobState.PENDING and (candidate.id in job.dependency or "singleton" in job.dependency)
