"""Tell people what a job left to go on from and who has to act, and whether a run that its time limit ended goes on by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from assistant.errors import NightshiftError, ToolError, Unavailable, UnreadableFile
from assistant.records import Checkpoint, Diagnosis, Job, Risk
from assistant.recover.advised_way import without_damaged
from assistant.recover.checkpoints.aside import lies_at
from assistant.recover.checkpoints.inventory import Inventory, without_lost_numbers
from assistant.recover.checkpoints.layout import UNKNOWN_STEP, counts_steps
from assistant.recover.checkpoints.search import CheckpointSearch, SaveState, folder_moves
from assistant.recover.comparison import training_goal
from assistant.recover.directives import directives_of, together_words
from assistant.recover.failure_origins import refused_words
from assistant.recover.job_program import JobProgram, programs_now, programs_of
from assistant.recover.joblog import log_lines, log_points, logs_of
from assistant.recover.kept_work import kept_words
from assistant.recover.resume.means import ResumeMeans, ResumeWay, resume_option
from assistant.recover.resume.plan import ResumePlan, resume_plan
from assistant.recover.resume.stages import only_reads
from assistant.recover.runs import writer_beside
from assistant.recover.saved_progress import FEWEST_PIECES, new_pieces
from assistant.recover.situation import fault_time, suspect_words
from assistant.recover.source.reruns import rerun_words, skips_what_is_there, writes_of_job
from assistant.recover.start_costs import DESTROYS
from assistant.tooling import Context, tool
from assistant.tools.checkpoints import (
    FEWEST_LOST,
    MOST_TORN,
    advice_of,
    choose_checkpoint,
    problem_words,
    refused_from_log,
    resume_of,
    search_of,
    start_warning,
)
from assistant.tools.storage import node_saves, saves_in_words
from assistant.tools.trial_results import with_trial_results
from assistant.untrusted import READ_S, reading_as, within

CHECKPOINT_PATH = re.compile(r"(?<=checkpoint of step )\d+ \((/[^\s()]+)\)")
"""How a choice names the checkpoint that it is, or was, of."""
MOST_PATHS = 8
NOTHING_REFUSED = frozenset({"out_of_memory_error", "time_limit", "killed", "cancelled", "preempted", "hang"})
"""Reasons whose lines refuse no value: their numbers are sizes, times and ids."""
NONE_FROM_BEFORE = "No checkpoint of it is known to be from before the damage"
ONLY_READS = "Its program only reads checkpoints and saves none, so a start writes over none."
MOST_READ_AHEAD = 2_000
"""Lines of a log, from its beginning, that may announce how long a training is to be."""


@tool(risk=Risk.READ)
def tell_owner(context: Context, job: str, reason: str, advice: str, root_line: str = "", owner: str = "") -> dict[str, Any]:
    """Write the message for the owner of a job: what failed, the line that proves it, what to change. It is kept, not sent.

    The message and `saved` say what the job left to go on from: its newest whole checkpoint, newer ones that are not, what its
    script would do if it were submitted as it is, who else saves there; and of a time limit how long the rest takes.

    Args:
        job: Scheduler job id.
        reason: Reason of the failure.
        advice: What to change, in the imperative.
        root_line: The line that proves the reason, with its place.
        owner: Whom it is for; the job's user when empty.
    """
    failed_job = context.scheduler.job(job)
    to = owner or failed_job.user or "the owner"
    source = refused_state(context, failed_job, f"{root_line} {advice}") if reason not in NOTHING_REFUSED else ""
    advice = f"{advice} {source}" if source else advice
    lines = [f"{to}: job {job} ({failed_job.name}) failed: {reason}.", advice]
    lines += [f"Evidence: {root_line}"] if root_line else []
    rest_words = time_left(context, failed_job) if reason == "time_limit" else ""
    search = _searched(context, failed_job)
    saved = " ".join(part for part in (rest_words, saved_state(context, failed_job, search)) if part)
    lines += [saved] if saved else []
    going_on = _going_on(context, failed_job, search) if saved and search is not None else ""
    first = "move away first what a start would destroy, and then submit it again" if DESTROYS in saved else "submit it again"
    lines.append(f"Nightshift did not restart it; {first} when that is done.")
    return {
        "owner": to,
        "text": "\n".join(lines),
        "saved": saved,
        "note": f"{to} must act: {advice}{f' {going_on}' if going_on else ''}",
    }


def _searched(context: Context, job: Job) -> CheckpointSearch | None:
    """Return what a job saved and where; None where that cannot be told now."""
    try:
        return search_of(context, job)
    except (ToolError, Unavailable, UnreadableFile, OSError):
        return None


def _going_on(context: Context, job: Job, search: CheckpointSearch) -> str:
    """Return what of a job's work a start goes on behind, where it saved no checkpoint and its script takes nothing away first.

    Raises:
        Unavailable: The storage did not answer.
    """
    if search.inventory is not None or start_warning(job, search):
        return ""
    return kept_words(job, search.programs, context.clock.now())


@tool(risk=Risk.READ)
def escalate(context: Context, why: str, advice: str = "", job: str = "", alive: str = "") -> dict[str, Any]:
    """Hand an incident to the operators on duty, with the reason why; nothing else happens.

    Args:
        why: What stands in the way.
        advice: What to look at first.
        job: Scheduler job id of the job that failed: `saved` then says what it left to go on from.
        alive: Scheduler job id of a job that was alive when reason and advice were found: what is no more so of them is told first.
    """
    saved = saved_state(context, context.scheduler.job(job)) if job else ""
    note = f"{why}{' ' if why.endswith('.') else ': '}{advice}" if advice else why
    outdated = outdated_words(context, context.scheduler.job(alive), note) if alive else ""
    return {"incident": context.incident, "saved": saved, "note": f"{outdated}; before that: {note}" if outdated else note}


def outdated_words(context: Context, job: Job, note: str) -> str:
    """Return what a text says of a living job and its checkpoints that is no more so: it has ended, one of them is gone.

    Args:
        context: Of the call.
        job: As the scheduler shows it now.
        note: For people.
    """
    words = [f"job {job.id} has ended meanwhile ({job.state})"] * job.state.ended
    missing_names = []
    for path in [Path(text) for text in dict.fromkeys(CHECKPOINT_PATH.findall(note))][:MOST_PATHS]:
        try:
            is_gone = path.is_absolute() and not lies_at(path, job.account) and lies_at(path.parent, job.account)
        except (NightshiftError, OSError):
            continue  # what nobody can see is not gone
        missing_names += [path.name] * is_gone
    return "; ".join([*words, *([f"no more there: {', '.join(missing_names)}"] if missing_names else [])])


STILL_SHARE, STILL_LEAST = 0.25, timedelta(minutes=10)
"""Of its time, and at the least: for so long a run that came forward may have ended_job nothing at its end."""


@tool(risk=Risk.READ)
def time_limit_outlook(context: Context, job: str, auto: str = "") -> dict[str, Any]:
    """Tell whether a job that its time limit ended is to be submitted again unchanged; `goes_on` is `yes` where it is.

    It is where the owner says so (`act=auto`), and else where its script is proven to go on from its newest whole checkpoint, this
    very attempt saved that checkpoint behind those before it, it was at work until its end, and nothing shows that no step is left.
    A job without checkpoints goes on where it passes over finished pieces of its work and this attempt finished some. `note` says
    which of these is missing.

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
    if choice["restart_from"] == "none":
        return _piece_outlook(context, ended_job, str(choice["note"]))
    by_trial = choice.get("trial") and BY_ITSELF in choice["resumes"]  # a trial start shows whether it does
    if not choice["path"] or not (choice["restart_from"] or by_trial):
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


