"""Find out before a restart whether it would be refused, and by a trial in a sandbox from which checkpoint a script goes on."""

from __future__ import annotations

import logging
import pwd
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import ToolError
from assistant.ports import LimitsSubmissions, Requeues, Reserves
from assistant.records import Checkpoint, Job, JobSpec, NodeState, Risk
from assistant.recover.checkpoints.aside import is_link
from assistant.recover.checkpoints.inventory import Inventory, last_healthy
from assistant.recover.checkpoints.search import folder_moves
from assistant.recover.collective.executor import busy, kept_free, reserved_minutes
from assistant.recover.joblog import SkipWish
from assistant.recover.restart import attempt_of, interactive_note, must_skip_by_hand, plan_restart, restart_problem
from assistant.recover.resume.config import config_of
from assistant.recover.resume.documented import said_commands
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.plan import resume_plan
from assistant.recover.resume.variable import OPEN
from assistant.recover.runs import SaveFolders, jobs_beside
from assistant.recover.source.settings import repeat_problem
from assistant.recover.trial.named_folders import named_folders
from assistant.recover.trial.recorded import COMMAND_S, recorded_submission, recording_command
from assistant.recover.trial.trial import (
    LONGEST_S,
    TrialVerdict,
    TrialWay,
    judge_trial,
    longest_s,
    removed_besides,
    spec_digest,
    trial_answer,
    trial_command,
    trial_for,
    trials_of,
)
from assistant.rendering import RenderedChange, command_line
from assistant.tooling import Context, tool
from assistant.tools.checkpoints import checkpoint_before, choose_checkpoint, lost_from, read_way, refused_from_log, search_of
from assistant.tools.preconditions import is_of_run
from assistant.tools.requeue import refusal_of_requeue
from assistant.tools.resubmit import plan_submission
from assistant.untrusted import reading_as

logger = logging.getLogger(__name__)

TRIAL_S = 90
"""How long a script may run in the sandbox: to load a checkpoint and to log some steps behind it."""
SANDBOX_OUTPUT = "its output in the sandbox"


class _Plan(NamedTuple):
    """A trial start as planned."""

    job: Job
    spec: JobSpec
    checkpoint: Checkpoint
    inventory: Inventory
    trials: tuple[TrialWay, ...]
    way: ResumeWay
    """How the script goes on, as far as reading tells."""
    uid: int


