"""Find out before a restart whether it would be refused, and by a trial in a sandbox from which checkpoint a script goes on."""

from __future__ import annotations

import logging
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from assistant.errors import InputError, OwnerDenied, ToolError, UnreadableFile
from assistant.ports import Reserves
from assistant.records import Checkpoint, Job, JobSpec, NodeState, Risk
from assistant.recover.checkpoints.aside import is_link
from assistant.recover.checkpoints.inventory import Inventory, last_healthy
from assistant.recover.checkpoints.layout import file_stat
from assistant.recover.checkpoints.search import folder_moves
from assistant.recover.collective.executor import busy, kept_free, reserved_minutes
from assistant.recover.restart import attempt_of, plan_restart
from assistant.recover.resume.config import config_of
from assistant.recover.resume.documented import said_commands
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.plan import TELLS_NO_STEP, WHOLE_UNKNOWN, ResumePlan, resume_plan
from assistant.recover.resume.variable import OPEN
from assistant.recover.trial.deaths import FileFacts, damage_words
from assistant.recover.trial.judgement import TrialVerdict, changed_of_saves, judge_trial, removed_besides, trial_answer
from assistant.recover.trial.marks import attempt_mark, is_changed, marks_beside
from assistant.recover.trial.named_folders import named_folders
from assistant.recover.trial.recorded import COMMAND_S, recorded_submission, recording_command
from assistant.recover.trial.trial import (
    LONGEST_S,
    TrialWay,
    has_fewer_devices,
    longest_s,
    spec_digest,
    trial_command,
    trial_for,
    trials_of,
)
from assistant.rendering import RenderedChange, command_line
from assistant.tooling import Context, tool
from assistant.tools.checkpoints import checkpoint_before, read_way, refused_from_log, search_of
from assistant.tools.trial_results import refused_in, start_digest, start_words, with_trial_results
from assistant.untrusted import is_regular, list_folder, reading_as

logger = logging.getLogger(__name__)

TRIAL_S = 90
"""How long a script may run in the sandbox: to load a checkpoint and to log some steps behind it."""
SANDBOX_OUTPUT = "its output in the sandbox"
MOST_STARTS, MORE_STARTS = 6, 2
"""Starts of one trial in all, and those of them that follow from what a start died of."""
MOST_BESIDE = 4000
MOST_MARKED = 4
"""Newest checkpoints whose files are held against what they were before a trial."""
NOTHING: Mapping[Path, str] = MappingProxyType({})


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
    is_ready: bool
    """Whether by reading it takes the chosen checkpoint by itself, with nothing moved: then other ways only follow a refutation."""
    goes_on_itself: bool
    """Whether by reading it goes on by itself: then a variable proves nothing unless the start as it is was refuted."""
    marks: Mapping[str, str]
    """Of what may be chosen or refused, from before it was tried."""


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
    series = _Series(plan, before_step, margin)
    with kept_free(context.scheduler, [node], _longest_s(plan, seconds), name=_reservation(context)):
        context.confirm(_trial_line(plan, node, seconds))
        while series.waiting and series.starts < _most_starts(plan):
            planned = series.waiting.pop(0)
            if busy(context.scheduler, [node]):
                series.verdicts.append(f"{node} got a job meanwhile")
                break
            recorded = _recorded_way(context, series.plan, planned, node)
            if isinstance(recorded, str):
                series.verdicts.append(recorded)
                continue
            submission, trial = recorded
            start = _try_way(context, series.plan, trial, node, seconds)
            verdict = start.verdict
            logger.info("trial job=%s node=%s with=%r proven=%s: %s", job, node, trial.label, verdict.proven, verdict.note)
            if verdict.proven:
                return _proven(series, start, f"tried in a sandbox on {node}, {planned.label}{submission}: {verdict.note}")
            series.verdicts.append(f"{planned.label}{submission}: {verdict.note}")
            series.take(context, planned, start)
    return _unproven(series, node)


class _Start(NamedTuple):
    """One start in the sandbox."""

    trial: TrialWay
    verdict: TrialVerdict
    digest: str = ""
    """Of what was started; empty where nothing was."""
    set_aside: tuple[Path, ...] = ()
    """What was hidden from it."""


