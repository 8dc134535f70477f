"""Submit a job that failed once more, from a checkpoint, away from bad nodes, without bad data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assistant.errors import RestartPending, ToolError
from assistant.ports import ReadsBack
from assistant.records import Checkpoint, Job, JobSpec, Risk, run_of, tags_in
from assistant.recover.checkpoints.search import SaveState, folder_moves
from assistant.recover.directives import never_began
from assistant.recover.drivers import goes_on_words
from assistant.recover.identity import is_claim, is_withdrawn_claim
from assistant.recover.joblog import SkipWish, log_points, window_to_skip
from assistant.recover.launch_arguments import RESUME_FROM, STEP
from assistant.recover.restart import (
    SKIP_STEPS,
    Skip,
    attempt_of,
    can_skip,
    hidden_variable,
    must_skip_by_hand,
    plan_restart,
    restart_problem,
    submission_lines,
)
from assistant.recover.resume.config import ConfigCopy, config_of
from assistant.recover.resume.means import ResumeWay
from assistant.recover.resume.plan import resume_plan
from assistant.recover.resume.script import program_way
from assistant.recover.resume.variable import variable_problem
from assistant.recover.runs import SaveFolders, jobs_beside
from assistant.recover.source.settings import repeat_problem
from assistant.recover.wrong_start import Files
from assistant.rendering import RenderedChange
from assistant.tooling import Context, tool
from assistant.tools.checkpoints import resume_of, search_of
from assistant.tools.preconditions import (
    is_of_run,
    must_be_decided_here,
    must_be_ours_to_restart,
    must_be_unwritten,
    must_look_again,
)
from assistant.tools.restarts import (
    away_from_suspects,
    carries_tag,
    copy_lines,
    is_later_id,
    is_of_call,
    make_copy,
    move_dependents,
    named_checkpoint,
    remaining_dependents,
    saves_beside,
    without_nodes,
)
from assistant.tools.trial_results import differs_from_proof, proof_words

MOST_SHOWN = 6
"""Differences that are named in one sentence."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A submission as planned."""

    job: Job
    spec: JobSpec
    checkpoint: Checkpoint | None
    skip: Skip | None
    reached_step: int | None
    note: str
    resumes: str = ""
    """How the script goes on, for people; empty where it begins at the start."""
    files: Files = field(default_factory=dict)
    """What lay where it saves when this was planned."""
    copy: ConfigCopy | None = None
    """The copy of its configuration that its script is given; None where it is given what it was."""


