"""Hand in and end the jobs of an evaluation; `nightshift evaluate` decides which."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from assistant.errors import ToolError
from assistant.evaluation.files import RunFolder
from assistant.evaluation.jobs import agrees, spec_of, tag_of
from assistant.evaluation.suite import load_asked
from assistant.records import Job, JobSpec, Risk
from assistant.rendering import RenderedChange
from assistant.tooling import Context, tool


@tool(risk=Risk.CHANGE, kind="evaluate", undo="end_evaluation_job")
def submit_evaluation_job(context: Context, run: str, number: int, nodes: list[str] | None = None) -> dict[str, Any]:
    """Submit one job of an evaluation that was prepared in its folder; return the scheduler's id as `job`.

    Args:
        run: Folder of the evaluation.
        number: Which of its jobs.
        nodes: The nodes that it must run on, as its folder says; empty where the scheduler chooses.
    """
    spec = _spec(context, run, number)
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
    spec = _spec(context, run, number)
    where = f" on {','.join(nodes)}" if nodes else ""
    return RenderedChange(context.scheduler.command_lines("submit", spec), f"{spec.name} {number} of {Path(run).name}{where}")


@tool(risk=Risk.DISRUPT, kind="evaluate")
def end_evaluation_job(context: Context, run: str, number: int, job: str = "") -> dict[str, Any]:
    """End one job of an evaluation, and no other job; one that has ended already is left alone.

    Args:
        run: Folder of the evaluation.
        number: Which of its jobs.
        job: Its id at the scheduler; empty: that whose comment says so.
    """
    found = _own(context, run, number, job)
    if not found.state.ended:
        context.scheduler.cancel(found.id)
    return {"job": found.id, "state_before": found.state.value, "cancelled": not found.state.ended}


@end_evaluation_job.lookup
def ended(context: Context, tag: str, run: str, number: int, job: str = "") -> dict[str, Any] | None:
    """Return the answer when the job is over; None lets the call be made again, which harms nobody."""
    found = _own(context, run, number, job)
    return {"job": found.id, "state_before": "unknown", "cancelled": True} if found.state.ended else None


@end_evaluation_job.preview
def ending(context: Context, run: str, number: int, job: str = "") -> RenderedChange:
    """Return the command, and which job it ends."""
    found = _own(context, run, number, job)
    lines = context.scheduler.command_lines("cancel", found.id)
    return RenderedChange(lines, f"{found.name} {number} of {Path(run).name}, {found.state}")


def _spec(context: Context, run: str, number: int) -> JobSpec:
    folder = RunFolder(Path(run))
    if not (folder.job(number) / "job.json").is_file():
        raise ToolError(f"evaluation {run} has no job {number}: nightshift evaluate prepares its jobs")
    spec = spec_of(folder, load_asked(folder), number)
    return replace(spec, comment=f"{spec.comment} {context.tag}".strip())


def _own(context: Context, run: str, number: int, job: str) -> Job:
    tag, folder = tag_of(Path(run).name, number), RunFolder(Path(run))
    if not job:
        listed = (one for one in context.scheduler.jobs() if tag in one.comment.split())
        job = next((one.id for one in listed if agrees(one, folder, number)), "")
        if not job:
            raise ToolError(f"the scheduler knows no job with the comment {tag}: it was never submitted, or is forgotten")
    found = context.scheduler.job(job)
    if tag not in found.comment.split() or not agrees(found, folder, number):
        raise ToolError(
            f"job {job} is not job {number} of evaluation {run}: it is {found.name!r} of {found.user} in {found.work_dir}, with "
            f"the comment {found.comment!r}"
        )
    return found