BY_ITSELF = "resumes by itself"
"""Words of how a script goes on, where reading says that it does: `ResumeWay.sentence`."""


def _stays(job: str, why: str) -> dict[str, Any]:
    return {"goes_on": "", "note": f"job {job} was not submitted again: {why}", "job": job}


def _piece_outlook(context: Context, job: Job, note: str) -> dict[str, Any]:
    """Return the outlook of a job without checkpoints: it goes on where a rerun passes over pieces that this attempt finished."""
    line = skips_what_is_there(search_of(context, job).programs)
    if not line:
        return _stays(job.id, f"it is not known to go on by itself: {note}")
    pieces = new_pieces(job, context.clock.now())
    if pieces is None or pieces.number < FEWEST_PIECES:
        lack = f"no {FEWEST_PIECES} files of one form below {job.work_dir} were written while it ran"
        return _stays(job.id, f"it passes over finished pieces ({line}), but its limit may be too short for one: {lack}")
    if problem := _stood_still(job, pieces.written):
        return _stays(job.id, problem)
    words = f"it wrote {pieces.number} files like {pieces.newest} until its limit, and a rerun passes over what is there ({line})"
    return {"goes_on": "yes", "note": words, "job": job.id}


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


def saved_state(context: Context, job: Job, search: CheckpointSearch | None = None) -> str:
    """Say what a job left to go on from, for people: the newest checkpoint that is whole, newer ones that are not, how it goes on.

    Also what its script would do if it were submitted as it is, and who else saves into the folder. Only what lies there is looked
    at, and a sample of the values of the newest ones. Empty where nothing is known of it, or the storage does not answer.

    Args:
        context: Of the call.
        job: The attempt.
        search: What it saved and where, where that is known already.
    """
    advice = advice_of(context)
    try:
        search = search or search_of(context, job)
        if search.inventory is None:
            is_told = search.state is SaveState.NEVER_SAVED or search.unsorted is not None
            elsewhere = saves_in_words(node_saves(context, job, search.programs), job)
            if elsewhere:
                return f"{elsewhere}."
            rerun = rerun_words(writes_of_job(job, programs_now(job, search.programs)), job.work_dir)
            work = _going_on(context, job, search)
            sentences = [f"{search.note}.", *_writer(context, job)] if is_told and not search.stateless else []
            return " ".join(filter(None, [*sentences, work, rerun, start_warning(job, search)]))
        judged = with_trial_results(context, job, refused_from_log(job, search.inventory))
        judged = without_damaged(_sampled(judged, job), advice)
        way = resume_of(context, job, search)
    except (ToolError, Unavailable, UnreadableFile, OSError):
        return ""
    newest_healthy = max(
        (checkpoint for checkpoint in judged.checkpoints if checkpoint.healthy),
        key=lambda checkpoint: checkpoint.step,
        default=None,
    )
    newer = [
        save for save in judged.checkpoints if not save.healthy and (newest_healthy is None or _is_newer(save, newest_healthy))
    ]
    torn = problem_words([checkpoint for checkpoint in newer if not checkpoint.undecided])
    open_ones = problem_words([checkpoint for checkpoint in newer if checkpoint.undecided])
    unusable = "; ".join(filter(None, (f"not to be loaded: {torn}" if torn else "", open_ones)))
    if newest_healthy is None:
        none = "Whether a checkpoint of it is whole is not known" if open_ones else "No checkpoint of it is whole"
        none = NONE_FROM_BEFORE if advice.damaged_from is not None else none
        return " ".join([f"{none}; {unusable}.", *_writer(context, job)]) if unusable else ""
    kind = (
        "newest checkpoint, which was not judged but for which others of its series speak,"
        if newest_healthy.unread
        else "newest whole checkpoint"
    )
    newest = f"The {kind} is {newest_healthy.path} (step {newest_healthy.step}){f'; {unusable}' if unusable else ''}."
    suspect = suspect_words(judged.checkpoints, fault_time(_diagnosis(context)))
    try:
        plan = resume_plan(way, judged, newest_healthy, moves=folder_moves(job, search))
        if plan.refusal and way.means is ResumeMeans.UNKNOWN and _only_evaluates(programs_now(job, search.programs)):
            going_on = [ONLY_READS]
        else:
            going_on = [*_as_it_is(search, plan, way), *filter(None, [start_warning(job, search) if plan.refusal else ""])]
    except (ToolError, Unavailable, UnreadableFile, OSError):
        going_on = []
    if (writer := _writer(context, job)) or advice.contests(newest_healthy.path):
        going_on = []  # nothing is moved, and nothing started, in a folder that another job writes to
    reached = max((point.step for point in log_points(job)), default=None)
    together = together_words(job, newest_healthy, reached, advice.excluded) if not advice.contests(newest_healthy.path) else ""
    by_hand = f"{together[:1].upper()}{together[1:]}." if together else ""
    return " ".join(filter(None, [newest, suspect, *going_on, by_hand, *writer]))


def _is_newer(save: Checkpoint, rival: Checkpoint) -> bool:
    """Tell whether a checkpoint is of a later step than another, or, where it tells none, was written later."""
    return save.saved_at > rival.saved_at if save.step == UNKNOWN_STEP else save.step > rival.step


_TRAINS = re.compile(r"(?:\w*Trainer|\bfit|\btrain|\bbackward)\s*\((?!\s*(?:False|mode\s*=\s*False)\s*\))|\boptim\b")
"""What a program that trains calls, also one that leaves its saves to a library."""


def _only_evaluates(programs: Sequence[JobProgram]) -> bool:
    """Tell whether all programs of a job are read to save no state and to train nothing."""
    return bool(programs) and all(
        only_reads(program) and not any(_TRAINS.search(source.text) for source in program.sources) for program in programs
    )


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
