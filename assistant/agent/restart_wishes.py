"""What an order to restart a job says besides the job: from which checkpoint, away from which nodes, without which steps.

What a restart cannot be given is named, so that it is refused and not left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from assistant.agent.conditions import IDLE, PAST
from assistant.agent.quantities import MASK
from assistant.agent.words import Names
from assistant.nodeset import fold

_SAVE = r"(?:checkpoint|ckpt|save|snapshot)"
_START = re.compile(
    r"\bfrom (?:the )?(?:very )?(?:beginning|start|scratch|zero|nothing)\b|\bfrom step 0\b|\bwithout (?:a |any |its )?checkpoint\b",
    re.I,
)
_BEFORE = re.compile(
    rf"\b(?:from|at|of) (?:the )?(?:one|{_SAVE}) (?:right |just )?before(?: (?:that|it|this|the last(?: one)?))?\b"
    r"|\bfrom (?:the |an? )?(?:previous|earlier|preceding|second(?:[ -](?:last|newest|to last))?|last but one)"
    rf"(?: (?:one|{_SAVE}))?\b",
    re.IGNORECASE,
)
_NEWEST = re.compile(
    r"\bfrom (?:the |its |his )?(?:very )?(?:last|newest|latest|most recent)?"
    rf"(?: (?:known|healthy|good|intact|usable|safe|complete))*(?: (?:{_SAVE}|one|state))\b",
    re.IGNORECASE,
)
_AWAY = re.compile(
    r"\b(?:without|avoid(?:ing)?|exclud(?:e|ing)|away from|except(?: on)?|other than|but not on|not on|not using"
    r"|(?:do not|don'?t|never) (?:use|take|touch|include)|off|instead of"
    r"|skipping|minus)(?: the)?(?: nodes?| machines?| hosts?)*(?:\s+\{node\}(?:\s*(?:,|and|or)\s*)?)+",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(
    r"\b(?:on|with|using) (?:other|different|new|fresh) (?:nodes|machines|hosts)\b|\belsewhere\b"
    r"|\b(?:but )?not (?:again )?(?:on )?(?:the|those) same (?:nodes|machines|hosts)\b",
    re.IGNORECASE,
)
_PLACED = re.compile(r"\{job\}.*\b(?:on|using|with)(?: the)?(?: nodes?| machines?)* \{node\}", re.IGNORECASE)
_SKIP = re.compile(
    r"\b(?:skip(?:ping)?|leav(?:e|ing) out|without|jump(?:ing)? over)(?: the)? (?:steps?|iterations?) ", re.IGNORECASE
)
_STEP = re.compile(
    rf"\b(?:from|at|to|with|using)?\s*(?:the )?(?:its )?{_SAVE}?\s*(?:of|at)?\s*(?:steps?|iterations?) "
    rf"{re.escape(MASK)}(?:\s*(?:to|-|and|through|until)\s*{re.escape(MASK)})?",
    re.IGNORECASE,
)
_PATH = re.compile(rf"\b(?:from|with|using|at)\s+(?:the )?(?:{_SAVE}|file|path)?\s*(?:in|at)?\s*{re.escape(MASK)}", re.IGNORECASE)
_PHRASE = re.compile(
    r"\b(?:with|without|using|on|in|at|as|if|when|once|after|until|unless|before|by|under|as soon as|tomorrow|tonight|later"
    r"|next|every|but|instead|skip\w*|not|for)\b[^,;.!?]*",
    re.IGNORECASE,
)
_SLOT = re.compile(r"\{(?:job|node|incident|text|number)\}|\buser(?:'s)?\b")


@dataclass(frozen=True)
class RestartWish:
    """What a restart is to be given."""

    checkpoint: str = ""
    """`none`, `newest`, `before`, `step`, a path; empty where nothing is said."""
    step: int | None = None
    exclude: tuple[str, ...] = ()
    elsewhere: bool = False
    """On none of the nodes that it had."""
    skip: tuple[int, int] | None = None
    """First step whose data is left out, and the first whose data counts again."""
    uncarried: tuple[str, ...] = ()
    """What a restart cannot be given, as it stands in the question."""

    @property
    def is_plain(self) -> bool:
        """Whether it says nothing but that the job shall run again."""
        details = self.checkpoint not in ("", "newest") or self.exclude or self.elsewhere or self.skip or self.uncarried
        return not details


def restart_wish(sentence: str, names: Names) -> RestartWish:
    """Return what an order to restart says besides its job.

    Args:
        sentence: With names masked, and `{q}` for the numbers of `names.quantities`.
        names: Of the question.
    """
    quantities, remainder = names.quantities, PAST.sub(" ", sentence)
    steps = list(quantities.steps)
    skip: tuple[int, int] | None = None
    if _SKIP.search(remainder) and len(steps) >= 2:
        skip, steps = (steps[-2], steps[-1]), steps[:-2]
        remainder = _SKIP.sub(" steps ", remainder)
    checkpoint = ""
    for pattern, start in (
        (_START, "none"),
        (_BEFORE, "before"),
        (_STEP, "step" if steps else ""),
        (_PATH, quantities.paths[0] if quantities.paths else ""),
        (_NEWEST, "newest"),
    ):
        if start and pattern.search(remainder):
            remainder = pattern.sub(" ", remainder)
            checkpoint = checkpoint or start
    if steps and not checkpoint and MASK in remainder:
        # `restart 4821 300`: a number that nothing explains is not left out
        checkpoint, remainder = "step", remainder.replace(MASK, " ", 1)
    step = steps[0] if checkpoint == "step" else None
    exclude = names.nodes if _AWAY.search(remainder) else ()
    elsewhere = bool(_ELSEWHERE.search(remainder))
    remainder = _ELSEWHERE.sub(" ", _AWAY.sub(" ", remainder))
    placed = (f"on {fold(names.nodes)}",) if names.nodes and not exclude and _PLACED.search(remainder) else ()
    return RestartWish(checkpoint, step, exclude, elsewhere, skip, (*placed, *_uncarried(remainder)))


def begins_before(sentence: str) -> bool:
    """Tell whether `from the one before` speaks of a checkpoint."""
    match = _BEFORE.search(sentence)
    return match is not None and match.group().lower().startswith("from")


def _uncarried(remainder: str) -> tuple[str, ...]:
    """Return the phrases of an order that nothing was made of: conditions, times, and what a change cannot be given."""
    remainder = IDLE.sub(" ", remainder)
    phrases = []
    for match in _PHRASE.finditer(remainder):
        text = " ".join(_SLOT.sub(" ", match.group()).replace(MASK, "N").split()).strip(" ,.;!?")
        if len(text.split()) > 1 or text.lower() in ("tomorrow", "tonight", "later"):
            phrases.append(text)
    return tuple(phrases)
