"""What one line of a log tells of a job's progress besides numbered steps: its phase, and epochs, samples or tokens.

A line says that a phase (loading, preparing, evaluating, saving) begins, or that it is over; training is told by its metrics. Keras
and many loops of people's own print a loss once an epoch. Such a count is no step: it is compared only with the same count of
another attempt of the run, never with the step of a checkpoint. Nothing here reads a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from assistant.logs.lines import Line
from assistant.logs.metrics import LARGEST_STEP
from assistant.logs.plain_metrics import NUMBER
from assistant.records import MetricPoint

__all__ = [
    "BEGINS",
    "ENDS",
    "LONGEST",
    "OVER",
    "PREPARED",
    "PREPARES",
    "Counts",
    "LogPhase",
    "announced_size",
    "counts_of",
    "phase_begun",
    "phase_over",
    "worth_reading",
]


class LogPhase(StrEnum):
    """The phase that a job is in."""

    START = "start"
    """From its launch to the first step that is logged."""
    LOADING = "loading"
    FIRST_STEP = "first_step"
    """One step was logged: what comes may still compile."""
    TRAINING = "training"
    PREPARATION = "preparation"
    """It compiles, or prepares its data."""
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    END = "end"
    """The last step was made."""


_SAVES = r"sav(?:e|es|ing) (?:a |the |model |training |distributed )*(?:checkpoint|state|model)"
BEGINS = (
    (
        LogPhase.CHECKPOINT,
        re.compile(
            rf"{_SAVES}|save_checkpoint|checkpoint \S{{1,60}} is about to be saved|\[torch\] saving \S{{1,300}}\.pt", re.IGNORECASE
        ),
    ),
    (
        LogPhase.EVALUATION,
        re.compile(
            r"\brunning (?:evaluation|validation|prediction)|\b(?:evaluating|validating)\b"
            r"|\b(?:evaluation|validation) (?:step|batch|start|begin|dataloader|loop|on\b)"
            r"|\b(?:start|begin)\w* (?:of )?(?:the )?(?:evaluation|validation)|\bsanity checking\b",
            re.IGNORECASE,
        ),
    ),
    (
        LogPhase.LOADING,
        re.compile(r"(?:load|restor|resum)(?:e|es|ing) (?:a |the |from |model ){0,4}(?:checkpoint|state)", re.IGNORECASE),
    ),
)
OVER = {
    LogPhase.CHECKPOINT: re.compile(
        r"(?:success\w{0,12} sav|(?<!to be )\bsaved\b|sav(?:e|ing) (?:done|complete|finish|took|duration)|finished sav"
        r"|checkpoint (?:done|written))",
        re.IGNORECASE,
    ),
    LogPhase.EVALUATION: re.compile(
        r"(?:validation|eval(?:uat(?:ion|ed|ing))?)[ _](?:loss|ppl|accuracy|result|done|finish|took|complete)|(?:'|\")eval_loss",
        re.IGNORECASE,
    ),
    LogPhase.LOADING: re.compile(r"(?:success\w{0,12} load|loaded|restored|resumed)", re.IGNORECASE),
}
ENDS = re.compile(
    r"training (?:is )?(?:done|finished|completed?)|exiting program (?:at|after)|reached max(?:_| )?(?:steps|epochs)", re.IGNORECASE
)
PREPARES = re.compile(
    r"\bcompiling (?:and loading )?(?:the |a )?(?:model|graph|module|kernel|function|extension|dataset index)"
    r"|\b(?:tokeniz|pre-?process|prepar|shuffl|pack)ing (?:\w{1,20} ){0,2}"
    r"(?:data(?:set)?s?|corpus|documents|samples|examples|shards)\b"
    r"|\bbuilding (?:[\w,]{1,20} ){0,5}(?:data ?sets?|index|indices)\b",
    re.IGNORECASE,
)
PREPARED = re.compile(
    r"(?:finished|done|completed) (?:with )?(?:compil|tokeniz|pre-?process|prepar|shuffl|pack|build)ing"
    r"|(?:compilation|tokenization|preprocessing|preparation) (?:is )?(?:done|finished|took|time|complete)",
    re.IGNORECASE,
)
_HINTS = tuple(
    "sav Sav SAV alid ALID val EVAL oad estor esum raining xiting each heck ompil okeniz rocess repar acking huffl uilding".split()
)
"""One of these stands in every line that is told apart: looked for first, because that is cheap."""
LONGEST = 2_000
"""Longer lines are dumps of data."""
_UNITS = r"(examples|samples|batches|steps|iterations|sequences|prompts|documents|shards|items|rows|questions|requests)"
_SIZE = re.compile(
    rf"\b(?:num(?:ber)?(?:[_ ]of)?|total)[_ ](?:\w{{1,20}}[_ ])?{_UNITS}\s{{0,4}}[:=]\s{{0,4}}(\d[\d,_]{{0,15}})\b"
    rf"|\b(?:on|over|for|\w{{1,20}}ing) (\d[\d,_]{{0,15}}) (?:\w{{1,20}} )?{_UNITS}\b(?!/)",
    re.IGNORECASE,
)


def worth_reading(text: str) -> bool:
    """Tell whether a line may say anything about a phase."""
    return len(text) <= LONGEST and any(hint in text for hint in _HINTS)


def phase_begun(text: str) -> LogPhase | None:
    """Return the phase that a line says begins; `END` where training is done; None where it says nothing."""
    if not worth_reading(text):
        return None
    if ENDS.search(text):
        return LogPhase.END
    if any(pattern.search(text) for pattern in OVER.values()):
        return None
    begun_phase = next((phase for phase, pattern in BEGINS if pattern.search(text)), None)
    prepares = begun_phase is None and PREPARES.search(text) and not PREPARED.search(text)
    return LogPhase.PREPARATION if prepares else begun_phase


def phase_over(text: str, phase: LogPhase) -> bool:
    """Tell whether a line says that a phase is over."""
    pattern = PREPARED if phase is LogPhase.PREPARATION else OVER.get(phase)
    return pattern is not None and worth_reading(text) and pattern.search(text) is not None


def announced_size(text: str) -> tuple[str, int] | None:
    """Return how much a line says that a phase has before it, as unit and count: `Num examples = 48000`; else None."""
    match = _SIZE.search(text) if len(text) <= LONGEST else None
    if match is None:
        return None
    count = int((match[2] or match[3]).replace(",", "").replace("_", ""))
    return ((match[1] or match[4]).lower(), count) if count else None


_LOSS = re.compile(
    rf"(?<![\w/-])(?:(?:train(?:ing)?|avg|average|mean|total|epoch)[ _/-]{{1,2}})?loss(?:es)?['\"]?\s{{0,4}}(?:is\b|[:=])?"
    rf"\s{{0,8}}({NUMBER})(?![\w.]{{0,64}}\w)",
    re.IGNORECASE,
)
_OTHER_LOSS = re.compile(r"\b(?:val|valid|validation|test|eval)(?:uation)?[ _/-]{0,2}$", re.IGNORECASE)
_EPOCH = re.compile(
    r"(?<![\w.-])epochs?['\"]?\s{0,4}[:=#\[(]{0,2}\s{0,4}(\d{1,7})(?!\d|\.\d|\s?%)(?:\s{0,4}(?:/|of)\s{0,4}(\d{1,7}))?",
    re.IGNORECASE,
)
_INNER_COUNT = re.compile(r"\[\s{0,12}(\d{1,12})\s{0,4}/\s{0,4}(\d{1,12})\b")
"""Behind the number of an epoch: how much of it is done. Source: pytorch/examples, mnist/main.py."""
_AMOUNT = re.compile(
    r"(?<![\w.-])(?:(?:num|consumed|total|seen|trained|train|global)[ _])?(samples|tokens|examples|images|sequences)"
    r"(?:[ _](?:seen|so[ _]far|consumed|trained))?['\"]?\s{0,4}[:=]?\s{0,4}(\d{1,15})(?![\d.]|\s?/\s?s)",
    re.IGNORECASE,
)
_BAR = re.compile(r"^\s{0,8}(\d{1,9})/(\d{1,9})\s")
"""Keras: batches of an epoch, in front of what it says of it."""
_HEAD = re.compile(r"^\s{0,8}Epoch (\d{1,7})(?:/(\d{1,7}))?:?\s{0,8}$")


class Counts(NamedTuple):
    """Progress that a log counts in the place of steps."""

    unit: str
    """`epochs`, `samples of an epoch`, or the word of the log: samples, tokens, examples."""
    points: tuple[MetricPoint, ...]
    """One for each count that was reached, in order, with the last loss that was printed for it."""


def counts_of(lines: Iterable[Line]) -> Counts | None:
    """Return what a log counts with a loss: the finest of its counts; None where it counts nothing.

    A line says it all (`Epoch 3 loss 0.41`), or the epoch stands in a line before it (Keras). Losses of a validation do not count.
    An epoch that is drawn again and again counts once, with its last loss.
    """
    points_by_unit: dict[str, dict[tuple[int, int], MetricPoint]] = {}
    runs: dict[str, int] = {}
    epoch: int | None = None
    for line in lines:
        text = line.text[:LONGEST]
        if (head := _HEAD.match(text)) is not None:
            epoch = int(head[1])
            continue
        if "oss" not in text and "OSS" not in text:
            continue
        loss = next((match[1] for match in _LOSS.finditer(text) if not _OTHER_LOSS.search(text, 0, match.start())), None)
        if loss is None:
            continue
        for unit, count in _counted(text, epoch):
            if count > LARGEST_STEP:
                continue
            of_unit = points_by_unit.setdefault(unit, {})
            last = next(reversed(of_unit), None)
            if last is not None and count < last[1]:
                runs[unit] = runs.get(unit, 0) + 1  # it went back: a run of its own
            of_unit[runs.get(unit, 0), count] = MetricPoint(count, float(loss), None, line.number)
    if not points_by_unit:
        return None
    unit = max(points_by_unit, key=lambda name: (len(points_by_unit[name]), name != "epochs"))
    return Counts(unit, tuple(points_by_unit[unit].values()))


def _counted(text: str, epoch: int | None) -> list[tuple[str, int]]:
    amounts = [(match[1].lower(), int(match[2])) for match in _AMOUNT.finditer(text)]
    if (match := _EPOCH.search(text)) is not None:
        inner_match = _INNER_COUNT.search(text, match.end(), match.end() + 40)
        inner = (
            [("samples of an epoch", int(match[1]) * int(inner_match[2]) + int(inner_match[1]))] if inner_match is not None else []
        )
        return [*amounts, *inner, ("epochs", int(match[1]))]
    if epoch is not None and _BAR.match(text):
        return [*amounts, ("epochs", epoch)]
    return amounts
