"""Read metrics off lines in forms of no framework: `step:46 - loss:2.3 - lr:1e-4`, tables, and lines that number no step.

A line counts that names a step among three or more numbers with names, or a row of numbers under a header with a step. Lines that
tell of a save, a load or a resumption do not. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NUMBER = r"[-+]?(?:\d{1,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,4})?|\.\d{1,40}|(?i:nan|inf(?:inity)?))"
PAIR = re.compile(
    rf"(?P<key>[A-Za-z_@][\w./@()-]{{0,80}}(?: [A-Za-z_][\w/-]{{0,30}})?)\s{{0,8}}[:=]\s{{0,8}}(?:\w{{1,20}}\.\w{{1,20}}\()?"
    rf"(?P<value>{NUMBER})(?![\w.:/-]*\w|\s?%)"
)
DONE_WORDS = "completed|finished|trained|current"
"""Words before `_steps` that say of a count that it is the one so far: Accelerate's examples print `completed_steps`."""
STEP = re.compile(
    rf"(?:^|[/. @])(?:(?:global|update|train|training|trainer|opt|optimizer|policy|{DONE_WORDS})[_ ]?)?"
    r"(?:steps?|iters?|iterations?|updates?|num_updates|batch_idx|opt_step)$",
    re.IGNORECASE,
)
NO_STEP = re.compile(
    r"skip|nan|inf\b|number|count|total|max|\bmin|remain|left|per\b|warm|eval|log|save|bad|late|every|interval"
    r"|start|begin|initial|first|final|\bend|stop|target|goal|limit|budget|planned|until",
    re.IGNORECASE,
)
"""In the name of a number: steps of some kind, counted, allowed or meant, but not the one that the line is of."""
PLURAL = re.compile(r"(?<!num_)(?:steps|iters|iterations|updates)$", re.IGNORECASE)
"""In the plural a name is as often that of how many steps are meant: `train_steps: 900` in a summary of settings."""
COUNTED_SO_FAR = re.compile(rf"(?:{DONE_WORDS})[_ ]?\w{{1,12}}$", re.IGNORECASE)
LOSS = re.compile(r"(?:^|[/. ])(?:(?:train|training|total|lm|mean|avg)_?)?loss$", re.IGNORECASE)
NORM = re.compile(r"(?:^|[/. ])(?:global_|total_)?(?:grad(?:ient)?_?norm|gnorm)$", re.IGNORECASE)
OTHER_MATTER = re.compile(
    r"\b(?:sav(?:e|ed|ing)|load(?:ed|ing)?|restor\w{1,6}|resum\w{1,6}|checkpoint\w{0,8}|eval\w{0,8}|valid\w{0,8}|test(?:ing)?|best|config|args?"
    r"|max_\w{1,20}|total_steps)\b",
    re.IGNORECASE,
)
"""What a line about something else than a training step says."""
FEWEST_PAIRS = 3
FEWEST_BRACKETED = 2
FEWEST_COLUMNS = 2
LONGEST = 4000
_PAIRED = re.compile(r"(?:step|iter|iteration|update|idx)s?\)?\s{0,8}[:=]\s{0,8}\d", re.IGNORECASE)
_CLU = re.compile(r"\.py:\d{1,6}\] \[(?P<step>\d{1,12})\] (?=[A-Za-z_][\w/.-]{0,80} ?=)")
"""Behind absl's prefix. Source: google/CommonLoopUtils, clu/metric_writers/logging_writer.py."""
_BRACKETED = re.compile(
    r"\[\s{0,4}(?:global[_ ]|train[_ ])?(?:step|iter|iteration|update)[ =:]{1,3}(?P<step>\d{1,15})(?:\s?/\s?\d{1,15})?\s{0,4}\]\s",
    re.IGNORECASE,
)
"""A step that stands by itself before the numbers of its line: `[step 40] nll=3.5659, steps_per_sec=3.32`."""
_COUNTED = re.compile(
    r"(?:^|[\s|\[(,:])(?:global |train |training )?(?:step|iter|iteration|update)[ \t]{1,4}"
    r"(?P<step>\d{1,15}) ?/ ?(?P<of>\d{1,15})(?![\d./])",
    re.IGNORECASE,
)
_SEPARATORS = re.compile(r"[|,;]")
_SEGMENT = re.compile(
    rf"[\s\])]{{0,8}}(?P<key>[A-Za-z_][\w./-]{{0,40}})\s{{0,4}}[:=]?\s{{0,4}}(?P<value>{NUMBER})\s?[A-Za-z%/]{{0,8}}\s{{0,8}}"
)
_TITLE = re.compile(
    r"(?:^|[|│┃\t,]|\s\s)\s{0,4}(?:\w{1,20}[_ /])?(?:step|iter|iteration|update)s?\s{0,4}(?:$|[|│┃\t,]|\s\s)", re.IGNORECASE
)
"""Looked for first, because that is cheap."""
_CELLS = re.compile(r"\s*[|│┃]\s*|\t+|\s{2,}|\s*,\s*")
_PREFIX = re.compile(r"^\s{0,20}(?:\([^)]{1,80}\)|\[[^\]]{1,80}\])\s{0,8}")
_ROW = re.compile(r"\s{0,40}(?:\([^)]{1,80}\)|\[[^\]]{1,80}\])?[\s|│┃]{0,40}[-+\d.]")
_NUMBER_ALONE = re.compile(NUMBER)


