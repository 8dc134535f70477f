"""Look at a job's checkpoints: list them, judge one, choose the one to restart from. Nothing is loaded, moved or deleted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from assistant.errors import ToolError, Unavailable, UnreadableFile
from assistant.logs.spikes import find_spike, last_run
from assistant.records import Checkpoint, Diagnosis, Job, MetricPoint, Risk
from assistant.recover.checkpoints.inventory import (
    Choice,
    Inventory,
    before_step,
    examined,
    inventory,
    is_before,
    last,
    last_healthy,
    without_lost_numbers,
)
from assistant.recover.checkpoints.layout import counts_steps
from assistant.recover.checkpoints.place import Place
from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.checkpoints.search import CheckpointSearch, SaveState, folder_moves, search_checkpoints
from assistant.recover.claimed_folders import claimant_of
from assistant.recover.fault_times import fault_time, suspect_words
from assistant.recover.gpus import gpu_hours
from assistant.recover.job_program import programs_now, programs_of
from assistant.recover.joblog import log_lines, log_points
from assistant.recover.launches import never_began, never_began_words
from assistant.recover.loaded import loaded_checkpoint
from assistant.recover.never_saved import ONE_PIECE_LOST, cost_of_beginning
from assistant.recover.refused_values import refused_words
from assistant.recover.repeated_writes import WriteDeed, rerun_words, writes_of_job
from assistant.recover.resume import resume_way
from assistant.recover.resume_means import ResumeMeans, ResumeWay, resume_option
from assistant.recover.resume_plan import ResumePlan, resume_plan
from assistant.recover.resume_variable import OPEN
from assistant.recover.runs import writer_beside
from assistant.recover.start_lines import task_line, together_words
from assistant.recover.start_losses import loss_words, start_losses
from assistant.recover.training_end import training_goal
from assistant.recover.trial.trial import proven_trial, spec_digest, trials_of
from assistant.tooling import Context, tool
from assistant.tools._checkpoint_words import MOST_TORN, checkpoint_values, choice_note, no_choice, problem_words, unusable_words
from assistant.tools._node_saves import node_saves, saves_in_words
from assistant.untrusted import READ_S, reading_as, within

WHICH = ("last", "last_healthy", "before_step")
FEWEST_LOST = 5
"""Logged steps without a number that show lost weights; a loss scaler skips one or two."""
LOST = "the loss of job {job} is no number from step {step} on: what it saved since must not be loaded"
NOTHING_LOST = "A restart loses only what it was at."
MOST_READ_AHEAD = 2_000
"""Lines of a log, from its beginning, that may announce how long a training is to be."""
TRIAL_TRANSPORTS = ("ssh",)
"""Transports that reach nodes on which a script may be started."""
UNTRIED = "nothing but the source of its program says how it goes on, so it is tried in a sandbox first"
MOST_PRESENT = 200
"""Newest checkpoints that a choice writes down, so that it can be told later which were written over."""


@tool(risk=Risk.READ)
def list_checkpoints(context: Context, job: str, folder: str = "") -> dict[str, Any]:
    """List a job's checkpoints, oldest first, each with what speaks against loading it; contents are not read.

    `foreign` has the paths of those in its folder that are another run's, `save_ends` what the job shows of saves of a form that
    nobody can judge. Where several runs save into one folder and nothing tells
    whose a checkpoint is, all are listed, and `doubt` says so; also from which step on the job's loss is no number.

    Args:
        job: Scheduler job id.
        folder: Where to look; found from the settings, the script or the log when empty.
    """
    shown = context.scheduler.job(job)
    doubt = ""
    if folder:
        place = Place(Path(folder), "named")
        with reading_as(shown.account):
            found = inventory(place.folder, now=context.clock.now(), live=not shown.state.ended)
        way = None
    else:
        search = search_of(context, shown)
        way = resume_of(context, shown, search)
        if search.unsorted is not None:
            place, found = search.unsorted
            doubt = f"{search.note}; {search.settle}"
        elif search.inventory is None or search.place is None:
            raise ToolError(f"{search.note}; {search.settle or 'there is nothing to list'}; looked at: {_looked(search)}")
        else:
            place, found = search.place, search.inventory
        lost = lost_from(shown)
        found = _refused_from(found, lost, log_points(shown))
        doubt = "; ".join(one for one in (doubt, LOST.format(job=job, step=lost) if lost is not None else "") if one)
    return {
        "folder": str(place.folder),
        "found_by": place.how,
        "checkpoints": [checkpoint_values(checkpoint) for checkpoint in found.checkpoints],
        "resumes": way.sentence if way is not None else "",
        "notes": list(found.notes),
        "foreign": [str(checkpoint.path) for checkpoint in found.foreign],
        "doubt": doubt,
        "save_ends": {str(path): words for path, words in found.save_ends.items()},
    }


@tool(risk=Risk.READ)
def verify_checkpoint(context: Context, path: str) -> dict[str, Any]:
    """Judge one checkpoint, with its contents read and checksums compared.

    Args:
        path: The checkpoint: an `iter_0000500` folder, a `.ckpt` file.
    """
    wanted = Path(path)
    found = inventory(wanted.parent, now=context.clock.now())
    checkpoint = next((c for c in found.checkpoints if c.path == wanted), None)
    if checkpoint is None:
        found = inventory(wanted, now=context.clock.now())
        checkpoint = next((c for c in found.checkpoints if c.path == wanted), None)
    if checkpoint is None:
        raise ToolError(f"{path} is no checkpoint of a known format; list the folder above it with list_checkpoints")
    return {**checkpoint_values(examined(found, checkpoint, now=context.clock.now())), "notes": list(found.notes)}


@tool(risk=Risk.READ)
def choose_checkpoint(
    context: Context, job: str, which: str = "last_healthy", step: int = 0, margin: int = 0, try_first: bool = False
) -> dict[str, Any]:
    """Choose the checkpoint to restart a job from, and say which newer ones were refused and why.

    `restart_from` is its path, `none` when the job is proven to have saved none and may begin at the start, and empty when none may
    be used, when where it saved is not known, or when the script would not load the chosen one; `note` says which, and what would
    settle it. One that is `undecided` is neither whole nor refused. `fallback` is its path when newer ones were passed over.
    `set_aside` and `tracker` name what has to be done first so that the script loads it, `resumes` says how it goes on. `present`
    has the time of each checkpoint that is there now.

    Args:
        job: Scheduler job id.
        which: `last_healthy`, `before_step` (healthy too), or `last` (the newest, healthy or not).
        step: For `before_step`: the step to stay before.
        margin: For `before_step`: at least so many steps before it.
        try_first: Whether `restart_from` is empty, and `trial` is `yes`, while nothing but the source of a home-made program tells
            how it goes on and a trial start can be made and was not yet.
    """
    if which not in WHICH:
        raise ToolError(f"which must be one of {', '.join(WHICH)}, not {which!r}")
    if which == "before_step" and step < 1:
        raise ToolError("which=before_step needs the step to stay before")
    shown = context.scheduler.job(job)
    if never_began(shown):
        words = never_began_words(shown)
        return {**no_choice(Choice(None, ()), words, fresh=True, notes=()), "resumes": "", "state": str(SaveState.NEVER_SAVED)}
    search = search_of(context, shown)
    way = resume_of(context, shown, search)
    found = search.inventory
    if found is None:
        elsewhere = node_saves(context, shown, search.programs)
        harm = _rerun_harm(shown, search)
        fresh = search.state is SaveState.NEVER_SAVED and not way.repeats and not elsewhere and not harm
        points = log_points(shown) if fresh else []
        cost = cost_of_beginning(shown, _reached(points), gpu_hours(shown, context.clock.now()), search.programs) if fresh else ""
        cost = NOTHING_LOST if search.stateless else ONE_PIECE_LOST if search.pieces else cost
        words = f"{search.note}. {cost}" if fresh else f"{search.note}; {harm or way.repeats or search.settle}"
        words = saves_in_words(elsewhere, shown) or words
        words = f"{words}; {way.usage}" if way.usage and not fresh else words
        warning = _start_warning(shown, search) if not fresh else ""
        words += f". {warning}" if warning else ""
        together = together_words(shown, None, None) if not fresh else ""
        words += f"; {together}" if together else ""
        line = task_line([shown]) if not (fresh or warning or harm or way.repeats) else ""
        words += f". To start it again as it was: {line}" if line else ""
        return {**no_choice(Choice(None, ()), words, fresh=fresh, notes=()), "resumes": way.sentence, "state": str(search.state)}
    points = log_points(shown)
    found = _refused_from(found, lost_from(shown), points)
    now, live = context.clock.now(), not shown.state.ended
    with reading_as(shown.account):
        if which == "last":
            choice = Choice(last(found), ())
        elif which == "last_healthy":
            choice = last_healthy(found, now=now, live=live)
        else:
            choice = checkpoint_before(context, shown, found, step, margin)
    if choice.checkpoint is None:
        words = f"none of {len(found.checkpoints)} checkpoints in {found.folder} " + (
            f"is healthy and {margin} steps before step {step}" if which == "before_step" else unusable_words(choice)
        )
        return no_choice(choice, words, fresh=False, notes=found.notes)
    chosen = checkpoint_values(choice.checkpoint)
    refused = [checkpoint_values(checkpoint) for checkpoint in choice.refused]
    plan = resume_plan(way, found, choice.checkpoint, moves=folder_moves(shown, search))
    harm = _rerun_harm(shown, search)
    plan = replace(plan, refusal=plan.refusal or harm)
    untried = (
        try_first
        and not plan.refusal
        and way.means not in OPEN
        and _may_be_tried(context, shown, way)
        and not any(True for _ in _trials(context, shown))
    )
    plan = replace(plan, refusal=UNTRIED) if untried else plan
    stage = search.stages.sentence if search.stages is not None else ""
    doubts = [one for one in found.notes if one.startswith(f"{choice.checkpoint.path.name} ")]
    warning = _start_warning(shown, search) if plan.refusal else ""
    parts = [choice_note(choice, with_path=bool(plan.refusal)), *doubts, stage, plan.refusal or way.sentence, warning]
    parts += [together_words(shown, choice.checkpoint, _reached(points))] if plan.refusal else []
    note = "; ".join(filter(None, parts))
    return {
        **chosen,
        "restart_from": "" if plan.refusal else chosen["path"],
        "fallback": chosen["path"] if refused and not plan.refusal else "",
        "refused": refused,
        "notes": list(found.notes),
        "note": note,
        "found_by": search.place.how if search.place is not None else "",
        "state": str(search.state),
        "resumes": way.sentence,
        "set_aside": [str(path) for path in plan.set_aside] if not untried else [],
        "tracker": str(plan.tracker or "") if not untried else "",
        "tracker_text": plan.tracker_text if not untried else "",
        "trial": "yes" if plan.refusal and _may_be_tried(context, shown, way) else "",
        "present": {one.path.name: one.saved_at.isoformat() for one in found.checkpoints[-MOST_PRESENT:]},
    }


def checkpoint_before(context: Context, job: Job, inventory: Inventory, step: int, margin: int) -> Choice:
    """Return the newest healthy checkpoint of a job that was saved at least so many steps before a step."""
    epoch = _epoch_of(log_points(job), step - margin)
    return before_step(inventory, step, now=context.clock.now(), margin=margin, live=not job.state.ended, epoch=epoch)


def _rerun_harm(job: Job, search: CheckpointSearch) -> str:
    """Return why a job's script may not run again as it is: what it would append to a second time; empty where it may.

    Of a job that goes on from a checkpoint the programs count that do not train: the training's own lines are its logs.
    """
    programs = programs_now(job, search.programs)
    if search.inventory is not None and search.place is not None:
        folder = search.place.folder
        programs = [program for program in programs if all(save.folder != folder for save in save_folders([program]))]
        programs = programs if len(programs) < len(search.programs) else []  # which of them trains is not known
    writes = writes_of_job(job, programs, seen_open=search.inventory is None)
    words = rerun_words([write for write in writes if write.deed is WriteDeed.APPENDS], job.work_dir)
    return f"{words} Its owner submitted it with --no-requeue." if words and job.never_requeued else words


def _start_warning(job: Job, search: CheckpointSearch) -> str:
    """Return what a start of a job's script would destroy of what lies there; empty where nothing is known of it."""
    try:
        return loss_words(start_losses(job, programs_now(job, search.programs)))
    except (ToolError, Unavailable, UnreadableFile, OSError):
        return ""