@tool(risk=Risk.CHANGE, kind="trial")
def trial_start(
    context: Context, job: str, exclude: list[str] | None = None, seconds: int = TRIAL_S, before_step: int = 0, margin: int = 0
) -> dict[str, Any]:
    """Start a job's script once in a sandbox on an idle node, with its owner's rights, to see which checkpoint it loads.

    In the sandbox every file system is read-only below an overlay in memory, and there is no network: what the script saves and
    deletes is seen and never happens. It ends with the first save, or when its time is over; three times as long, 900 s at most,
    while it is still at its imports. `proven` holds where it went on from the checkpoint that a restart would choose.

    Args:
        job: Scheduler job id of the attempt that failed.
        exclude: Nodes on which it must not be tried.
        seconds: How long the script may run, for each way that is tried; at most 900.
        before_step: The step that the checkpoint has to be from before; 0 for the newest that is healthy.
        margin: At least so many steps before it.
    """
    if not 1 <= seconds <= LONGEST_S:
        raise ToolError(f"seconds must be 1 to {LONGEST_S}, not {seconds}")
    plan = _plan(context, job, before_step, margin)
    node = _idle_node(context, plan.job, exclude or ())
    verdicts: list[str] = []
    refuted = started = False
    cut_off = True
    with kept_free(context.scheduler, [node], _longest_s(plan, seconds), name=_reservation(context)):
        context.confirm(_trial_line(plan, node, seconds))
        trials = list(plan.trials)
        for planned in trials:
            if busy(context.scheduler, [node]):
                verdicts.append(f"{node} got a job meanwhile")
                break
            recorded = _recorded_way(context, plan, planned, node)
            if isinstance(recorded, str):
                verdicts.append(recorded)
                continue
            submission, trial = recorded
            verdict = _try_way(context, plan, trial, node, seconds)
            logger.info("trial job=%s node=%s with=%r proven=%s: %s", job, node, trial.label, verdict.proven, verdict.note)
            if verdict.proven:
                note = f"tried in a sandbox on {node}, {planned.label}{submission}: {verdict.note}"
                return {
                    "proven": "yes",
                    "job": job,
                    "variable": trial.variable,
                    "argument": trial.argument,
                    "arguments": list(trial.arguments) if trial.arguments is not None else None,
                    "bound": trial.bound,
                    "checkpoint": str(plan.checkpoint.path),
                    "step": plan.checkpoint.step,
                    "submission": spec_digest(plan.job.spec) if plan.job.spec is not None else "",
                    "node": node,
                    "note": note,
                    "appendix": f"; {note}",
                }
            verdicts.append(f"{planned.label}{submission}: {verdict.note}")
            refuted |= verdict.refuted and planned.command is None
            started |= verdict.started
            cut_off &= verdict.cut_off
            trials += _named_commands(plan, trials, verdict.output)
    ending = "cut off before it showed anything: not known" if cut_off else "not proven"
    how = f"tried in a sandbox on {node}, and {ending}" if started else "nothing was tried in a sandbox"
    note = f"{how}: {'; '.join(verdicts)}"
    digest = spec_digest(plan.job.spec) if plan.job.spec is not None else ""
    answer = {"proven": "", "job": job, "node": node, "note": note, "appendix": f"; {note}" * started, "submission": digest}
    return {**answer, "refuted": "yes" if refuted else ""}


@trial_start.lookup
def after_a_crash(
    context: Context,
    tag: str,
    job: str,
    exclude: list[str] | None = None,
    seconds: int = TRIAL_S,
    before_step: int = 0,
    margin: int = 0,
) -> None:
    """Return None: the sandbox ends by itself and leaves nothing behind, so a trial that was cut short is made again."""
    return


@trial_start.preview
def would_try(
    context: Context, job: str, exclude: list[str] | None = None, seconds: int = TRIAL_S, before_step: int = 0, margin: int = 0
) -> RenderedChange:
    """Return what would be started where, as whom, and for how long."""
    plan = _plan(context, job, before_step, margin)
    node = _idle_node(context, plan.job, exclude or ())
    ways = "; ".join(trial.label for trial in plan.trials)
    times = "once" if len(plan.trials) == 1 else f"{len(plan.trials)} times at most"
    times += f", for up to {seconds} s ({longest_s(seconds)} s while it still imports)"
    note = (
        f"its script runs on {node} with the rights of {plan.job.user}, {times}: {ways}; file systems are read-only below an "
        "overlay in memory, there is no network, and nothing of it stays"
    )
    commands: tuple[str, ...] = (_trial_line(plan, node, seconds),)
    if isinstance(context.scheduler, Reserves):
        minutes = reserved_minutes(_longest_s(plan, seconds))
        reserve = context.scheduler.command_lines("reserve", _reservation(context), [node], minutes=minutes)
        commands = (*reserve, *commands, *context.scheduler.command_lines("unreserve", _reservation(context)))
    return RenderedChange(commands, note)


def _longest_s(plan: _Plan, seconds: int) -> int:
    commands = sum(trial.command is not None for trial in plan.trials) + _may_name(plan)
    return (len(plan.trials) + _may_name(plan)) * (longest_s(seconds) + 60) + commands * (longest_s(COMMAND_S) + 60)


def _reservation(context: Context) -> str:
    return "nightshift-trial-" + (context.tag.partition(":")[2] or "0").replace(":", "-")


