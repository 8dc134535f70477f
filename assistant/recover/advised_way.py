"""The one way that a diagnosis advises, as every part that adds to its page has to keep to it. Pure.

What a person reads of an incident is put together from parts: the diagnosis, what the job left, how its script goes on, the command
that starts it again. Each part asks here what the diagnosis has decided, and says nothing against it: it counts no checkpoint as
usable that may hold damage, orders nothing in a folder whose runs have to be told apart first, and leaves out of each command the
nodes that a start has to stay away from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath, PurePosixPath

from assistant.records import Checkpoint, Diagnosis, Whereabouts
from assistant.recover.checkpoints.inventory import Inventory, is_before
from assistant.recover.situation import avoided

CONTESTED = "two runs save into one folder:"
"""How a place of a diagnosis begins that names a folder in which nothing is started, moved or removed before people have spoken."""
DAMAGED = "what was saved may hold the damage from step"
"""How a place of a diagnosis begins that names the step from which on no checkpoint is to be gone back to."""
_STEP = re.compile(r"\d{1,12}")


@dataclass(frozen=True, slots=True)
class AdvisedWay:
    """What a diagnosis has decided that other parts have to keep to."""

    excluded: tuple[str, ...] = ()
    """Nodes that a start has to stay away from, sorted."""
    damaged_from: int | None = None
    """The step from which on a checkpoint may hold the damage; None where none may."""
    contested: tuple[PurePosixPath, ...] = ()
    """Folders into which several runs save."""

    def contests(self, folder: PurePath) -> bool:
        """Tell whether several runs save into a folder, or into one that it lies in."""
        path = PurePosixPath(folder)
        return any(path == place or place in path.parents for place in self.contested)


def advised_way(*diagnoses: Diagnosis | None) -> AdvisedWay:
    """Return what diagnoses have decided together; nothing where there is none."""
    all_diagnoses = [diagnosis for diagnosis in diagnoses if diagnosis is not None]
    nodes = {node for diagnosis in all_diagnoses for node in (*diagnosis.faulty_nodes, *avoided(diagnosis))}
    words = [place.why for diagnosis in all_diagnoses for place in diagnosis.where]
    steps = [int(match[0]) for text in words if text.startswith(DAMAGED) and (match := _STEP.search(text, len(DAMAGED)))]
    folders = [PurePosixPath(text.removeprefix(CONTESTED).strip()) for text in words if text.startswith(CONTESTED)]
    return AdvisedWay(tuple(sorted(nodes)), min(steps, default=None), tuple(folders))


def damaged_from(step: int) -> Whereabouts:
    """Return the place of a diagnosis by which no part advises a checkpoint from a step on."""
    return Whereabouts(f"{DAMAGED} {step}")


def contested(folder: Path) -> Whereabouts:
    """Return the place of a diagnosis by which no part orders anything in a folder that several runs save into."""
    return Whereabouts(f"{CONTESTED} {folder}")


def without_damaged(inventory: Inventory, way: AdvisedWay, epoch: int | None = None) -> Inventory:
    """Return an inventory in which no checkpoint is healthy that is not known to be from before the damage.

    Args:
        inventory: As judged.
        way: Of the diagnosis.
        epoch: Of the step at which the damage began, as the log says it; None where it does not.
    """
    step = way.damaged_from
    if step is None:
        return inventory
    saves = tuple(save if is_before(save, step, epoch) else _damaged(save, step) for save in inventory.checkpoints)
    return replace(inventory, checkpoints=saves)


def _damaged(save: Checkpoint, step: int) -> Checkpoint:
    why = f"is not known to be from before step {step}, from which on it may hold the damage"
    return replace(save, healthy=False, undecided=False, problems=(why, *save.problems))


NEWEST_BEFORE = "Its newest checkpoint from before step"
SPIKE_MARGIN = 5
"""Steps before a spike within which a checkpoint may hold the beginning of it."""


def newest_before(checkpoints: Sequence[Checkpoint], step: int, margin: int = SPIKE_MARGIN) -> str:
    """Return which checkpoint is the newest that is some steps from before one, as a sentence; empty where there is none."""
    earlier = [checkpoint for checkpoint in checkpoints if checkpoint.step <= step - margin]
    newest = max(earlier, key=lambda checkpoint: checkpoint.step, default=None)
    return f"{NEWEST_BEFORE} {step} is {newest.path} (step {newest.step})." if newest is not None else ""
