"""Queue a job that has ended again under its own id, where a new submission could not be the same job.

The controller keeps everything of such a job: its parts, array, arguments, environment and the jobs that wait for it. It takes no
new variables, so the script must find its checkpoint by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import CommandRefused, ToolError, UsageError
from assistant.ports import Requeues
from assistant.records import Checkpoint, Job, JobSpec, Risk, hold_comment, hold_mark, tags_in
from assistant.recover.checkpoints.inventory import inventory
from assistant.recover.checkpoints.layout import step_in_name
from assistant.recover.checkpoints.search import SaveState, folder_moves
from assistant.recover.directives import never_began, read_directives, together_words
from assistant.recover.identity import HELD_UNKNOWN, is_held_by
from assistant.recover.joblog import log_points
from assistant.recover.launch_arguments import ARGS, RESUME_FROM, STEP
from assistant.recover.restart import SKIP_FROM, attempt_of, too_few_nodes
from assistant.recover.resume.means import ResumeMeans
from assistant.recover.resume.plan import resume_plan
from assistant.recover.source.settings import repeat_problem
from assistant.rendering import RenderedChange
from assistant.tooling import Context, tool
from assistant.tools.checkpoints import advice_of, choose_checkpoint, known_forms, resume_of, search_of
from assistant.tools.preconditions import must_be_alone_of_its_run, must_be_ours_to_restart, must_be_unwritten, wait_until_alone
from assistant.tools.restarts import away_from_suspects, dependent_lines, move_dependents, without_nodes
from assistant.tools.trial_results import with_trial_results
from assistant.untrusted import is_folder, reading_as

NEWEST = ("last", "last_healthy")
NEEDS_VARIABLES = re.compile(rf"\b(?:{ARGS}|{RESUME_FROM}|{STEP}|{SKIP_FROM})\b")


FROM = re.compile(r" FROM\[(?P<path>/.{1,4000}) step (?P<step>\d{1,15})\]$")
"""Behind the frozen commands of a call: what was chosen for it."""


class ChosenCheckpoint(NamedTuple):
    """The checkpoint that a job is to go on from."""

    path: str
    step: int


@tool(risk=Risk.CHANGE, kind="resubmit", undo="cancel_job")
def requeue_ended_job(
    context: Context,
    job: str,
    checkpoint: str = "",
    exclude: list[str] | None = None,
    blamed: list[str] | None = None,
    not_all_of: list[str] | None = None,
) -> dict[str, Any]:
    """Queue a job that has ended again under its own id, away from bad nodes; one that runs or waits is left alone.

    It is the way for jobs that cannot be submitted again as they were: heterogeneous ones, arguments whose quotes are lost. Jobs
    that wait for it go on waiting. Its script must find the checkpoint by itself.

    Args:
        job: Scheduler job id of the attempt that ended.
        checkpoint: The one it is to go on from; refused where its script would load another one. Empty or `none`: not looked at.
        exclude: Nodes to stay away from, on top of those that were excluded before.
        blamed: Nodes found at fault; they are stayed away from as well.
        not_all_of: Nodes of which one is at fault and nobody knows which: it must not run on all of them again.
    """
    scheduler = context.scheduler
    if not isinstance(scheduler, Requeues):
        raise ToolError(f"the {scheduler.name} scheduler cannot queue a job again under its own id")
    before = scheduler.job(job)
    choice = _chosen_checkpoint(context, before, checkpoint)
    if not is_held_by(before, context.tag):  # else this call, interrupted, has queued it again
        _must_be_possible(context, before, choice.path if choice is not None else checkpoint)
    elif choice is not None:
        _must_still_lie_there(context, before, choice)
    spec = _spec(context, before, [*(exclude or ()), *(blamed or ())], not_all_of or ())
    problem = too_few_nodes(spec, scheduler.nodes())
    if problem:
        raise ToolError(f"job {job} was not queued again: {without_nodes(context, spec, problem)}")
    files = must_be_unwritten(context, before)
    try:
        scheduler.requeue(job, exclude=spec.exclude, comment=spec.comment, hold=True)
    except CommandRefused:
        raise
    except ToolError as error:
        raise ToolError(_by_hand(context, before, choice, error)) from error
    wait_until_alone(context, before)
    must_be_unwritten(context, before, files)
    waiting = move_dependents(context, job, job)
    scheduler.release(job)
    return waiting.added_to(_answer(before, spec, checkpoint, choice))


def refusal_of_requeue(context: Context, job: Job, checkpoint: str, *, exclude: Sequence[str], not_all_of: Sequence[str]) -> str:
    """Return why a job that still runs could not be queued again under its own id once it had ended; empty if it could.

    Raises:
        Unavailable: The scheduler or the storage did not answer.
    """
    if not isinstance(context.scheduler, Requeues):
        return f"the {context.scheduler.name} scheduler cannot queue a job again under its own id"
    missing = f"; {problem}" if (problem := repeat_problem(job)) else ""
    if job.never_requeued:
        return f"job {job.id} may not be queued again (--no-requeue){missing}"
    try:
        _must_be_startable(context, job, checkpoint)
        spec = _spec(context, job, exclude, not_all_of)
    except ToolError as error:
        return f"{error}{missing}"
    return too_few_nodes(spec, context.scheduler.nodes()) or ""


def _by_hand(context: Context, job: Job, choice: ChosenCheckpoint | None, error: ToolError) -> str:
    """Return why a job comes back in neither way, what is missing first, and how its owner brings it back."""
    missing = repeat_problem(job)
    if not missing:
        return str(error)
    points = log_points(job)
    checkpoint = _listed(context, job, choice.path) if choice is not None else None
    excluded = advice_of(context).excluded
    together = together_words(job, checkpoint, max((point.step for point in points), default=None), excluded)
    if together:
        return f"{together}. Under its own id it cannot come back: {error}"
    newest = f"; its checkpoint is {choice.path}" if choice is not None else ""
    return f"{missing}; submit it again by hand as the first time{newest}. Under its own id it cannot come back: {error}"


def _chosen_checkpoint(context: Context, job: Job, checkpoint: str) -> ChosenCheckpoint | None:
    """Return the checkpoint that was chosen for this very call, by its arguments or its frozen commands; None where none was.

    What is the newest may be another one after an outage: a call that was interrupted keeps its choice.
    """
    if checkpoint in ("", "none"):
        return None
    if checkpoint not in NEWEST:
        return ChosenCheckpoint(checkpoint, _step_of(context, job, checkpoint))
    for call_tag in tags_in(context.tag):
        with suppress(UsageError):
            if match := FROM.search(context.history.call(call_tag.call).preview):
                return ChosenCheckpoint(match["path"], int(match["step"]))
    choice = choose_checkpoint(context, job.id, which=checkpoint)
    return ChosenCheckpoint(choice["path"], choice["step"]) if choice["path"] else None


def _step_of(context: Context, job: Job, path: str) -> int:
    """Return the step of a checkpoint: as it was when the incident's playbook chose it, else as it lies there, else by its name."""
    for call in reversed(context.history.calls(context.incident) if context.incident is not None else ()):
        outcome = context.history.outcome(call.id) if call.tool == "choose_checkpoint" else None
        value = outcome.value if outcome is not None and isinstance(outcome.value, Mapping) else {}
        if value.get("path") == path:
            return int(value.get("step") or 0)
    listed = _listed(context, job, path)
    return listed.step if listed is not None else step_in_name(Path(path).name) or 0


