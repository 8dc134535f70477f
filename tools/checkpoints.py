"""Look at a job's checkpoints: list them, judge one, choose the one to restart from. Nothing is loaded, moved or deleted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assistant.errors import ToolError, Unavailable, UnreadableFile
from assistant.logs.spikes import find_spike, last_run
from assistant.records import Checkpoint, Job, MetricPoint, Risk
from assistant.recover.advised_way import AdvisedWay, advised_way
from assistant.recover.checkpoints.inventory import (
    Choice,
    Inventory,
    before_step,
    examined,
    inventory,
    is_before,
    last,
    last_healthy,
)
from assistant.recover.checkpoints.layout import counts_steps
from assistant.recover.checkpoints.place import Place
from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.checkpoints.search import CheckpointSearch, SaveState, folder_moves, search_checkpoints
from assistant.recover.checkpoints.secured import folder_of, is_secured
from assistant.recover.claimed_folders import claimant_of
from assistant.recover.directives import gpu_hours, never_began, never_began_words, task_line, together_words
from assistant.recover.job_program import programs_now
from assistant.recover.joblog import counted_points, log_lines, log_points
from assistant.recover.loaded import loaded_checkpoint
from assistant.recover.resume.means import ResumeWay
from assistant.recover.resume.plan import REMOVED_FIRST, resume_plan
from assistant.recover.resume.script import resume_way
from assistant.recover.resume.variable import OPEN
from assistant.recover.saved_progress import logged_saves, points_by_epoch
from assistant.recover.source.reruns import WriteDeed, rerun_words, writes_of_job
from assistant.recover.start_costs import (
    ONE_PIECE_LOST,
    cost_of_beginning,
    loss_words,
    plain_start_words,
    results_lost,
    start_losses,
)
from assistant.recover.trial.trial import trials_of
from assistant.tooling import Context, tool
from assistant.tools.storage import node_saves, saves_in_words
from assistant.tools.trial_results import trial_results, way_after_trials, with_trial_note, with_trial_results
from assistant.untrusted import reading_as

WHICH = ("last", "last_healthy", "before_step")
FEWEST_LOST = 5
"""Logged steps without a number that show lost weights; a loss scaler skips one or two."""
LOST = "the loss of job {job} is no number from step {step} on: what it saved since must not be loaded"
NOTHING_LOST = "A restart loses only what it was at."
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
    job_record = context.scheduler.job(job)
    doubt = ""
    if folder:
        place = Place(Path(folder), "named")
        with reading_as(job_record.account):
            saves = inventory(place.folder, now=context.clock.now(), live=not job_record.state.ended)
        way = None
    else:
        search = search_of(context, job_record)
        way = resume_of(context, job_record, search)
        if search.unsorted is not None:
            place, saves = search.unsorted
            doubt = f"{search.note}; {search.settle}"
        elif search.inventory is None or search.place is None:
            raise ToolError(f"{search.note}; {search.settle or 'there is nothing to list'}; looked at: {_places_searched(search)}")
        else:
            place, saves = search.place, search.inventory
        lost = lost_from(job_record, lambda: saves)
        saves = with_trial_results(context, job_record, refused_from_log(job_record, saves))
        doubt = "; ".join(part for part in (doubt, LOST.format(job=job, step=lost) if lost is not None else "") if part)
    return {
        "folder": str(place.folder),
        "found_by": place.how,
        "checkpoints": [checkpoint_values(checkpoint) for checkpoint in saves.checkpoints],
        "resumes": way.sentence if way is not None else "",
        "notes": list(saves.notes),
        "foreign": [str(checkpoint.path) for checkpoint in saves.foreign],
        "doubt": doubt,
        "save_ends": {str(path): words for path, words in saves.save_ends.items()},
    }


@tool(risk=Risk.READ)
def verify_checkpoint(context: Context, path: str) -> dict[str, Any]:
    """Judge one checkpoint, with its contents read and checksums compared.

    Args:
        path: The checkpoint: an `iter_0000500` folder, a `.ckpt` file.
    """
    target = Path(path)
    saves = inventory(target.parent, now=context.clock.now())
    checkpoint = next((c for c in saves.checkpoints if c.path == target), None)
    if checkpoint is None:
        saves = inventory(target, now=context.clock.now())
        checkpoint = next((c for c in saves.checkpoints if c.path == target), None)
    if checkpoint is None:
        raise ToolError(f"{path} is no checkpoint of a known format; list the folder above it with list_checkpoints")
    return {**checkpoint_values(examined(saves, checkpoint, now=context.clock.now())), "notes": list(saves.notes)}


@tool(risk=Risk.READ)
def choose_checkpoint(
    context: Context, job: str, which: str = "last_healthy", step: int = 0, margin: int = 0, try_first: bool = False
) -> dict[str, Any]:
    """Choose the checkpoint to restart a job from, and say which newer ones were refused and why.

    `restart_from` is its path, `none` when the job is proven to have saved none and may begin at the start, and empty when none may
    be used, when where it saved is not known, or when the script would not load the chosen one; `note` says which, and what would
    settle it. One that is `undecided` is neither whole nor refused. `fallback` is its path when newer ones were passed over.
    `set_aside` and `tracker` name what has to be done first so that the script loads it, `resumes` says how it goes on. `decided`
    is `note` where no trial start comes first. `present` has the time of each checkpoint that is there now.

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
    job_record = context.scheduler.job(job)
    if never_began(job_record):
        words = never_began_words(job_record)
        return {**no_choice(Choice(None, ()), words, fresh=True, notes=()), "resumes": "", "state": str(SaveState.NEVER_SAVED)}
    search = search_of(context, job_record)
    way = resume_of(context, job_record, search)
    saves, excluded = search.inventory, advice_of(context).excluded
    if saves is None:
        elsewhere = node_saves(context, job_record, search.programs, pieces=bool(search.pieces))
        harm = _rerun_harm(job_record, search) or _removal_harm(job_record, search)
        fresh = search.state is SaveState.NEVER_SAVED and not way.repeats and not elsewhere and not harm
        points = log_points(job_record) if fresh else []
        hours = gpu_hours(job_record, context.clock.now())
        cost = cost_of_beginning(job_record, _reached(points), hours, search.programs) if fresh else ""
        of_pieces = ONE_PIECE_LOST
        cost = NOTHING_LOST if search.stateless else of_pieces if search.pieces else cost
        words = f"{search.note}. {cost}" if fresh else f"{search.note}; {harm or way.repeats or search.settle}"
        words = saves_in_words(elsewhere, job_record) or words
        words = f"{words}; {way.usage}" if way.usage and not fresh else words
        warning = start_warning(job_record, search) if not fresh else ""
        words += f". {warning}" if warning else ""
        together = together_words(job_record, None, None, excluded) if not fresh else ""
        words += f"; {together}" if together else ""
        line = task_line([job_record], excluded) if not (fresh or warning or harm or way.repeats) else ""
        words += f". To start it again as it was: {line}" if line else ""
        return {**no_choice(Choice(None, ()), words, fresh=fresh, notes=()), "resumes": way.sentence, "state": str(search.state)}
    points = log_points(job_record)
    saves = with_trial_results(context, job_record, refused_from_log(job_record, saves))
    now, live = context.clock.now(), not job_record.state.ended
    with reading_as(job_record.account):
        if which == "last":
            choice = Choice(last(saves), ())
        elif which == "last_healthy":
            choice = last_healthy(saves, now=now, live=live)
        else:
            choice = checkpoint_before(context, job_record, saves, step, margin)
    torn = tuple(save for save in saves.checkpoints if save.path in saves.torn and save not in choice.refused)
    choice = replace(choice, refused=(*torn, *choice.refused))
    if choice.checkpoint is None:
        words = f"none of {len(saves.checkpoints)} checkpoints in {saves.folder} " + (
            f"is healthy and {margin} steps before step {step}" if which == "before_step" else unusable_words(choice)
        )
        return no_choice(choice, words, fresh=False, notes=saves.notes)
    chosen_values = checkpoint_values(choice.checkpoint)
    refused = [checkpoint_values(checkpoint) for checkpoint in choice.refused]
    plan = resume_plan(way, saves, choice.checkpoint, moves=folder_moves(job_record, search))
    harm = _rerun_harm(job_record, search)
    plan = replace(plan, refusal=plan.refusal or harm)
    untried = (
        try_first
        and not plan.refusal
        and way.home_made
        and way.means not in OPEN
        and _may_be_tried(context, job_record, way)
        and not any(True for _ in trial_results(context, job_record))
    )
    plan = replace(plan, refusal=UNTRIED) if untried else plan
    stage = search.stages.sentence if search.stages is not None else ""
    doubts = [note for note in saves.notes if note.startswith(f"{choice.checkpoint.path.name} ")]
    warning = start_warning(job_record, search) if plan.refusal else ""
    reached = _reached(last_run(points))
    tells_cost = plan.refusal and not untried and not plan.refusal.startswith(REMOVED_FIRST)
    cost = plain_start_words(way, search.programs, saves, choice.checkpoint, reached) if tells_cost else ""
    together = together_words(job_record, choice.checkpoint, _reached(points), excluded) if plan.refusal else ""
    chosen_words = choice_note(choice, with_path=bool(plan.refusal))
    sentences = (chosen_words, *doubts, stage, plan.refusal or way.sentence, cost, warning, together)
    note = with_trial_note(context, job_record, "; ".join(filter(None, sentences)))
    is_tried_next = plan.refusal and _may_be_tried(context, job_record, way)
    return {
        **chosen_values,
        "restart_from": "" if plan.refusal else chosen_values["path"],
        "fallback": chosen_values["path"] if refused and not plan.refusal else "",
        "refused": refused,
        "notes": list(saves.notes),
        "note": note,
        "found_by": search.place.how if search.place is not None else "",
        "state": str(search.state),
        "resumes": way.sentence,
        "set_aside": [str(path) for path in plan.set_aside] if not untried else [],
        "tracker": str(plan.tracker or "") if not untried else "",
        "tracker_text": plan.tracker_text if not untried else "",
        "trial": "yes" if is_tried_next else "",
        "decided": "" if is_tried_next else note,
        "present": {save.path.name: save.saved_at.isoformat() for save in saves.checkpoints[-MOST_PRESENT:]},
    }