def lost_from(job: Job) -> int | None:
    """Return the step from which on a job's own log shows no loss that is a number, to its end; None where it does not."""
    points = log_points(job)
    spike = find_spike(points)
    if spike is None or not math.isnan(spike.height) or spike.counted:
        return None
    return spike.step if sum(point.line >= spike.line for point in points) >= FEWEST_LOST else None


def _refused_from(inventory: Inventory, step: int | None, points: Sequence[MetricPoint]) -> Inventory:
    """Return an inventory in which nothing that was saved from a step on may be loaded: its weights are lost as well."""
    if step is None:
        return inventory
    epoch = _epoch_of(points, step)
    reason = f"after the loss was no number any more, from step {step} on"

    def judged(checkpoint: Checkpoint) -> Checkpoint:
        if is_before(checkpoint, step, epoch):
            return checkpoint
        may_be = "" if counts_steps(checkpoint.format, checkpoint.path.name) else "counts no steps, and may have been "
        problems = (*(() if checkpoint.undecided else checkpoint.problems), f"{may_be}saved {reason}")
        return replace(checkpoint, healthy=False, undecided=False, problems=problems)

    return replace(inventory, checkpoints=tuple(map(judged, inventory.checkpoints)))


def _reached(points: Sequence[MetricPoint]) -> int | None:
    return max((point.step for point in points), default=None)


