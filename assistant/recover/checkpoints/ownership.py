"""Which checkpoints of a folder belong to a job, where several runs save there, and which this attempt came to.

The names in the lines by which its log tells of its saves prove it, and how far it came. Checkpoints of one folder may have the
same form of name and a step that the attempt passed, and still be of another run, or of an earlier attempt that this one did not go
on from: its log, the times of files and the trainer's own history show that. Silence is no evidence, and nothing is guessed. Pure,
but for `histories_of`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from assistant.errors import ToolError, Unavailable
from assistant.logs.lines import Line
from assistant.logs.metrics import MetricReader
from assistant.records import Checkpoint, Job, MetricPoint
from assistant.recover.checkpoints.entry import Format
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.layout import counts_steps
from assistant.recover.checkpoints.names import name_form, number_in, run_prefix
from assistant.recover.launch_arguments import RESUME_FROM
from assistant.recover.loaded import names_own_step
from assistant.recover.restart import attempt_of
from assistant.untrusted import finite_number, read_json, reading_as, whole_number, within
from assistant.watch.progress import SAVED_STEP

FEWEST_SAVES = 2
"""With fewer named in a log it is not known at which steps a job saves."""
FEWEST_LOSSES = 2
"""Steps that a history and a log must share to be compared."""
SAME_SHARE = 0.005
"""How far apart two prints of one loss may lie, as a share of it: logs round."""
SAME = 0.002
MOST_HISTORIES = 8
"""Checkpoints, the newest ones, whose history is read."""
HISTORY_BYTES = 16 << 20
HISTORY_S = 10.0

Histories = Mapping[Path, Mapping[int, float]]
"""Losses by step, by checkpoint."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is known of one attempt of a job."""

    began: datetime | None
    points: Sequence[MetricPoint]
    """What its log shows, where it proves the steps."""
    saved: Collection[int]
    """Steps of which its log says that they were saved."""


def not_its_own(checkpoint: Checkpoint, checkpoints: Sequence[Checkpoint], attempt: Attempt, histories: Histories) -> str:
    """Return what shows that an attempt did not come to a checkpoint of which it names no save; empty where nothing does.

    Args:
        checkpoint: The checkpoint.
        checkpoints: All of the folder.
        attempt: What is known of the attempt.
        histories: Losses that checkpoints of the folder hold themselves.
    """
    if checkpoint.step in attempt.saved or not counts_steps(checkpoint.format, checkpoint.path.name):
        return ""
    return (
        _by_time(checkpoint, checkpoints, attempt)
        or _by_interval(checkpoint, checkpoints, attempt)
        or _by_history(checkpoint, attempt, histories)
    )


def _by_time(checkpoint: Checkpoint, checkpoints: Sequence[Checkpoint], attempt: Attempt) -> str:
    """Compare with a save of a lower step that the attempt itself made: it came from below what lay there before it began.

    A save is its own where its log names it or shows that it passed that step: another's file may have been touched since.
    """
    began, steps = attempt.began, [point.step for point in attempt.points]
    if began is None or checkpoint.saved_at >= began:
        return ""
    lower = [own for own in checkpoints if own.step < checkpoint.step and own.saved_at >= began]
    below = [own for own in lower if own.step in attempt.saved or (steps and min(steps) <= own.step <= max(steps))]
    return f"was there before the job began, which saved step {below[-1].step} itself" if below else ""


def _by_interval(checkpoint: Checkpoint, checkpoints: Sequence[Checkpoint], attempt: Attempt) -> str:
    """Compare with the steps of which the log tells saves: the job passed this one, and saves at others."""
    saved = sorted(attempt.saved)
    last = max((point.step for point in attempt.points), default=0)
    forms = {name_form(own.path.name) for own in checkpoints if own.step in attempt.saved}
    if len(saved) < FEWEST_SAVES or not saved[0] < checkpoint.step < last or name_form(checkpoint.path.name) not in forms:
        return ""
    every = math.gcd(*saved)
    if checkpoint.step % every == 0:
        after = next((step for step in saved if step > checkpoint.step), None)
        before = max(step for step in saved if step < checkpoint.step)
        if after is None:
            return ""  # it may have been killed between the save and the line about it
        return f"is of step {checkpoint.step}, and its log tells of saves at steps {before} and {after}, and of none between"
    return f"is of step {checkpoint.step}, and its log tells of saves every {every} steps, and of none there"


def unnamed_newest(checkpoints: Sequence[Checkpoint], attempt: Attempt) -> str:
    """Return that the log of an attempt names its saves, and not the newest checkpoint that lies there; empty where it does.

    It may have been killed between the save and the line about it, or the checkpoint was copied there.
    """
    newest, saved = (checkpoints[-1] if checkpoints else None), sorted(attempt.saved)
    if newest is None or len(saved) < FEWEST_SAVES or newest.step <= saved[-1] or not counts_steps(newest.format, newest.path.name):
        return ""
    if not any(save.step in attempt.saved for save in checkpoints):
        return ""
    return (
        f"{newest.path.name} is named by no line of its log, which tells of saves up to step {saved[-1]}: the job was killed right "
        "after that save, or another run's was copied there"
    )