def _listed(context: Context, job: Job, path: str) -> Checkpoint | None:
    folder, forms = Path(path).parent, known_forms(context, job)
    with reading_as(job.account):
        folder_inventory = inventory(folder, now=context.clock.now(), forms=forms) if is_folder(folder) else None
    return (
        next((checkpoint for checkpoint in folder_inventory.checkpoints if str(checkpoint.path) == path), None)
        if folder_inventory is not None
        else None
    )


def _must_still_lie_there(context: Context, job: Job, choice: ChosenCheckpoint) -> None:
    """Make sure that the chosen checkpoint is still there before a job is released that an interrupted call holds.

    Raises:
        ToolError: It is not.
    """
    if _listed(context, job, choice.path) is None:
        raise ToolError(f"job {job.id} is not queued again: {choice.path}, which was chosen, lies there no more")


def _must_be_possible(context: Context, job: Job, checkpoint: str) -> None:
    """Make sure that a job has ended, is ours to start, is alone of its run and would load the checkpoint that was chosen.

    Raises:
        ToolError: One of these does not hold.
    """
    if not job.state.ended and not job.requeued_held:
        raise ToolError(f"job {job.id} is {job.state}: cancel it first, or leave it alone")
    _must_be_startable(context, job, checkpoint)


def _must_be_startable(context: Context, job: Job, checkpoint: str) -> None:
    must_be_ours_to_restart(context, job)
    if job.requeued_held:
        raise ToolError(HELD_UNKNOWN.format(job=job.id))
    must_be_alone_of_its_run(context, job)
    _must_load(context, job, checkpoint)