def _epoch_of(points: Sequence[MetricPoint], step: int) -> int | None:
    """Return the epoch in which a job logged the first step from a given one on, in its last run; None where no line tells it."""
    return next((point.epoch for point in last_run(points) if point.step >= step), None)


def saved_state(context: Context, job: Job) -> str:
    """Say what a job left to go on from, for people: the newest checkpoint that is whole, newer ones that are not, how it goes on.

    Also what its script would do if it were submitted as it is, and who else saves into the folder. Only what lies there is looked
    at, and a sample of the values of the newest ones. Empty where nothing is known of it, or the storage does not answer.
    """
    try:
        search = search_of(context, job)
        if search.inventory is None:
            is_told = search.state is SaveState.NEVER_SAVED or search.unsorted is not None
            elsewhere = saves_in_words(node_saves(context, job, search.programs), job)
            if elsewhere:
                return f"{elsewhere}."
            rerun = rerun_words(writes_of_job(job, programs_now(job, search.programs)), job.work_dir)
            sentences = [f"{search.note}.", *_writer(context, job)] if is_told and not search.stateless else []
            return " ".join(filter(None, [*sentences, rerun, _start_warning(job, search)]))
        judged = _refused_from(search.inventory, lost_from(job), log_points(job))
        judged = _sampled(judged, job)
        way = resume_of(context, job, search)
    except (ToolError, Unavailable, UnreadableFile, OSError):
        return ""
    whole = max(
        (checkpoint for checkpoint in judged.checkpoints if checkpoint.healthy),
        key=lambda checkpoint: checkpoint.step,
        default=None,
    )
    newer = [save for save in judged.checkpoints if not save.healthy and (whole is None or save.step > whole.step)]
    torn = problem_words([checkpoint for checkpoint in newer if not checkpoint.undecided])
    open_ones = problem_words([checkpoint for checkpoint in newer if checkpoint.undecided])
    unusable = "; ".join(filter(None, (f"not to be loaded: {torn}" if torn else "", open_ones)))
    if whole is None:
        none = "Whether a checkpoint of it is whole is not known" if open_ones else "No checkpoint of it is whole"
        return " ".join([f"{none}; {unusable}.", *_writer(context, job)]) if unusable else ""
    kind = (
        "newest checkpoint, which was not judged but for which others of its series speak,"
        if whole.unread
        else "newest whole checkpoint"
    )
    newest = f"The {kind} is {whole.path} (step {whole.step}){f'; {unusable}' if unusable else ''}."
    suspect = suspect_words(judged.checkpoints, fault_time(_diagnosis(context)))
    try:
        plan = resume_plan(way, judged, whole, moves=folder_moves(job, search))
        going_on = [*_as_it_is(search, plan, way), *filter(None, [_start_warning(job, search) if plan.refusal else ""])]
    except (ToolError, Unavailable, UnreadableFile, OSError):
        going_on = []
    together = together_words(job, whole, _reached(log_points(job)))
    by_hand = f"{together[:1].upper()}{together[1:]}." if together else ""
    return " ".join(filter(None, [newest, suspect, *going_on, by_hand, *_writer(context, job)]))