@tool(risk=Risk.CHANGE, kind="resubmit", undo="cancel_job")
def resubmit_job(
    context: Context,
    job: str,
    checkpoint: str = "last_healthy",
    exclude: list[str] | None = None,
    blamed: list[str] | None = None,
    skip_from_step: int = 0,
    skip_to_step: int = 0,
    skip_around_step: int = 0,
    skip_steps: int = 200,
    not_all_of: list[str] | None = None,
) -> dict[str, Any]:
    """Submit a job that has ended again, with its own script and options; return the new job's id as `job`.

    It refuses when the same run is alive already, when the checkpoint is not healthy, and when too few nodes are left. The new job
    is submitted held and released once the scheduler shows no other job of the run, so that of two who restart it one gives way.

    Args:
        job: Scheduler job id of the attempt that ended.
        checkpoint: `last_healthy`, `last`, a path, or `none` to begin at the start.
        exclude: Nodes to stay away from, on top of those that were excluded before.
        blamed: Nodes found at fault; it refuses unless each is cordoned or excluded.
        skip_from_step: First training step whose data is left out; 0 leaves nothing out.
        skip_to_step: First step after that whose data counts again.
        skip_around_step: Instead of both: leave out from 100 steps before this one to the last step seen, at most 500 behind it.
        skip_steps: With skip_around_step: leave out at least so many behind it; 200 to 500 are usual.
        not_all_of: Nodes of which one is at fault and nobody knows which: it must not run on all of them again.
    """
    skip = SkipWish(skip_from_step, skip_to_step, skip_around_step, skip_steps)
    try:
        plan = plan_submission(context, job, checkpoint=checkpoint, exclude=exclude or (), skip=skip, not_all_of=not_all_of or ())
    except ToolError as error:
        raise ToolError(f"{error}{proof_words(context, context.scheduler.job(job))}") from error
    folders = SaveFolders(plan.job, context.checkpoint_folders)
    listed = jobs_beside(context.scheduler, folders)
    claim = _first_of_call(context, listed)
    if claim is not None and not is_claim(claim):
        return _answer(claim.id, plan.spec, f"{plan.note}, submitted and released by this call before")
    first = _first_claim(context, plan.job, listed, claim)
    problem = restart_problem(
        plan.job,
        plan.spec,
        jobs=[
            candidate for candidate in listed if claim is None or (candidate.id != claim.id and not _gives_way(candidate, claim.id))
        ],
        nodes=context.scheduler.nodes(),
        checkpoint=plan.checkpoint,
        blamed=blamed or (),
        reached_step=plan.reached_step,
        same=partial(is_of_run, context, own=folders),
    )
    if first is not None:
        _look_again(context, claim, first, f"job {job} is not submitted again yet: job {first.id} of the same run waits held")
    if problem:
        raise ToolError(f"job {job} was not submitted again: {without_nodes(context, plan.spec, problem)}")
    submission = next((candidate for candidate in listed if carries_tag(context.tag, candidate, plan.job)), None)
    if submission is not None:
        raise ToolError(
            f"job {job} was not submitted again: job {submission.id} ({submission.state}) of the same run carries the tag of this "
            f"very call ({context.tag}), so it was made already; a store that was restored from an older copy does not know of it"
        )
    if plan.copy is not None:
        make_copy(context, plan.job, plan.copy)
    new_job = claim.id if claim is not None else context.scheduler.submit(plan.spec)
    new_job = _must_win(context, folders, new_job, {candidate.id for candidate in listed})
    _must_be_the_same(context, plan, new_job)
    try:
        must_be_unwritten(context, plan.job, plan.files)
    except RestartPending:
        context.scheduler.withdraw(new_job)
        raise
    context.scheduler.release(new_job)
    return move_dependents(context, job, new_job).added_to(_answer(new_job, plan.spec, plan.note))


@resubmit_job.lookup
def resubmitted(context: Context, tag: str, job: str, **_: Any) -> dict[str, Any] | None:
    """Return the answer of the call that submitted and released a job; None when there is none, or it is still held.

    The tag in its comment is not believed alone: user, name, work folder and time of submission must be those of the call's. A
    held one is withdrawn where another call has queued the old job again meanwhile: that one waits until no other is held.
    """
    if _is_queued_by_another(context, job):
        _withdraw_claims(context, tag, job)
    for listed in _jobs_beside(context, job):
        if not is_of_call(context, tag, listed) or is_claim(listed) or is_withdrawn_claim(listed):
            continue
        submitted = context.scheduler.job(listed.id)  # a list may leave the spec out
        spec = submitted.spec if submitted.spec is not None else JobSpec(submitted.name, "", comment=submitted.comment)
        answer = _answer(submitted.id, spec, f"found again by {tag}")
        # a look moves nobody who waits: people are told. Without its variables the call's arguments may tell the checkpoint
        answer = remaining_dependents(context, job, submitted.id).added_to(answer)
        return answer if submitted.spec is not None else {**answer, "checkpoint": None}
    return None


@resubmit_job.stands
def is_due(context: Context, job: str, **_: Any) -> None:
    """Return nothing: a restart that somebody else has made meanwhile is not ours to report.

    Raises:
        ToolError: There is nothing to restart any more.
    """
    must_be_ours_to_restart(context, context.scheduler.job(job))


@resubmit_job.withdraw
def withdrawn(context: Context, tag: str, job: str, **_: Any) -> None:
    """End the jobs that the call submitted and that still wait to be released: none of them ever began."""
    _withdraw_claims(context, tag, job)


def _is_queued_by_another(context: Context, job: str) -> bool:
    try:
        old = context.scheduler.job(job)
    except ToolError:
        return False
    return old.requeued_held and is_claim(old)


