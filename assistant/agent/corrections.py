"""Words that put an order right, or take it back: `no, I meant 4830`, `make it 300`, `without node08`, `never mind`, `undo that`.

A correction is answered as the order that it makes; what was proposed before is said to wait still. To take back is to answer with
no, which words cannot do: the approval is named, and the opposite of what was not done is never proposed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from assistant.agent.dialogue import Dialogue
from assistant.agent.plain_english import plain_text, without_interjections
from assistant.agent.words import Names

_VERBS = {"cancel": "cancel", "recover": "restart", "cordon": "drain", "uncordon": "undrain"}
_WRONG = (
    r"(?:(?:no(?=\s*[,.!]|\s+(?:wait|sorry|i|not|it|make|that|from|step)\b)|(?:wait|stop)(?=\s*[,.!])|nope|nah|naw|sorry|oops"
    r"|whoops|wrong(?: (?:one|id|job|node|number))?|typo|mistyped|h+m+|argh|ugh|damn"
    r"|actually|my (?:mistake|bad|fault)|pardon|error|not (?:that|this)(?: one)?|ok|okay|quatsch|rather|better"
    r"|instead|of course)\b[\s,.!:;-]*)"
)
_CORRECTS = re.compile(
    rf"^{_WRONG}*(?:(?:i|we)\s+(?:actually |really |of course )?(?:meant|mean|my|was thinking of|wanted)"
    r"(?:\s+(?:to (?:say|write|type)|it for|the one))?|(?:it|that) (?:is|was|should (?:be|have been|read))|it'?s|should be"
    r"|make (?:it|that)|change (?:it|that)(?: to)?|change to|take|use|go with|with)"
    r"\s+(?P<what>.+?)\s*(?:instead|please|pls)?[.!]*$",
    re.IGNORECASE,
)
_BARE = re.compile(rf"^{_WRONG}+(?P<what>.+?)\s*(?:instead|please|pls|i meant|sorry)?[.!]*$", re.IGNORECASE)
_CORRECTS_LAST = re.compile(
    r"^(?P<what>.+?),?\s+(?:i (?:meant|mean)|instead|sorry|not (?:that|this) one|is what i meant)[.!]*$", re.IGNORECASE
)
_NOT_BUT = re.compile(
    r"^(?:not\s+(?P<old>[^,]+?)\s*(?:,\s*(?:but\s+)?|\s+but\s+)(?P<new>.+)"
    r"|(?P<first>[^,]+?),?\s+(?:and )?not\s+(?P<second>.+))$",
    re.IGNORECASE,
)
_STEP = re.compile(r"^(?:from\s+)?(?:step\s+|checkpoint\s+|iteration\s+)?(?P<step>\d{1,9})$", re.IGNORECASE)
_OF_STEP = re.compile(
    r"\b(?:from|at)\s+(?:the\s+)?(?:(?:step|checkpoint|iteration)\s+(?:of\s+)?)?\d{1,9}\b"
    r"|\b(?:step|checkpoint)\s+(?:of\s+)?\d{1,9}\b",
    re.I,
)
_MORE = re.compile(
    r"^(?:and|but|also|plus|oh|ok|okay|,|\s)*(?P<what>(?:w/o|without|not on|not using|avoid(?:ing)?|exclud(?:e|ing)"
    r"|leav(?:e|ing) out|away from|minus)\s+.+?)\s*(?:too|also|as well|please|pls)?[.!]*$",
    re.IGNORECASE,
)
_END = re.compile(
    r"^(?:and|but|also|only|just|oh|ok|make (?:it|that)|\s|,)*(?P<what>(?:until|till|til|for)\s+.+?)\s*(?:please|pls)?[.!]*$",
    re.IGNORECASE,
)
_PURE = re.compile(r"(?:\{(?:job|node|number)\}|\b(?:the|job|run|node|one|and|or|please)\b|[\s,&])+", re.IGNORECASE)
_TAKES_BACK = re.compile(
    r"(?:(?:please|and|so|then|just|but|oh|ok|okay|no|not|yes|actually|wait|stop|hm+|sorry|let us|we|i|you|do|ach|ah"
    r"|nah)\b[\s,.!:;-]*)*"
    r"(?:never ?mind(?: (?:that|it))?|(?:forget|scratch|drop|skip|scrap|ditch) (?:it|that|this|about (?:it|that)"
    r"|what i (?:said|wrote)|the (?:proposal|order|whole thing))|undo(?: (?:it|that|this|all(?: of)?(?: it| that)?))?"
    r"|(?:take|roll|call|pull) (?:it|that|this|everything) (?:back|off)"
    r"|take back(?: (?:it|that))?|revert(?: (?:it|that|this))?|rollback"
    r"|withdraw(?: (?:it|that|this|the (?:proposal|order|request)))?"
    r"|call it off|i take (?:it|that) back|i changed my mind|changed my mind|on second thoughts?|better not|rather not"
    r"|leave it(?: (?:be|alone|as it is|like that|running))?|let it (?:be|run(?: on)?|go on|train)"
    r"|as you were|nothing|do nothing|keep (?:it|that|this)(?: (?:as it is|running|going|alive|like that))?"
    r"|(?:it|that) (?:stays|keeps running|goes on)"
    r"|not(?: (?:now|yet|that one|this one|any ?more))?"
    r"|don'?t(?: (?:do (?:it|that)|bother))?|do not(?: (?:do (?:it|that)|bother))?|no(?: thanks| thank you| more)?"
    r"|stop(?: (?:it|that))?"
    r"|not (?:after all|needed)|no longer needed|it (?:is|was) nothing)"
    r"(?:[\s,.!:;-]*(?:please|thanks|thank you|then|now|yet|again|after all|for now|it|sorry|anyway|not|rather|do it|do that"
    r"|do not)\b)*[\s.!]*",
    re.IGNORECASE,
)
_UNDOES = re.compile(
    r"(?:please |ok(?:ay)?,? |can you |now |and |just )*(?:undo|revert|roll ?back|take back)"
    r"(?: (?:it|that|this|the last (?:one|change|thing)|your (?:last )?change|everything|all))?(?: (?:again|please|now))*[\s.!?]*",
    re.IGNORECASE,
)

Reader = Callable[[str], Names]


def corrected(words: str, dialogue: Dialogue, read: Reader) -> str:
    """Return the order that words behind an order make of it; empty where they put nothing right.

    Args:
        words: As somebody wrote them, in English.
        dialogue: What was said.
        read: Returns what a text names.
    """
    if not dialogue.order or words.rstrip().endswith("?"):
        return ""
    if dialogue.intent == "recover" and (match := _MORE.match(words)):
        nodes = read(match["what"]).nodes
        if nodes and not read(match["what"]).jobs:
            return f"{dialogue.order.rstrip(' .!')} without {' and '.join(nodes)}"
    if dialogue.intent == "cordon" and (match := _END.match(words)):
        order = re.sub(r"\b(?:until|till?|for)\b.*$", "", dialogue.order).rstrip(" .!")
        return f"{order} {match['what']}"
    match = _CORRECTS.match(words) or _BARE.match(words) or _CORRECTS_LAST.match(words)
    text = match["what"] if match is not None else words if _NOT_BUT.match(words) else ""
    if (sides := _NOT_BUT.match(text)) is not None:
        text = sides["new"] or sides["first"]
    if not text:
        return ""
    step = _STEP.match(text.strip())
    names = read(text)
    if step is not None and dialogue.intent == "recover" and not names.jobs and (names.quantities.steps or not names.strangers):
        return _with_step(dialogue.order, step["step"])
    return _with_object(dialogue, names, read)


def _with_step(order: str, step: str) -> str:
    replaced = _OF_STEP.sub(f"from step {step}", order, count=1)
    return replaced if replaced != order or f"step {step}" in order else f"{order.rstrip(' .!')} from step {step}"


def _with_object(dialogue: Dialogue, names: Names, read: Reader) -> str:
    """Return the order with other things in it, where a correction names only such."""
    objects = names.jobs or names.nodes
    if not _PURE.fullmatch(names.masked) or not objects or (names.jobs and names.nodes):
        return ""
    of_jobs = bool(names.jobs)
    before = read(dialogue.order)
    old = before.jobs if of_jobs else before.nodes
    wrong = re.findall(r"(?:job|node) (\S+) is (?:unknown|no)", " ".join(before.strangers))
    if dialogue.intent in _VERBS and of_jobs != (dialogue.intent in ("cancel", "recover")):
        return ""
    for name in (*old, *wrong):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", " and ".join(objects), dialogue.order, count=1)
        if text != dialogue.order and len(old) + len(wrong) == 1:
            return text
    verb = _VERBS.get(dialogue.intent, "")
    return f"{verb} {' and '.join(objects)}" if verb and (old or wrong or not names.strangers) else ""


_AMENDED = re.compile(
    r"^(?:(?:yes|yep|yeah|sure|ok|okay|fine|good|alright|right|please|well)\b[\s,.!]*)+(?:(?:do it|do that|go ahead"
    r"|go for it|let us|restart it"
    r"|please do)\b[\s,.!]*)*(?:(?:but|just|only|though|and|,)[\s,]*)+(?:please |rather |better |then |do it |restart it )*"
    r"(?P<wish>(?:from|at|with|without|not on|away from|excluding|avoiding)\s+(?:the\s+)?(?:step |checkpoint "
    r"|node )?[\w-]*\d[\w-]*"
    r"(?:\s*(?:,|and)\s*[\w-]*\d[\w-]*)*)(?:\s+(?:start|begin|then|please|instead|rather))*[\s.!]*$",
    re.IGNORECASE,
)


def amended_yes(words: str) -> str:
    """Return what a yes asks beside it, of a restart: `from 300`, `without node07`; empty where it is no such yes."""
    match = _AMENDED.match(words.strip())
    return match["wish"] if match is not None else ""


def takes_back(words: str) -> bool:
    """Tell whether words take back what was proposed, or leave it."""
    text = words.strip()
    if re.search(r"\bnot (?:that|this) one\b", text, re.IGNORECASE) and len(text.split()) <= 14 and not text.endswith("?"):
        return True
    return not text.endswith("?") and _TAKES_BACK.fullmatch(text) is not None


def undoes(words: str) -> bool:
    """Tell whether words ask to take back a change, and do not say which."""
    return _UNDOES.fullmatch(without_interjections(plain_text(words))) is not None
