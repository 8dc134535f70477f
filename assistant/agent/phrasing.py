"""English sentences as the readers of orders take them: numbers of nodes as names, `from 300, not 400`, `actually do it now`."""

from __future__ import annotations

import re

from assistant.agent.node_words import with_listed_nodes
from assistant.agent.words import NameInventory

_STEP = r"(?:(?:from|at|with|use|using|take|of)\s+)?(?:(?:the\s+)?(?:step|checkpoint|ckpt|iteration)\s+)?"
_NOT_STEP = re.compile(
    rf"\b(?P<keep>(?:from|at|with|step|checkpoint)\s+(?:(?:step|checkpoint)\s+)?(?P<number>\d{{2,9}}))\s*[,(]?\s*(?:and "
    rf"|but |please |pls )*"
    rf"(?:not|do not|don'?t|dont|instead of|rather than)\s+(?:use |take )?{_STEP}(?P<other>\d{{2,9}})\)?(?![\w-])",
    re.IGNORECASE,
)
_NOT_STEP_FIRST = re.compile(
    rf"\bnot\s+{_STEP}(?P<other>\d{{2,9}})\s*,?\s*(?:but|rather|,)\s*(?:from\s+|at\s+)?(?:step\s+)?(?P<number>\d{{2,9}})(?![\w-])",
    re.IGNORECASE,
)
_NOW_AFTER_ALL = re.compile(
    r"^(?P<order>.*\d.*?)[\s.,;:!–-]+(?:(?:actually|no|or|well|hm+|oh|ach|nah|rather|better|wait|you know what"
    r"|on second thoughts?)\b[\s,.]*)*"
    r"(?:just |please |rather |let us |lets )*(?:(?:do|make) (?:it|that)|go ahead(?: and do it| with it)?)(?: right| just"
    r"| already)?"
    r" (?:now|right away|immediately|at once|straight away)[\s.!]*$",
    re.IGNORECASE,
)
_LATER = re.compile(
    r"\s*,?\s*\b(?:(?:before|by|until|after|in|at|this|tomorrow)\s+(?:the\s+)?(?:morning|evening|noon|midnight|night|weekend"
    r"|day ?break|shift(?: change)?|end of"
    r"(?: the| my| this)? (?:shift|day))|tomorrow(?: morning| evening)?|tonight|later(?: on)?|some ?time|eventually"
    r"|when you (?:can|get to it))\b",
    re.IGNORECASE,
)


def plain_words(words: str, inventory: NameInventory) -> str:
    """Return a sentence with nodes by their names, and without the step or the time that its end takes back.

    Args:
        words: As somebody wrote it, in English.
        inventory: What exists.
    """

    def step(match: re.Match[str]) -> str:
        if {match["number"], match["other"]} & set(inventory.jobs):
            return match.group()
        return match.groupdict().get("keep") or f"from {match['number']}"

    words = _NOT_STEP_FIRST.sub(step, _NOT_STEP.sub(step, words))
    if (match := _NOW_AFTER_ALL.match(words)) is not None:
        words = _LATER.sub("", match["order"]).rstrip(" ,.;")
    return with_listed_nodes(words, inventory.nodes)
