"""Tell whether a job that still runs could be started again, before anything ends it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from assistant.errors import ToolError
from assistant.ports import LimitsSubmissions, Requeues
from assistant.records import Job, Risk
from assistant.recover.joblog import SkipWish
from assistant.recover.lost_environment import repeat_problem
from assistant.recover.restart import interactive_note, restart_problem
from assistant.recover.runs import SaveFolders, jobs_beside
from assistant.tooling import Context, tool
from assistant.tools._meant import is_of_run
from assistant.tools.checkpoints import choose_checkpoint, lost_from
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
    submission itself can show (a limit of the account, say) is not foreseen. `waste` tells people that a job which lives trains on
    with lost weights, and the command that ends it; it is empty of any other.

    Args:
        job: Scheduler job id; it may run or have ended.
        which: `last_healthy`, `before_step` (healthy too), or `last` (the newest, healthy or not).
        step: For `before_step`: the step to stay before.
        margin: For `before_step`: at least so many steps before it.
        exclude: Nodes that the restart would stay away from.
        not_all_of: Nodes of which one is at fault and nobody knows which.
        try_first: As of `choose_checkpoint`.
    """
    shown = context.scheduler.job(job)
    waste = {"waste": _waste(context, shown)}
    if shown.interactive:
        return _refused(waste, interactive_note(shown))
    choice: dict[str, Any] = {
        **choose_checkpoint(context, job, which=which, step=step, margin=margin, try_first=try_first),
        **waste,
    }
    if not choice["restart_from"]:
        return choice
    scheduler, away, apart = context.scheduler, exclude or [], not_all_of or []
    limited = isinstance(scheduler, LimitsSubmissions) and shown.spec is not None and scheduler.submission_problem(shown.spec)
    missing = limited or repeat_problem(shown) if shown.spec is not None else ""
    if missing and isinstance(scheduler, Requeues):
        problem = refusal_of_requeue(context, shown, choice["restart_from"], exclude=away, not_all_of=apart)
    else:
        problem = _refusal(context, shown, choice["restart_from"], exclude=away, not_all_of=apart)
    return _refused(choice, problem) if problem else choice


def _waste(context: Context, job: Job) -> str:
    """Return that a job which lives trains on with weights that are no numbers, and how a person ends it; empty of any other."""
    step = lost_from(job) if not job.state.ended else None
    if step is None:
        return ""
    command = "; ".join(context.scheduler.command_lines("cancel", job.id))
    worthless = f"it trains on with NaN since step {step}, and each checkpoint that it saves from there on is worthless"
    return f": {worthless}; to end it: {command}"


def _refusal(context: Context, job: Job, checkpoint: str, *, exclude: Sequence[str], not_all_of: Sequence[str]) -> str:
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


def _refused(choice: dict[str, Any], why: str) -> dict[str, Any]:
    """Return a choice that leads to no restart, with the reason."""
    empty: dict[str, Any] = {"path": "", "step": 0, "set_aside": [], "tracker": "", "tracker_text": ""}
    return {**empty, **choice, "restart_from": "", "fallback": "", "note": why}
