"""Look at jobs, end and requeue them, stop a restart at a wrong start, and submit and end the jobs of an evaluation."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from assistant.errors import ToolError
from assistant.evaluation.files import RunFolder
from assistant.evaluation.jobs import agrees, spec_of, tag_of
from assistant.evaluation.suite import load_asked
from assistant.ports import EndsAtOnce, Requeues
from assistant.records import Call, Job, JobSpec, JobState, Risk, hold_comment, hold_mark, run_of
from assistant.recover.identity import CLOCKS_APART, HELD_UNKNOWN, is_held_by, restart_of
from assistant.rendering import RenderedChange
from assistant.tooling import Context, tool
from assistant.tools.preconditions import (
    must_be_alone_of_its_run,
    must_be_meant,
    must_be_the_same_job,
    must_stand_still,
    wait_until_alone,
)

CANCEL_CLOCKS_APART = timedelta(seconds=60)
CANCEL_TAKES_AT_MOST = timedelta(minutes=2)
"""From the decision on a cancel to the end of its job, where the answer got lost."""


def _job_values(job: Job) -> dict[str, Any]:
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
    return [_job_values(job) for job in reversed(jobs)][: max(0, limit)]


@tool(risk=Risk.READ)
def show_job(context: Context, job: str) -> dict[str, Any]:
    """Show one job: state, nodes, times, exit code, log, and the options it was submitted with, but not its script.

    Args:
        job: Scheduler job id.
    """
    job_record = context.scheduler.job(job)
    spec = job_record.spec
    if spec is None:
        return _job_values(job_record)
    options = {
        "nodes": spec.nodes,
        "ranks_per_node": spec.ranks_per_node,
        "exclude": list(spec.exclude),
        "time_limit_s": spec.time_limit_s,
        "environment": sorted(spec.environment),
    }
    return {**_job_values(job_record), "work_dir": str(spec.work_dir), "asked": options}


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
    return {
        "job": job,
        "state_before": "unknown",
        "cancelled": now.state is JobState.CANCELLED and _is_our_cancel(context, tag, now),
    }


def _is_our_cancel(context: Context, tag: str, job: Job) -> bool:
    number = tag.rpartition(":")[2]
    decided_at = [decision.at for decision in context.history.decisions(int(number))] if number.isdecimal() else []
    return job.ended is not None and any(at - CANCEL_CLOCKS_APART <= job.ended <= at + CANCEL_TAKES_AT_MOST for at in decided_at)


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
    job_record = context.scheduler.job(job)
    lines = context.scheduler.command_lines("cancel", job)
    if job_record.state.ended:
        return RenderedChange(lines, f"{job_record.name} is {job_record.state} already: nothing changes")
    return RenderedChange(lines, f"{job_record.name} of {job_record.user}, {job_record.state} on {len(job_record.nodes)} nodes")


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
    job_record = context.scheduler.job(job)
    lines = context.scheduler.command_lines("requeue", job, hold=True, comment=_held_comment(context, job_record))
    lines += context.scheduler.command_lines("release", job)
    return RenderedChange(lines, f"{job_record.name} of {job_record.user}, {job_record.state}, attempt {job_record.attempt}")


def _held_comment(context: Context, job: Job) -> str:
    """Return the comment of the job while this call holds it."""
    return job.comment if is_held_by(job, context.tag) else hold_comment(job.comment, context.tag, job.attempt + 1)


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
        _must_be_our_restart(context, before, attempt)
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
        _must_be_our_restart(context, now, attempt)
        return None
    return {"job": job, "attempt": attempt, "state_before": now.state.value, "stopped": False}


@stop_restart.preview
def stopping(context: Context, job: str, attempt: int) -> RenderedChange:
    """Return the commands, and whose job they end.

    Raises:
        ToolError: The job is not the restart: nobody is asked about a job of somebody else as if it were our own.
    """
    restart = context.scheduler.job(job)
    if restart.state.ended:
        return RenderedChange(note=f"job {job} is {restart.state}: there is nothing to stop")
    _must_be_our_restart(context, restart, attempt)
    at_once = isinstance(context.scheduler, EndsAtOnce)
    commands = context.scheduler.command_lines("end_at_once" if at_once else "cancel", job)
    how = "ended without SIGTERM, so that it saves no more" if at_once else "ended with SIGTERM, on which it may save once more"
    nodes = f"{len(restart.nodes)} node{'' if len(restart.nodes) == 1 else 's'}"
    return RenderedChange(commands, f"our own restart of {restart.name} of {restart.user}, {restart.state} on {nodes}, {how}")


def _must_be_our_restart(context: Context, job: Job, attempt: int) -> Call:
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


@tool(risk=Risk.CHANGE, kind="evaluate", undo="end_evaluation_job")
def submit_evaluation_job(context: Context, run: str, number: int, nodes: list[str] | None = None) -> dict[str, Any]:
    """Submit one job of an evaluation that was prepared in its folder; return the scheduler's id as `job`.

    Args:
        run: Folder of the evaluation.
        number: Which of its jobs.
        nodes: The nodes that it must run on, as its folder says; empty where the scheduler chooses.
    """
    spec = _evaluation_spec(context, run, number)
    return {"job": context.scheduler.submit(spec), "run": run, "number": number, "nodes": list(nodes or ())}


@submit_evaluation_job.lookup
def submitted(context: Context, tag: str, run: str, number: int, nodes: list[str] | None = None) -> dict[str, Any] | None:
    """Return the answer when the scheduler has a job with the tag of this very call, whose other fields agree."""
    for job in context.scheduler.jobs():
        if tag in job.comment.split() and agrees(job, RunFolder(Path(run)), number):
            return {"job": job.id, "run": run, "number": number, "nodes": list(nodes or ())}
    return None


@submit_evaluation_job.preview
def submitting(context: Context, run: str, number: int, nodes: list[str] | None = None) -> RenderedChange:
    """Return the submission."""
    spec = _evaluation_spec(context, run, number)
    place = f" on {','.join(nodes)}" if nodes else ""
    return RenderedChange(context.scheduler.command_lines("submit", spec), f"{spec.name} {number} of {Path(run).name}{place}")


@tool(risk=Risk.DISRUPT, kind="evaluate")
def end_evaluation_job(context: Context, run: str, number: int, job: str = "") -> dict[str, Any]:
    """End one job of an evaluation, and no other job; one that has ended already is left alone.

    Args:
        run: Folder of the evaluation.
        number: Which of its jobs.
        job: Its id at the scheduler; empty: that whose comment says so.
    """
    evaluation_job = _evaluation_job(context, run, number, job)
    if not evaluation_job.state.ended:
        context.scheduler.cancel(evaluation_job.id)
    return {"job": evaluation_job.id, "state_before": evaluation_job.state.value, "cancelled": not evaluation_job.state.ended}


@end_evaluation_job.lookup
def ended(context: Context, tag: str, run: str, number: int, job: str = "") -> dict[str, Any] | None:
    """Return the answer when the job is over; None lets the call be made again, which harms nobody."""
    evaluation_job = _evaluation_job(context, run, number, job)
    return {"job": evaluation_job.id, "state_before": "unknown", "cancelled": True} if evaluation_job.state.ended else None


@end_evaluation_job.preview
def ending(context: Context, run: str, number: int, job: str = "") -> RenderedChange:
    """Return the command, and which job it ends."""
    evaluation_job = _evaluation_job(context, run, number, job)
    lines = context.scheduler.command_lines("cancel", evaluation_job.id)
    return RenderedChange(lines, f"{evaluation_job.name} {number} of {Path(run).name}, {evaluation_job.state}")


def _evaluation_spec(context: Context, run: str, number: int) -> JobSpec:
    folder = RunFolder(Path(run))
    if not (folder.job(number) / "job.json").is_file():
        raise ToolError(f"evaluation {run} has no job {number}: nightshift evaluate prepares its jobs")
    spec = spec_of(folder, load_asked(folder), number)
    return replace(spec, comment=f"{spec.comment} {context.tag}".strip())


def _evaluation_job(context: Context, run: str, number: int, job: str) -> Job:
    tag, folder = tag_of(Path(run).name, number), RunFolder(Path(run))
    if not job:
        listed = (entry for entry in context.scheduler.jobs() if tag in entry.comment.split())
        job = next((entry.id for entry in listed if agrees(entry, folder, number)), "")
        if not job:
            raise ToolError(f"the scheduler knows no job with the comment {tag}: it was never submitted, or is forgotten")
    job_record = context.scheduler.job(job)
    if tag not in job_record.comment.split() or not agrees(job_record, folder, number):
        raise ToolError(
            f"job {job} is not job {number} of evaluation {run}: it is {job_record.name!r} of {job_record.user} in "
            f"{job_record.work_dir}, with the comment {job_record.comment!r}"
        )
    return job_record
