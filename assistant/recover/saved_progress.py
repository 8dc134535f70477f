"""How far a job came by the files that it wrote itself, where its log numbers no step.

Hugging Face's Trainer prints losses and epochs and no steps: the checkpoints then tell the step, the lines that the loss goes on.
A job that works through pieces and saves no checkpoint leaves a file a piece.
"""

from __future__ import annotations

import math
import re
import stat
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from assistant.errors import InputError, NightshiftError, ToolError, UnreadableFile
from assistant.logs.metrics import metric_points
from assistant.logs.spikes import is_no_number
from assistant.logs.tail import LogMark
from assistant.ports import Scheduler
from assistant.records import Checkpoint, Job, JobState, MetricPoint
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.layout import counts_steps
from assistant.recover.checkpoints.names import name_form
from assistant.recover.checkpoints.own_folders import PASSED_OVER, WALK_ENTRIES, WALK_FOLDERS
from assistant.recover.checkpoints.place import says_saved
from assistant.recover.checkpoints.search import SaveState, search_checkpoints
from assistant.recover.job_program import JobProgram
from assistant.recover.joblog import counted_lines, counted_points, log_lines, log_points
from assistant.recover.source.continued_work import continued_work
from assistant.recover.source.reruns import is_log, skips_what_is_there
from assistant.recover.verify import Look, Seen, loss_seen
from assistant.untrusted import (
    LOOK_S,
    READ_S,
    finite_number,
    list_folder,
    read_json,
    reading_as,
    status_of,
    whole_number,
    within,
)

__all__ = [
    "FEWEST_PIECES", "EpochPace", "NewPieces", "SavedProgress", "by_saves", "epoch_pace", "logged_epoch", "logged_saves",
    "loss_of_lines", "new_pieces", "own_saves", "pieces_made", "points_by_epoch", "saved_progress", "steps_between",
]  # fmt: skip

FEWEST_SAVES = 3
MOST_CHARACTERS = 4_000
"""Of a line that tells of a save."""


STATE_FILE = "trainer_state.json"
"""Source: transformers, trainer_callback.py (TrainerState): `global_step` and `epoch` of a checkpoint."""
_STATE_BYTES = 16 << 20
_EPOCH = re.compile(r"['\"]epoch['\"]\s{0,4}:\s{0,4}['\"]?(\d{1,6}(?:\.\d{1,12})?)")
"""Of a line that the Trainer prints as a dict."""


class EpochPace(NamedTuple):
    """How many steps an epoch of a run has, by one of its checkpoints that holds both."""

    checkpoint: str
    step: int
    epoch: float

    def first_step(self, epoch: str) -> int:
        """Return the lowest step that a logged epoch may be, which is rounded to the digits that it has."""
        lowest = float(epoch) - 0.5 * 10.0 ** -len(epoch.partition(".")[2])
        return max(1, math.ceil(lowest * self.step / self.epoch))

    def last_step(self, epoch: str) -> int:
        """Return the highest step that a logged epoch may be."""
        highest = float(epoch) + 0.5 * 10.0 ** -len(epoch.partition(".")[2])
        return max(self.first_step(epoch), math.floor(highest * self.step / self.epoch))


def logged_epoch(text: str) -> str | None:
    """Return the epoch that a line of the Trainer's names, as it is written; None where it names none."""
    match = _EPOCH.search(text)
    return match[1] if match is not None else None


def epoch_pace(saves: Inventory) -> EpochPace | None:
    """Return how many steps an epoch has by the newest checkpoint that can be read; None where none tells.

    Call it inside `reading_as(job.account)`.
    """
    for entry in reversed(saves.entries):
        if STATE_FILE not in entry.files:
            continue
        path = entry.file(STATE_FILE)
        try:
            state = within(LOOK_S, partial(read_json, path, _STATE_BYTES), str(path))
            step, epoch = whole_number(state["global_step"]), finite_number(state["epoch"])
        except (OSError, ValueError, KeyError, TypeError, NightshiftError):
            continue
        if step > 0 and epoch > 0:
            return EpochPace(entry.path.name, step, epoch)
    return None


def points_by_epoch(job: Job, saves: Inventory) -> list[MetricPoint]:
    """Return the losses of a log that numbers no step, with the steps that its epochs are; empty where no checkpoint tells that."""
    with reading_as(job.account):
        pace = epoch_pace(saves)
    if pace is None:
        return []
    epochs = [(point, logged_epoch(text)) for point, text in counted_lines(job)]
    return [replace(point, step=pace.first_step(epoch), counted=False) for point, epoch in epochs if epoch is not None]


class SavedProgress(NamedTuple):
    """What the saves and the unnumbered losses of a restarted job show."""

    step: int
    """Of the newest whole checkpoint that it saved since it began, past all that lay there before."""
    first_at: datetime
    """When the first of these was written."""
    loss: Seen


