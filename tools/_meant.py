"""Whether a job is still the attempt that an incident is about, and still ours to restart: the world goes on between two steps."""

from __future__ import annotations

from collections.abc import Mapping

from assistant.errors import ToolError
from assistant.records import CallStatus, EventKind, Incident, Job, JobState
from assistant.tooling import Context


def must_be_meant(context: Context, job: Job) -> None:
    """Make sure that a job is the attempt that the call's incident is about; a call for no incident, or on another job, passes.

    Raises:
        ToolError: The job was queued again since, or its id was given to another one.
    """
    incident = _incident(context, job)
    if incident is None:
        return
    if job.attempt != incident.attempt:
        raise ToolError(
            f"job {job.id} was queued again since: incident {incident.id} is about attempt {incident.attempt}, "
            f"this is {job.attempt}; leave it alone or look at the new attempt"
        )
    if job.submitted is not None and job.submitted > incident.opened:
        raise ToolError(f"job {job.id} was submitted after incident {incident.id} was opened: another job has that id now")


def must_be_ours_to_restart(context: Context, job: Job) -> None:
    """Make sure, too, that nobody ended the attempt on purpose and that it did not end well meanwhile.

    Raises:
        ToolError: It completed, or somebody else than this incident's own call cancelled it.
    """
    must_be_meant(context, job)
    incident = _incident(context, job)
    if incident is None or incident.kind is EventKind.REQUESTED:
        return
    if job.state is JobState.COMPLETED:
        raise ToolError(f"job {job.id} completed meanwhile: there is nothing to restart")
    if job.state is JobState.CANCELLED and not _cancelled_here(context, incident, job):
        raise ToolError(f"job {job.id} was cancelled by somebody else; what a person ended is not started again")


def _incident(context: Context, job: Job) -> Incident | None:
    if context.incident is None:
        return None
    return next((one for one in context.history.incidents(job=job.id) if one.id == context.incident), None)


def _cancelled_here(context: Context, incident: Incident, job: Job) -> bool:
    for call in context.history.calls(incident.id):
        if (call.tool, call.status, call.arguments.get("job")) == ("cancel_job", CallStatus.DONE, job.id):
            outcome = context.history.outcome(call.id)
            if outcome is not None and isinstance(outcome.value, Mapping) and outcome.value.get("cancelled"):
                return True
    return False
