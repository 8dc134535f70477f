"""Find out before a job is ended, or started again, whether a restart of it would be refused."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from assistant.errors import ToolError
from assistant.ports import LimitsSubmissions, Requeues
from assistant.records import Job, Risk
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.joblog import SkipWish
from assistant.recover.restart import interactive_note, must_skip_by_hand, restart_problem
from assistant.recover.runs import SaveFolders, jobs_beside
from assistant.recover.source.settings import repeat_problem
from assistant.tooling import Context, tool
from assistant.tools.checkpoints import choose_checkpoint, lost_from, search_of
from assistant.tools.preconditions import is_of_run
from assistant.tools.requeue import refusal_of_requeue
from assistant.tools.resubmit import plan_submission


@tool(risk=Risk.READ)
def restart_prospect(
    context: Context,
    job: str,
    which: str = "last_healthy",
    step: int = 0,
    margin: int = 0,
    exclude: list[str] | None = None,
    not_all_of: list[str] | None = None,
    try_first: bool = False,
) -> dict[str, Any]:
    """Tell whether a job could be started again once it had ended: all that a restart is refused for, asked before it is ended.

    It is what `choose_checkpoint` returns; `restart_from` is empty also where the submission is not kept whole, the script would
    not load the checkpoint, the run goes on elsewhere or too few nodes are left, and `note` says which. A refusal that only the
    submission itself can show (a limit of the account, say) is not foreseen. `waste` tells people that a job trains on, or trained
    to its end, with lost weights, and the command that ends one that lives; it is empty of any other. `standing` says whether it
    lives. `lost` is the step from which on a job that lives has lost weights, where it cannot be started again and a checkpoint of
    before that is there that its next saves may replace (it keeps the newest alone); else it is empty.

    Args:
        job: Scheduler job id; it may run or have ended.
        which: `last_healthy`, `before_step` (healthy too), or `last` (the newest, healthy or not).
        step: For `before_step`: the step to stay before.
        margin: For `before_step`: at least so many steps before it.
        exclude: Nodes that the restart would stay away from.
        not_all_of: Nodes of which one is at fault and nobody knows which.
        try_first: As of `choose_checkpoint`.
    """
    job_record = context.scheduler.job(job)
    lost_step = lost_from(job_record, lambda: search_of(context, job_record).inventory)
    waste = {"waste": _waste(context, job_record, lost_step), "standing": _standing(job_record), "lost": ""}
    if job_record.interactive:
        return _no_restart(waste, interactive_note(job_record))
    choice: dict[str, Any] = {
        **choose_checkpoint(context, job, which=which, step=step, margin=margin, try_first=try_first),
        **waste,
    }
    is_lost = lost_step is not None and not job_record.state.ended and choice["path"]
    endangered = is_lost and removes_saves(search_of(context, job_record).inventory)
    lost = {"lost": str(lost_step) if endangered else ""}
    if not choice["restart_from"]:
        return {**choice, **lost}
    programs, spec = search_of(context, job_record).programs, job_record.spec
    if which == "before_step" and not any(exclude or ()) and spec is not None and (by_hand := must_skip_by_hand(spec, programs)):
        return {**_no_restart(choice, f"{choice['note']}; {by_hand}"), **lost}
    scheduler, away, apart = context.scheduler, exclude or [], not_all_of or []
    limited = (
        isinstance(scheduler, LimitsSubmissions) and job_record.spec is not None and scheduler.submission_problem(job_record.spec)
    )
    missing = limited or repeat_problem(job_record) if job_record.spec is not None else ""
    if missing and isinstance(scheduler, Requeues):
        problem = refusal_of_requeue(context, job_record, choice["restart_from"], exclude=away, not_all_of=apart)
    else:
        problem = _refusal_of_submission(context, job_record, choice["restart_from"], exclude=away, not_all_of=apart)
    return {**_no_restart(choice, problem), **lost} if problem else choice


def removes_saves(saved: Inventory | None) -> bool:
    """Tell whether a run keeps its newest checkpoints alone, by their steps: older ones would lie there, or one is all."""
    steps = sorted({checkpoint.step for checkpoint in saved.checkpoints}) if saved is not None else []
    intervals = [second - first for first, second in pairwise(steps)]
    return not intervals or steps[0] >= 2 * min(intervals)


def _standing(job: Job) -> str:
    return f"it has ended ({job.state})" if job.state.ended else "it was not ended"


def _waste(context: Context, job: Job, step: int | None) -> str:
    """Return that a job trains on with weights that are no numbers, and how a person ends it; or that it did so to its end."""
    if step is None:
        return ""
    if job.state.ended:
        return (
            f": its loss was no number from step {step} on to its end, and each checkpoint that it saved from there on is worthless"
        )
    command = "; ".join(context.scheduler.command_lines("cancel", job.id))
    worthless = f"it trains on with NaN since step {step}, and each checkpoint that it saves from there on is worthless"
    return f": {worthless}; to end it: {command}"


def _refusal_of_submission(
    context: Context, job: Job, checkpoint: str, *, exclude: Sequence[str], not_all_of: Sequence[str]
) -> str:
    """Return why a job could not be submitted again once it had ended; empty if it could."""
    wish = SkipWish(0, 0, 0)
    try:
        plan = plan_submission(
            context, job.id, checkpoint=checkpoint, exclude=exclude, skip=wish, not_all_of=not_all_of, read=False, standing=True
        )
    except ToolError as error:
        return str(error)
    folders = SaveFolders(job, context.checkpoint_folders)
    problem = restart_problem(
        job,
        plan.spec,
        jobs=jobs_beside(context.scheduler, folders),
        nodes=context.scheduler.nodes(),
        checkpoint=plan.checkpoint,
        reached_step=plan.reached_step,
        same=partial(is_of_run, context, own=folders),
    )
    return problem or ""


def _no_restart(choice: dict[str, Any], why: str) -> dict[str, Any]:
    """Return a choice that leads to no restart, with the reason."""
    empty: dict[str, Any] = {"path": "", "step": 0, "set_aside": [], "tracker": "", "tracker_text": ""}
    return {**empty, **choice, "restart_from": "", "fallback": "", "note": why, "decided": why}
