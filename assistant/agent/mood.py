"""Whether a sentence orders something or asks: what it cannot mean by its form."""

from __future__ import annotations

import re

CHANGING = frozenset({"recover", "cordon", "uncordon", "cancel"})
"""Intents that propose a change."""
_GREETS = r"(?:(?:please|pls|ok|okay|so|and|but|now|hi|hey|hello|also|then|well|just|sorry)\b[ ,.!]*)*"
_ASKS = re.compile(
    rf"{_GREETS}(?:(?:since|by|under|for|from|at|on|in|to|of|with|until|till|through) )?"
    r"(?:is|are|was|were|did|does|has|have|had|why|how|which|what|who|when|where|whose|whom"
    r"|do (?:i|we|you|they|the)|am i|(?:can|may|must|should|shall) (?:i|we))\b",
    re.IGNORECASE,
)
_POLITE = r"(?:(?:can|could|would|will) (?:you|we|somebody|someone)\b|would you mind|how about)"
_ORDERS = re.compile(
    rf"{_GREETS}(?:{_POLITE}|(?!(?:any|all|no|still|already)\b)\w+ (?:\w+ )?"
    r"(?:the |job |node |on )*(?:\{\w+\}|(?:it|this|that)\b)(?!\s+\w+ing))",
    re.IGNORECASE,
)
"""`restart 4821?` may be an order; `node07 again??` and `restart step for 4821?` are none."""
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
    marked = sentence.rstrip().endswith("?")
    if _ASKS.match(sentence) or (marked and not _ORDERS.match(sentence)):
        return CHANGING | {"approve"} if marked else CHANGING
    return _CHECKPOINTS if _RESTARTS.match(sentence) else frozenset()
