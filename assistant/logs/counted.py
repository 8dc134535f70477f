"""The steps of training lines that name none: line after line counts on by as many steps as lie between two log lines.

Hugging Face Trainer prints `{'loss': …, 'epoch': 0.5}` at each multiple of `logging_steps`; the step stands in a progress bar,
which may be off or in another file. How many steps a line stands for follows from what else the log shows, or it stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

BEGIN = re.compile(r"\*{3,} ?Running training ?\*{3,}")
START = re.compile(r"Continuing training from global step (\d{1,15})\b")
SAVE = re.compile(r"\bSaving (?:model )?checkpoint to \S{0,4000}\bcheckpoint-(\d{1,15})\b")
LOGGING_STEPS = re.compile(r"\blogging_steps=(\d{1,9})(?:\.0)?[,)\s]")
_GATES = ("Running training", "Continuing training", "Saving ", "logging_steps=")
ROUNDED, ROUNDED_SHARE = 0.0051, 0.001
"""How far an epoch that was rounded for the log may lie from its own, and as a share of it."""
LEAST_EPOCHS, FEWEST_EPOCHS = 0.5, 4
"""How far and over how many lines epochs must have come to tell anything."""
MOST_CANDIDATES = 10_000


@dataclass
class LineCount:
    """What one run of a log shows about the steps of its lines."""

    epochs: list[float | None] = field(default_factory=list)
    """Of each line that names no step, in order; None where it names no epoch."""
    start: int = 0
    """Step from which the run says that it goes on."""
    every: int = 0
    """Steps between two lines, as the arguments say; 0 where they do not."""
    saves: list[tuple[int, int]] = field(default_factory=list)
    """Lines before a checkpoint was saved, and its step."""
    first_too: bool = False
    """Whether the arguments say that the first step is logged as well, whatever its number."""
    bar: tuple[int, int] | None = None
    """Lines before the last progress bar, 0 for all where it stands before them as in another file, and the step that it shows."""

    def take(self, text: str) -> bool:
        """Learn from a line; True where it begins another run."""
        if not any(gate in text for gate in _GATES):
            return False
        if BEGIN.search(text):
            return True
        if match := START.search(text):
            self.start = int(match[1])
        elif match := SAVE.search(text):
            self.saves.append((len(self.epochs), int(match[1])))
        elif match := LOGGING_STEPS.search(text):
            self.every = int(match[1])
            self.first_too = "logging_first_step=True" in text
        return False

    def next_run(self) -> LineCount:
        """Return the count of a run that begins now, with what was read of it before: its arguments, and a bar before all lines."""
        return LineCount(every=self.every, first_too=self.first_too, bar=self.bar if not self.epochs else None)

    def steps(self) -> list[int] | None:
        """Return the step of each line; None unless one number of steps alone agrees with everything, from two sources at least."""
        if not self.epochs or self.first_too:
            return None
        sources = len({count for count, _ in self.saves if count}) + bool(self.start) + bool(self.every) + self._tell_epochs()
        # a bar may be ahead by what was drawn until the lines were written: where it is not needed it is not asked
        interval = self._only(None) if sources >= 2 else None
        if interval is None and self.bar is not None and sources:
            interval = self._only((self.bar[0] or len(self.epochs), self.bar[1]))
        if interval is None:
            return None
        before = self.start // interval
        return [(before + count) * interval for count in range(1, len(self.epochs) + 1)]

    def _only(self, bar: tuple[int, int] | None) -> int | None:
        """Return the one number of steps between two lines that agrees with everything; None where none does, or several do."""
        if self.every:
            candidates: Sequence[int] = [self.every]
        else:
            count, step = max([*self.saves, *([bar] if bar is not None else [])], default=(0, 0))
            steps_taken = step - self.start
            if count < 2 or steps_taken <= 0:
                return None
            candidates = range(max(1, steps_taken // (count + 2)), steps_taken // (count - 1) + 2)
        fitting = [interval for interval in candidates if self._fits(interval, bar)] if len(candidates) <= MOST_CANDIDATES else []
        return fitting[0] if len(fitting) == 1 else None

    def _tell_epochs(self) -> bool:
        known_epochs = [epoch for epoch in self.epochs if epoch is not None]
        return len(known_epochs) >= FEWEST_EPOCHS and known_epochs[-1] >= LEAST_EPOCHS

    def _fits(self, interval: int, bar: tuple[int, int] | None) -> bool:
        before = self.start // interval
        if any(step // interval - before != count for count, step in self.saves):
            return False
        if bar is not None and not 0 <= bar[1] // interval - before - bar[0] <= 1:
            return False
        known_epochs = [(before + count, epoch) for count, epoch in enumerate(self.epochs, 1) if epoch is not None]
        # epochs between two lines: the least and the most that each line allows, as it was rounded
        least = max(((epoch - ROUNDED - ROUNDED_SHARE * epoch) / count for count, epoch in known_epochs), default=0.0)
        return all(epoch + ROUNDED + ROUNDED_SHARE * epoch >= least * count for count, epoch in known_epochs)
