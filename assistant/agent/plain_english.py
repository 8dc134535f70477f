"""English as the reader of orders takes it: contractions whole, interjections gone, and what was renounced said as `do not`.

Numbers of nodes stand as names, `from 300, not 400` as the step that is meant, `actually do it now` without the later time.
"""

from __future__ import annotations

import re

from assistant.agent.node_words import with_listed_nodes
from assistant.agent.verbs import base_of, verbs
from assistant.agent.words import NameInventory

_CONTRACTIONS = (
    (re.compile(r"\b(?:won't|wont)\b"), "will not"),
    (re.compile(r"\b(?:can't|cant|cannot)\b"), "can not"),
    (re.compile(r"\b(do|does|did|is|are|was|were|has|have|had|must|should|would|could|need|might|shall)n'?t\b"), r"\1 not"),
    (re.compile(r"\blet's\b|\blets\b"), "let us"),
    (re.compile(r"\b(i|you|we|they|it|that|there)'(?:d|ll)\b"), r"\1 would"),
    (re.compile(r"\b(i|you|we|they|it|that|there|he|she)'(?:s|re|m)\b"), r"\1 is"),
    (re.compile(r"\b(?:id|i'd) (?=(?:much )?(?:rather|prefer|like|sooner|love)\b)"), "i would "),
    (re.compile(r"\b(you|they|we)d (?=[a-z])"), r"\1 would "),
    (
        re.compile(
            r"\b(he|she|it|that|there|who|how|where|when|what)s (?=(?:done|back|ok|up|down|it|the|doing|going|wrong|with"
            r"|still|not|on|here)\b)"
        ),
        r"\1 is ",
    ),
    (re.compile(r"\b(you|they|we)(?:ve)\b"), r"\1 have"),
    (re.compile(r"\b(you|they)re\b"), r"\1 are"),
    (re.compile(r"\bgonna\b"), "going to"),
    (re.compile(r"\bwanna\b"), "want to"),
    (re.compile(r"\bgotta\b"), "have to"),
    (re.compile(r"\blemme\b"), "let me"),
    (re.compile(r"\bgimme\b"), "give me"),
    (re.compile(r"\bno[ -]one\b"), "nobody"),
    (re.compile(r"\bdo not (?:you )?(?:dare|even think (?:of|about)|think (?:of|about)|go) (?:to )?(?=[a-z]+)"), "do not "),
    (re.compile(r"\bnot any ?more\b|\bno (?:longer|more)\b(?! (?:jobs?|work|runs?|trainings?|tasks?|workloads?))"), "no longer"),
)
_CHANGING_NOUNS = {
    "cancellation": "cancel",
    "cancelation": "cancel",
    "restart": "restart",
    "resubmission": "restart",
    "resubmit": "restart",
    "relaunch": "restart",
    "rerun": "restart",
    "recovery": "restart",
    "draining": "drain",
    "cordoning": "cordon",
    "undraining": "undrain",
}
_NOUNS = "|".join(_CHANGING_NOUNS)
_SUBJECT = r"(?:(?:i|we|they|he|she|you|user|nobody|somebody|everybody|the team)\s+)?(?:(?:have|has|had|am|is|are|was|were)\s+)?"
_LATELY = r"(?:(?:now|just|all|already|finally|since|meanwhile|rather)\s+)*"
_RENOUNCED = (
    re.compile(
        rf"\b{_SUBJECT}{_LATELY}(?:stopped|quit|ceased|given up|gave up|done with|over|tired of|past)\s+(?:on\s+)?"
        r"(?:wanting|trying|planning|asking|intending|wishing|hoping|meaning|thinking (?:of|about))(?:\s+(?:you|nightshift))?"
        r"\s+(?:to\s+)?(?:have\s+)?(?P<verb>[a-z-]+)"
    ),
    re.compile(
        rf"\b{_SUBJECT}{_LATELY}(?:no longer|do not|does not|did not|not|never)\s+(?:really\s+|actually\s+|even\s+)?"
        r"(?:want|wants|need|needs|wish|plan|intend|have|has|mean|meant|going|planning|wanting|trying)(?:\s+(?:you|nightshift))?"
        r"\s+to\s+(?P<verb>[a-z-]+)"
    ),
    re.compile(
        rf"\b{_SUBJECT}{_LATELY}(?:decided|chosen|chose|voted|agreed)\s+"
        r"(?:(?:against|not to|to not)|(?:that )?we (?:will|do|should) not)\s+(?P<verb>[a-z-]+)"
    ),
    re.compile(
        rf"\b{_SUBJECT}{_LATELY}(?:changed|changing)\s+(?:my|our|their|his|her)\s+minds?\s+"
        r"(?:about|on|and do not want to)\s+(?P<verb>[a-z-]+)"
    ),
    re.compile(
        r"\b(?:(?:there|it) is\s+)?(?:no (?:need|reason|point|use|sense|hurry|rush)|not necessary|unnecessary|pointless|too early"
        r"|not (?:the )?time|not needed)\s+(?:to|for|in|of|any ?more to)\s+(?:be\s+)?(?P<verb>[a-z-]+)"
    ),
    re.compile(
        r"\b(?:cancel|stop|abort|call off|calling off|scratch|scrap|forget(?: about)?|skip|abandon|never ?mind(?: about)?"
        r"|hold off (?:on|with)|leave off|no)\s+"
        rf"(?:the |that |this |any )?(?P<noun>{_NOUNS})(?:\s+(?:of|for))?(?=\s+(?:the |job |node )*\{{)"
    ),
    re.compile(r"\b(?:forget(?: about)?|never ?mind(?: about)?|hold off(?: on)?|think twice before)\s+(?P<verb>[a-z-]+ing)"),
)
"""Ways to say that something is not wanted any more; `verb` or `noun` is what."""
_INTERJECTIONS = re.compile(
    r"^(?:(?:(?:nah|naw|nope|h+m+|u+h+m*|e+r+m*|ah+|a+rgh+|oh+|ach|ugh|huh|eh|hey|yo|okay|ok|well|sorry|oops|whoops|actually|btw"
    r"|by the way|anyway|anyways|honestly|seriously|listen|look|dude|man|guys|damn|god|lol|thanks|thank you|cheers|alright|oh no"
    r"|on second thoughts?)\b(?!')|(?:no|yes|yeah|yep|wait|stop|hold on|hang on|right|good|great|fine|cool|nice|so|perfect|sure)"
    r"(?=\s*[,.!:;-])"
    r"|no (?=(?:wait|no|sorry|leave|keep|let|do|not|never|just|please|stop|i|it|that)\b)"
    r"|wait (?=no\b|stop\b|sorry\b|actually\b))[\s,.!:;-]*)+"
)


def plain_text(sentence: str) -> str:
    """Return a sentence in small letters, with its contractions whole."""
    text = sentence.lower().replace("\u2019", "'")
    for pattern, plain in _CONTRACTIONS:
        text = pattern.sub(plain, text)
    return text


def without_interjections(text: str) -> str:
    """Return text without `nah`, `hm`, `wait,` before it; where nothing else stands in it, as it is."""
    plain = _INTERJECTIONS.sub("", text, count=1)
    return plain if re.search(r"[a-z{]", plain) else text


def renounced(text: str) -> str:
    """Return text with `do not` before what it says is not wanted any more: `we decided against cancelling {job}`.

    Args:
        text: As from `plain_text`.
    """
    for pattern in _RENOUNCED:
        text = pattern.sub(_forbidden, text)
    return text


def _forbidden(match: re.Match[str]) -> str:
    groups = match.groupdict()
    if groups.get("noun"):
        return f"do not {_CHANGING_NOUNS[groups['noun']]}"
    verb = base_of(groups["verb"])
    inventory = verbs()
    changes = any(verb in names for names, _, _ in (*inventory.change.values(), *inventory.unserved))
    return f"do not {verb}" if changes or verb in inventory.kinds["touch"] | inventory.kinds["light"] else match.group()


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
