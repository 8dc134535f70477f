"""An incident that a person asks for: that of their job, opened where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assistant.errors import UsageError
from assistant.records import Incident, IncidentState, JobState

if TYPE_CHECKING:
    from assistant.engine import Engine


def requested(engine: Engine, job_id: str, *, by: str, again: bool = False) -> Incident:
    """Return the unfinished incident of a job, else a new one.

    Args:
        engine: Opens it.
        job_id: Of the job.
        by: The person, `cli:alice`.
        again: Also when an earlier incident brought the job back already.

    Raises:
        UsageError: There is nothing to recover.
        ToolError: The scheduler knows no such job.
    """
    standing = engine.store.incidents(job=job_id, open_only=True, limit=1)
    if standing:
        return standing[0]
    job = engine.scheduler.job(job_id)
    if job.state in (JobState.PENDING, JobState.COMPLETED, JobState.UNKNOWN):
        raise UsageError(f"job {job_id} is {job.state}: there is nothing to recover")
    earlier = engine.store.incidents(job=job_id, limit=1)
    if earlier and earlier[0].state is IncidentState.RECOVERED and not again:
        raise UsageError(
            f"job {job_id} was brought back by incident {earlier[0].id} already; once more: nightshift recover {job_id} --again"
        )
    return engine.open_for(job_id, by=by)