def _by_history(checkpoint: Checkpoint, attempt: Attempt, histories: Histories) -> str:
    """Compare the losses that a checkpoint holds with those that the job logged, where another one's agree with these."""
    logged = {point.step: point.loss for point in attempt.points if point.loss is not None and math.isfinite(point.loss)}
    differing = _differing(histories.get(checkpoint.path, {}), logged)
    if not differing or not any(_differing(history, logged) == [] for history in histories.values()):
        return ""
    step = differing[-1]
    return f"holds a loss of {histories[checkpoint.path][step]:.4g} at step {step}, where this job logged {logged[step]:.4g}"


def _differing(history: Mapping[int, float], logged: Mapping[int, float]) -> list[int] | None:
    """Return the steps at which most losses of a history are other ones; empty where it agrees, None where too few are shared."""
    shared = [step for step in history if step in logged]
    if len(shared) < FEWEST_LOSSES:
        return None
    differing = [step for step in shared if abs(history[step] - logged[step]) > max(SAME, SAME_SHARE * abs(logged[step]))]
    return differing if 2 * len(differing) > len(shared) else []


def histories_of(inventory: Inventory, account: str) -> Histories:
    """Return the losses by step that the newest checkpoints hold themselves, as Hugging Face's do in `trainer_state.json`."""
    histories: dict[Path, dict[int, float]] = {}
    for entry in [entry for entry in inventory.entries if entry.format is Format.HUGGINGFACE][-MOST_HISTORIES:]:
        if "trainer_state.json" not in entry.files:
            continue
        path = entry.file("trainer_state.json")
        with reading_as(account):
            try:
                histories[entry.path] = within(HISTORY_S, partial(_losses_in, path), str(path))
            except (OSError, ValueError, ToolError, Unavailable):
                continue
    return histories


def _losses_in(path: Path) -> dict[int, float]:
    state = read_json(path, HISTORY_BYTES)
    rows = state.get("log_history") if isinstance(state, dict) else None
    losses: dict[int, float] = {}
    for row in rows if isinstance(rows, list) else ():
        try:
            losses[whole_number(row["step"])] = finite_number(row["loss"])
        except (KeyError, TypeError, ValueError):
            continue  # an evaluation, or what no trainer writes
    return losses


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
    inventory: Inventory, job: Job, texts: Sequence[str], saves: Sequence[str], histories: Histories | None = None
) -> OwnCheckpoints:
    """Return the checkpoints of a folder that are a job's own.

    Names that differ in what they say of their run are of several runs: those that the log names as saved count. A checkpoint whose
    step lies behind all that the job is known to have reached is another run's, and one to which it is shown not to have come.

    Args:
        inventory: All that the folder holds.
        job: The job.
        texts: The log of its last attempt, in order.
        saves: Those lines of it that tell of a save.
        histories: Losses that the checkpoints hold themselves.
    """
    resume_path = job.spec.environment.get(RESUME_FROM, "") if job.spec is not None else ""
    names = _names_in(inventory.checkpoints, [*saves, resume_path])
    prefixes_named = {run_prefix(name) for name in names}
    prefixes = {
        run_prefix(checkpoint.path.name) for checkpoint in inventory.checkpoints if number_in(checkpoint.path.name) is not None
    }
    steps = {int(step) for text in saves for step in SAVED_STEP.findall(text)}
    progress = _shown(texts)
    end = _furthest_step(progress, steps)
    past = {
        checkpoint.path
        for checkpoint in inventory.checkpoints
        if checkpoint.path.name not in names and _lies_past(checkpoint, job, end)
    }
    attempt = Attempt(
        job.started,
        progress.points,
        steps | {checkpoint.step for checkpoint in inventory.checkpoints if checkpoint.path.name in names},
    )
    strange = _strange(inventory.checkpoints, attempt, histories or {}, past=past, names=names)
    own = [
        checkpoint
        for checkpoint in inventory.checkpoints
        if checkpoint.path not in past | strange.keys() and _of_runs(checkpoint, prefixes_named, prefixes, names)
    ]
    foreign = tuple(checkpoint for checkpoint in inventory.checkpoints if checkpoint not in own)
    if len(prefixes) > 1 and len(prefixes_named & prefixes) != 1:
        runs = ", ".join(repr(prefix) for prefix in sorted(prefixes)[:MOST_NAMED])
        evidence = "several" if prefixes_named & prefixes else "none"
        return OwnCheckpoints(
            inventory, f"the names in {inventory.folder} are of several runs ({runs}), and its log names saves of {evidence}"
        )
    if strange and _had_attempts(job) and not resume_path:
        path, why = list(strange.items())[-1]
        return OwnCheckpoints(
            inventory, f"{path.name} {why}: another run's, or of an earlier attempt that this one did not go on from"
        )
    if past and not (prefixes_named or steps & {checkpoint.step for checkpoint in own}):
        beyond = f"{foreign[-1].path.name} lies behind step {end}, as far as its log shows that it came"
        return OwnCheckpoints(inventory, f"{beyond}: another run's, or counted otherwise; and the log names no save of its own")
    unnamed = unnamed_newest(own, attempt)
    inventory = replace(inventory, notes=(*inventory.notes, unnamed)) if unnamed else inventory
    if not foreign:
        return OwnCheckpoints(inventory)
    if not own:
        return OwnCheckpoints(inventory, f"none of {len(foreign)} checkpoints in {inventory.folder} is known to be its own")
    return OwnCheckpoints(_only(inventory, own, foreign, strange))


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
        points_before = len(reader.points)
        reader.take(Line(number, text))
        if len(reader.points) > points_before and names_own_step(text, reader.points[-1].step):
            naming.add(number)
    proven = reader.settle()
    points = [point for point in reader.points if point.line in naming or (proven and not point.counted)]
    return _Shown(points, any("epoch" in texts[point.line - 1].lower() for point in points))


