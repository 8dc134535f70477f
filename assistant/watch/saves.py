"""Notice a job that makes steps and no checkpoints any more, by its own interval."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

from assistant.logs.phases import BEGINS, OVER, LogPhase

FEW_SAVES = 3
"""With fewer seen the interval is not known."""
SAVED_STEP = re.compile(
    r"(?:iteration|step|batch count|checkpoint(?:s for(?= \d{1,18} into))?|iter|global_step)[ :=_-]{0,10}(\d{1,18})", re.IGNORECASE
)
"""Megatron pads its iterations: `saving checkpoint at iteration      20 to`."""


@dataclass(frozen=True, slots=True)
class SaveLimits:
    """When checkpoints fall behind."""

    factor: float = 3.0
    """Times the interval between two of them, in steps and in time."""


@dataclass(frozen=True, slots=True)
class Late:
    """An overdue checkpoint."""

    last_step: int
    last_at: datetime
    every_steps: float
    steps_since: int


def tells_of_save(text: str) -> bool:
    """Tell whether a line says that a checkpoint is written, or was."""
    if len(text) > 2_000 or ("sav" not in text and "Sav" not in text and "SAV" not in text):
        return False
    if "onfiguration saved" in text or "okenizer" in text:
        return False
    return OVER[LogPhase.CHECKPOINT].search(text) is not None or dict(BEGINS)[LogPhase.CHECKPOINT].search(text) is not None


@dataclass
class SaveTrack:
    """The saves of one attempt."""

    steps: list[int] = field(default_factory=list)
    """Steps at which it saved, the last ones."""
    at: list[datetime] = field(default_factory=list)
    newest_step: int = 0
    confirms: bool = False
    """Whether the job says when a checkpoint is written, so that the announcement alone does not count."""

    def saved(self, text: str, step: int, now: datetime) -> None:
        """Take a line that tells of a save; the line's own step counts where it names one near the last that was logged."""
        confirmed = OVER[LogPhase.CHECKPOINT].search(text) is not None
        if self.confirms and not confirmed:
            return
        self.confirms = confirmed
        match = SAVED_STEP.search(text)
        number = int(match[1]) if match else step
        number = number if abs(number - step) <= max(10, step // 2) else step
        if self.steps and number <= self.steps[-1]:
            if number < self.steps[-1] - 1:  # it went back: what was saved since is written again
                self.steps, self.at = [number], [now]
            else:
                self.at[-1] = now
            return
        self.steps, self.at = [*self.steps[-32:], number], [*self.at[-32:], now]

    def shift(self, by: timedelta) -> None:
        """Move the past by what the time of day was set by."""
        self.at = [at + by for at in self.at]

    def stepped(self, step: int) -> None:
        """Take the newest step."""
        self.newest_step = step

    def late(self, limits: SaveLimits, now: datetime) -> Late | None:
        """Return what is missing; None while checkpoints come as they used to, or no interval is known."""
        if len(self.steps) < FEW_SAVES:
            return None
        gaps = [after - before for before, after in zip(self.steps, self.steps[1:], strict=False)]
        times = [(after - before).total_seconds() for before, after in zip(self.at, self.at[1:], strict=False)]
        since = self.newest_step - self.steps[-1]
        waited_s = (now - self.at[-1]).total_seconds()
        if since <= limits.factor * max(gaps) or waited_s <= limits.factor * median(times):
            return None
        return Late(self.steps[-1], self.at[-1], median(gaps), since)