def _must_load(context: Context, job: Job, checkpoint: str) -> None:
    """Make sure that the job will by itself load what was chosen, and never start at 0 over checkpoints.

    Raises:
        ToolError: It would load another one or none, or that is not known.
    """
    if checkpoint in ("", "none") and never_began(job):
        return
    script = job.spec.script if job.spec is not None else ""
    search = search_of(context, job)
    way = resume_of(context, job, search)
    if way.repeats:
        raise ToolError(f"job {job.id} is not queued again: {way.repeats}")
    if search.inventory is None:
        if search.state is not SaveState.NEVER_SAVED and not context.by.startswith("cli:"):
            raise ToolError(f"job {job.id} is not queued again: {search.note}; {search.settle}")
        return
    moves = folder_moves(job, search, same_id=True)
    if moves and way.pins and not way.variable:
        raise ToolError(f"{moves}, and a job that is queued again under its own id is given no other arguments")
    if way.variable and (moves or not way.pins):
        name = way.variable.partition("=")[0]
        raise ToolError(f"job {job.id} goes on by {name}, which a job keeps as it was when it is queued again")
    if way.argument:
        raise ToolError(
            f"job {job.id} goes on by {way.argument} behind the command line of its program, and a job that is queued again "
            "under its own id is given no arguments"
        )
    if way.config:
        raise ToolError(
            f"job {job.id} goes on by {way.config_key} in a copy of {way.config}, and a job that is queued again under its own id "
            "is given no other arguments"
        )
    names_variables = read_directives(script).resume or NEEDS_VARIABLES.search(script)
    if names_variables:
        raise ToolError(
            f"job {job.id} takes its checkpoint from NIGHTSHIFT_ variables, which a job keeps as they were when it is queued again"
        )
    if way.means is ResumeMeans.ARGUMENT:
        raise ToolError(
            f"job {job.id} goes on by {way.by}, which only a new submission can give it: a job that is queued again under its own "
            "id keeps what it was submitted with"
        )
    restart_checkpoint, saves = None, with_trial_results(context, job, search.inventory)
    if checkpoint != "none":
        which = checkpoint or "last"
        path = choose_checkpoint(context, job.id, which=which)["path"] if which in NEWEST else which
        restart_checkpoint = next((save for save in saves.checkpoints if str(save.path) == path), None)
        if restart_checkpoint is None:
            raise ToolError(f"job {job.id} is not queued again: {path} is not among the checkpoints in {search.inventory.folder}")
    # under its own id it looks into the same folder, also where the path holds the id
    plan = resume_plan(way, saves, restart_checkpoint, moves=moves)
    if plan.refusal:
        raise ToolError(f"job {job.id} is not queued again: {plan.refusal}")
    if not plan.ready:
        obstacle = ", ".join(path.name for path in plan.set_aside) or f"what {plan.tracker} names"
        raise ToolError(f"job {job.id} cannot be queued again from {path}: it would load {obstacle}; move that aside first")


