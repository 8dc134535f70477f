"""Whether an attempt itself came to a checkpoint, by what its log, the times of files and the trainer's own history say.

Checkpoints of one folder may have the same form of name and a step that the attempt passed, and still be of another run, or of an
earlier attempt that this one did not go on from. Silence is no evidence. Pure, but for `histories_of`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from assistant.errors import ToolError, Unavailable
from assistant.records import Checkpoint, MetricPoint
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.layout import Format, counts_steps
from assistant.recover.checkpoints.names import name_form
from assistant.untrusted import finite_number, read_json, reading_as, whole_number, within

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


def not_its_own(one: Checkpoint, held: Sequence[Checkpoint], attempt: Attempt, histories: Histories) -> str:
    """Return what shows that an attempt did not come to a checkpoint of which it names no save; empty where nothing does.

    Args:
        one: The checkpoint.
        held: All of the folder.
        attempt: What is known of the attempt.
        histories: Losses that checkpoints of the folder hold themselves.
    """
    if one.step in attempt.saved or not counts_steps(one.format, one.path.name):
        return ""
    return _by_time(one, held, attempt) or _by_interval(one, held, attempt) or _by_history(one, attempt, histories)


def _by_time(one: Checkpoint, held: Sequence[Checkpoint], attempt: Attempt) -> str:
    """Compare with a save of a lower step that the attempt itself made: it came from below what lay there before it began.

    A save is its own where its log names it or shows that it passed that step: another's file may have been touched since.
    """
    began, steps = attempt.began, [point.step for point in attempt.points]
    if began is None or one.saved_at >= began:
        return ""
    lower = [own for own in held if own.step < one.step and own.saved_at >= began]
    below = [own for own in lower if own.step in attempt.saved or (steps and min(steps) <= own.step <= max(steps))]
    return f"was there before the job began, which saved step {below[-1].step} itself" if below else ""


def _by_interval(one: Checkpoint, held: Sequence[Checkpoint], attempt: Attempt) -> str:
    """Compare with the steps of which the log tells saves: the job passed this one, and saves at others."""
    saved = sorted(attempt.saved)
    last = max((point.step for point in attempt.points), default=0)
    forms = {name_form(own.path.name) for own in held if own.step in attempt.saved}
    if len(saved) < FEWEST_SAVES or not saved[0] < one.step < last or name_form(one.path.name) not in forms:
        return ""
    every = math.gcd(*saved)
    if one.step % every == 0:
        after = next((step for step in saved if step > one.step), None)
        before = max(step for step in saved if step < one.step)
        if after is None:
            return ""  # it may have been killed between the save and the line about it
        return f"is of step {one.step}, and its log tells of saves at steps {before} and {after}, and of none between"
    return f"is of step {one.step}, and its log tells of saves every {every} steps, and of none there"


def unnamed_newest(held: Sequence[Checkpoint], attempt: Attempt) -> str:
    """Return that the log of an attempt names its saves, and not the newest checkpoint that lies there; empty where it does.

    It may have been killed between the save and the line about it, or the checkpoint was copied there.
    """
    newest, saved = (held[-1] if held else None), sorted(attempt.saved)
    if newest is None or len(saved) < FEWEST_SAVES or newest.step <= saved[-1] or not counts_steps(newest.format, newest.path.name):
        return ""
    if not any(one.step in attempt.saved for one in held):
        return ""
    return (
        f"{newest.path.name} is named by no line of its log, which tells of saves up to step {saved[-1]}: the job was killed right "
        "after that save, or another run's was copied there"
    )


def _by_history(one: Checkpoint, attempt: Attempt, histories: Histories) -> str:
    """Compare the losses that a checkpoint holds with those that the job logged, where another one's agree with these."""
    logged = {point.step: point.loss for point in attempt.points if point.loss is not None and math.isfinite(point.loss)}
    other = _differing(histories.get(one.path, {}), logged)
    if not other or not any(_differing(held, logged) == [] for held in histories.values()):
        return ""
    step = other[-1]
    return f"holds a loss of {histories[one.path][step]:.4g} at step {step}, where this job logged {logged[step]:.4g}"


def _differing(history: Mapping[int, float], logged: Mapping[int, float]) -> list[int] | None:
    """Return the steps at which most losses of a history are other ones; empty where it agrees, None where too few are shared."""
    shared = [step for step in history if step in logged]
    if len(shared) < FEWEST_LOSSES:
        return None
    other = [step for step in shared if abs(history[step] - logged[step]) > max(SAME, SAME_SHARE * abs(logged[step]))]
    return other if 2 * len(other) > len(shared) else []


def histories_of(held: Inventory, account: str) -> Histories:
    """Return the losses by step that the newest checkpoints hold themselves, as Hugging Face's do in `trainer_state.json`."""
    found: dict[Path, dict[int, float]] = {}
    for entry in [entry for entry in held.entries if entry.format is Format.HUGGINGFACE][-MOST_HISTORIES:]:
        if "trainer_state.json" not in entry.files:
            continue
        path = entry.file("trainer_state.json")
        with reading_as(account):
            try:
                found[entry.path] = within(HISTORY_S, partial(_losses_in, path), str(path))
            except (OSError, ValueError, ToolError, Unavailable):
                continue
    return found


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