def _withdraw_claims(context: Context, tag: str, job: str) -> None:
    number = next((call_tag.call for call_tag in tags_in(tag)), 0)
    for listed in _jobs_beside(context, job):
        if is_claim(listed) and tag in listed.comment.split() and run_of(listed) in context.history.runs_of(number):
            context.scheduler.withdraw(listed.id)


def _jobs_beside(context: Context, job_id: str) -> Sequence[Job]:
    """Return the jobs of a job's user; where the scheduler has forgotten that job, all that it shows."""
    try:
        user = context.scheduler.job(job_id).user
    except ToolError:
        return context.scheduler.jobs()
    return context.scheduler.user_jobs(user)


def _first_of_call(context: Context, jobs: Sequence[Job]) -> Job | None:
    """Return the oldest job that this call submitted and that was not withdrawn.

    There are two where a watch that slept in the middle of the call wakes while another has taken the call up.
    """
    first: Job | None = None
    for job in jobs:
        if is_withdrawn_claim(job) or not is_of_call(context, context.tag, job):
            continue
        if first is None or is_later_id(first.id, job.id):
            first = job
    return first


def _must_win(context: Context, folders: SaveFolders, claim: str, ids_before: Collection[str]) -> str:
    """Return the held job that may be released: no other of its run is alive or has run, and no older claim waits.

    It is the claim, or the older one that another process has submitted for the same call; the claim is withdrawn then.

    Whoever restarts a run submits first and looks then. Ids grow, so of two the one with the larger id sees the other: it gives
    way, and a claim gives way to every job that is no claim (docs/decisions/0015).

    Args:
        context: Of the call.
        folders: Of the attempt that failed.
        claim: Id of the held job.
        ids_before: Ids of the jobs that were there before it was submitted; of those only what is alive counts.

    Raises:
        ToolError: It must give way. The gate withdraws it then.
    """
    old = folders.job
    listed = {candidate.id: candidate for candidate in jobs_beside(context.scheduler, folders)}
    own = listed.get(claim)
    if own is None or own.state.ended:
        raise ToolError(f"job {claim} was submitted again for job {old.id} and ended before it was released: somebody withdrew it")
    first = _first_of_call(context, list(listed.values()))
    if first is not None and first.id != claim:
        context.scheduler.withdraw(claim)
        own, claim = first, first.id
    original = listed.get(old.id)
    if original is not None and original.requeued_held and is_claim(original):
        _look_again(
            context, own, original, f"job {old.id} was queued again under its own id by another call meanwhile and waits held"
        )
    if original is not None and (original.attempt != old.attempt or not original.state.ended):
        raise ToolError(
            f"job {old.id} was not submitted again: it was queued again under its own id meanwhile ({original.state}), so job "
            f"{claim} was withdrawn before it began"
        )
    for rival in listed.values():
        if rival.id in (old.id, claim) or is_withdrawn_claim(rival) or (rival.state.ended and rival.id in ids_before):
            continue
        if not _gives_way(rival, claim) and is_of_run(context, old, rival, folders):
            if is_claim(rival):
                _look_again(context, own, rival, f"job {rival.id} of the same run came before job {claim} and waits held")
            raise ToolError(
                f"job {old.id} was not submitted again: job {rival.id} ({rival.state}; {rival.comment or 'no comment'}) of the "
                f"same run came first, so job {claim} was withdrawn before it began"
            )
    return claim


def _first_claim(context: Context, old: Job, listed: Sequence[Job], own: Job | None) -> Job | None:
    """Return a held restart of the run that came first, where nothing of the run is alive: nobody knows yet what becomes of it."""
    first: Job | None = None
    for candidate in listed:
        if (
            candidate.state.ended
            or candidate.id == old.id
            or (own is not None and (candidate.id == own.id or _gives_way(candidate, own.id)))
        ):
            continue
        if is_of_run(context, old, candidate):
            if not is_claim(candidate):
                return None
            first = first or candidate
    return first


