"""Stop a restart of our own that is proven to be at a wrong start, before it saves over the run's checkpoints."""

from __future__ import annotations

from typing import Any

from assistant.errors import ToolError
from assistant.ports import EndsAtOnce
from assistant.records import Call, Job, Risk, hold_mark, run_of
from assistant.recover.identity import CLOCKS_APART, restart_of
from assistant.rendering import RenderedChange
from assistant.tooling import Context, tool


@tool(risk=Risk.DISRUPT, kind="stop_restart")
def stop_restart(context: Context, job: str, attempt: int) -> dict[str, Any]:
    """End a job that this Nightshift itself submitted or queued again, without the notice on which programs save once more.

    It refuses every other job, and an attempt that somebody queued again since. It does not wait until the processes are gone.

    Args:
        job: Scheduler job id of the restart.
        attempt: Which attempt of the job, as the scheduler counts them: 0 for a new job.
    """
    before = context.scheduler.job(job)
    if not before.state.ended:
        _must_be_own(context, before, attempt)
        if isinstance(context.scheduler, EndsAtOnce):
            context.scheduler.end_at_once(job)
        else:
            context.scheduler.cancel(job)
    return {"job": job, "attempt": attempt, "state_before": before.state.value, "stopped": not before.state.ended}


@stop_restart.lookup
def was_stopped(context: Context, tag: str, job: str, attempt: int) -> dict[str, Any] | None:
    """Return the answer when the attempt is over; None lets the call be made again, which harms nobody."""
    now = context.scheduler.job(job)
    if not now.state.ended and now.attempt == attempt:
        return None
    return {"job": job, "attempt": attempt, "state_before": "unknown", "stopped": now.attempt == attempt}


@stop_restart.stands
def is_over(context: Context, job: str, attempt: int) -> dict[str, Any] | None:
    """Return the answer when the attempt is over already.

    Raises:
        ToolError: The job is not the restart any more.
    """
    now = context.scheduler.job(job)
    if not now.state.ended:
        _must_be_own(context, now, attempt)
        return None
    return {"job": job, "attempt": attempt, "state_before": now.state.value, "stopped": False}


@stop_restart.preview
def stopping(context: Context, job: str, attempt: int) -> RenderedChange:
    """Return the commands, and whose job they end.

    Raises:
        ToolError: The job is not the restart: nobody is asked about a job of somebody else as if it were our own.
    """
    shown = context.scheduler.job(job)
    if shown.state.ended:
        return RenderedChange(note=f"job {job} is {shown.state}: there is nothing to stop")
    _must_be_own(context, shown, attempt)
    at_once = isinstance(context.scheduler, EndsAtOnce)
    commands = context.scheduler.command_lines("end_at_once" if at_once else "cancel", job)
    how = "ended without SIGTERM, so that it saves no more" if at_once else "ended with SIGTERM, on which it may save once more"
    nodes = f"{len(shown.nodes)} node{'' if len(shown.nodes) == 1 else 's'}"
    return RenderedChange(commands, f"our own restart of {shown.name} of {shown.user}, {shown.state} on {nodes}, {how}")


def _must_be_own(context: Context, job: Job, attempt: int) -> Call:
    """Make sure that this store's own call started exactly this attempt.

    Raises:
        ToolError: Somebody else did, or nobody can tell.
    """
    call = restart_of(context.history, job)
    if call is None or run_of(job) not in context.history.runs_of(call.id):
        raise ToolError(f"job {job.id} of {job.user} was not started by this Nightshift, and is left alone")
    if context.incident is not None and call.incident != context.incident:
        raise ToolError(f"job {job.id} is the restart of incident {call.incident}, not of {context.incident}, and is left alone")
    # a job queued again by us carries the mark of the attempt; a new one counts from 0
    own = job.attempt == 0 if call.tool == "resubmit_job" else hold_mark(job.attempt) in job.comment.split()
    outcome = context.history.outcome(call.id)
    # Slurm counts a requeue as a submission: of an attempt that was queued behind the call's end another one is the author
    later = outcome is not None and job.submitted is not None and job.submitted > outcome.at + CLOCKS_APART
    if not own or later or job.attempt != attempt:
        raise ToolError(
            f"job {job.id} was queued again since (attempt {job.attempt}) by its owner or the scheduler, and is left alone"
        )
    return call