class PairsReading(NamedTuple):
    """The metrics of one line."""

    step: int
    loss: str | None
    norm: str | None
    setting: str = ""
    """Name of the step where it may be a setting: in the plural, without a loss; only a second value shows that it counts."""


class TableReader:
    """Reads rows of numbers under the header that stood last."""

    def __init__(self) -> None:
        """Begin with no header."""
        self.columns: tuple[str, ...] = ()
        """Of the header that stood last and names a step."""

    def take(self, text: str) -> PairsReading | None:
        """Return what a row says; None for a header and for any other line."""
        if len(text) > LONGEST or not (_TITLE.search(text) or (self.columns and _ROW.match(text))):
            return None
        cells = [cell for cell in _CELLS.split(_PREFIX.sub("", text).strip(" |│┃\t")) if cell]
        if len(cells) < FEWEST_COLUMNS:
            return None
        names = [cell.strip() for cell in cells]
        if all(re.fullmatch(r"[A-Za-z_@][\w ./()%@-]{0,60}", name) for name in names):
            stepped = sum(map(_is_step, names)) == 1
            self.columns = tuple(names) if stepped and len(set(names)) == len(names) else ()
            return None
        if len(names) != len(self.columns):
            return None
        values = dict(zip(self.columns, names, strict=True))
        if not all(_NUMBER_ALONE.fullmatch(value.rstrip("%")) for value in values.values()):
            return None
        return _reading(values)


def pairs_reading(text: str) -> PairsReading | None:
    """Return the metrics of a line of names with numbers; None where it names no step among them, or is about something else."""
    if len(text) > LONGEST:
        return None
    if (clu := _CLU.search(text)) is not None:
        reading = _reading(
            {**dict(reversed([(m["key"].strip(), m["value"]) for m in PAIR.finditer(text, clu.end())])), "step": clu["step"]}
        )
        return reading if reading is not None and (reading.loss is not None or reading.norm is not None) else None
    if (bracketed := _BRACKETED.search(text)) is not None:
        pairs = list(PAIR.finditer(text, bracketed.end()))
        if len(pairs) < FEWEST_BRACKETED or OTHER_MATTER.search(text, bracketed.end()):
            return None
        numbers = dict(reversed([(pair["key"].strip(), pair["value"]) for pair in pairs]))
        return _reading({"step": bracketed["step"]} | {key: value for key, value in numbers.items() if not _is_step(key)})
    if not _PAIRED.search(text):
        return None
    matches = list(PAIR.finditer(text))
    if len(matches) < FEWEST_PAIRS or OTHER_MATTER.search(text, 0, matches[0].end()):
        return None
    values: dict[str, str] = {}
    for match in matches:
        values.setdefault(match["key"].strip(), match["value"])
    return _reading(values)


