"""What speaks against a running attempt: a start that is proven wrong, losses that are no numbers, a second writer.

A proof ends a job, so it takes more than a doubt: the job trains already, its step counter is below the chosen checkpoint, and its
own words or the counter of the attempt before say the same. A loss alone is none, and silence is none.

Where saves appear in the folder of a run that cannot be those of the attempt, somebody else writes there, whatever is known of
other jobs. A writer without a job (a login node, tmux, another cluster) is seen by what changes between two looks, by files that
processes of this machine hold open, and by a lock that is newer than the end of the attempt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path, PurePosixPath
from statistics import median
from typing import NamedTuple

from assistant.accounts import name_of, uid_of
from assistant.errors import ToolError, Unavailable, UnreadableFile
from assistant.logs.spikes import is_no_number
from assistant.records import Checkpoint, Job, MetricPoint
from assistant.recover.checkpoints.inventory import inventory
from assistant.recover.checkpoints.layout import counts_steps
from assistant.recover.checkpoints.own_folders import Walk
from assistant.recover.checkpoints.secured import folder_of
from assistant.recover.loaded import SLACK_STEPS, LoadedCheckpoint, LoadLine, compare_loaded, goes_on_from
from assistant.untrusted import LOOK_S, is_folder, status_of, walk_files, within
from assistant.watch.progress import NOT_A_NUMBER_STEPS

NEAR_STEPS = 10
"""Steps before a checkpoint whose losses stand for the loss at it."""
SAME_SHARE = 0.05
"""How far a loss may lie from the one at the checkpoint, as a share of it, to be taken for the same."""
FEWEST_STEPS = 2
"""Distinct steps below the checkpoint where nothing but the counter speaks: an evaluation may be logged as step 0."""
MOST_NAMED = 8
AT_ONCE = 5
"""Steps with a number behind a start; fewer of them are no run of its own."""
LONG_LOST = 20
"""Steps without a number after which nobody waits for another incident to end the job."""


class LostNumbers(NamedTuple):
    """What proves that a job trains on with a loss that is no number."""

    sentence: str
    at_once: bool
    """Whether it was so from its first steps on, or for so long that it is ended whoever else looks after it."""
    step: int
    """The first that was logged without a number."""


def proof_of_lost_numbers(points: Sequence[MetricPoint], before: Sequence[MetricPoint]) -> LostNumbers | None:
    """Return what proves that a restart trains with a loss that is no number, where the attempt before had one; None without proof.

    Args:
        points: What the restart logged itself, in order.
        before: What the attempt before it logged, as far as it was healthy.
    """
    logged = [point for point in points if point.loss is not None]
    lost = list(takewhile(is_no_number, reversed(logged)))
    steps = list(dict.fromkeys(point.step for point in reversed(lost)))
    healthy = [point for point in before if point.loss is not None and not is_no_number(point)]
    if len(steps) < NOT_A_NUMBER_STEPS or not healthy:
        return None
    own = len(logged) - len(lost)
    since = f"since step {steps[0]}" if own else f"from its first step {steps[0]} on"
    sentence = (
        f"its loss is no number {since}, in the last {len(steps)} steps that it logged, to step {steps[-1]}; "
        f"the attempt before had {healthy[-1].loss:.4g} at step {healthy[-1].step}"
    )
    return LostNumbers(sentence, at_once=own < AT_ONCE or len(steps) >= LONG_LOST, step=steps[0])


def proof_of_wrong_start(
    checkpoint: Checkpoint | None,
    loaded: LoadedCheckpoint,
    points: Sequence[MetricPoint],
    before: Sequence[MetricPoint],
    *,
    reached: int | None = None,
    refused: Collection[int] = (),
) -> str:
    """Return the sentence that proves a wrong start; empty where there is no proof, whatever the doubt.

    Args:
        checkpoint: What the restart was to go on from; None where it was to begin at the start: nothing is proven then.
        loaded: From `loaded_checkpoint`, of the new attempt.
        points: What the new attempt logged, in order.
        before: What the attempt before it logged, by the same reader.
        reached: Last step of that attempt, where it is known otherwise.
        refused: Steps of checkpoints that were judged not to be loaded.
    """
    if checkpoint is None or loaded.first_step is None or not counts_steps(checkpoint.format, checkpoint.path.name):
        return ""
    comparison = compare_loaded(checkpoint, loaded)
    if not comparison.differs or _named_as_chosen(checkpoint, loaded):
        return ""
    slack = 0 if loaded.exact else SLACK_STEPS
    steps = list(dict.fromkeys(point.step for point in points))
    if not steps:
        return ""
    early = [step for step in steps[:FEWEST_STEPS] if step < checkpoint.step - slack]
    low = len(early) == len(steps[:FEWEST_STEPS]) and any(early)  # step 0 alone may be an evaluation
    elsewhere = all(_lies_elsewhere(checkpoint, load) for load in loaded.loads)
    if not elsewhere:
        return _by_load(checkpoint, loaded, steps[:FEWEST_STEPS], refused)
    if not low:
        return ""
    counters = [*(point.step for point in before), *([reached] if reached is not None else [])]
    if max(counters, default=checkpoint.step) < checkpoint.step:
        return ""  # the log counts otherwise than the checkpoints do, such as anew in each epoch
    start_words = f"its own steps are {', '.join(map(str, early))}; chosen was {checkpoint.path.name} (step {checkpoint.step})"
    if loaded.fresh_line:
        return f"it began at the start: {loaded.fresh_line!r}; {start_words}"
    if not loaded.exact or loaded.by_bar or _loss_goes_on(checkpoint, points, before):
        return ""
    anew = next((load for load in reversed(loaded.loads) if load.step == 0 and goes_on_from(load, loaded)), None)
    if anew is not None:
        return f"it loaded step 0: {anew.text!r}; {start_words}"
    if len(early) < FEWEST_STEPS or not any(point.step >= checkpoint.step for point in before):
        return ""
    counter = f"{start_words}, by the counter that had come to step {max(point.step for point in before)}"
    if loaded.loads:
        return f"what it loaded lies in another folder: {loaded.loads[-1].text!r}; {counter}"
    return f"it began below the checkpoint: {counter}"


def _named_as_chosen(checkpoint: Checkpoint, loaded: LoadedCheckpoint) -> bool:
    """Tell whether any line says that the chosen checkpoint was loaded, whatever others say."""
    return any(load.step == checkpoint.step or checkpoint.path.name in PurePosixPath(load.path).parts for load in loaded.loads)


def _lies_elsewhere(checkpoint: Checkpoint, load: LoadLine) -> bool:
    """Tell whether what a line names lies outside the folder of the chosen checkpoint and not above it."""
    path = PurePosixPath(load.path)
    folders = [PurePosixPath(folder) for folder in (checkpoint.path.parent, folder_of(checkpoint.path))]
    return path.is_absolute() and not any(path.is_relative_to(folder) or folder.is_relative_to(path) for folder in folders)


def _by_load(checkpoint: Checkpoint, loaded: LoadedCheckpoint, steps: Sequence[int], refused: Collection[int]) -> str:
    """Return the proof that another checkpoint was loaded: the line and the first steps after it say the same."""
    folders = (str(checkpoint.path.parent), str(folder_of(checkpoint.path)))
    near = [
        load
        for load in loaded.loads
        if not load.path or any(load.path == folder or load.path.startswith(f"{folder}/") for folder in folders)
    ]
    near = near or [load for load in loaded.loads if not load.path.startswith("/")]
    for load in reversed(near):
        if load.step is None or not goes_on_from(load, loaded) or max(steps) <= load.step:
            continue  # the step of the checkpoint itself may be an evaluation
        below = load.step < checkpoint.step and steps[0] < checkpoint.step and max(steps) <= checkpoint.step
        if below or load.step in refused:
            return (
                f"it loaded step {load.step}: {load.text!r}, and its first step is {loaded.first_step}; chosen was "
                f"{checkpoint.path.name} (step {checkpoint.step})"
            )
    return ""


def _loss_goes_on(checkpoint: Checkpoint, points: Sequence[MetricPoint], before: Sequence[MetricPoint]) -> bool:
    """Tell whether the losses are those behind the checkpoint and not those of the same steps before: a counter that began anew."""
    own = {point.step: point.loss for point in points[:NEAR_STEPS] if point.loss is not None}
    same = [(own[point.step], point.loss) for point in before if point.loss is not None and point.step in own]
    near = [
        point.loss for point in before if point.loss is not None and checkpoint.step - NEAR_STEPS <= point.step <= checkpoint.step
    ]
    if not own or not near:
        return False
    away = median(abs(loss - median(near)) for loss in own.values())
    if not same:
        return away <= abs(median(near)) * SAME_SHARE
    return away < median(abs(loss_before - loss_after) for loss_before, loss_after in same) / 2


@dataclass(frozen=True, slots=True)
class Saves:
    """What a job did to the checkpoints of its run."""

    new: tuple[str, ...]
    """Names that were not there when its checkpoint was chosen."""
    overwritten: tuple[str, ...]
    gone: tuple[str, ...]
    known: bool = True
    """Whether it is known what was there before."""

    @property
    def sentence(self) -> str:
        """For people."""
        if not self.new and not self.overwritten and not self.gone:
            return "it saved nothing meanwhile" + ("; the checkpoints of the run are as they were" if self.known else "")
        parts = [f"OVERWRITTEN: {_named(self.overwritten)}"] if self.overwritten else []
        parts += [f"gone since: {_named(self.gone)}"] if self.gone else []
        parts += [f"saved meanwhile: {_named(self.new)}"] if self.new else []
        if not self.known:
            parts += ["what was there before is not known"]
        elif not self.overwritten and not self.gone:
            parts += ["no checkpoint of the run was overwritten"]
        return "; ".join(parts)


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


def saves_since(before: Mapping[str, str] | None, now: Sequence[Checkpoint], started: datetime | None) -> Saves:
    """Return what a job saved, by what lay in the folder before and what lies there now.

    Args:
        before: Names and times (ISO) of what was there when its checkpoint was chosen; None where that is not known.
        now: What is there.
        started: When the job began; None where that is not known.
    """
    old = before or {}
    written = [save for save in now if old.get(save.path.name) != save.saved_at.isoformat()]
    if before is None:
        written = [save for save in written if started is None or save.saved_at >= started]
    present = {save.path.name for save in now}
    return Saves(
        tuple(save.path.name for save in written if save.path.name not in old),
        tuple(save.path.name for save in written if save.path.name in old),
        tuple(name for name in old if name not in present),
        before is not None,
    )


def unwritten_words(before: Mapping[str, str] | None, walk: Walk, job: Job) -> str:
    """Return that no checkpoint was written below the folder of a job since it began, for people; empty where that is not proven.

    What lies there has the times of its file server, whose clock may be another one: nothing is newer than what was there when the
    checkpoint was chosen, or than the start of the job.

    Args:
        before: Names and times (ISO) of what was there then; None where that is not known.
        walk: Of the job's folder, from before it began.
        job: That began at a wrong place.
    """
    if not walk.complete or job.started is None:
        return ""
    newest = max(walk.changed.values(), default=0.0)
    chosen_from = max((datetime.fromisoformat(text).timestamp() for text in (before or {}).values()), default=0.0)
    if newest > max(chosen_from, job.started.timestamp()):
        return ""
    last = f" (the newest at {datetime.fromtimestamp(newest, job.started.tzinfo):%H:%M:%S})" if newest else ""
    return f"no checkpoint below {job.work_dir} was written after it began at {job.started:%H:%M:%S}{last}"


TEAR_DOWN = timedelta(seconds=60)
"""For which processes of a job may still save after the scheduler called it ended: KillWait, background saves, clocks apart."""
AHEAD = timedelta(minutes=5)
"""A file from further ahead than that tells of a clock, not of a writer."""
DIGITS = re.compile(r"\d+")
LOCK = re.compile(r"(?i)(?:.*[._-])?(?:lock|lck|pid)(?:file)?")
"""Names of files by which programs say that they are at work."""
MOST_FILES = 20_000
"""Of a folder with more nothing is compared."""

Files = Mapping[Path, tuple[int, int]]
"""Time of the last change (ns) and size (bytes) of each file of a folder."""


def save_after(job: Job, folder: Path, *, ended: datetime, now: datetime) -> str:
    """Return which save in a folder is later than an attempt that has ended; empty where none is.

    A save of another account counts at once, one of its own after `TEAR_DOWN`. Runs that share a folder differ in their names.

    Args:
        job: The attempt.
        folder: Where it saves.
        ended: When it did.
        now: Files of a time far ahead are not believed.

    Raises:
        Unavailable: The storage did not answer.
    """
    saves = _saves(folder, now)
    own = _own_accounts(job, saves, ended)
    forms = {_form(save) for save in saves if save.saved_at <= ended + TEAR_DOWN}
    for one in reversed(saves):
        if not ended < one.saved_at < now + AHEAD or (forms and _form(one) not in forms):
            continue
        uid = _owner(one.path)
        foreign = bool(own) and uid is not None and uid not in own
        if foreign or one.saved_at > ended + TEAR_DOWN:
            writer_words = f" by {name_of(uid)}" if foreign and uid is not None else ""
            when = f"{one.saved_at:%H:%M:%S} UTC"
            return f"{one.path} was saved{writer_words} at {when}, after job {job.id} had ended ({ended:%H:%M:%S})"
    return ""


def save_beside(restart: Job, folder: Path, *, before: Job | None, now: datetime) -> str:
    """Return which save in a folder somebody else began since a restart did; empty where none is known.

    A file keeps its owner when another account writes over it, so that only new ones count: by the time of their own folder.

    Args:
        restart: The restarted job.
        folder: Where it saves.
        before: The attempt before it, which shows whose name its files bear.
        now: Files of a time far ahead are not believed.

    Raises:
        Unavailable: The storage did not answer.
    """
    attempt_start = restart.started
    if attempt_start is None:
        return ""
    saves = _saves(folder, now)
    own = _own_accounts(before, saves, before.ended or attempt_start) if before is not None else set()
    own |= {uid for uid in (uid_of(restart.user),) if uid is not None}
    for save in reversed(saves):
        uid = _owner(save.path)
        if not own or uid is None or uid in own or not attempt_start < _changed(save) < now + AHEAD:
            continue
        return (
            f"{save.path} was saved by {name_of(uid)} at {_changed(save):%H:%M:%S} UTC, and job {restart.id} is of {restart.user}"
        )
    return ""


def is_of_saves(path: Path, folder: Path, saves: Sequence[Checkpoint]) -> bool:
    """Return whether a file lies where an attempt saves: in what is named as its checkpoints are, finished or not, or as a lock.

    A folder may hold logs, and what other runs save under other names.
    """
    top = path.relative_to(folder).parts[0] if path.is_relative_to(folder) and path != folder else ""
    if not top:
        return False
    return LOCK.fullmatch(path.name) is not None or any(DIGITS.sub("#", top).startswith(_form(save)) for save in saves)


def files_in(folder: Path, saves: Sequence[Checkpoint]) -> Files:
    """Return the files of a folder that `is_of_saves` holds for, as they are now.

    Nothing is returned where the folder cannot be listed in time, or is too large to be compared.
    """

    def listed() -> Files:
        walked_files = walk_files(folder, MOST_FILES)
        known_files = [
            (walked.path, walked.status)
            for walked in walked_files
            if walked.status is not None and is_of_saves(walked.path, folder, saves)
        ]
        return {path: (status.st_mtime_ns, status.st_size) for path, status in known_files}

    try:
        return within(LOOK_S, listed, f"folder {folder}") if is_folder(folder) else {}
    except (ToolError, Unavailable, UnreadableFile, OSError):
        return {}


def change_between(before: Files, after: Files) -> str:
    """Return a file that was written between two looks; empty where none was, or of one look nothing is known."""
    if not before or not after:
        return ""
    changed = next((path for path, state in after.items() if before.get(path) != state), None)
    return f"{changed} was written between two looks at its folder" if changed is not None else ""


def lock_after(files: Files, *, ended: datetime, now: datetime) -> str:
    """Return a lock file that is later than the end of an attempt; empty where there is none."""
    for path, (changed_ns, _) in files.items():
        at = datetime.fromtimestamp(changed_ns / 1e9, UTC)
        if LOCK.fullmatch(path.name) and ended < at < now + AHEAD:
            return f"the lock {path} was written at {at:%H:%M:%S} UTC, after the attempt had ended ({ended:%H:%M:%S})"
    return ""


def open_in(folder: Path, saves: Sequence[Checkpoint], proc: Path = Path("/proc")) -> str:
    """Return which process of this machine holds a file open for writing that `is_of_saves` holds for; empty where none is seen."""
    real = Path(os.path.realpath(folder))
    for pid in _names(proc):
        if not pid.isdecimal() or int(pid) == os.getpid():
            continue
        for number in _names(proc / pid / "fd"):
            try:
                target = (proc / pid / "fd" / number).readlink()
                if not is_of_saves(target, real, saves) or _is_on_another_device(proc / pid / "fd" / number, real):
                    continue
                info = (proc / pid / "fdinfo" / number).read_text()
                flags = next((line.split()[1] for line in info.splitlines() if line.startswith("flags:")), "0")
                name = (proc / pid / "comm").read_text().strip()
            except (OSError, ValueError, IndexError):
                continue
            if int(flags, 8) & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR):
                return f"process {pid} ({name}) of this machine holds {target} open for writing"
    return ""


def _is_on_another_device(file: Path, folder: Path) -> bool:
    """Tell whether an open file lies elsewhere than its path says, as in a container that calls a folder of its own the same."""
    try:
        return file.stat().st_dev != folder.stat().st_dev
    except OSError:
        return False


def _names(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from [entry.name for entry in entries]
    except OSError:
        return


def _saves(folder: Path, now: datetime) -> Sequence[Checkpoint]:
    try:
        return inventory(folder, now=now).checkpoints if is_folder(folder) else ()
    except ToolError:
        return ()


def _own_accounts(job: Job, saves: Sequence[Checkpoint], ended: datetime) -> set[int]:
    """Return the accounts in whose name the files of an attempt appear: its user's, and that of what it saved while it ran.

    A storage may show all files as those of one account.
    """
    uid = uid_of(job.user)
    attempt_start = job.started
    during = [save for save in saves if attempt_start is not None and attempt_start <= save.saved_at <= ended]
    return {owner for owner in (uid, *(_owner(save.path) for save in during)) if owner is not None}


def _form(save: Checkpoint) -> str:
    return DIGITS.sub("#", save.path.name)


def _owner(path: Path) -> int | None:
    try:
        return status_of(path).st_uid
    except OSError:
        return None


def _changed(save: Checkpoint) -> datetime:
    try:
        return datetime.fromtimestamp(status_of(save.path).st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return save.saved_at
