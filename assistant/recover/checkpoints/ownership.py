"""Which checkpoints of a folder are a job's own, where several runs save into one folder.

The names in the lines by which its log tells of its saves tell it, how far it came, and what shows that it did not come to one
(`lineage`). What none of these tells is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from assistant.logs.lines import Line
from assistant.logs.metrics import MetricReader
from assistant.records import Checkpoint, Job, MetricPoint
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.layout import counts_steps
from assistant.recover.checkpoints.lineage import Attempt, Histories, not_its_own, unnamed_newest
from assistant.recover.checkpoints.names import name_form, number_in, run_prefix
from assistant.recover.loaded import names_own_step
from assistant.recover.restart import RESUME_FROM, attempt_of
from assistant.watch.progress import SAVED_STEP

MIN_STEPS = 2
"""With fewer logged it is not known how often a job logs one."""
MOST_NAMED = 3
"""Names that a note gives."""
_TOKEN = re.compile(r"[^\s/'\"`,;()\[\]]+")


class OwnCheckpoints(NamedTuple):
    """What a folder holds of a job."""

    inventory: Inventory
    """Of the job's own checkpoints alone; those of others stand in `foreign`."""
    doubt: str = ""
    """Why nobody can tell which are its own; empty where that is known."""


def own_checkpoints(
    held: Inventory, job: Job, texts: Sequence[str], saves: Sequence[str], histories: Histories | None = None
) -> OwnCheckpoints:
    """Return the checkpoints of a folder that are a job's own.

    Names that differ in what they say of their run are of several runs: those that the log names as saved count. A checkpoint whose
    step lies behind all that the job is known to have reached is another run's, and one to which it is shown not to have come.

    Args:
        held: All that the folder holds.
        job: The job.
        texts: The log of its last attempt, in order.
        saves: Those lines of it that tell of a save.
        histories: Losses that the checkpoints hold themselves.
    """
    begun = job.spec.environment.get(RESUME_FROM, "") if job.spec is not None else ""
    named = _names_in(held.checkpoints, [*saves, begun])
    told = {run_prefix(name) for name in named}
    prefixes = {run_prefix(one.path.name) for one in held.checkpoints if number_in(one.path.name) is not None}
    steps = {int(step) for text in saves for step in SAVED_STEP.findall(text)}
    shown = _shown(texts)
    end = _furthest_step(shown, steps)
    past = {one.path for one in held.checkpoints if one.path.name not in named and _lies_past(one, job, end)}
    attempt = Attempt(job.started, shown.points, steps | {one.step for one in held.checkpoints if one.path.name in named})
    strange = _strange(held.checkpoints, attempt, histories or {}, past=past, named=named)
    own = [one for one in held.checkpoints if one.path not in past | strange.keys() and _of_runs(one, told, prefixes, named)]
    foreign = tuple(one for one in held.checkpoints if one not in own)
    if len(prefixes) > 1 and len(told & prefixes) != 1:
        runs = ", ".join(repr(prefix) for prefix in sorted(prefixes)[:MOST_NAMED])
        said = "several" if told & prefixes else "none"
        return OwnCheckpoints(held, f"the names in {held.folder} are of several runs ({runs}), and its log names saves of {said}")
    if strange and _had_attempts(job) and not begun:
        path, why = list(strange.items())[-1]
        return OwnCheckpoints(held, f"{path.name} {why}: another run's, or of an earlier attempt that this one did not go on from")
    if past and not (told or steps & {one.step for one in own}):
        beyond = f"{foreign[-1].path.name} lies behind step {end}, as far as its log shows that it came"
        return OwnCheckpoints(held, f"{beyond}: another run's, or counted otherwise; and the log names no save of its own")
    unnamed = unnamed_newest(own, attempt)
    held = replace(held, notes=(*held.notes, unnamed)) if unnamed else held
    if not foreign:
        return OwnCheckpoints(held)
    if not own:
        return OwnCheckpoints(held, f"none of {len(foreign)} checkpoints in {held.folder} is known to be its own")
    return OwnCheckpoints(_only(held, own, foreign, strange))