def advice_of(context: Context) -> AdvisedWay:
    """Return what the diagnosis of the incident of a call has decided; nothing where the call is of none."""
    return advised_way(context.history.diagnosis(context.incident) if context.incident is not None else None)


def checkpoint_before(context: Context, job: Job, inventory: Inventory, step: int, margin: int) -> Choice:
    """Return the newest healthy checkpoint of a job that was saved at least so many steps before a step."""
    epoch, save_steps = _epoch_of(log_points(job), step - margin), logged_saves(job, inventory)
    now, live = context.clock.now(), not job.state.ended
    return before_step(inventory, step, now=now, margin=margin, live=live, epoch=epoch, save_steps=save_steps)


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


def _removal_harm(job: Job, search: CheckpointSearch) -> str:
    """Return that a start from the beginning removes what the last attempt has written; empty where it does not."""
    try:
        return results_lost(job, start_losses(job, programs_now(job, search.programs)))
    except (ToolError, Unavailable, UnreadableFile, OSError):
        return ""


def start_warning(job: Job, search: CheckpointSearch) -> str:
    """Return what a start of a job's script would destroy of what lies there; empty where nothing is known of it."""
    try:
        return loss_words(start_losses(job, programs_now(job, search.programs)))
    except (ToolError, Unavailable, UnreadableFile, OSError):
        return ""