def saved_progress(
    checkpoints: Sequence[Checkpoint],
    job: Job,
    *,
    chosen_step: int,
    before: Sequence[MetricPoint] = (),
    after: Sequence[MetricPoint] = (),
) -> SavedProgress | None:
    """Return how far a job came by its own saves; None where none of them is past the one it was to go on from. Pure.

    Args:
        checkpoints: Those of its run, as judged.
        job: The restarted one; only what was written since it began is its own.
        chosen_step: Of the checkpoint that was chosen; 0 for a start from the beginning.
        before: Losses of the attempt that ended, whose steps were only counted.
        after: Those of the job itself.
    """
    saves = own_saves(checkpoints, job)
    began = job.started
    if not saves or began is None:
        return None
    # a save that lay there already shows that the attempt before had come as far
    past = max([chosen_step, *(save.step for save in checkpoints if save.saved_at < began and _is_numbered(save))])
    later = [save for save in saves if save.step > past]
    if not later:
        return None
    loss = loss_of_lines(before, after, chosen_step=chosen_step, ended=job.state.ended)
    return SavedProgress(max(save.step for save in later), min(save.saved_at for save in later), loss)


_STEP_WORDS = re.compile(r"\b(?:global[_ ]?)?(?:step|iteration|iter)s?\b[ =:#]{0,3}(\d{1,12})\b", re.IGNORECASE)


def logged_saves(job: Job, saves: Inventory) -> dict[str, int]:
    """Return the steps at which the log tells that checkpoints were saved whose names count no steps, by these names.

    A line that names a checkpoint and no step came before the next step that was logged: that one counts, which is never too early.

    Args:
        job: Its last attempt is meant.
        saves: What it saved.
    """
    names = {save.path.name for save in saves.checkpoints if not counts_steps(save.format, save.path.name)}
    if not names:
        return {}
    lines = log_lines(job)
    points, steps = metric_points(lines), {}
    numbers = [point.line for point in points]
    pattern = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})(?![\w.-])")
    for line in lines:
        match = pattern.search(line.text) if len(line.text) <= MOST_CHARACTERS else None
        if match is None or not says_saved([line.text]):
            continue
        step_words = _STEP_WORDS.search(line.text.replace(match[0], ""))
        place = bisect_right(numbers, line.number)
        if step_words is not None:
            steps[match[0]] = int(step_words[1])
        elif place < len(points):
            steps[match[0]] = points[place].step
    return steps


def own_saves(checkpoints: Sequence[Checkpoint], job: Job) -> list[Checkpoint]:
    """Return the whole checkpoints with a step in their name that a job has written since it began."""
    if job.started is None:
        return []
    return [save for save in checkpoints if save.healthy and save.saved_at >= job.started and _is_numbered(save)]


def _is_numbered(save: Checkpoint) -> bool:
    return counts_steps(save.format, save.path.name)


def loss_of_lines(before: Sequence[MetricPoint], after: Sequence[MetricPoint], *, chosen_step: int, ended: bool) -> Seen:
    """Return whether the losses of lines that number no step go on: the places of their lines stand for no step."""
    losses_before = [replace(point, step=chosen_step) for point in before]
    losses_after = [replace(point, step=chosen_step + 1) for point in after]
    verdict = loss_seen(losses_before, losses_after, restart_step=chosen_step, ended=ended)
    losses = [point for point in losses_after if point.loss is not None]
    if losses and is_no_number(losses[-1]) and verdict.status in (Look.JUMPED, Look.WAITING):
        return Seen(verdict.status, "the last losses that its log shows are no finite numbers")
    return Seen(verdict.status, verdict.note)


def by_saves(
    job: Job,
    folders: Mapping[str, Path],
    marks: Sequence[LogMark],
    scheduler: Scheduler,
    *,
    failed: str | None,
    chosen_step: int,
    now: datetime,
) -> SavedProgress | None:
    """Return how far a running job came by its saves; None where its log numbers its steps, or nothing is known of its saves.

    Args:
        job: The restarted one.
        folders: The site's, as `search_checkpoints` takes them.
        marks: From `marks_before`.
        scheduler: Tells of the failed one.
        failed: The job that ended before; None where that is not known.
        chosen_step: Of the checkpoint that was chosen.
        now: The time.
    """
    if job.state is not JobState.RUNNING or job.started is None or log_points(job, marks=marks, sure=True):
        return None
    try:
        saves = search_checkpoints(job, folders, (line.text for line in log_lines(job)), now=now).inventory
    except (NightshiftError, OSError):
        return None
    before: Sequence[MetricPoint] = ()
    with suppress(ToolError):  # the scheduler may have forgotten it
        failed_job = scheduler.job(failed) if failed is not None and failed != job.id else None
        before = counted_points(failed_job) if failed_job is not None and failed_job.log != job.log else ()
    if saves is None:
        return None
    after = counted_points(job, marks=marks, sure=True)
    return saved_progress(saves.checkpoints, job, chosen_step=chosen_step, before=before, after=after)


