"""A sentence with two questions, or with an order or a hold and a question, as its parts: each of them is answered.

A condition and its question are one, as are a question and a bare `why`; what somebody else says, and quotations, are left whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from assistant.agent.answer import Answer, AnswerKind, AnswerSource
from assistant.agent.coverage import asked_attributes

MOST_PARTS, MOST_LINES = 4, 9
_STARTER = (
    r"(?:(?:just |only |please |pls )*(?:tell|say|show) (?:me|us) (?:why|what|when|how|who|whose|where"
    r"|whether|if|since|until|only|just)\b"
    r"|why(?!\W*$| not\b)|what|what's|whats|how|hows|how's|when(?! it| the| i )|who|whos|who's|whose|where"
    r"|since when|until when|for how long"
    r"|which (?!is\b|are\b|ones?\b(?! (?:was|is) (?:that|it)\b)|was\b|were\b))"
)
_AUXILIARY = r"(?:is|are|was|were|did|does|has|have|can i|should i|will it|would it) (?!not\b)"
_BOUNDARY = re.compile(
    r"(?:\s*[,;.?!]+\s*(?:and|but|n|&|so|then|also|plus)?\s*|\s+(?:and|n|&|but|plus)\s*,?\s+)(?:also\s+"
    rf"|then\s+)?(?:if (?:not|so),?\s+)?(?={_STARTER}\b)"
    rf"|(?:\s*[,;?]+\s*(?:and |n )?|\s+(?:and|n)\s+)(?={_AUXILIARY})",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    (
        rf"^\W*(?:(?:and|so|but|ok|okay|hi|hey|well|please|pls|can you|could you)\b\W*)*(?:{_STARTER}"
        rf"|{_AUXILIARY}|which|any|anything|check|tell|show)"
    ),
    re.IGNORECASE,
)
_NOT_SPLIT = re.compile(
    r"[\"“”„`「」]|^\W*(?:(?:and|so|but|ok)\b\W*)*(?:if|when|suppose|supposing|assuming|in case|once|should|falls|wenn)\b"
    r"|\b(?:says?|said|wants?|wanted|asks|asked|claims?|told|thinks?|wrote|writes|sagt|meint|schreibt)\b",
    re.IGNORECASE,
)
_HOLD = re.compile(
    r"^\W*(?:\w+ )?(?:dont|don't|do not|never|leave|keep|hands off|nvm|never ?mind|forget (?:it|that)|no wait|stop)\b",
    re.IGNORECASE,
)
_BARE = re.compile(
    (
        r"^\W*(?:why(?: not)?|how|when|what(?: is| was| did you)?(?: left)?(?: not| undone| open| left| not do"
        r"| not done)*|who|where|which)\W*$"
    ),
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"^\W*(?:(?:please|pls|ok|okay|now|and|then|just|can you|could you|bitte)\b\W*)*(?:drain|cordon|cancel"
    r"|kill|stop|abort|end|restart|rerun|resubmit"
    r"|requeue|relaunch|undrain|uncordon|put|take|bring|check|probe|list|look|explain|resume|free|starte?"
    r"|brich|leere|prüfe?|fass)\b",
    re.IGNORECASE,
)
_GERMAN = re.compile(
    (
        r"(?:\s*[,;?.]?\s+und\s+|\s*[?;]\s*|\s*,\s*(?=sag\b))(?=(?:wie|was|warum|wieso|weshalb|wann|wer|wessen"
        r"|wo|welche[rsn]?|seit wann|bis wann|ist|war|wars|warst|hat|hast|kann|sag)\b)"
    ),
    re.IGNORECASE,
)
_BARE_GERMAN = re.compile(r"^\W*(?:warum|wieso|weshalb|wie|was|wann|wo|wer)(?: nicht)?\W*$", re.IGNORECASE)
_ASKS_HAN = re.compile(r"[吗呢谁啥哪几怎]|什么|多久|多少|是不是|有没有|如何|告诉我")
_HOLD_HAN = re.compile(r"^(?:请|先|你)?(?:别|不要|勿|莫)")
_TELL = re.compile(
    (
        r"^(?:just |only |please |pls |also )*(?:tell|say|show) (?:me|us) (?:just |only |please )*(?=(?:why"
        r"|what|when|how|who|whose|where|since|until)\b)"
    ),
    re.IGNORECASE,
)
_TELL_IF = re.compile(r"^(?:just |only |please |pls |also )*(?:tell|say|show) (?:me|us) (?:whether|if)\s+", re.IGNORECASE)
_WHY_IT_IS = re.compile(r"^why (?:its|it's|it is)\b", re.IGNORECASE)
_COURTESY = (
    re.compile(
        (
            r"^\W*(?:hi|hello|hey|good (?:morning|evening|day|afternoon))\b[^.!?]{0,60}?(?:[.!]\s+|,\s*(?=(?:could"
            r"|can|would|i|please|may)\b))"
        ),
        re.IGNORECASE,
    ),
    re.compile(
        r"^\W*(?:sorry[^.!?,]{0,60}[.!,]\s*)?(?:(?:could|can|would|will|may) (?:you|i)|i (?:would|'d) (?:like"
        r"|love) (?:you )?to|i wanted to|i was wondering)\b"
        r"(?: \w+){0,2}? (?:tell me|let me know|ask(?: you)?|know|say)(?:,[^,]{0,60},)?\s+(?=(?:whether|if|why"
        r"|what|when|how|who|where|which)\b)(?:(?:whether|if)\s+)?",
        re.IGNORECASE,
    ),
    re.compile(r"[?.!,]*\s*(?:thank you|thanks|thx|many thanks|cheers|much appreciated)\b[^?]{0,40}$", re.IGNORECASE),
    re.compile(r"\bmy (?:dear )?(?:colleague|co-?worker|friend|student|team ?mate)s?,? ", re.IGNORECASE),
)
"""What is only polite."""
_CITED = re.compile(r"(?<!\w)\[(\d{1,3})\]")


def plain_courtesy(sentence: str) -> str:
    """Return a sentence without what is only polite: greeting, `could you please tell me whether`, thanks."""
    plain = sentence
    for pattern in _COURTESY:
        plain = pattern.sub("", plain).strip()
    if len(plain.split()) < 3 or plain == sentence:
        return sentence
    return f"{plain}?" if sentence.rstrip(" !.").endswith("?") or "?" in sentence else plain


def question_parts(sentence: str) -> Sequence[str]:
    """Return the parts of a sentence of which each is answered, in its order; nothing where it is one question.

    Args:
        sentence: As it was typed, in any language.
    """
    if re.search(r"[\u3400-\u9fff]", sentence):
        return _chinese_parts(sentence)
    if _NOT_SPLIT.search(sentence):
        return ()
    if any(row.line is not None for row in asked_attributes(sentence)):
        return ()  # figures of a log are told with what else is asked of the job
    for boundary in (_BOUNDARY, _GERMAN):
        parts = [part for part in _split(sentence, boundary) if part]
        if boundary is _GERMAN and len(parts) > 1:
            return [_direct(part) for part in parts] if len(parts) <= MOST_PARTS and not any(map(_BARE_GERMAN.match, parts)) else ()
        if 1 < len(parts) <= MOST_PARTS and all(_stands_alone(part, place) for place, part in enumerate(parts)):
            return [_direct(part) for part in parts]
    return ()


def _split(sentence: str, boundary: re.Pattern[str]) -> Iterator[str]:
    position = 0
    for match in boundary.finditer(sentence):
        if match.start() > position:
            yield sentence[position : match.start()].strip()
            position = match.end()
    yield sentence[position:].strip()


def _stands_alone(part: str, place: int) -> bool:
    """Tell whether a part can be answered: the first asks, orders or forbids, a later one asks."""
    if _BARE.match(part):
        return False
    words = part.split()
    if place == 0:
        return bool(_HOLD.match(part) or ((_QUESTION.match(part) or _ORDER.match(part)) and len(words) > 1))
    return len(words) > 1


def _direct(part: str) -> str:
    """Return a part as a direct question: `just tell me why its out` asks why it is out."""
    part = (
        _TELL_IF.sub("is it so that ", part)
        if _TELL_IF.match(part) and not re.search(r"\b(?:it|that|this)(?:'s| is|s)\b", part)
        else part
    )
    part = re.sub(
        r"^(?:just |only |please |pls |also )*(?:tell|say|show) (?:me|us) (?:whether|if) (?:it|that|this)(?:'s| is|s)\b",
        "is it",
        part,
        flags=re.IGNORECASE,
    )
    part = re.sub(r"\bnvm\b", "never mind", _TELL.sub("", part), flags=re.IGNORECASE)
    return _WHY_IT_IS.sub("why is it", part)


def _chinese_parts(sentence: str) -> Sequence[str]:
    segments = [segment for segment in re.split(r"[\s，,。；;？?！!]+", sentence) if segment]
    parts: list[str] = []
    for segment in segments:
        if parts and not (_ASKS_HAN.search(parts[-1]) or _HOLD_HAN.match(parts[-1])):
            parts[-1] = f"{parts[-1]} {segment}"
        else:
            parts.append(segment)
    asks = [part for part in parts if _ASKS_HAN.search(part)]
    is_bare = any(re.fullmatch(r"(?:那|又)?(?:为什么|为啥|怎么)(?:呢)?", part) for part in parts[1:])
    stands = len(asks) >= 1 and all(_ASKS_HAN.search(part) or _HOLD_HAN.match(part) for part in parts)
    return parts if 1 < len(parts) <= MOST_PARTS and stands and not is_bare else ()


def answered_parts(parts: Sequence[str], ask: Callable[[str], Answer]) -> Answer:
    """Return the answers to the parts of a sentence as one, with their sources numbered on; a hold is told last.

    Args:
        parts: Of the sentence.
        ask: Answers one of them.
    """
    answers = [ask(part) for part in parts]
    numbered: list[Answer] = []
    sources: list[AnswerSource] = []
    for answer in answers:
        numbered.append(_shifted(answer, len(sources)))
        sources += numbered[-1].sources
    holds = [answer for answer in numbered if answer.intent == "hold"]
    replies = [answer for answer in numbered if answer.intent != "hold"]
    texts = [_cut(answer.text, MOST_LINES if len(numbered) > 1 else 99) for answer in replies]
    texts += [_cut(answer.text, 2) for answer in holds]
    first = next((answer for answer in replies if answer.proposals), (replies or numbered)[0])
    kind = next((answer.kind for answer in numbered if answer.kind is AnswerKind.PROPOSAL), first.kind)
    return replace(
        first,
        text="\n".join(texts),
        kind=kind,
        sources=tuple(sources),
        proposals=tuple(proposal for answer in numbered for proposal in answer.proposals),
        evidence=tuple(dict.fromkeys(number for answer in numbered for number in answer.evidence)),
        incidents=tuple(dict.fromkeys(number for answer in numbered for number in answer.incidents)),
        notes=tuple(dict.fromkeys(note for answer in numbered for note in answer.notes)),
    )


def _cut(text: str, most: int) -> str:
    lines = text.splitlines()
    return "\n".join(lines[:most])


def _shifted(answer: Answer, places: int) -> Answer:
    """Return an answer whose sources are numbered behind those before it."""
    if not places:
        return answer
    numbers = {source.number for source in answer.sources}
    text = _CITED.sub(lambda match: f"[{int(match[1]) + places}]" if int(match[1]) in numbers else match.group(), answer.text)
    return replace(answer, text=text, sources=tuple(replace(source, number=source.number + places) for source in answer.sources))
