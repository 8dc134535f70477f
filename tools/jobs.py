"""Look at jobs, and end one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from assistant.errors import ToolError
from assistant.ports import Requeues
from assistant.records import Job, JobState, Risk, hold_comment, hold_mark
from assistant.recover.identity import HELD_UNKNOWN, is_held_by
from assistant.rendering import RenderedChange
from assistant.tooling import Context, tool
from assistant.tools._meant import must_be_alone_of_its_run, must_be_meant, must_be_the_same_job, must_stand_still, wait_until_alone

CLOCKS_APART = timedelta(seconds=60)
TAKES_AT_MOST = timedelta(minutes=2)
"""From the decision on a cancel to the end of its job, where the answer got lost."""


def _shown(job: Job) -> dict[str, Any]:
    times = {"submitted": job.submitted, "started": job.started, "ended": job.ended}
    return {
        "job": job.id,
        "name": job.name,
        "user": job.user,
        "state": job.state.value,
        "reason": job.reason,
        "partition": job.partition,
        "nodes": list(job.nodes),
        **{name: at.isoformat() if at is not None else None for name, at in times.items()},
        "exit_code": job.exit_code,
        "signal": job.signal,
        "log": str(job.log) if job.log is not None else None,
        "comment": job.comment,
    }


@tool(risk=Risk.READ)
def list_jobs(context: Context, state: str = "", user: str = "", limit: int = 50) -> list[dict[str, Any]]:
    """List the jobs that the scheduler still knows, newest first.

    Args:
        state: Only jobs in this state, such as `running` or `failed`; all when empty.
        user: Only jobs of this user; all when empty.
        limit: How many at most.
    """
    jobs = [job for job in context.scheduler.jobs() if state in ("", job.state.value) and user in ("", job.user)]
    return [_shown(job) for job in reversed(jobs)][: max(0, limit)]


@tool(risk=Risk.READ)
def show_job(context: Context, job: str) -> dict[str, Any]:
    """Show one job: state, nodes, times, exit code, log, and the options it was submitted with, but not its script.

    Args:
        job: Scheduler job id.
    """
    found = context.scheduler.job(job)
    spec = found.spec
    if spec is None:
        return _shown(found)
    asked = {
        "nodes": spec.nodes,
        "ranks_per_node": spec.ranks_per_node,
        "exclude": list(spec.exclude),
        "time_limit_s": spec.time_limit_s,
        "environment": sorted(spec.environment),
    }
    return {**_shown(found), "work_dir": str(spec.work_dir), "asked": asked}


@tool(risk=Risk.DISRUPT, kind="cancel")
def cancel_job(context: Context, job: str) -> dict[str, Any]:
    """End a job; one that has ended already is left alone. It does not wait until the processes are gone.

    Args:
        job: Scheduler job id.
    """
    before = context.scheduler.job(job)
    must_be_meant(context, before)
    must_stand_still(context, before)
    if not before.state.ended:
        context.scheduler.cancel(job)
    return {"job": job, "state_before": before.state.value, "cancelled": not before.state.ended}


@cancel_job.lookup
def cancelled(context: Context, tag: str, job: str) -> dict[str, Any] | None:
    """Return the answer when the job is over; None lets the call be made again, which harms nobody.

    Who cancelled it is told by when: what ended long after the command was given, somebody else ended.
    """
    now = context.scheduler.job(job)
    if not now.state.ended:
        return None
    return {"job": job, "state_before": "unknown", "cancelled": now.state is JobState.CANCELLED and _ours(context, tag, now)}


def _ours(context: Context, tag: str, job: Job) -> bool:
    number = tag.rpartition(":")[2]
    given = [one.at for one in context.history.decisions(int(number))] if number.isdecimal() else []
    return job.ended is not None and any(at - CLOCKS_APART <= job.ended <= at + TAKES_AT_MOST for at in given)


@cancel_job.stands
def cancel_stands(context: Context, job: str) -> dict[str, Any] | None:
    """Return the answer when the job has ended already.

    Raises:
        ToolError: Its id belongs to another attempt now, or it goes on by itself.
    """
    now = context.scheduler.job(job)
    must_be_meant(context, now)
    must_stand_still(context, now)
    return {"job": job, "state_before": now.state.value, "cancelled": False} if now.state.ended else None


@cancel_job.preview
def cancelling(context: Context, job: str) -> RenderedChange:
    """Return the command, and whose job it ends."""
    found = context.scheduler.job(job)
    lines = context.scheduler.command_lines("cancel", job)
    if found.state.ended:
        return RenderedChange(lines, f"{found.name} is {found.state} already: nothing changes")
    return RenderedChange(lines, f"{found.name} of {found.user}, {found.state} on {len(found.nodes)} nodes")


@tool(risk=Risk.DISRUPT, kind="requeue")
def requeue_job(context: Context, job: str) -> dict[str, Any]:
    """Queue a job again under its own id, as it was submitted; a running one is ended first.

    It is queued held and released once the scheduler shows no other job of the run, so that no restart runs beside it.

    It comes back with the same nodes to choose from and the same arguments: for a restart from a checkpoint use resubmit_job.

    Args:
        job: Scheduler job id.
    """
    scheduler = context.scheduler
    if not isinstance(scheduler, Requeues):
        raise ToolError(f"the {scheduler.name} scheduler cannot queue a job again under its own id; submit it again")
    before = scheduler.job(job)
    if not is_held_by(before, context.tag):  # else this call, interrupted, has queued it again
        must_be_meant(context, before)
        must_be_alone_of_its_run(context, before)
        if before.requeued_held:
            raise ToolError(HELD_UNKNOWN.format(job=job))
        if before.held:
            raise ToolError(f"job {job} is held ({before.reason}) by its owner or an administrator, and stays so")
        scheduler.requeue(job, hold=True, comment=_held_comment(context, before))
    wait_until_alone(context, before)
    scheduler.release(job)
    return {"job": job, "state_before": before.state.value, "attempt_before": before.attempt}


@requeue_job.withdraw
def requeue_withdrawn(context: Context, tag: str, job: str) -> None:
    """End the job if it still waits for this call to release it: nothing of its new attempt began. Another's hold stays."""
    if is_held_by(context.scheduler.job(job), tag):
        context.scheduler.withdraw(job)