def _furthest_step(progress: _Shown, saved: set[int]) -> int | None:
    """Return the last step that an attempt can have reached by its log; None where the log does not count as checkpoints do.

    Between two logged steps, and behind the last one, a job may save: the widest gap is added. Steps that begin again, or that
    stand beside an epoch, may count within an epoch: they are believed where the steps of the saves do not contradict them.
    """
    steps = [point.step for point in progress.points]
    if len(steps) < MIN_STEPS:
        return None
    gaps = [after - before for before, after in pairwise(steps)]
    unsure = progress.epochs or min(gaps) < 0
    if unsure and (not saved or max(saved) > max(steps)):
        return None
    return max(*steps, *saved) + max(1, *gaps)


def _strange(
    checkpoints: Sequence[Checkpoint], attempt: Attempt, histories: Histories, *, past: set[Path], names: set[str]
) -> dict[Path, str]:
    """Return the checkpoints to which an attempt is shown not to have come, each with what shows it."""
    candidates = [
        candidate
        for candidate in checkpoints
        if candidate.healthy and candidate.path not in past and candidate.path.name not in names
    ]
    reasons = {one.path: not_its_own(one, checkpoints, attempt, histories) for one in candidates}
    return {path: why for path, why in reasons.items() if why}


def _had_attempts(job: Job) -> bool:
    return job.attempt > 0 or (job.spec is not None and attempt_of(job.spec) > 0)


def _lies_past(checkpoint: Checkpoint, job: Job, end: int | None) -> bool:
    """Tell whether a checkpoint is of a step that the job did not reach; of its earlier attempts the log tells nothing."""
    if end is None or checkpoint.step <= end or not counts_steps(checkpoint.format, checkpoint.path.name):
        return False
    return not _had_attempts(job) or (job.started is not None and checkpoint.saved_at >= job.started)


def _names_in(checkpoints: Sequence[Checkpoint], saves: Sequence[str]) -> set[str]:
    """Return the names in lines that have the form of a checkpoint's, also of those that were deleted since."""
    forms = {name_form(checkpoint.path.name) for checkpoint in checkpoints if number_in(checkpoint.path.name) is not None}
    tokens = {token.rstrip(".:") for text in saves for token in _TOKEN.findall(text)}
    return {token for token in tokens if name_form(token) in forms} | (
        tokens & {checkpoint.path.name for checkpoint in checkpoints}
    )


def _of_runs(checkpoint: Checkpoint, prefixes_named: set[str], prefixes: set[str], names: set[str]) -> bool:
    """Tell whether a checkpoint is of the runs that a log names; where all names are of one run, each is."""
    name = checkpoint.path.name
    if len(prefixes) < 2 or name in names:
        return True
    return run_prefix(name) in prefixes_named and (number_in(name) is not None or bool(run_prefix(name)))


def _only(
    inventory: Inventory, own: Sequence[Checkpoint], foreign: tuple[Checkpoint, ...], strange: Mapping[Path, str]
) -> Inventory:
    paths = {checkpoint.path for checkpoint in own}
    names = ", ".join(checkpoint.path.name for checkpoint in foreign[-MOST_NAMED:]) + (", …" if len(foreign) > MOST_NAMED else "")
    whys = tuple(f"{path.name} {why}" for path, why in list(strange.items())[-MOST_NAMED:])
    about = "by their names, steps, times or contents, and are left out"
    return replace(
        inventory,
        checkpoints=tuple(own),
        entries=tuple(entry for entry in inventory.entries if entry.path in paths),
        notes=(*inventory.notes, f"{len(foreign)} checkpoints are another run's, {about}: {names}", *whys),
        foreign=foreign,
        strange=strange,
    )