def counted_reading(text: str) -> PairsReading | None:
    """Return the metrics of a line that counts its step and gives numbers behind it: `step 16/30 | rm_loss 0.61 | acc 0.72`.

    None where no number with a name stands there by itself, or the line is about something else.
    """
    match = _COUNTED.search(text) if len(text) <= LONGEST else None
    if match is None or int(match["step"]) > int(match["of"]) or OTHER_MATTER.search(text):
        return None
    segments = (_SEGMENT.fullmatch(segment) for segment in _SEPARATORS.split(text[match.end() :]))
    values = {segment["key"].strip(): segment["value"] for segment in segments if segment is not None}
    return (
        _reading({"step": match["step"]} | {key: value for key, value in values.items() if not _is_step(key)}) if values else None
    )


def _is_step(name: str) -> bool:
    return STEP.search(name) is not None and NO_STEP.search(name) is None


def _reading(values: dict[str, str]) -> PairsReading | None:
    steps = [(key, int(value)) for key, value in values.items() if _is_step(key) and value.isdecimal() and len(value) <= 15]
    if not steps:
        return None
    name, step = next((pair for pair in steps if not PLURAL.search(pair[0])), steps[0])
    loss = next((value for key, value in values.items() if LOSS.search(key)), None)
    norm = next((value for key, value in values.items() if NORM.search(key)), None)
    is_setting = loss is None and norm is None and PLURAL.search(name) is not None and COUNTED_SO_FAR.search(name) is None
    return PairsReading(step, loss, norm, name if is_setting else "")


# The steps of training lines that name none: line after line counts on by as many steps as lie between two log lines.
#
# Hugging Face Trainer prints `{'loss': …, 'epoch': 0.5}` at each multiple of `logging_steps`; the step stands in a progress bar,
# which may be off or in another file. How many steps a line stands for follows from what else the log shows, or it stays unknown.

BEGIN = re.compile(r"\*{3,} ?Running training ?\*{3,}")
START = re.compile(r"Continuing training from global step (\d{1,15})\b")
LOAD = re.compile(
    r"\b(?:[Rr]esum(?:e|ing) training (?:at|from)|Loading model from|[Cc]ontinuing training from(?: checkpoint)?:?) "
    r"\S{0,4000}\bcheckpoint-(\d{1,15})\b"
)
"""Said before a run begins, by transformers' example scripts and its Trainer (_load_from_checkpoint)."""
SAVE = re.compile(r"\bSaving (?:model )?checkpoint to \S{0,4000}\bcheckpoint-(\d{1,15})\b")
LOGGING_STEPS = re.compile(r"\blogging_steps=(\d{1,9})(?:\.0)?[,)\s]")
GATES = ("Running training", "ontinuing training", "Saving ", "logging_steps=", "checkpoint-")
"""One of them stands in every line that tells of a run."""
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
        if not any(gate in text for gate in GATES):
            return False
        if BEGIN.search(text):
            return True
        if (match := START.search(text)) or (not self.epochs and (match := LOAD.search(text))):
            self.start = int(match[1])
        elif match := SAVE.search(text):
            self.saves.append((len(self.epochs), int(match[1])))
        elif match := LOGGING_STEPS.search(text):
            self.every = int(match[1])
            self.first_too = "logging_first_step=True" in text
        return False

    def next_run(self) -> LineCount:
        """Return the count of a run that begins now, with what was read of it before: its arguments, what it loads, and a bar."""
        start, bar = (self.start, self.bar) if not self.epochs else (0, None)
        return LineCount(start=start, every=self.every, first_too=self.first_too, bar=bar)

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