@dataclass
class _Series:
    """The starts of one trial: what is still to be tried, and what those before have shown."""

    plan: _Plan
    before: int
    margin: int
    waiting: list[TrialWay] = field(init=False)
    verdicts: list[str] = field(default_factory=list)
    refused: dict[Path, str] = field(default_factory=dict)
    """Files that a start read and died of, with why they must not be loaded."""
    tried: set[tuple[str, Path, int]] = field(default_factory=set)
    labels: list[str] = field(default_factory=list)
    refuted: bool = False
    cut_off: bool = True
    starts: int = 0

    def __post_init__(self) -> None:
        self.waiting = list(self.plan.trials)

    def take(self, context: Context, planned: TrialWay, start: _Start) -> None:
        """Take in what a start has shown that proved nothing: what it died of is refused, and the next ways follow from that."""
        verdict = start.verdict
        self.tried.add(self._key(planned))
        self.labels += [planned.label] * verdict.started
        self.starts += verdict.started
        self.refuted |= verdict.refuted and planned.command is None
        self.cut_off &= verdict.cut_off
        damage = _damage(self.plan, verdict) if planned.command is None else None
        if damage is not None and damage[0] not in self.refused:
            self.refused[damage[0]] = damage[1]
            try:
                self.plan = _plan(context, self.plan.job.id, self.before, self.margin, self.refused)
            except ToolError as error:
                self.waiting = []
                self.verdicts.append(str(error))
                return
            self.waiting = [trial for trial in self.plan.trials if self._key(trial) not in self.tried]
        elif self.plan.is_ready and verdict.started and not verdict.refuted:
            self.waiting = []  # it is left as it was read
        elif self.plan.goes_on_itself and not self.refuted:
            self.waiting = [trial for trial in self.waiting if not trial.variable]
        self.waiting += _named_commands(self.plan, [*self.plan.trials, *self.waiting], verdict.output)

    def _key(self, trial: TrialWay) -> tuple[str, Path, int]:
        """Return what makes a start another one: its way, its checkpoint and, where it looks by itself, what is hidden from it."""
        looks_itself = not (trial.variable or trial.argument or trial.arguments)
        return trial.label, self.plan.checkpoint.path, len(self.refused) if looks_itself else 0


def _proven(series: _Series, start: _Start, note: str) -> dict[str, Any]:
    """Return the answer of a trial that was proven: all that the steps behind it need to submit that very start."""
    plan, trial = series.plan, start.trial
    refused = "".join(f"; {path.name}: {why}" for path, why in series.refused.items())
    return {
        "proven": "yes",
        "job": plan.job.id,
        **_binding(series),
        "variable": trial.variable,
        "argument": trial.argument,
        "arguments": list(trial.arguments) if trial.arguments is not None else None,
        "bound": trial.bound,
        "checkpoint": str(plan.checkpoint.path),
        "step": plan.checkpoint.step,
        "submission": spec_digest(plan.job.spec) if plan.job.spec is not None else "",
        "start": start.digest,
        "set_aside": [str(path) for path in start.set_aside],
        "refused": {str(path): why for path, why in series.refused.items()},
        "command": start_words(plan.job, trial, plan.checkpoint),
        "note": f"{note}{refused}",
        "appendix": f"; {note}{refused}",
    }


def _binding(series: _Series) -> dict[str, Any]:
    """Return to which attempt and files an answer is bound: where they are others, it counts for nothing."""
    plan = series.plan
    bound = {str(path) for path in (plan.checkpoint.path, *series.refused)}
    return {"attempt": attempt_mark(plan.job), "marks": {path: mark for path, mark in plan.marks.items() if path in bound}}


def _unproven(series: _Series, node: str) -> dict[str, Any]:
    """Return the answer of a trial that proved nothing, with what its starts have shown."""
    ending = "cut off before it showed anything: not known" if series.cut_off else "not proven"
    how = f"tried in a sandbox on {node}, and {ending}" if series.starts else "nothing was tried in a sandbox"
    note = f"{how}: {'; '.join(series.verdicts)}"
    return {
        "proven": "",
        "job": series.plan.job.id,
        **_binding(series),
        "node": node,
        "note": note,
        "appendix": f"; {note}" * bool(series.starts),
        "submission": spec_digest(series.plan.job.spec) if series.plan.job.spec is not None else "",
        "refuted": "yes" if series.refuted else "",
        "refused": {str(path): why for path, why in series.refused.items()},
        "tried": series.labels,
    }


def _damage(plan: _Plan, verdict: TrialVerdict) -> tuple[Path, str] | None:
    """Return the checkpoint that a start died of and why it must not be loaded; None where nothing speaks against a file."""
    death = verdict.death
    if death is None or not death.file:
        return None
    path = Path(death.file)
    entry = next((entry for entry in plan.inventory.entries if path.is_relative_to(entry.path) and path != entry.path), None)
    if entry is not None:
        name = str(path.relative_to(entry.path))
        stats = {str(sibling.path / name): sibling.files[name] for sibling in plan.inventory.entries if name in sibling.files}
    else:
        try:
            with reading_as(plan.job.account):
                stats = {str(child): file_stat(child) for child in list_folder(path.parent, MOST_BESIDE) if is_regular(child)}
        except (OSError, InputError, UnreadableFile, OwnerDenied):
            return None
    start = plan.job.started
    facts = {name: FileFacts(stat.size, stat.mtime) for name, stat in stats.items()}
    words = damage_words(death, facts, start.timestamp() if start is not None else None)
    refused = entry.path if entry is not None else path
    return (refused, words) if words and not is_changed(plan.marks, str(refused), plan.job.account) else None


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


