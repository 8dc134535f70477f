"""Tell from one line of a log what the job is at: loading, evaluating, saving, or done.

Pure. A line says that a phase begins, or that it is over; training itself is told by its metrics, not here.
"""

from __future__ import annotations

import re
from enum import StrEnum


class Phase(StrEnum):
    """What a job is at."""

    START = "start"
    """From its launch to the first step that is logged."""
    LOADING = "loading"
    FIRST_STEP = "first_step"
    """One step was logged: what comes may still compile."""
    TRAINING = "training"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    END = "end"
    """The last step was made."""


_SAVES = r"sav(?:e|es|ing) (?:a |the |model |training |distributed )*(?:checkpoint|state|model)"
BEGINS = (
    (
        Phase.CHECKPOINT,
        re.compile(
            rf"{_SAVES}|save_checkpoint|checkpoint \S{{1,60}} is about to be saved|\[torch\] saving \S{{1,300}}\.pt", re.IGNORECASE
        ),
    ),
    (
        Phase.EVALUATION,
        re.compile(
            r"\brunning (?:evaluation|validation|prediction)|\b(?:evaluating|validating)\b"
            r"|\b(?:evaluation|validation) (?:step|batch|start|begin|dataloader|loop|on\b)"
            r"|\b(?:start|begin)\w* (?:of )?(?:the )?(?:evaluation|validation)|\bsanity checking\b",
            re.IGNORECASE,
        ),
    ),
    (
        Phase.LOADING,
        re.compile(r"(?:load|restor|resum)(?:e|es|ing) (?:a |the |from |model ){0,4}(?:checkpoint|state)", re.IGNORECASE),
    ),
)
OVER = {
    Phase.CHECKPOINT: re.compile(
        r"(?:success\w{0,12} sav|(?<!to be )\bsaved\b|sav(?:e|ing) (?:done|complete|finish|took|duration)|finished sav"
        r"|checkpoint (?:done|written))",
        re.IGNORECASE,
    ),
    Phase.EVALUATION: re.compile(
        r"(?:validation|eval(?:uat(?:ion|ed|ing))?)[ _](?:loss|ppl|accuracy|result|done|finish|took|complete)|(?:'|\")eval_loss",
        re.IGNORECASE,
    ),
    Phase.LOADING: re.compile(r"(?:success\w{0,12} load|loaded|restored|resumed)", re.IGNORECASE),
}
ENDS = re.compile(
    r"training (?:is )?(?:done|finished|completed?)|exiting program (?:at|after)|reached max(?:_| )?(?:steps|epochs)", re.IGNORECASE
)
_HINTS = ("sav", "Sav", "SAV", "alid", "ALID", "val", "EVAL", "oad", "estor", "esum", "raining", "xiting", "each", "heck")
"""One of these stands in every line that is told apart: looked for first, because that is cheap."""
LONGEST = 2_000
"""Longer lines are dumps of data."""


def worth_reading(text: str) -> bool:
    """Tell whether a line may say anything about a phase."""
    return len(text) <= LONGEST and any(hint in text for hint in _HINTS)


def phase_begun(text: str) -> Phase | None:
    """Return the phase that a line says begins; `END` where training is done; None where it says nothing."""
    if not worth_reading(text):
        return None
    if ENDS.search(text):
        return Phase.END
    if any(pattern.search(text) for pattern in OVER.values()):
        return None
    return next((phase for phase, pattern in BEGINS if pattern.search(text)), None)


def phase_over(text: str, phase: Phase) -> bool:
    """Tell whether a line says that a phase is over."""
    pattern = OVER.get(phase)
    return pattern is not None and worth_reading(text) and pattern.search(text) is not None