def _sampled(inventory: Inventory, job: Job) -> Inventory:
    """Return an inventory without those of the newest whose weights are no numbers; as it is where that cannot be read in time."""
    try:
        with reading_as(job.account):
            return within(READ_S, partial(without_lost_numbers, inventory), f"checkpoint folder {inventory.folder}")
    except (Unavailable, UnreadableFile, OSError):
        return inventory


def _diagnosis(context: Context) -> Diagnosis | None:
    return context.history.diagnosis(context.incident) if context.incident is not None else None


def refused_state(context: Context, job: Job, error: str) -> str:
    """Say where a job has the number from that was refused: the key or the line, and since when; empty where nothing tells it."""
    try:
        search = search_of(context, job)
        saves = search.inventory.checkpoints if search.inventory is not None else ()
        times = [*(save.saved_at for save in saves[:1]), *(at for at in (job.submitted, job.started) if at is not None)]
        return refused_words(job, search.programs, error, began=min(times, default=None))
    except (ToolError, Unavailable, UnreadableFile, OSError):
        return ""


def time_left(context: Context, job: Job) -> str:
    """Say how many steps a job had left and how long they take at its own rate; empty where its goal or its rate is not known."""
    try:
        programs = programs_of(job)
    except (Unavailable, UnreadableFile, OSError):
        return ""
    options = [(option.name, option.value) for program in programs for option in program.options]
    texts = [line.text for line in log_lines(job)]
    goal, points = training_goal(options, texts[:MOST_READ_AHEAD]), log_points(job)
    if goal is None or len({point.step for point in points}) < FEWEST_LOST or job.started is None:
        return ""
    first, last = points[0], points[-1]
    if last.step >= goal or last.step <= first.step:
        return ""
    timed = first.at is not None and last.at is not None and last.at > first.at
    seconds = (last.at - first.at).total_seconds() if timed and last.at and first.at else 0.0
    seconds = seconds or ((job.ended or context.clock.now()) - job.started).total_seconds()
    each_s = seconds / (last.step - first.step)
    left_min = (goal - last.step) * each_s / 60
    return f"It had made {last.step} of {goal} steps; the rest takes about {left_min:.0f} min more ({each_s:.3g} s a step)."