def _trial_line(plan: _Plan, node: str, seconds: int) -> str:
    """Return the trial as one command: script, owner, node and ways are what a person says yes to."""
    ways = [word for trial in plan.trials for word in ("with", trial.label)]
    ways += ["or", "what its program says then is the command to go on"] if _may_name(plan) else []
    digest = f"sha256:{spec_digest(plan.spec)[:16]}"
    words = ["sandbox start", "of", plan.job.id, "as", plan.job.user, "on", node, "for", f"{seconds} s", *ways, digest]
    return command_line(words)


def _plan(context: Context, job_id: str, before: int, margin: int) -> _Plan:
    """Return what is to be tried, from the checkpoint that a restart would choose.

    Raises:
        ToolError: Nothing is; the message says why.
    """
    job = context.scheduler.job(job_id)
    if job.spec is None:
        raise ToolError(f"the scheduler does not keep the script of job {job_id}, so it cannot be tried")
    if job.spec.doubt:
        raise ToolError(f"job {job_id} cannot be tried, for a trial would be of another job: {job.spec.doubt}")
    if job.spec.environment_lost:
        raise ToolError(f"the variables of job {job_id} are not kept, so a trial would be of another job")
    search = search_of(context, job)
    if search.inventory is None:
        raise ToolError(f"no checkpoint of job {job_id} is known that a trial could go on from: {search.note}")
    way = read_way(job, search)
    trials = trials_of(way)
    if not trials:
        raise ToolError(f"there is nothing to try: {way.sentence}")
    moves = "" if way.pins or way.means is ResumeMeans.UNKNOWN else folder_moves(job, search)
    if moves:
        raise ToolError(f"{moves}, so a trial would look elsewhere")
    judged = refused_from_log(job, search.inventory)
    with reading_as(job.account):
        live = not job.state.ended
        choice = (
            checkpoint_before(context, job, judged, before, margin)
            if before
            else last_healthy(judged, now=context.clock.now(), live=live)
        )
    if choice.checkpoint is None:
        raise ToolError(f"job {job_id} has no healthy checkpoint that a trial could go on from")
    try:
        uid = pwd.getpwnam(job.user).pw_uid
    except KeyError:
        raise ToolError(f"job {job_id} belongs to {job.user}, a user that this machine does not know") from None
    spec = plan_restart(job, job.spec, choice.checkpoint, attempt=attempt_of(job.spec) + 1, tag="")
    filled = [trial_for(trial, job, job.spec, choice.checkpoint) for trial in trials]
    trials = tuple(trial for trial in filled if not isinstance(trial, str))
    if not trials:
        raise ToolError("; ".join(problem for problem in filled if isinstance(problem, str)))
    return _Plan(job, replace(spec, comment="", hold=False), choice.checkpoint, judged, trials, way, uid)


def _may_name(plan: _Plan) -> bool:
    """Tell whether a command that the program itself names would be asked: what reading tells is not known for sure."""
    return plan.way.means in OPEN or plan.way.home_made


def _named_commands(plan: _Plan, trials: Sequence[TrialWay], output: str) -> list[TrialWay]:
    """Return the command that a program itself named as the way to go on when it was tried; of all trials together one."""
    tried_words = {trial.command.words for trial in trials if trial.command is not None}
    if not _may_name(plan) or any(trial.command is not None and trial.command.place.startswith(SANDBOX_OUTPUT) for trial in trials):
        return []
    commands = [command for command in said_commands(plan.job, output, SANDBOX_OUTPUT) if command.words not in tried_words]
    return [TrialWay(command=command) for command in commands[:1]]


