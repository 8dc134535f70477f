"""Tell whether a run that its time limit ended goes on by itself when the same script is submitted again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from assistant.errors import ToolError, Unavailable, UnreadableFile
from assistant.records import Job, Risk
from assistant.recover.checkpoints.layout import counts_steps
from assistant.recover.directives import directives_of
from assistant.recover.job_program import programs_of
from assistant.recover.joblog import log_lines, log_points, logs_of
from assistant.recover.training_end import training_goal
from assistant.tooling import Context, tool
from assistant.tools.checkpoints import MOST_READ_AHEAD, choose_checkpoint, search_of

STILL_SHARE, STILL_LEAST = 0.25, timedelta(minutes=10)
"""Of its time, and at the least: for so long a run that came forward may have ended_job nothing at its end."""


@tool(risk=Risk.READ)
def time_limit_outlook(context: Context, job: str, auto: str = "") -> dict[str, Any]:
    """Tell whether a job that its time limit ended is to be submitted again unchanged; `goes_on` is `yes` where it is.

    It is where the owner says so (`act=auto`), and else where its script is proven to go on from its newest whole checkpoint, this
    very attempt saved that checkpoint behind those before it, it was at work until its end, and nothing shows that no step is left.
    `note` says which of these is missing.

    Args:
        job: Scheduler job id of the attempt that ended.
        auto: Not empty where its owner has said `act=auto`.
    """
    ended_job = context.scheduler.job(job)
    if auto:
        return {"goes_on": "yes", "note": "its script says act=auto: its runs follow one another", "job": job}
    if directives_of(ended_job).act == "ask":
        return _stays(job, "its script says act=ask")
    choice = choose_checkpoint(context, job)
    if not choice["path"] or not choice["restart_from"]:
        return _stays(job, f"it is not known to go on by itself: {choice['note']}")
    saved = datetime.fromisoformat(choice["saved_at"])
    if problem := _no_progress(context, ended_job, int(choice["step"]), saved) or _stood_still(ended_job, saved):
        return _stays(job, problem)
    goal = _goal(ended_job, str(choice["format"]), str(choice["path"]))
    reached = max([int(choice["step"]), *(point.step for point in log_points(ended_job))])
    if goal is not None and reached >= goal:
        return _stays(job, f"it had come to step {reached} of {goal}: nothing is left to train")
    steps_made = f"; {reached} of {goal} steps are made" if goal is not None else ""
    return {"goes_on": "yes", "note": f"it made progress until its limit and {choice['resumes']}{steps_made}", "job": job}


def _stays(job: str, why: str) -> dict[str, Any]:
    return {"goes_on": "", "note": f"job {job} was not submitted again: {why}", "job": job}


def _no_progress(context: Context, job: Job, step: int, saved: datetime) -> str:
    """Return why a checkpoint is no progress of an attempt; empty where it is."""
    if job.started is None or saved < job.started:
        return f"it saved no whole checkpoint of its own: the newest is of step {step}, from before it began"
    try:
        saves = search_of(context, job).inventory
    except (Unavailable, UnreadableFile, OSError):
        return "its checkpoints cannot be read"
    earlier = [
        checkpoint.step for checkpoint in (saves.checkpoints if saves is not None else ()) if checkpoint.saved_at < job.started
    ]
    if earlier and step <= max(earlier):
        return f"its newest checkpoint is of step {step}, and an attempt before it had saved step {max(earlier)}"
    return "" if step > 0 else "its checkpoint is of step 0"


def _stood_still(job: Job, saved: datetime) -> str:
    """Return that a job showed nothing any more for long before its limit; empty where it did, or that is not known."""
    if job.started is None or job.ended is None:
        return ""
    try:
        written = [file.written for file in logs_of(job).readable if file.written is not None and file.written <= job.ended]
    except Unavailable:
        written = []
    still = job.ended - max([saved, *written])
    if still <= max(STILL_LEAST, STILL_SHARE * (job.ended - job.started)):
        return ""
    return f"it had neither saved nor logged anything for {still.total_seconds() / 60:.0f} min when its limit ended it"


def _goal(job: Job, layout: str, path: str) -> int | None:
    """Return the last step of a job by its options and its log; None where neither tells, or its checkpoints count otherwise."""
    if not counts_steps(layout, path.rpartition("/")[2]):
        return None
    try:
        options = [(option.name, option.value) for program in programs_of(job) for option in program.options]
    except (ToolError, Unavailable, UnreadableFile, OSError):
        options = []
    texts = [line.text for line in log_lines(job)]
    return training_goal(options, texts[:MOST_READ_AHEAD])