def _spec(context: Context, job: Job, exclude: Sequence[str], not_all_of: Sequence[str]) -> JobSpec:
    spec = job.spec or JobSpec(job.name, "", nodes=max(1, len(job.nodes)), partition=job.partition)
    spec = replace(spec, exclude=tuple(dict.fromkeys((*spec.exclude, *exclude))))
    spec = away_from_suspects(context, spec, not_all_of)
    is_held = is_held_by(job, context.tag)
    return replace(spec, comment=job.comment if is_held else hold_comment(job.comment, context.tag, job.attempt + 1))


def _answer(job: Job, spec: JobSpec, checkpoint: str, choice: ChosenCheckpoint | None) -> dict[str, Any]:
    return {
        "job": job.id,
        # none was chosen: what it goes on from is its script's word
        "checkpoint": choice.path if choice is not None else "" if checkpoint == "none" else None,
        "step": choice.step if choice is not None else 0,
        "exclude": list(spec.exclude),
        "attempt": attempt_of(spec) + 1,
        "skipped_steps": [],
        "note": f"job {job.id} was queued again under its own id: {spec.doubt or 'asked for'}",
    }


@requeue_ended_job.withdraw
def requeue_ended_withdrawn(context: Context, tag: str, job: str, **_: Any) -> None:
    """End the job if it still waits for this call to release it: nothing of its new attempt began. What its owner holds stays."""
    if is_held_by(context.scheduler.job(job), tag):
        context.scheduler.withdraw(job)


@requeue_ended_job.lookup
def requeued_again(context: Context, tag: str, job: str, checkpoint: str = "", **_: Any) -> dict[str, Any] | None:
    """Return the answer of the call that queued the job again and released it; None where it did not come so far.

    Raises:
        ToolError: The job waits held and carries no proof that this call holds it.
    """
    now = context.scheduler.job(job)
    if now.requeued_held and not is_held_by(now, tag):
        raise ToolError(HELD_UNKNOWN.format(job=job))
    words = now.comment.split()
    if tag not in words or now.held:
        return None
    if now.state.ended and (now.started is None or not now.nodes or hold_mark(now.attempt) not in words):
        return None  # withdrawn before it began
    return _answer(
        now, now.spec or JobSpec(now.name, ""), checkpoint, _chosen_checkpoint(replace(context, tag=tag), now, checkpoint)
    )


@requeue_ended_job.stands
def is_due_again(context: Context, job: str, **_: Any) -> None:
    """Return nothing: what somebody else has started meanwhile is not ours to report.

    Raises:
        ToolError: There is nothing to restart any more.
    """
    must_be_ours_to_restart(context, context.scheduler.job(job))


@requeue_ended_job.preview
def requeueing_again(
    context: Context,
    job: str,
    checkpoint: str = "",
    exclude: list[str] | None = None,
    blamed: list[str] | None = None,
    not_all_of: list[str] | None = None,
) -> RenderedChange:
    """Return the commands, and why the job is not submitted anew."""
    ended_job = context.scheduler.job(job)
    spec = _spec(context, ended_job, [*(exclude or ()), *(blamed or ())], not_all_of or ())
    lines = context.scheduler.command_lines("requeue", job, exclude=spec.exclude, comment=spec.comment, hold=True)
    lines += (*dependent_lines(context, job, job), *context.scheduler.command_lines("release", job))
    choice = _chosen_checkpoint(context, ended_job, checkpoint)
    begins = f" FROM[{choice.path} step {choice.step}]" if choice is not None else ""
    return RenderedChange(lines, f"{ended_job.name} of {ended_job.user} under its own id: {spec.doubt or 'asked for'}{begins}")