def _look_again(context: Context, own: Job | None, first: Job, why: str) -> None:
    """Put a watch's call off while another restart waits held; what this one has submitted is withdrawn, so that that may go on.

    Raises:
        RestartPending: It is put off.
    """
    try:
        must_look_again(context, first, why)
    except RestartPending:
        if own is not None:
            context.scheduler.withdraw(own.id)
        raise


def _must_be_the_same(context: Context, plan: Plan, claim: str) -> None:
    """Make sure that the scheduler made of the held job what the one was that ended, but for what the restart means to change.

    Raises:
        ToolError: It is another job; the gate withdraws it then.
        Unavailable: The scheduler does not show it now.
    """
    scheduler = context.scheduler
    differences = scheduler.differences(plan.job.id, claim, plan.spec) if isinstance(scheduler, ReadsBack) else ()
    if differences:
        raise ToolError(
            f"job {plan.job.id} was not submitted again: what the scheduler made of it (job {claim}, withdrawn before it began) "
            f"would not run as that one did: {'; '.join(differences[:MOST_SHOWN])}"
        )


def _gives_way(candidate: Job, claim: str) -> bool:
    return is_claim(candidate) and is_later_id(candidate.id, claim)


@resubmit_job.preview
def planned(
    context: Context,
    job: str,
    checkpoint: str = "last_healthy",
    exclude: list[str] | None = None,
    blamed: list[str] | None = None,
    skip_from_step: int = 0,
    skip_to_step: int = 0,
    skip_around_step: int = 0,
    skip_steps: int = 200,
    not_all_of: list[str] | None = None,
) -> RenderedChange:
    """Return the submission, and the moves of pending jobs that wait for the old job."""
    skip = SkipWish(skip_from_step, skip_to_step, skip_around_step, skip_steps)
    plan = plan_submission(
        context, job, checkpoint=checkpoint, exclude=exclude or (), skip=skip, not_all_of=not_all_of or (), read=False
    )
    spec, scheduler = plan.spec, context.scheduler
    words = [f"{spec.name} ({spec.nodes} nodes) of {spec.user or plan.job.user} again"]
    words.append(f"from {plan.checkpoint.path} (step {plan.checkpoint.step})" if plan.checkpoint else "from the start")
    if plan.skip:
        data = f"the data of steps {plan.skip.first} to {plan.skip.end - 1}"
        words.append(
            f"without {data}" if can_skip(plan.spec) else f"with {data} again, for no way to skip any is known of its script"
        )
    words += [f"({plan.resumes})"] if plan.resumes else []
    return RenderedChange((*copy_lines(plan.copy), *submission_lines(scheduler, job, spec)), " ".join(words))


