"""Tell from one line of a log what the job is at: loading, preparing, evaluating, saving, or done.

Pure. A line says that a phase begins, or that it is over; training itself is told by its metrics, not here.
"""

from __future__ import annotations

import re
from enum import StrEnum


class LogPhase(StrEnum):
    """What a job is at."""

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
