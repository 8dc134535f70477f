"""Whether a job is still the attempt that an incident is about, and still ours to restart: the world goes on between two steps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from assistant.errors import ToolError
from assistant.records import CallStatus, EventKind, Incident, Job, JobState, run_of
from assistant.recover.identity import is_claim, is_withdrawn_claim, other_keeper, restart_of
from assistant.tooling import Context


def must_be_meant(context: Context, job: Job) -> None:
    """Make sure that a job is the attempt that the call's incident is about; a call for no incident, or on another job, passes.

    Raises:
        ToolError: The job was queued again since, or its id was given to another one.
    """
    incident = _incident(context, job)
    if incident is None:
        _must_be_the_restart(context, job)
        return
    if job.attempt != incident.attempt:
        raise ToolError(
            f"job {job.id} was queued again since: incident {incident.id} is about attempt {incident.attempt}, "
            f"this is {job.attempt}; leave it alone or look at the new attempt"
        )
    must_be_the_same_job(context, job)


def _must_be_the_restart(context: Context, job: Job) -> None:
    """Make sure that a job whose id a restart of the incident returned is that restart: ids are given again.

    Raises:
        ToolError: It is another job: of another user, name, folder or time, or without the tag of the restart.
    """
    for call in context.history.calls(context.incident):
        if call.tool != "resubmit_job":
            continue
        outcome = context.history.outcome(call.id)
        value = outcome.value if outcome is not None and isinstance(outcome.value, Mapping) else {}
        if value.get("job") != job.id:
            continue
        restart = restart_of(context.history, job)
        if restart is None or restart.id != call.id or run_of(job) not in context.history.runs_of(call.id):
            raise ToolError(
                f"job {job.id} ({job.name!r} of {job.user}) is not the one that call {call.id} submitted: another job has that id "
                "now; leave it alone"
            )


def must_be_the_same_job(context: Context, job: Job) -> None:
    """Make sure that the id of the incident's job was not given to another one; a later attempt of the same job passes.

    Raises:
        ToolError: It was.
    """
    incident = _incident(context, job)
    if incident is None or job.attempt > incident.attempt or job.submitted is None:
        return
    if job.submitted > incident.opened:
        raise ToolError(f"job {job.id} was submitted after incident {incident.id} was opened: another job has that id now")


def must_be_ours_to_restart(context: Context, job: Job) -> None:
    """Make sure, too, that nobody ended the attempt on purpose and that it did not end well meanwhile.

    Raises:
        ToolError: It completed, somebody else than this incident's own call cancelled it, the same run was submitted since, or
            Nightshift with another store looks after it.
    """
    must_be_meant(context, job)
    elsewhere = other_keeper(context, job)
    if elsewhere:
        raise ToolError(elsewhere)
    incident = _incident(context, job)
    if incident is None or incident.kind is EventKind.REQUESTED:
        return
    if job.state is JobState.COMPLETED:
        raise ToolError(f"job {job.id} completed meanwhile: there is nothing to restart")
    if job.state is JobState.CANCELLED and not _cancelled_here(context, incident, job):
        raise ToolError(f"job {job.id} was cancelled by somebody else; what a person ended is not started again")
    later = _submitted_since(context, job, job.ended or incident.opened)
    if later is not None:
        raise ToolError(f"the run of job {job.id} went on as job {later.id} since: from there it is another matter")


def must_be_alone_of_its_run(context: Context, job: Job) -> None:
    """Make sure that no other job of the same run (user, name, work folder) is alive or waits, held or not.

    Raises:
        ToolError: One is: two would write over each other's checkpoints.
    """
    run = run_of(job)
    for other in context.scheduler.user_jobs(job.user):
        if other.id != job.id and not other.state.ended and run_of(other) == run:
            raise ToolError(
                f"job {other.id} ({other.state}) is of the same run as job {job.id}: a second one would write over its "
                "checkpoints; end one of the two first"
            )


def _submitted_since(context: Context, job: Job, since: datetime) -> Job | None:
    """Return a later job of the same run, ours or a person's: same user, name and working folder."""
    run = run_of(job)
    for other in context.scheduler.user_jobs(job.user):
        if other.id == job.id or other.submitted is None or other.submitted <= since or run_of(other) != run:
            continue
        # a claim may still give way: whether it does, the submission itself finds out
        if not is_claim(other) and not is_withdrawn_claim(other):
            return other
    return None


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
