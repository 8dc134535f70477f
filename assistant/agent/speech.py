"""How something is said: a hold before a question, an order that somebody else gives, a yes or no to a change named by its thing.

`wait, don't - is 300 even there?` asks, and allows nothing; `bob says to cancel 4830` is bob's word; `refuse the resubmit of
4821` is about the approval for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assistant.agent.verbs import base_of, verbs
from assistant.agent.words import Names

_HELD_QUESTION = re.compile(
    r"^\W*(?:(?:no|nope|wait|stop|hold on|hang on|ok|okay|oh|ah|hm+|whoa|hey|sorry|actually|please|nein|halt)\b[\s,.!]*)*"
    r"(?:dont|don't|do not|not yet|not now|hold off|hold it|not so fast|leave it)\b(?: do (?:it|that))?(?: yet"
    r"| now)?\s*[,.;:!–—-]+\s*(?P<rest>.*\?)\s*$",
    re.IGNORECASE | re.DOTALL,
)
_SPEAKER = (
    r"(?:user|somebody|someone|some(?:one)? guy|they|he|she|(?:the|a|my|our|his|her|this) (?:\w+ )?(?:colleague|boss|owner"
    r"|manager|admin|guy|team|vendor|support|operator"
    r"|intern|user|lead|pi|postdoc|researcher)|colleague|people|support|management|word is|rumou?r has it"
    r"|(?!(?:i|we|you|it|this|that|there|nothing|nobody|something|slurm|scheduler|nightshift|log|logs|kernel|dmesg|policy"
    r"|playbook|who|what|which|how|why|please|do|does"
    r"|did|is|was|can|could|would|should|will|if|not|never|yes|no|so|and|also|now|the|a|an|my|our)\b)[a-z][a-z]{1,14})"
)
_REPORTED = re.compile(
    rf"^\W*(?:(?:and|so|but|hey|hi|hm+|fyi|ok|well|btw|apparently)\b[\s,]*)*{_SPEAKER}(?: \(?\w+\)?)?\s+(?:just |also |now "
    rf"|apparently |always |already )*"
    r"(?:says?|said|saying|told (?:me|us)|tells (?:me|us)|wants?|wanted|asks?|asked|thinks?|thought|suggests?|suggested"
    r"|means?|meant|insists?|claims?|reckons?|recommends?"
    r"|would like|wrote|writes|pinged me|messaged(?: me)?)\s*,?:?\s+(?:that |me |us |for )*(?:you |we |i |it |someone "
    r"|somebody )?(?:should |must |need to |have to |ought to |can |to )*"
    r"(?:just |simply |please |go ahead and )*(?P<order>.+)$",
    re.IGNORECASE,
)
_ANSWERS = re.compile(
    r"^\W*(?:(?:please|pls|ok|okay|so|then|and|just|no|yes|can you|could you|lets|let's|let us|i want to|i would like to"
    r"|i'd like to|we should)\b[\s,.]*)*"
    r"(?P<verb>refuse|deny|reject|decline|disallow|veto|turn down|say no to|no to|approve|allow|permit|grant|accept"
    r"|sign off(?: on)?|say yes to|confirm|green[- ]?light)\s+"
    r"(?:(?:the|that|this|his|her|their|its|a|my|waiting|pending|proposed)\s+)*"
    r"(?P<what>re-?submi\w*|re-?starts?|re-?run|re-?launch|recovery|cancel\w*|drain(?:ing)?|cordon(?:ing)?|undrain\w*|return"
    r"|change|request|proposal|approval|one)\b",
    re.IGNORECASE,
)
_TOOLS = (
    (re.compile(r"re-?s|re-?r|re-?l|recov", re.IGNORECASE), "resubmit_job"),
    (re.compile(r"cancel", re.IGNORECASE), "cancel_job"),
    (re.compile(r"drain|cordon", re.IGNORECASE), "cordon_node"),
    (re.compile(r"undrain|return", re.IGNORECASE), "uncordon_node"),
)
_GIVES_YES = re.compile(
    r"^\W*(?:(?:ok|okay|so|and|great|good|fine|alright|update|news)\b[\s,:]*)*"
    r"(?:user|he|she|they|the owner|owner|boss|the boss)\s+(?:just |now |has |have )*(?:says?|said|gave|gives|agrees?|agreed"
    r"|approves?|approved|confirmed|confirms|is (?:ok|fine|happy|good)"
    r"(?: with (?:it|that))?|okayed|answered|answers)\s*(?:yes|ok|okay|so|go|fine|it'?s (?:ok|fine)|the (?:ok|go|green light"
    r"|nod)|it|that|yep)?(?: to (?:it|that))?\s*[,.;:!–—-]+\s*(?P<rest>.+)$",
    re.IGNORECASE,
)
NOTHING_DONE = "Nothing is proposed or changed for it now."


def held_question(words: str) -> str:
    """Return the question behind a hold, `wait, don't - is 300 even there?`; empty where there is none."""
    match = _HELD_QUESTION.match(words)
    return match["rest"].strip() if match is not None else ""


def reported_order(masked: str) -> str:
    """Return the order that a sentence says somebody else gives, with its names masked; empty where it tells of none."""
    match = _REPORTED.match(masked.strip())
    return re.split(r"[,;]", match["order"])[0] if match is not None and not masked.rstrip().endswith("?") else ""


_IF = re.compile(
    r"^\W*(?:(?:and|so|but|ok|okay|please|pls|hey|well|also|then)\b[\s,]*)*"
    r"(?:if|once|when(?:ever)?|as soon as|in case|unless|after|the moment|should(?= \{| the | it ))\b"
    r"(?! (?:more|again|all|i|we|you|u|one|possible|that|this|necessary|ok|did|do|does|is|are|was|were"
    r"|will|has|have|had|can|could)\b)",
    re.IGNORECASE,
)


def conditional_order(masked: str, orders: Callable[[str], bool]) -> tuple[str, str]:
    """Return the condition and the order of `if {job} crashes later restart it`; empty where a sentence is none.

    Args:
        masked: The sentence with its names masked.
        orders: Tells whether a text orders a change.
    """
    if (
        not _IF.match(masked)
        or masked.rstrip().endswith("?")
        or re.search(r"\b(?:what|how|would|which|why)\b", masked, re.IGNORECASE)
    ):
        return "", ""
    words = masked.split()
    for place in range(len(words) - 1, 2, -1):
        verb = base_of(re.sub(r"\W", "", words[place].lower()))
        tail = " ".join(words[place:])
        if any(verb in names for names, _, _ in verbs().change.values()) and orders(tail):
            return " ".join(words[:place]).strip(" ,"), tail
    return "", ""


def after_their_yes(masked: str, words: str) -> str:
    """Return what follows `alice says yes.`, which is the speaker's own word; empty where nothing does."""
    match = _GIVES_YES.match(masked)
    return words[-len(match["rest"]) :] if match is not None and words.endswith(match["rest"]) else ""


def answers_approval(words: str, names: Names, rows: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """Return the approvals that a yes or no is about by the thing that they change: `refuse the resubmit of 4821`.

    Args:
        words: In English.
        names: Of them.
        rows: What waits.
    """
    match = _ANSWERS.match(words)
    if match is None or words.rstrip().endswith("?"):
        return ()
    if names.approvals:
        return names.approvals
    tool = next((tool for pattern, tool in _TOOLS if pattern.match(match["what"])), "")
    objects = {*names.jobs, *names.candidates, *names.numbers, *names.nodes}
    about = [
        int(row["approval"])
        for row in rows
        if (not tool or row["tool"] == tool)
        and (not objects or objects & {str(row["arguments"].get("job", "")), str(row["arguments"].get("node", ""))})
    ]
    return tuple(about) if objects or len(about) == 1 else ()