def _as_it_is(search: CheckpointSearch, plan: ResumePlan, way: ResumeWay) -> list[str]:
    """Return what would become of a job that is submitted as it is, and what has to be done first, as sentences."""
    if plan.refusal:
        option = resume_option(search.programs) if way.means is ResumeMeans.NONE else ""
        by_option = f" Its program knows {option}: with it, and that checkpoint, it goes on." if option else ""
        return [f"Submitted as it is: {plan.refusal}.{by_option}"]
    first = []
    if plan.tracker is not None:
        first.append(f"{plan.tracker} does not name it, and the script goes by that: {plan.tracker_text!r} has to stand there.")
    if plan.set_aside:
        names = ", ".join(path.name for path in plan.set_aside[:MOST_TORN])
        first.append(f"{names} {'has' if len(plan.set_aside) == 1 else 'have'} to be moved away first: the script would load that.")
    sentence = way.sentence
    return [*first, f"{sentence[:1].upper()}{sentence[1:]}."] if sentence else first


def _writer(context: Context, job: Job) -> list[str]:
    """Return that another job saves into the folder of a job, as a sentence; nothing where none is known to."""
    try:
        writer = writer_beside(context.scheduler, context.checkpoint_folders, job, now=context.clock.now())
    except (ToolError, Unavailable, UnreadableFile, OSError):
        return []
    if writer is None:
        return []
    does = "saves" if not writer.state.ended else "saved at the same time"
    return [
        f"Job {writer.id} ({writer.name}) of {writer.user} ({writer.state}) {does} into the same folder: what lies there may be "
        "its own, and whoever starts this one again beside it writes over it."
    ]