@requeue_job.lookup
def requeued(context: Context, tag: str, job: str) -> dict[str, Any] | None:
    """Return the answer when the attempt that the call held was released; None when the call can go on, or did nothing.

    Raises:
        ToolError: The job waits held and carries no proof that this call holds it.
    """
    now = context.scheduler.job(job)
    if now.requeued_held and not is_held_by(now, tag):
        raise ToolError(HELD_UNKNOWN.format(job=job))
    if now.requeued_held or tag not in now.comment.split() or hold_mark(now.attempt) not in now.comment.split():
        return None
    if now.state is JobState.CANCELLED and now.started is None:
        return None
    return {"job": job, "state_before": "unknown", "attempt_before": max(0, now.attempt - 1)}


@requeue_job.stands
def requeue_stands(context: Context, job: str) -> dict[str, Any] | None:
    """Return the answer when the job waits in the queue already: it was queued again, by whomever, and has not begun.

    Raises:
        ToolError: Its id belongs to another attempt now, or its run goes on as another job.
    """
    now = context.scheduler.job(job)
    if now.state is JobState.PENDING:
        must_be_the_same_job(context, now)
        return {"job": job, "state_before": now.state.value, "attempt_before": max(0, now.attempt - 1)}
    must_be_meant(context, now)
    must_be_alone_of_its_run(context, now)
    return None


@requeue_job.preview
def requeueing(context: Context, job: str) -> RenderedChange:
    """Return the command, and whose job it queues again."""
    found = context.scheduler.job(job)
    lines = context.scheduler.command_lines("requeue", job, hold=True, comment=_held_comment(context, found))
    lines += context.scheduler.command_lines("release", job)
    return RenderedChange(lines, f"{found.name} of {found.user}, {found.state}, attempt {found.attempt}")


def _held_comment(context: Context, job: Job) -> str:
    """Return the comment of the job while this call holds it."""
    return job.comment if is_held_by(job, context.tag) else hold_comment(job.comment, context.tag, job.attempt + 1)