def steps_between(checkpoints: Sequence[Checkpoint], checkpoint: Path, until: datetime) -> int | None:
    """Return about how many steps a job made behind a checkpoint until a time, by the time between its saves; None if unknown.

    No more than lie between two saves: the next one would be there.

    Args:
        checkpoints: Of the run, of all its attempts.
        checkpoint: The checkpoint.
        until: When the attempt that saved it ended.
    """
    numbered = sorted((save for save in checkpoints if _is_numbered(save)), key=lambda save: save.step)
    chosen_save = next((save for save in numbered if save.path == checkpoint), None)
    gaps = [(later.step - save.step, (later.saved_at - save.saved_at).total_seconds()) for save, later in pairwise(numbered)]
    gaps = [(steps, seconds) for steps, seconds in gaps if steps > 0 and seconds > 0]
    if chosen_save is None or len(numbered) < FEWEST_SAVES or not gaps or until < chosen_save.saved_at:
        return None
    pace = median(steps / seconds for steps, seconds in gaps)
    interval = int(median(steps for steps, _ in gaps))
    return max(0, min(round(pace * (until - chosen_save.saved_at).total_seconds()), interval - 1))


class NewPieces(NamedTuple):
    """Files of one form of name that an attempt finished."""

    number: int
    newest: Path
    written: datetime
    """When the newest was written."""


FEWEST_PIECES = 2
"""New files of one form that show that an attempt came forward: one may be a piece that each attempt writes anew."""


def pieces_made(job: Job, folders: Mapping[str, Path], now: datetime) -> str:
    """Return what a running job wrote of its work in pieces, as a sentence; empty where it is no such work, or too little is seen.

    Args:
        job: A restarted job whose log numbers no step.
        folders: Of checkpoints, as the site names them.
        now: Of the clock that counts.
    """
    if job.state is not JobState.RUNNING:
        return ""
    try:
        search = search_checkpoints(job, folders, (line.text for line in log_lines(job)), now=now)
        if search.state is not SaveState.NEVER_SAVED:
            return ""
        if search.pieces and (grown := _written_since(job, search.programs)):
            return grown
        if not skips_what_is_there(search.programs):
            return ""
        pieces = new_pieces(job, now)
    except (NightshiftError, OSError):
        return ""
    if pieces is None or pieces.number < FEWEST_PIECES:
        return ""
    return f"job {job.id} wrote {pieces.number} files like {pieces.newest} since it began"


def _written_since(job: Job, programs: Sequence[JobProgram]) -> str:
    """Return that a job has written to a file that its program reads first, to go on behind it, as a sentence; empty where not."""
    for work in continued_work(programs):
        if job.started is None or not work.path or "*" in work.path or work.adds:
            continue
        with reading_as(job.account), suppress(OSError):
            status = within(LOOK_S, partial(status_of, Path(work.path)), work.path)
            if datetime.fromtimestamp(status.st_mtime, UTC) > job.started and status.st_size:
                return f"job {job.id} has written to {work.path} since it began, and goes on behind what stood in it ({work.place})"
    return ""


def new_pieces(job: Job, now: datetime) -> NewPieces | None:
    """Return the most numerous form of numbered files below a job's work folder that were written while it ran; None for none.

    Logs do not count. At most `WALK_ENTRIES` entries are looked at, `WALK_FOLDERS` folders deep, with the owner's rights.

    Raises:
        Unavailable: The storage did not answer.
    """
    top, since, until = job.work_dir, job.started, job.ended or now
    if top is None or since is None:
        return None

    def look() -> NewPieces | None:
        pieces: dict[str, NewPieces] = {}
        waiting, budget = [(top, 0)], WALK_ENTRIES
        while waiting and budget > 0:
            folder, level = waiting.pop(0)
            try:
                children = [child for child in list_folder(folder, budget) if not child.is_symlink()]
            except (InputError, UnreadableFile, OSError):
                continue
            budget -= len(children)
            for child in children:
                try:
                    status = status_of(child)
                except OSError:
                    continue
                written = datetime.fromtimestamp(status.st_mtime, UTC)
                if stat.S_ISDIR(status.st_mode):
                    if level + 1 < WALK_FOLDERS and not PASSED_OVER.fullmatch(child.name):
                        waiting.append((child, level + 1))
                elif name_form(child.name) != child.name and not is_log(str(child)) and since <= written <= until:
                    form = f"{folder}/{name_form(child.name)}"
                    earlier = pieces.get(form, NewPieces(0, child, written))
                    newest = (child, written) if written >= earlier.written else earlier[1:]
                    pieces[form] = NewPieces(earlier.number + 1, *newest)
        return max(pieces.values(), key=lambda form: form.number, default=None)

    with reading_as(job.account):
        return within(READ_S, look, str(top))