def search_of(context: Context, job: Job) -> CheckpointSearch:
    """Return what a job saved, where, and how that was found.

    Raises:
        Unavailable: The storage did not answer.
    """
    folders, now, texts = context.checkpoint_folders, context.clock.now(), (line.text for line in log_lines(job))

    def claimed(folder: Path) -> bool:
        return claimant_of(context.scheduler, folders, job, folder, now=now) is not None

    return search_checkpoints(job, folders, texts, now=now, claimed=claimed)


def known_forms(context: Context, job: Job) -> frozenset[str]:
    """Return how a job is known to name its checkpoints, beside the layouts that are known of any.

    Raises:
        Unavailable: The storage did not answer.
    """
    place = search_of(context, job).place
    return place.forms if place is not None else frozenset()


def resume_of(context: Context, job: Job, search: CheckpointSearch) -> ResumeWay:
    """Return how a job's script goes on after a restart: by what a trial start of this incident has shown, else by reading."""
    way = read_way(job, search)
    trial = next(_trials(context, job, "submission"), None) if trials_of(way) else None
    if trial is None:
        return way
    note = str(trial.get("note", ""))
    if trial.get("proven"):
        is_open = way.means in OPEN
        return proven_trial(trial).way(note) if is_open or trial.get("bound") else replace(way, home_made=False)
    return ResumeWay(ResumeMeans.UNKNOWN, f"{way.by}; {note}", usage=way.usage, tried=True) if trial.get("refuted") else way


def read_way(job: Job, search: CheckpointSearch) -> ResumeWay:
    """Return how a job's script goes on after a restart, by reading it alone."""
    loaded = loaded_checkpoint(log_lines(job))
    return resume_way(job, programs_now(job, search.programs), loaded, search.stages, saved=search.inventory)


def refused_from_log(job: Job, inventory: Inventory) -> Inventory:
    """Return what a folder holds, in which nothing that was saved behind lost weights may be loaded."""
    return _refused_from(inventory, lost_from(job), log_points(job))


def _trials(context: Context, job: Job, key: str = "") -> Iterator[Mapping[str, Any]]:
    """Yield what trial starts of this incident have answered of a job as it is now, the newest first.

    Args:
        context: Of the call.
        job: With its spec.
        key: Of the digest of the submission in the answer; empty to yield also for trials that came to nothing or still wait.
    """
    for call in reversed(context.history.calls(context.incident) if context.incident is not None and job.spec is not None else ()):
        if call.tool != "trial_start" or call.arguments.get("job") != job.id:
            continue
        outcome = context.history.outcome(call.id)
        value = outcome.value if outcome is not None and outcome.ok and isinstance(outcome.value, Mapping) else {}
        if not key or (job.spec is not None and value.get(key) == spec_digest(job.spec)):
            yield value


def _may_be_tried(context: Context, job: Job, way: ResumeWay) -> bool:
    """Tell whether a trial start on a node could settle what reading leaves open, or prove what it says."""
    same = job.spec is None or not job.spec.doubt  # of a heterogeneous job one node has room for one component only
    return same and not way.tried and context.transport.name in TRIAL_TRANSPORTS and bool(trials_of(way))


def _looked(search: CheckpointSearch) -> str:
    return "; ".join(search.looked_at) or "nothing: no folder is named anywhere"
