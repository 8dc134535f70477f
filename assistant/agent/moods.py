"""Whether a sentence asks or orders, and whether it tries to talk the rules away: what it cannot be meant for."""

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


_RULE_WORDS = (
    r"(?:rules?|instructions?|polic(?:y|ies)|limits?|limitations?|restrictions?|guidelines?|safeguards?|safety|guard ?rails?"
    r"|prompts?|approvals?|permissions?)"
)


_LIFTS = re.compile(
    rf"\b(?:ignore|forget|disregard|bypass|circumvent|override|overrule|suspend|drop|skip)\b (?:\w+ ){{0,3}}{_RULE_WORDS}\b"
    rf"|\b(?:no|without) (?:any )?(?:more )?(?:rules|restrictions|limits|safeguards)\b.{0, 200}\b(?:apply|now|any ?more|for you)\b"
    r"|\byou(?: are|'re|r) (?:now |hereby |from now on )*(?:in (?:the )?)?(?:act|acting|admin|root|god|developer|debug|unrestricted"
    r"|unlimited|autonomous|jailbroken?|dan)\b(?: mode)?"
    r"|\b(?:enter|switch (?:yourself )?(?:in)?to|go (?:in)?to|change (?:in)?to) (?:act|admin|root|god|developer|free) mode\b"
    r"|^\W*(?:system|admin|administrator|root|developer)(?: (?:message|prompt|override|note|notice))?\s*[:>\]]",
    re.IGNORECASE,
)
"""Words that would take a rule away, or claim to speak with more authority than who asks has."""


def lifts_rules(sentence: str) -> bool:
    """Tell whether a sentence tries to talk the rules away; who asks about them does not."""
    return bool(_LIFTS.search(sentence)) and not _ASKS.match(sentence)


def excluded_intents(sentence: str) -> frozenset[str]:
    """Return the intents that a sentence cannot have: who asks whether a node is back does not ask to put it back.

    Args:
        sentence: With `{job}`, `{node}` in place of names.
    """
    marked = sentence.rstrip().endswith("?")
    if _ASKS.match(sentence) or (marked and not _ORDERS.match(sentence)):
        return CHANGING | {"approve"} if marked else CHANGING
    return _CHECKPOINTS if _RESTARTS.match(sentence) else frozenset()


_AGREES = re.compile(
    r"(?:(?:ok|okay|yes|yep|yeah|sure|fine|alright|please|and)[,. ]+)*(?:yes|yep|yeah|y|sure|ok|okay|go ahead|go for it|please do"
    r"|(?:allow|approve|permit|do|confirm|grant)(?: (?:it|that|this|so))?|allowed|approved|confirmed|proceed|agreed|granted"
    r"|make it so)[.! ]*",
    re.IGNORECASE,
)


def agrees(sentence: str) -> bool:
    """Tell whether a whole sentence is a yes to what waits."""
    return _AGREES.fullmatch(sentence) is not None