def _most_starts(plan: _Plan) -> int:
    """Return how often the script may be started in all: once for each way, and again without what a start died of."""
    return min(len(plan.trials) + _may_name(plan) + MORE_STARTS, MOST_STARTS)


def _longest_s(plan: _Plan, seconds: int) -> int:
    commands = sum(trial.command is not None for trial in plan.trials) + _may_name(plan)
    return _most_starts(plan) * (longest_s(seconds) + 60) + commands * (longest_s(COMMAND_S) + 60)


def _reservation(context: Context) -> str:
    return "nightshift-trial-" + (context.tag.partition(":")[2] or "0").replace(":", "-")


def _trial_line(plan: _Plan, node: str, seconds: int) -> str:
    """Return the trial as one command: script, owner, node and ways are what a person says yes to."""
    ways = [word for trial in plan.trials for word in ("with", trial.label)]
    ways += ["or", "what its program says then is the command to go on"] if _may_name(plan) else []
    ways += ["or", f"without a checkpoint that it dies of, {_most_starts(plan)} starts at most"]
    digest = f"sha256:{spec_digest(plan.spec)[:16]}"
    words = ["sandbox start", "of", plan.job.id, "as", plan.job.user, "on", node, "for", f"{seconds} s", *ways, digest]
    return command_line(words)


def _plan(context: Context, job_id: str, before: int, margin: int, refused: Mapping[Path, str] = NOTHING) -> _Plan:
    """Return what is to be tried, from the checkpoint that a restart would choose; what starts have died of is refused.

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
    judged = with_trial_results(context, job, refused_from_log(job, search.inventory))
    judged = refused_in(judged, refused, job.account)
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
    is_ready = way.means is ResumeMeans.NEWEST and resume_plan(way, judged, choice.checkpoint).ready
    goes_on_itself = way.means in (ResumeMeans.NEWEST, ResumeMeans.TRACKER)
    if goes_on_itself and not refused:  # as it is first: what it does without a variable decides whether one may count
        trials = tuple(sorted(trials, key=lambda trial: trial != _as_read(way)))
    filled = [trial_for(trial, job, job.spec, choice.checkpoint) for trial in trials]
    trials = tuple(trial for trial in filled if not isinstance(trial, str))
    if not trials:
        raise ToolError("; ".join(problem for problem in filled if isinstance(problem, str)))
    marks = marks_beside(choice.checkpoint.path, (entry.path for entry in judged.entries[-MOST_MARKED:]), job.account)
    return _Plan(
        job, replace(spec, comment="", hold=False), choice.checkpoint, judged, trials, way, uid, is_ready, goes_on_itself, marks
    )


def _as_read(way: ResumeWay) -> TrialWay:
    """Return the start of a script that goes on by itself, as it was read."""
    return TrialWay(way.variable, way.argument, way.config_key, arguments=way.arguments)


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


def _try_way(context: Context, plan: _Plan, trial: TrialWay, node: str, seconds: int) -> _Start:
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
        return _Start(trial, TrialVerdict(False, str(error), started=False))  # of this way alone: another one may be tried
    as_read = plan.way.means not in OPEN and not trial.bound
    as_read = as_read and (trial.variable, trial.argument) == (plan.way.variable, plan.way.argument)
    way = plan.way if as_read else trial.way("a trial")
    led = resume_plan(way, plan.inventory, plan.checkpoint)
    if as_read and any(doubt in led.refusal for doubt in (WHOLE_UNKNOWN, TELLS_NO_STEP)):
        led = ResumePlan()  # in the sandbox it harms nothing, and shows what the script makes of that file
    if led.refusal:
        return _Start(trial, TrialVerdict(False, led.refusal, started=False))
    if led.tracker is not None and is_link(led.tracker, plan.job.account):
        return _Start(trial, TrialVerdict(False, f"{led.tracker} is a link, which a trial does not set", started=False))
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
    verdict = judge_trial(answer, plan.checkpoint, plan.inventory, fewer=has_fewer_devices(plan.job, plan.spec))
    shows_more = bool(trial.variable or trial.bound)
    if shows_more and (harmed := changed_of_saves(answer, plan.checkpoint, plan.inventory, slots=not trial.variable)):
        verdict = replace(verdict, proven=False, refuted=True, note=f"{verdict.note}, and it changed {harmed}")
    if is_changed(plan.marks, str(plan.checkpoint.path), plan.job.account):
        verdict = replace(verdict, proven=False, refuted=False, death=None, note=f"{plan.checkpoint.path} changed meanwhile")
    lost = removed_besides(answer, Path(plan.checkpoint.path).parent) if verdict.proven and (trial.variable or trial.bound) else ""
    verdict = TrialVerdict(False, f"{verdict.note}, but it removed {lost}") if lost else verdict
    verdict = replace(verdict, output="\n".join(answer.texts[:1]))
    return _Start(trial, verdict, start_digest(spec), led.set_aside)


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