def plan_submission(
    context: Context,
    job_id: str,
    *,
    checkpoint: str,
    exclude: Sequence[str],
    skip: SkipWish,
    not_all_of: Sequence[str] = (),
    read: bool = True,
    standing: bool = False,
) -> Plan:
    """Return what a restart would submit; with `standing` of a job that still runs, as if it had ended.

    Raises:
        ToolError: It is refused, with the reason.
        Unavailable: The scheduler or the storage did not answer.
    """
    job = context.scheduler.job(job_id)
    must_be_decided_here(context, job)
    if not job.state.ended and not standing:
        raise ToolError(f"job {job_id} is {job.state}: cancel it first, or leave it alone")
    must_be_ours_to_restart(context, job)
    files = {} if standing else must_be_unwritten(context, job)
    if job.spec is None:
        raise ToolError(f"the scheduler does not keep the script of job {job_id}, so it cannot be submitted again; ask {job.user}")
    if problem := repeat_problem(job):
        raise ToolError(f"job {job_id} cannot be submitted again as it was: {problem}")
    restart_checkpoint = named_checkpoint(context, job, checkpoint, read=read)
    loads = (
        None
        if restart_checkpoint is None and (never_began(job) or goes_on_words(job))
        else _must_load(context, job, restart_checkpoint, read=read)
    )
    way = loads.sentence if loads is not None else ""
    points = log_points(job)
    reached = max((point.step for point in points), default=None)
    left_out = window_to_skip(job, skip, restart_checkpoint, reached)
    if left_out and (by_hand := must_skip_by_hand(job.spec, search_of(context, job).programs)):
        raise ToolError(f"job {job_id} is not submitted again: {by_hand}")
    config = (
        config_of(job, loads, restart_checkpoint) if loads is not None and loads.config and restart_checkpoint is not None else None
    )
    spec = plan_restart(
        job,
        job.spec,
        restart_checkpoint,
        exclude=tuple(exclude),
        skip=left_out,
        attempt=attempt_of(job.spec) + 1,
        tag=context.tag,
        resume=loads.argument if loads is not None else "",
        variable=loads.variable if loads is not None else "",
        config=config.words if config is not None else (),
        arguments=loads.arguments if loads is not None else None,
    )
    if problem := differs_from_proof(context, job, spec, restart_checkpoint):
        raise ToolError(f"job {job_id} is not submitted again: {problem}; ask {job.user}")
    spec = away_from_suspects(context, spec, not_all_of)
    if problem := hidden_variable(spec, context.scheduler.command_lines("submit", spec)):
        raise ToolError(f"job {job_id} is not submitted again: {problem}")
    begin = (
        f"from step {restart_checkpoint.step}"
        if restart_checkpoint is not None
        else "as it was"
        if loads is None
        else "from the start"
    )
    blind = "; it has no way to skip data and will see the same again" if left_out and not can_skip(job.spec) else ""
    return Plan(
        job,
        spec,
        restart_checkpoint,
        left_out,
        reached,
        f"{begin}{blind}; {way}" if way else f"{begin}{blind}",
        way,
        files,
        config.copy if config else None,
    )


def _must_load(context: Context, job: Job, checkpoint: Checkpoint | None, *, read: bool) -> ResumeWay | None:
    """Make sure that the script will load the chosen checkpoint, and return how; a preview leaves out what is done before it.

    None is returned at a start from the beginning.

    Raises:
        ToolError: It would load another one, or start at 0 over checkpoints, or that is not known.
    """
    search = search_of(context, job)
    way = resume_of(context, job, search)
    if checkpoint is None and search.inventory is None:
        if way.repeats:
            raise ToolError(f"job {job.id} is not submitted again: {way.repeats}")
        if search.state is not SaveState.NEVER_SAVED and not context.by.startswith("cli:"):
            raise ToolError(f"job {job.id} is not started from the beginning: {search.note}; {search.settle}")
        return None
    saves = saves_beside(context, job, checkpoint.path) if checkpoint is not None else search.inventory
    plan = resume_plan(way, saves, checkpoint, moves=folder_moves(job, search))
    if plan.refusal:
        raise ToolError(f"job {job.id} is not submitted again: {plan.refusal}")
    if checkpoint is not None and not way.tried and (problem := variable_problem(job, way, checkpoint, program_way)):
        raise ToolError(
            f"job {job.id} is not submitted again: {way.variable.partition('=')[0]} does not lead it to {checkpoint.path}: "
            f"{problem}"
        )
    if read and plan.set_aside:
        names = ", ".join(path.name for path in plan.set_aside)
        raise ToolError(
            f"job {job.id} is not submitted again: it would load or meet {names}; set_aside_checkpoints moves that out of the way"
        )
    if read and plan.tracker is not None:
        raise ToolError(
            f"job {job.id} is not submitted again: {plan.tracker} does not name the chosen checkpoint; set_tracker writes "
            f"{plan.tracker_text!r} into it"
        )
    return way if checkpoint is not None else None


def _answer(new_job: str, spec: JobSpec, note: str) -> dict[str, Any]:
    first, end = (spec.environment.get(name, "") for name in SKIP_STEPS)
    return {
        "job": new_job,
        "checkpoint": spec.environment.get(RESUME_FROM, ""),
        "step": int(spec.environment.get(STEP, "0") or 0),
        "exclude": list(spec.exclude),
        "attempt": attempt_of(spec),
        "skipped_steps": [int(first), int(end)] if first and end else [],
        "note": f"job {new_job} {note}",
    }