def _recorded_way(context: Context, plan: _Plan, trial: TrialWay, node: str) -> tuple[str, TrialWay] | str:
    """Return what a command of the owner's would submit, for people, and the trial of that; else why it is not tried.

    Any other trial is returned as it is.
    """
    if trial.command is None:
        return "", trial
    command = recording_command(
        plan.job,
        trial.command,
        uid=plan.uid,
        folder=Path(plan.checkpoint.path).parent,
        python=tuple(context.commands.get("python3", ("python3",))),
    )
    context.confirm()
    reply = context.transport.run([node], command, timeout_s=longest_s(COMMAND_S) + 60)[node]
    submission = recorded_submission(plan.job, trial.command, reply)
    logger.info("trial job=%s node=%s command=%r: %s", plan.job.id, node, " ".join(trial.command.words), submission)
    if isinstance(submission, str):
        return submission
    left_out = f", without what it adds to {submission.left_out}" if submission.left_out else ""
    variables = " ".join(submission.assignments)
    bound = str(plan.checkpoint.path)
    return f" (`{submission.line}`{left_out})", TrialWay(variables, arguments=submission.arguments, bound=bound)


def _try_way(context: Context, plan: _Plan, trial: TrialWay, node: str, seconds: int) -> TrialVerdict:
    """Run the script once in the sandbox with one way to resume, and judge where it went on from."""
    own_spec = plan.job.spec or plan.spec
    config = config_of(plan.job, plan.way, plan.checkpoint) if trial.config else None
    try:
        spec = plan_restart(
            plan.job,
            own_spec,
            plan.checkpoint,
            attempt=attempt_of(own_spec) + 1,
            tag="",
            resume=trial.argument,
            variable=trial.variable,
            config=config.words if config is not None else (),
            arguments=trial.arguments,
        )
    except ToolError as error:
        return TrialVerdict(False, str(error), started=False)  # of this way alone: another one may be tried
    way = trial.way("a trial") if plan.way.means in OPEN or trial.bound else plan.way
    led = resume_plan(way, plan.inventory, plan.checkpoint)
    if led.refusal:
        return TrialVerdict(False, led.refusal, started=False)
    if led.tracker is not None and is_link(led.tracker, plan.job.account):
        return TrialVerdict(False, f"{led.tracker} is a link, which a trial does not set", started=False)
    written = {str(led.tracker): led.tracker_text} if led.tracker is not None else {}
    written |= {str(config.copy.path): config.copy.text} if config is not None else {}
    command = trial_command(
        plan.job,
        spec,
        uid=plan.uid,
        folder=Path(plan.checkpoint.path).parent,
        hidden=led.set_aside,
        written=written,
        job_paths=named_folders(plan.job, spec),
        seconds=seconds,
        python=tuple(context.commands.get("python3", ("python3",))),
    )
    context.confirm()
    reply = context.transport.run([node], command, timeout_s=longest_s(seconds) + 60)[node]
    answer = trial_answer(reply)
    verdict = judge_trial(answer, plan.checkpoint, plan.inventory)
    lost = removed_besides(answer, Path(plan.checkpoint.path).parent) if verdict.proven and (trial.variable or trial.bound) else ""
    verdict = TrialVerdict(False, f"{verdict.note}, but it removed {lost}") if lost else verdict
    return replace(verdict, output="\n".join(answer.texts[:1]))


def _idle_node(context: Context, job: Job, exclude: Sequence[str]) -> str:
    """Return an idle node of the job's partition that nobody has cordoned, another one than its own where there is one.

    Raises:
        ToolError: There is none now.
    """
    out = {*exclude, *(job.spec.exclude if job.spec is not None else ())}
    partitions = set(job.partition.split(","))
    idle = [
        node.name
        for node in context.scheduler.nodes()
        if node.state is NodeState.IDLE
        and not node.reason
        and node.name not in out
        and (not job.partition or partitions & set(node.partition.split(",")))
    ]
    busy_nodes = set(busy(context.scheduler, idle))
    free = sorted((name for name in idle if name not in busy_nodes), key=lambda name: name in job.nodes)
    if not free:
        raise ToolError(f"no node of partition {job.partition or 'any'} is idle, so the script of job {job.id} cannot be tried")
    return free[0]


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
    return {**empty, **choice, "restart_from": "", "fallback": "", "note": why}
