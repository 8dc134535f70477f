"""How many checkpoints a program keeps, and after how many more saves one of them is gone: by what lies there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median

from assistant.records import Checkpoint
from assistant.recover.checkpoints.layout import counts_steps
from assistant.recover.checkpoints.names import name_form
from assistant.recover.checkpoints.secured import is_secured

FEWEST_KEPT = 2
"""Checkpoints that show an interval."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """How a program rotates its checkpoints, seen from one of them."""

    limit: int
    """As many lie there now; while it saves one may be there that goes at once."""
    saves_left: int
    """The one in question is removed with this save from now, at the latest."""
    gone_at: datetime | None
    """When that save comes, as far apart as the last ones were; None where their times do not tell."""

    def words(self, name: str) -> str:
        """Return it for people."""
        saves = "its next save" if self.saves_left == 1 else f"{self.saves_left} more saves"
        at = f", about {self.gone_at:%H:%M} UTC" if self.gone_at is not None else ""
        return f"its program keeps its newest {self.limit} checkpoints: {name} is removed with {saves} at the latest{at}"


def rotation_of(saves: Sequence[Checkpoint], path: Path, *, first_step: int | None) -> Rotation | None:
    """Return how a checkpoint is rotated away; None where what lies there does not show that older ones were removed.

    They are evenly spaced, and the one that comes before the oldest was within what the attempt trained.

    Args:
        saves: What the run saved, in any order.
        path: The checkpoint in question.
        first_step: The first step that the attempt logged; None where it logs none.
    """
    form = name_form(path.name)
    siblings = [save for save in saves if save.path.parent == path.parent and not is_secured(save.path)]
    alike = sorted((save for save in siblings if name_form(save.path.name) == form), key=lambda save: save.step)
    checkpoint = next((save for save in alike if save.path == path), None)
    intervals = {later.step - save.step for save, later in pairwise(alike)}
    if checkpoint is None or len(alike) < FEWEST_KEPT or len(intervals) != 1:
        return None
    # numbers of saves and epochs begin at 0 or 1, whatever step an attempt began with
    first = first_step if counts_steps(checkpoint.format, checkpoint.path.name) else 1
    if first is None or alike[0].step - intervals.pop() < max(1, first):
        return None
    newer = sum(save.step > checkpoint.step for save in alike)
    saves_left = len(alike) - newer
    interval_s = median((later.saved_at - save.saved_at).total_seconds() for save, later in pairwise(alike))
    gone_at = alike[-1].saved_at + timedelta(seconds=saves_left * interval_s) if interval_s > 0 else None
    return Rotation(len(alike), saves_left, gone_at)