class _Shown(NamedTuple):
    """The steps that a log shows."""

    points: Sequence[MetricPoint]
    """Those whose step a line names, or all lines together prove."""
    epochs: bool
    """Whether an epoch stands beside one, so that they may be counted within it."""


def _shown(texts: Sequence[str]) -> _Shown:
    reader = MetricReader()
    naming: set[int] = set()
    for number, text in enumerate(texts, 1):
        known = len(reader.points)
        reader.take(Line(number, text))
        if len(reader.points) > known and names_own_step(text, reader.points[-1].step):
            naming.add(number)
    proven = reader.settle()
    points = [point for point in reader.points if point.line in naming or (proven and not point.counted)]
    return _Shown(points, any("epoch" in texts[point.line - 1].lower() for point in points))


def _furthest_step(shown: _Shown, saved: set[int]) -> int | None:
    """Return the last step that an attempt can have reached by its log; None where the log does not count as checkpoints do.

    Between two logged steps, and behind the last one, a job may save: the widest gap is added. Steps that begin again, or that
    stand beside an epoch, may count within an epoch: they are believed where the steps of the saves do not contradict them.
    """
    steps = [point.step for point in shown.points]
    if len(steps) < MIN_STEPS:
        return None
    gaps = [after - before for before, after in pairwise(steps)]
    unsure = shown.epochs or min(gaps) < 0
    if unsure and (not saved or max(saved) > max(steps)):
        return None
    return max(*steps, *saved) + max(1, *gaps)


def _strange(
    checkpoints: Sequence[Checkpoint], attempt: Attempt, histories: Histories, *, past: set[Path], named: set[str]
) -> dict[Path, str]:
    """Return the checkpoints to which an attempt is shown not to have come, each with what shows it."""
    others = [one for one in checkpoints if one.healthy and one.path not in past and one.path.name not in named]
    reasons = {one.path: not_its_own(one, checkpoints, attempt, histories) for one in others}
    return {path: why for path, why in reasons.items() if why}


def _had_attempts(job: Job) -> bool:
    return job.attempt > 0 or (job.spec is not None and attempt_of(job.spec) > 0)


def _lies_past(one: Checkpoint, job: Job, end: int | None) -> bool:
    """Tell whether a checkpoint is of a step that the job did not reach; of its earlier attempts the log tells nothing."""
    if end is None or one.step <= end or not counts_steps(one.format, one.path.name):
        return False
    return not _had_attempts(job) or (job.started is not None and one.saved_at >= job.started)


def _names_in(checkpoints: Sequence[Checkpoint], saves: Sequence[str]) -> set[str]:
    """Return the names in lines that have the form of a checkpoint's, also of those that were deleted since."""
    forms = {name_form(one.path.name) for one in checkpoints if number_in(one.path.name) is not None}
    tokens = {token.rstrip(".:") for text in saves for token in _TOKEN.findall(text)}
    return {token for token in tokens if name_form(token) in forms} | (tokens & {one.path.name for one in checkpoints})


def _of_runs(one: Checkpoint, told: set[str], prefixes: set[str], named: set[str]) -> bool:
    """Tell whether a checkpoint is of the runs that a log names; where all names are of one run, each is."""
    name = one.path.name
    if len(prefixes) < 2 or name in named:
        return True
    return run_prefix(name) in told and (number_in(name) is not None or bool(run_prefix(name)))


def _only(held: Inventory, own: Sequence[Checkpoint], foreign: tuple[Checkpoint, ...], strange: Mapping[Path, str]) -> Inventory:
    paths = {one.path for one in own}
    names = ", ".join(one.path.name for one in foreign[-MOST_NAMED:]) + (", …" if len(foreign) > MOST_NAMED else "")
    whys = tuple(f"{path.name} {why}" for path, why in list(strange.items())[-MOST_NAMED:])
    about = "by their names, steps, times or contents, and are left out"
    return replace(
        held,
        checkpoints=tuple(own),
        entries=tuple(entry for entry in held.entries if entry.path in paths),
        notes=(*held.notes, f"{len(foreign)} checkpoints are another run's, {about}: {names}", *whys),
        foreign=foreign,
        strange=strange,
    )
