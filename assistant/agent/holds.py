"""Idioms that hold a change off: `hold off on it`, `scrap that`, `never mind the approval`, `only after alice says yes`.

They are read of the whole sentence, before its verbs are: the verb in `hold off` or `scrap that` is not the order that it looks
like.
"""

from __future__ import annotations

import re

_SAYS_SO = (
    r"(?:says?|said|agrees?|agreed|approves?|approved|confirms?|confirmed|answers?|answered|gives?|gave|looks?|looked"
    r"|checks?|checked"
    r"|decides?|decided|allows?|allowed|okays?|signs? off|signed off|is (?:done|ok|back|finished|happy|there|sure)"
    r"|has (?:looked|checked|said"
    r"|agreed|decided|answered|approved))"
)
_PERSON = r"(?:user|i|we|they|he|she|somebody|someone|the (?:owner|boss|hw team|hardware team|team|vendor)|hw|bob|owner)"
_CHANGES = (
    r"(?:re-?start|re-?submi|re-?run|re-?launch|cancel|kill|stop|drain|undrain|cordon|uncordon|touch|change|put|take|bring"
    r"|do|run|submit|requeue"
    r"|isolate|remove|return|resume)"
)
_HOLDS = tuple(
    re.compile(pattern)
    for pattern in (
        r"^(?:\W|\b(?:please|pls|ok|okay|no|so|just|lets|let us|we should|can you|could you|better|rather|hey|then|yes)\b)*"
        r"(?:hold|holding|hang|back|lay|leave|ease) off\b(?! \{)(?: (?:on|with|from|of|for|until|till|doing))?",
        r"\b(?:hold|hang|wait) (?:off )?(?:on|with|for) (?:anything|everything|all|any (?:change|changes|restart|drain)|that"
        r"|this|it|the (?:drain|restart"
        r"|resubmit\w*|cancel\w*|approval|change|proposal|undrain\w*))\b",
        r"\b(?:steer|stay|keep|get) (?:well |the hell )?(?:clear of|away from|off of?|your (?:hands|fingers|paws) off)\b",
        r"\b(?:i|we|user) (?:would|had|id|wouldd) (?:much )?(?:rather|prefer|sooner|appreciate)\b.*\b(?:not|no one|nobody"
        r"|left|leave|kept|alone)\b.*",
        r"\bid (?:much )?(?:rather|prefer|sooner)\b.*\b(?:not|nobody|left|leave|alone|n'?t)\b",
        r"^(?:\W|\b(?:ok|okay|oh|no|hm+|ah|well|so|please|actually|yes|just|and|then|wait)\b)*never ?mind\b(?! (?:why|what"
        r"|who|how|when|where|that it"
        r"|it (?:is|was)))(?! me\b)",
        r"^(?:\W|\b(?:ok|okay|oh|no|hm+|ah|well|so|please|actually|yes|just|and|then|wait|nope|nah|sorry|lets|let us|we can"
        r"|you can)\b)*"
        r"(?:scratch|scrap|strike|ditch|shelve|bin|forget|skip|park|drop|abandon|forgo|table) (?:about )?(?:that|it|this"
        r"|them|those|all of that|the idea"
        r"|the (?:whole )?(?:thing|plan|proposal|order|idea|request|drain|restart|resubmit\w*|cancel\w*|undrain\w*|approval"
        r"|change))\b(?! (?:from|on|in|of) )",
        r"\b(?:do not|never|no need to|stop) (?:worry|worrying|bother|bothering|fret|mess|messing)\b",
        rf"\b(?:only|not|nothing|no|do not|never)\b[^.;?]{{0,60}}\b(?:after|once|when|if|before|until|till|unless"
        rf"|without)\b[^.;?]{{0,40}}"
        rf"\b{_PERSON}(?:'s)?\b[^.;?]{{0,30}}\b(?:{_SAYS_SO}|(?:yes|ok|okay|go|consent|word|approval|nod)\b)",
        rf"\b(?:waits?|waiting|wait) (?:for|on|until|till) {_PERSON}\b(?! \?)(?!.*\b(?:now|go ahead)\b)",
        r"\b(?:let|lemme|allow)(?: me)? (?:first |just |quickly )?(?:ask|ping|call|phone|talk to|check with"
        r"|double[- ]check with|confirm with|consult|think"
        r"|sleep on)\b",
        rf"\b(?:i|we) (?:would|will|ll|need to|have to|must|want to|should) (?:first |just |rather )?(?:ask|ping|call|phone"
        rf"|talk to|check with|confirm"
        rf"(?: it)? with|consult|wait for) (?:{_PERSON}|him|her|them)\b",
        r"\b(?:leave|let|keep) (?:all |any |the )?(?:of )?(?:user(?:'?s)?|everything of user|that|this|those|his|her|their"
        r"|my|our|hers|theirs)"
        r"(?: (?:stuff|things?|jobs?|runs?|work|ones?|nodes?|machines?|experiments?|trainings?))? (?:alone|be|in peace"
        r"|untouched|running|as (?:it|they) (?:is"
        r"|are)|out of (?:it|this))\b",
        r"\b(?:in the long run|at some point|some ?day|some ?time|eventually|one of these days|next time|not tonight"
        r"|not today|not this (?:week|shift|month))\b"
        r"(?!.*\?)(?=.*)|(?<=\w )\b(?:not tonight|not today)\b",
        r"\{(?:job|node)\} (?:can|could|should|must|may|has to|have to|will have to|would have to) wait\b",
        r"\bkeep (?:the |job |node )*(?:\{(?:job|node)\}|it|that) (?:alive|going|up|running|in peace|safe|untouched)\b",
        r"^(?:\W|\b(?:good|ok|okay|fine|alright|right|well|then|so|yes|no)\b)*(?:then |so )?(?:do not|not then"
        r"|better not)(?: (?:then|do (?:it|that)|bother))?\W*$",
    )
)
_LATER = re.compile(
    r"\b(?:in the long run|at some point|some ?day|some ?time|eventually|one of these days|not tonight|not today"
    r"|not this (?:week|shift|month))\b"
)
_ORDERS_NOW = re.compile(r"\b(?:now|right away|immediately|at once|straight away|go ahead|after all)\b")
_CHANGE = re.compile(rf"\b{_CHANGES}\w*")
_ASKS = re.compile(
    r"^\W*(?:(?:and|so|but|ok|okay|hey|hi|well|please|now)\b\W*)*(?:what|which|who|whose|when|where|why|how|is|are|was|were"
    r"|am|did|does|has|have|had|do (?:i|we|you|they)"
    r"|can (?:i|we)|may (?:i|we)|should|shall|would|could (?:i|we)|show|tell|explain|list)\b"
)


def holds_off(text: str) -> bool:
    """Tell whether a sentence holds a change off by an idiom.

    Args:
        text: As from `plain_text`, with names masked.
    """
    plain = text.strip()
    if plain.endswith("?") or _ASKS.match(plain):
        return False
    for pattern in _HOLDS:
        match = pattern.search(plain)
        if match is None:
            continue
        if _LATER.search(match.group()) and not (_CHANGE.search(plain) and not _ORDERS_NOW.search(plain)):
            continue  # `it failed at some point` holds nothing off
        return True
    return False