def lost_from(job: Job, saves: Callable[[], Inventory | None] = lambda: None) -> int | None:
    """Return the step from which on a job's own log shows no loss that is a number, to its end; None where it does not.

    Args:
        job: Its last attempt is meant.
        saves: Tells what it saved, where that is known: asked for the steps of a log that gives epochs alone.
    """
    points = log_points(job)
    saved = saves() if not points and counted_points(job) else None
    points = points_by_epoch(job, saved) if saved is not None else points
    spike = find_spike(points)
    if spike is None or not math.isnan(spike.height) or spike.counted:
        return None
    step, line = (spike.rise.lost_step, spike.rise.lost_line) if spike.rise is not None else (spike.step, spike.line)
    return step if sum(point.line >= line for point in points) >= FEWEST_LOST else None


def _refused_from(
    inventory: Inventory, step: int | None, points: Sequence[MetricPoint], save_steps: Mapping[str, int]
) -> Inventory:
    """Return an inventory in which nothing that was saved from a step on may be loaded: its weights are lost as well."""
    if step is None:
        return inventory
    epoch = _epoch_of(points, step)
    reason = f"after the loss was no number any more, from step {step} on"

    def judged(checkpoint: Checkpoint) -> Checkpoint:
        if is_before(checkpoint, step, epoch, save_steps):
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
    return way_after_trials(context, job, read_way(job, search))


