"""Whether a sentence orders something or asks: what it cannot mean by its form."""

from __future__ import annotations

import re

CHANGING = frozenset({"recover", "cordon", "uncordon", "cancel"})
"""Intents that propose a change."""
_GREETS = r"(?:(?:please|pls|ok|okay|so|and|but|now|hi|hey|hello|also|then|well|just|sorry)\b[ ,.!]*)*"
_ASKS = re.compile(
    rf"{_GREETS}(?:(?:is|are|was|were|did|does|has|have|had|why|how|which|what|who|when|where|whose|whom)\b"
    # `node07 again??`: a name and a mark of a question are no order, and `restart it?` may be one
    r"|(?:\{\w+\}|any|anything|all|still|already|again|everything|nothing|no)(?![\w{])[^.;]*\?\s*$)",
    re.IGNORECASE,
)
_RESTARTS = re.compile(
    rf"{_GREETS}(?:(?:can|could|would|will) you (?:please |kindly )?|let us |let's |i (?:want|need|would like) (?:you )?(?:to )?)?"
    r"(?:(?:re-?)?(?:start|run|launch|submit|queue|sume|cover|vive|try)|continue|bring|kick|get|put) (?:up |off )?(?:the )?"
    r"(?:job |run |training )?\{job\}(?!'s)",
    re.IGNORECASE,
)
"""An order that may name a checkpoint, and asks for none."""
_CHECKPOINTS = frozenset({"checkpoints", "newest_checkpoint", "plan"})


def barred(sentence: str) -> frozenset[str]:
    """Return the intents that a sentence cannot have: who asks whether a node is back does not ask to put it back.

    Args:
        sentence: With `{job}`, `{node}` in place of names.
    """
    if _ASKS.match(sentence):
        return CHANGING | {"approve"} if sentence.rstrip().endswith("?") else CHANGING
    return _CHECKPOINTS if _RESTARTS.match(sentence) else frozenset()
