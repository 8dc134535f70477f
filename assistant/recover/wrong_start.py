"""Tell whether a restart is by positive proof at a wrong start, or trains without numbers, and what it saved over. Pure.

A proof ends a job, so it takes more than a doubt: the job trains already, its step counter is below the chosen checkpoint, and its
own words or the counter of the attempt before say the same. A loss alone is none, and silence is none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from pathlib import PurePosixPath
from statistics import median
from typing import NamedTuple

from assistant.logs.spikes import is_no_number
from assistant.records import Checkpoint, Job, MetricPoint
from assistant.recover.checkpoints.layout import counts_steps
from assistant.recover.checkpoints.own_folders import Walk
from assistant.recover.loaded import SLACK_STEPS, LoadedCheckpoint, LoadLine, compare_loaded, goes_on_from
from assistant.watch.progress import NOT_A_NUMBER_STEPS

__all__ = ["LostNumbers", "Saves", "proof_of_lost_numbers", "proof_of_wrong_start", "saves_since", "unwritten_words"]

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
    return LostNumbers(sentence, at_once=own < AT_ONCE or len(steps) >= LONG_LOST)


def proof_of_wrong_start(
    chosen: Checkpoint | None,
    loaded: LoadedCheckpoint,
    points: Sequence[MetricPoint],
    before: Sequence[MetricPoint],
    *,
    reached: int | None = None,
    refused: Collection[int] = (),
) -> str:
    """Return the sentence that proves a wrong start; empty where there is no proof, whatever the doubt.

    Args:
        chosen: What the restart was to go on from; None where it was to begin at the start: nothing is proven then.
        loaded: From `loaded_checkpoint`, of the new attempt.
        points: What the new attempt logged, in order.
        before: What the attempt before it logged, by the same reader.
        reached: Last step of that attempt, where it is known otherwise.
        refused: Steps of checkpoints that were judged not to be loaded.
    """
    if chosen is None or loaded.first_step is None or not counts_steps(chosen.format, chosen.path.name):
        return ""
    comparison = compare_loaded(chosen, loaded)
    if not comparison.differs or _named_as_chosen(chosen, loaded):
        return ""
    slack = 0 if loaded.exact else SLACK_STEPS
    steps = list(dict.fromkeys(point.step for point in points))
    if not steps:
        return ""
    early = [step for step in steps[:FEWEST_STEPS] if step < chosen.step - slack]
    low = len(early) == len(steps[:FEWEST_STEPS]) and any(early)  # step 0 alone may be an evaluation
    elsewhere = all(_lies_elsewhere(chosen, load) for load in loaded.loads)
    if not elsewhere:
        return _by_load(chosen, loaded, steps[:FEWEST_STEPS], refused)
    if not low:
        return ""
    counters = [*(point.step for point in before), *([reached] if reached is not None else [])]
    if max(counters, default=chosen.step) < chosen.step:
        return ""  # the log counts otherwise than the checkpoints do, such as anew in each epoch
    where = f"its own steps are {', '.join(map(str, early))}; chosen was {chosen.path.name} (step {chosen.step})"
    if loaded.fresh_line:
        return f"it began at the start: {loaded.fresh_line!r}; {where}"
    if not loaded.exact or loaded.by_bar or _loss_goes_on(chosen, points, before):
        return ""
    anew = next((load for load in reversed(loaded.loads) if load.step == 0 and goes_on_from(load, loaded)), None)
    if anew is not None:
        return f"it loaded step 0: {anew.text!r}; {where}"
    if len(early) < FEWEST_STEPS or not any(point.step >= chosen.step for point in before):
        return ""
    counter = f"{where}, by the counter that had come to step {max(point.step for point in before)}"
    if loaded.loads:
        return f"what it loaded lies in another folder: {loaded.loads[-1].text!r}; {counter}"
    return f"it began below the checkpoint: {counter}"


def _named_as_chosen(chosen: Checkpoint, loaded: LoadedCheckpoint) -> bool:
    """Tell whether any line says that the chosen checkpoint was loaded, whatever others say."""
    return any(load.step == chosen.step or chosen.path.name in PurePosixPath(load.path).parts for load in loaded.loads)


def _lies_elsewhere(chosen: Checkpoint, load: LoadLine) -> bool:
    """Tell whether what a line names lies outside the folder of the chosen checkpoint and not above it."""
    path, folder = PurePosixPath(load.path), PurePosixPath(chosen.path.parent)
    return path.is_absolute() and not path.is_relative_to(folder) and not folder.is_relative_to(path)


def _by_load(chosen: Checkpoint, loaded: LoadedCheckpoint, steps: Sequence[int], refused: Collection[int]) -> str:
    """Return the proof that another checkpoint was loaded: the line and the first steps after it say the same."""
    folder = str(chosen.path.parent)
    near = [load for load in loaded.loads if not load.path or load.path == folder or load.path.startswith(f"{folder}/")]
    near = near or [load for load in loaded.loads if not load.path.startswith("/")]
    for load in reversed(near):
        if load.step is None or not goes_on_from(load, loaded) or max(steps) <= load.step:
            continue  # the step of the checkpoint itself may be an evaluation
        below = load.step < chosen.step and steps[0] < chosen.step and max(steps) <= chosen.step
        if below or load.step in refused:
            return (
                f"it loaded step {load.step}: {load.text!r}, and its first step is {loaded.first_step}; chosen was "
                f"{chosen.path.name} (step {chosen.step})"
            )
    return ""


def _loss_goes_on(chosen: Checkpoint, points: Sequence[MetricPoint], before: Sequence[MetricPoint]) -> bool:
    """Tell whether the losses are those behind the checkpoint and not those of the same steps before: a counter that began anew."""
    own = {point.step: point.loss for point in points[:NEAR_STEPS] if point.loss is not None}
    same = [(own[point.step], point.loss) for point in before if point.loss is not None and point.step in own]
    near = [point.loss for point in before if point.loss is not None and chosen.step - NEAR_STEPS <= point.step <= chosen.step]
    if not own or not near:
        return False
    away = median(abs(loss - median(near)) for loss in own.values())
    if not same:
        return away <= abs(median(near)) * SAME_SHARE
    return away < median(abs(one - other) for one, other in same) / 2


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
    written = [one for one in now if old.get(one.path.name) != one.saved_at.isoformat()]
    if before is None:
        written = [one for one in written if started is None or one.saved_at >= started]
    present = {one.path.name for one in now}
    return Saves(
        tuple(one.path.name for one in written if one.path.name not in old),
        tuple(one.path.name for one in written if one.path.name in old),
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