def read_way(job: Job, search: CheckpointSearch) -> ResumeWay:
    """Return how a job's script goes on after a restart, by reading it alone."""
    loaded = loaded_checkpoint(log_lines(job))
    return resume_way(job, programs_now(job, search.programs), loaded, search.stages, saved=search.inventory)


def refused_from_log(job: Job, inventory: Inventory) -> Inventory:
    """Return what a folder holds, in which nothing that was saved behind lost weights may be loaded."""
    return _refused_from(inventory, lost_from(job, lambda: inventory), log_points(job), logged_saves(job, inventory))


def _may_be_tried(context: Context, job: Job, way: ResumeWay) -> bool:
    """Tell whether a trial start on a node could settle what reading leaves open, or prove what it says."""
    same = job.spec is None or not job.spec.doubt  # of a heterogeneous job one node has room for one component only
    return same and not way.tried and context.transport.name in TRIAL_TRANSPORTS and bool(trials_of(way))


def _places_searched(search: CheckpointSearch) -> str:
    return "; ".join(search.looked_at) or "nothing: no folder is named anywhere"


MOST_TORN = 3
"""Newest checkpoints that are not whole and are named to people."""


def choice_note(choice: Choice, *, with_path: bool = False) -> str:
    """Return which checkpoint was chosen, what is not known of it, and which were refused and why."""
    words = f"checkpoint of step {choice.checkpoint.step}" if choice.checkpoint is not None else "no checkpoint"
    words += f" ({choice.checkpoint.path})" if choice.checkpoint is not None and with_path else ""
    if choice.checkpoint is not None and choice.checkpoint.unread:
        words += f", which was not judged: {choice.checkpoint.unread}; for it speaks that {', '.join(choice.checkpoint.grounds)}"
    if choice.checkpoint is not None and is_secured(choice.checkpoint.path) and not with_path:
        reason = f"is gone from {folder_of(choice.checkpoint.path)} and was secured"
        words += f", which {reason}: {choice.checkpoint.path}"
    refused = "; ".join(
        f"{checkpoint.path.name}{'' if checkpoint.undecided else ' refused:'} {checkpoint.problems[0]}"
        for checkpoint in choice.refused
    )
    return f"{words}; {refused}" if refused else words


def unusable_words(choice: Choice) -> str:
    """Return why nothing was chosen: that all are refused, that none can be judged, or that some are each."""
    undecided = sum(checkpoint.undecided for checkpoint in choice.refused)
    if not undecided:
        return "may be loaded"
    person = "; a person who knows the program says which of them is whole"
    if undecided == len(choice.refused):
        return f"can be judged{person}"
    return f"is known to be whole: {undecided} cannot be judged, {len(choice.refused) - undecided} are refused{person}"


def no_choice(choice: Choice, why: str, *, fresh: bool, notes: tuple[str, ...]) -> dict[str, Any]:
    """Return the answer of a choice in which no checkpoint was chosen."""
    refused = [checkpoint_values(checkpoint) for checkpoint in choice.refused]
    note = f"{why}; {choice_note(choice)}" if refused else why
    begin = "none" if fresh else ""
    empty: dict[str, Any] = {"path": "", "step": 0, "fallback": "", "set_aside": [], "tracker": "", "tracker_text": ""}
    return {**empty, "restart_from": begin, "refused": refused, "notes": list(notes), "note": note, "decided": note}


def checkpoint_values(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a checkpoint as JSON values."""
    return {
        "path": str(checkpoint.path),
        "step": checkpoint.step,
        "format": checkpoint.format,
        "size_bytes": checkpoint.size_bytes,
        "saved_at": checkpoint.saved_at.isoformat(),
        "healthy": checkpoint.healthy,
        "problems": list(checkpoint.problems),
        "unread": checkpoint.unread,
        "grounds": list(checkpoint.grounds),
        "undecided": checkpoint.undecided,
    }


def problem_words(checkpoints: Sequence[Checkpoint]) -> str:
    """Return the names of the newest of some checkpoints, each with the first of its problems."""
    return "; ".join(
        f"{checkpoint.path.name}: {checkpoint.problems[0]}" for checkpoint in checkpoints[-MOST_TORN:] if checkpoint.problems
    )
