"""Slips of the tongue: `drain 7, no wait, 8`, `cancel 4830 - sorry, I meant 4831`, 取消4830，不对，4831.

They are mended in the sentence as it was typed, before it is translated: the last name takes the place of the one that it
corrects. A sentence that takes itself back ends as a hold about what it named. Where it cannot be told what is corrected
nothing may be proposed (`read_repair`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from assistant.agent.corrections import corrected
from assistant.agent.dialogue import Dialogue
from assistant.agent.orders import OrderKind
from assistant.agent.scope import Reader, names_in


class SlipKind(StrEnum):
    """What became of a sentence that corrects itself."""

    MENDED = "mended"
    """It says now what was meant."""
    HOLD = "held"
    """It takes back what it said."""
    UNCLEAR = "unclear"
    """What takes the place of what is not told."""


class Slip(NamedTuple):
    """A sentence that corrected itself."""

    kind: SlipKind
    text: str
    """What was meant; of a held one what it had said."""
    before: str = ""
    """What was said before the correction."""


_HAN = r"[\u3400-\u9fff]"
_NOUN = (
    r"(?:(?:the|den|dem|die|der|das|number|nr\.?|no\.)\s+)?"
    r"(?:(?:jobs?|runs?|nodes?|hosts?|tasks?|machines?|knoten|maschine|rechner|steps?|schritt|任务|作业|节点|机器)\s*)?#?"
)
_UNIT = r"(?:\s?(?:hours?|hrs?|h|days?|d|minutes?|min|stunden?|tagen?|tage?)(?![\w-])|\s?(?:个?小时|天|分钟|步|号(?:节点|机器)?))?"
_NAME = rf"(?:[a-zA-Z][a-zA-Z_-]*)?\d+(?:-\d+)?(?![\d-]|[a-zA-Z]{{3}}){_UNIT}"
_TOKEN = re.compile(rf"(?<![A-Za-z\d.-])(?P<noun>{_NOUN})(?P<name>{_NAME})(?![A-Za-z])", re.IGNORECASE)
_AND = re.compile(r"\s*(?:,|and|und|&|\+|和|跟|与|、)\s*", re.IGNORECASE)
_TAIL = re.compile(
    r"(?:[\s.!,。！~)）]|(?<![A-Za-z])(?:please|pls|instead|i meant?|sorry|rather|then|obviously|of course|lol|bitte|meinte ich"
    r"|mein(?:e)? ich"
    r"|natürlich|stattdessen|war gemeint|gemeint|sorry)|才对|才是|吧|啊|哈|了|的|哦)+$",
    re.IGNORECASE,
)
_STRONG = (
    r"no[, ]+(?:wait|sorry|hang on|hold on|no|i mean(?:t)?)|(?:wait|oh|ah|oops|err?|actually|argh|ugh|uh)[, ]+no|nope"
    r"|(?:scratch|strike|scrap) that|correction|i mean(?:t)?(?: to (?:say|write|type))?|i'?m sorry|sorry|soz|oops|whoops"
    r"|my (?:bad|mistake)|pardon(?: me)?|ups|hoppla"
    r"|typo|wrong (?:one|id|job|node|number)|or rather|make (?:that|it)|not that(?: one)?|mistyped|mistake"
    r"|nein|nee|ne|nö|quatsch|blödsinn|vertippt|verschrieben|verlesen|falsch|ich mein(?:e|te)?|mein(?:e|te)? ich|meinte"
    r"|ich wollte sagen"
    r"|besser gesagt|vielmehr|korrektur|ach (?:nein|ne|nee|quatsch|doch)|doch (?:lieber|besser|eher)|mein fehler"
    r"|nicht (?:die|den|der|das)"
)
_STRONG_HAN = (
    r"[哦噢喔啊呃额哎诶]?不对(?:不对)?|[哦噢喔啊呃额哎]不(?:是)?|我?(?:说|打|写|看|弄|搞)错了?|错了|我是说|我说的是|我的意思是"
    r"|更正|纠正|抱歉|口误|手滑|笔误|\*"
)
_WEAK = r"no|on second thoughts?|wait|hold on|hang on|actually|rather|better|instead|nah|warte|moment|momentchen|doch|lieber"
_WEAK_HAN = r"不是(?=[\s,，。])|不(?=[\s,，。])|不是$|不$|等等|等下|等一下"
_HESITATES = r"er+m?|uh+m?|um+|hm+|argh|ugh|äh+m?|[呃额]"
_PADS = r"damn|dammit|shit|fuck|crap|ah shit|well|ok|okay|ah|oh|huh|stop|halt|stopp|also|na|ach|[啊哦噢嗯]|那个"
"""Words between two names that by themselves correct nothing."""
_LEADS = (
    r"it'?s|it is|it was|that'?s|that was|should be|the other one|es ist|es war|das ist|das war|den|die|der|das|the|ist|war"
    r"|nimm|lieber"
    r"|gemeint war|gemeint ist|is|was|from|at|to|for|on|ab|von|bei|auf"
)
_LEADS_HAN = r"应该是|是|改成|换成|要|应该|从"
_ALONE = r"just|only|nur|bloß"
_ALONE_HAN = r"只(?:要|有|是)?"
_ALONE_ENDS = re.compile(rf"(?:(?<![A-Za-zäöü'])(?:{_ALONE})|(?:{_ALONE_HAN}))$", re.IGNORECASE)
_SPACE = r"[\s,.;:!()—–…，。；：！、（）-]"
_MARK_ENDS = re.compile(
    rf"(?:(?:^|(?<![A-Za-zäöü']))(?P<strong>{_STRONG})|(?P<strong_han>{_STRONG_HAN})|(?:^|(?<![A-Za-zäöü']))(?P<weak>{_WEAK})"
    rf"|(?P<weak_han>{_WEAK_HAN})|(?:(?:^|(?<![A-Za-zäöü']))(?P<pause>{_HESITATES}))"
    rf"|(?:(?:^|(?<![A-Za-zäöü']))(?P<pad>{_PADS})))$",
    re.IGNORECASE,
)
_LEAD_ENDS = re.compile(rf"(?:(?<![A-Za-zäöü'])(?:{_LEADS})|(?:{_LEADS_HAN}))$", re.IGNORECASE)
_BACK = re.compile(
    r"(?:(?<![A-Za-zäöü'])(?:(?:scratch|scrap|strike|forget|ignore|drop|skip|ditch) (?:that|it|this|all that|what i said"
    r"|the (?:last|order))"
    r"|never ?mind(?: that| it)?|(?:don'?t|do not)(?: do (?:it|that))?|better not|rather not|not after all|leave it(?: (?:be"
    r"|alone|as it is|running))?"
    r"|let it (?:be|run)|i changed my mind|changed my mind|no no(?: no)*|no thanks"
    r"|(?:(?:lieber|besser|doch|bitte) )+nicht|vergiss (?:es|das)|lass (?:es|das|mal|gut sein|stecken|ihn|die)(?: (?:sein"
    r"|lieber|doch|bleiben|laufen"
    r"|in ruhe))?|mach(?:s|'s| das| es)? nicht|hat sich erledigt|schon gut|hab(?:e)? mich vertan)"
    r"|算了(?:算了)?|当我没说|别了|先别|不用了|不要了|还是别了|还是算了|作罢|先不(?:了|动了|弄了)?)$",
    re.IGNORECASE,
)
_BACK_FIRM = re.compile(
    r"(?:scra|strike|never|forget|vergiss|i changed|changed|hat sich|算|当我|还是|作罢|别了|不用|不要了)", re.IGNORECASE
)
_QUESTION = re.compile(r"[?？]\s*$")
_PARTS = re.compile(
    rf"(?<![\w'])(?:{_STRONG})(?![\w'])|[,.;!—–-]\s*(?:no|nah|actually|rather|better)\s*[,.;!—–-]|(?:{_STRONG_HAN})[，,。、]?",
    re.IGNORECASE,
)
MOST_CHARACTERS, MOST_MARKS = 300, 8


class _Marks(NamedTuple):
    """What stands between what was said and what was meant."""

    before: str
    strong: bool
    marks: int
    parted: bool
    """Whether a comma, a dash or dots stand before it."""
    pauses: int
    """How many words correct nothing by themselves."""
    alone: bool
    """Whether only the new name counts: `just 4831`."""
    pads: int
    """How many words only lead over: `ach`, `ok`."""


def read_slip(sentence: str) -> Slip | None:
    """Return what a sentence that corrects itself means; None where it does not.

    Args:
        sentence: As it was typed, in any of the languages.
    """
    if len(sentence) > MOST_CHARACTERS:
        return None
    body, stop = _without_stop(sentence.replace("\u2019", "'"))
    return _with_new_name(body, stop) or (None if stop else _taken_back(body))


def bare_correction(sentence: str) -> str:
    """Return `no, I meant 18` for a sentence that is nothing but a correction: `ne nicht die, 18`, 不对，是18; else nothing."""
    if len(sentence) > MOST_CHARACTERS or _QUESTION.search(sentence):
        return ""
    text = _TAIL.sub("", sentence.replace("\u2019", "'").strip())
    tokens = list(_TOKEN.finditer(text))
    if not tokens or tokens[-1].end() != len(text):
        return ""
    first = len(tokens) - 1
    while first and _AND.fullmatch(text, tokens[first - 1].end(), tokens[first].start()):
        first -= 1
    marks = _marks_before(text[: tokens[first].start()])
    means = _MEANS.search(sentence[len(text) :]) is not None
    if marks is None or re.search(r"\w", marks.before) or not (marks.strong or means or (marks.marks and marks.parted)):
        return ""
    names = re.sub(r"\s*(?:和|跟|与|、|&|\+|\bund\b)\s*", " and ", text[tokens[first].start() :])
    lead = "from " if re.search(r"(?:\b(?:from|ab|von)|从)\s*$", text[: tokens[first].start()], re.IGNORECASE) else ""
    return f"no, I meant {lead}{names}"


def parts_at_slip(sentence: str) -> tuple[str, str] | None:
    """Return a sentence before and behind the words by which it corrects itself: `cancel 4830, no wait, restart 4821`.

    Args:
        sentence: In English.
    """
    matches = [match for match in _PARTS.finditer(sentence) if re.search(r"\d", sentence[: match.start()])]
    if not matches or len(sentence) > MOST_CHARACTERS:
        return None
    before = sentence[: matches[0].start()].rstrip(" ,.;:!-—–…")
    tail = sentence[matches[-1].end() :].lstrip(" ,.;:!-—–…")
    tail = re.sub(rf"^(?:(?:{_WEAK}|{_HESITATES}|{_PADS})(?![\w'])[\s,.;:!-]*)+", "", tail, flags=re.IGNORECASE)
    return (before, tail) if before and tail else None


def _without_stop(sentence: str) -> tuple[str, str]:
    stop = _QUESTION.search(sentence)
    return (sentence[: stop.start()].rstrip(), "?") if stop else (sentence.rstrip(), "")


def _with_new_name(body: str, stop: str) -> Slip | None:
    text = _TAIL.sub("", body)
    means = _MEANS.search(body[len(text) :]) is not None
    tokens = list(_TOKEN.finditer(text))
    if len(tokens) < 2 or tokens[-1].end() != len(text):
        return None
    first = len(tokens) - 1
    while first > 1 and _AND.fullmatch(text, tokens[first - 1].end(), tokens[first].start()):
        first -= 1
    for place in range(first, len(tokens)):
        # a comma may stand between two names of one list, or before the correction
        marks = _marks_before(text[: tokens[place].start()])
        if marks is None or not (old := _tokens(marks.before)):
            continue
        ends_with_name = old[-1].end() == len(marks.before)
        if means or marks.strong or (marks.marks and (marks.parted or (marks.marks > 1 and ends_with_name))):
            return _mended(marks, text[tokens[place].start() :], stop)
        if marks.pauses and marks.parted:
            return Slip(SlipKind.UNCLEAR, body + stop, marks.before)
    return None


_MEANS = re.compile(r"i meant?|meinte? ich|mein ich|gemeint|instead|stattdessen|才对|才是", re.IGNORECASE)


def _marks_before(text: str) -> _Marks | None:
    """Return the words of correction at the end of a text, and what stands before them."""
    remainder, strong, count, parted, pauses, alone, pads = text, False, 0, False, 0, False, 0
    for _ in range(MOST_MARKS):
        stripped = re.sub(rf"{_SPACE}+$", "", remainder)
        gap = remainder[len(stripped) :]
        match = _MARK_ENDS.search(stripped)
        lead_match = None if match or count or pauses else _LEAD_ENDS.search(stripped)
        only_match = None if match or lead_match else _ALONE_ENDS.search(stripped)
        parted = re.search(r"[,.;:!()—–…，。；：！、（）-]", gap) is not None
        remainder = stripped
        if match is not None:
            if match["weak_han"] in ("不是", "不") and not gap:
                return None
            pauses, pads = pauses + bool(match["pause"]), pads + bool(match["pad"])
            stops = bool(match["pad"]) and parted and match["pad"].lower() in ("stop", "halt", "stopp")  # `halt, 14`, not `stop 14`
            count += stops or not (match["pause"] or match["pad"])
            strong = strong or bool(match["strong"] or match["strong_han"])
            remainder = stripped[: match.start()]
        elif lead_match is not None:
            remainder = stripped[: lead_match.start()]
        elif only_match is not None:
            alone, remainder = True, stripped[: only_match.start()]
        else:
            break
    return _Marks(remainder, strong, count, parted, pauses, alone, pads) if count or pauses or pads else None


def _mended(marks: _Marks, new: str, stop: str) -> Slip:
    """Return what was said with a new name in the place of the last one of its kind."""
    before = marks.before
    tokens, fresh = _tokens(before), _tokens(new)
    fitting = [token for token in tokens if _same_kind(token, fresh[0])]
    unclear = Slip(SlipKind.UNCLEAR, f"{before}, {new}{stop}", before)
    if not fitting:
        return unclear
    first = last = fitting[-1]
    place = tokens.index(last)
    while place and _AND.fullmatch(before, tokens[place - 1].end(), tokens[place].start()):
        place -= 1
        first = tokens[place]
    if first is not last and not marks.alone and len(fresh) == 1:
        return unclear  # `13 and 14, no wait, 15` may mean 13 and 15, or 15 alone
    start, end = first.start("name"), last.end()
    noun = fresh[0]["noun"].strip()
    new_text = new if noun and noun.lower() not in before[:start].lower() else new[len(fresh[0]["noun"]) :]
    if noun and first["noun"].strip():
        start, new_text = first.start(), new
    return Slip(SlipKind.MENDED, f"{before[:start]}{new_text}{before[end:]}{stop}", before)


def _same_kind(old: re.Match[str], new: re.Match[str]) -> bool:
    """Tell whether a name may take the place of another: a node of a node, a job of a job, hours of hours."""
    return _kind(old) == _kind(new) or "" in (_kind(old), _kind(new))


def _kind(token: re.Match[str]) -> str:
    name, noun = token["name"].lower(), token["noun"].lower()
    if re.search(r"\d\s?(?:h|hours?|hrs?|d|days?|min|minutes?|stunden?|tagen?|tage?|个?小时|天|分钟)$", name):
        return "time"
    digits = re.search(r"\d+", name)
    length = len(digits.group()) if digits else 0
    if re.search(r"node|host|knoten|machine|maschine|rechner|节点|机器", noun + name) or length <= 2:
        return "node"
    if re.search(r"step|schritt|步", noun + name):
        return "step"
    return "job" if length >= 4 else "step" if length == 3 else ""


def _taken_back(body: str) -> Slip | None:
    text = re.sub(
        r"(?:[\s.!,。！]|(?<![A-Za-z])(?:please|pls|sorry|thanks|then|yet|for now|bitte|danke|erstmal)|吧"
        r"|了(?<!算了)(?<!别了)|哈)+$",
        "",
        body,
        flags=re.IGNORECASE,
    )
    match = _BACK.search(text)
    if match is None:
        return None
    remainder = text[: match.start()]
    marks = _marks_before(remainder)
    before = marks.before if marks is not None else re.sub(rf"{_SPACE}+$", "", remainder)
    parted = marks is not None or before != remainder.rstrip() or bool(re.search(_HAN, before[-1:]))
    if not _tokens(before) or not (parted or _BACK_FIRM.match(match.group())):
        return None
    return Slip(SlipKind.HOLD, before, before)


def _tokens(text: str) -> list[re.Match[str]]:
    return list(_TOKEN.finditer(text))


_POINTER = re.compile(r"\b(?:it|that|this|that one|this one)\b", re.IGNORECASE)
_IDLE = re.compile(
    r"^(?:for|to|about|that|if|but|i am|i'm|,|\W)*(?:the )?(?:trouble|bother|noise|again|late|late night|ask|asking)?\W*$",
    re.IGNORECASE,
)
UNCLEAR = (
    'That corrects itself, and which thing is meant in the end is not told: "{}". Nothing is proposed; say the order once more, '
    "with what is meant."
)


def read_repair(sentence: str, english: Callable[[str], str], read: Reader) -> Slip | None:
    """Return what a sentence that corrects itself means; None where it does not.

    Args:
        sentence: As it was typed.
        english: Returns a sentence in English.
        read: Reads an English sentence.
    """
    slip = read_slip(sentence)
    if slip is not None:
        orders = read(english(slip.before))[1].kind in (OrderKind.SERVED, OrderKind.UNSERVED)
        if slip.kind is SlipKind.MENDED or (orders and slip.kind is SlipKind.UNCLEAR):
            return slip
        return slip if orders and slip.kind is SlipKind.HOLD else None
    parts = parts_at_slip(sentence)
    if parts is None:
        return None
    before, tail = english(parts[0]), english(parts[1])
    names, order = read(before)
    if order.kind is not OrderKind.SERVED or tail.rstrip().endswith("?"):
        return None
    further_names, further_order = read(tail)
    if further_order.kind in (OrderKind.SERVED, OrderKind.UNSERVED):
        objects = sorted(names_in(names))
        if names_in(further_names) or not _POINTER.search(tail):
            return Slip(SlipKind.MENDED, parts[1], parts[0])
        if len(objects) == 1:
            return Slip(SlipKind.MENDED, _POINTER.sub(objects[0], tail, count=1), parts[0])
        return Slip(SlipKind.UNCLEAR, sentence, parts[0])
    if further_order.kind is OrderKind.HOLD:
        return Slip(SlipKind.HOLD, parts[0], parts[0]) if not names_in(further_names) - names_in(names) else None
    if text := corrected(f"no, {tail}", Dialogue(intent=order.change, order=before), lambda text: read(text)[0]):
        return Slip(SlipKind.MENDED, text, parts[0])
    return None if _IDLE.match(tail) else Slip(SlipKind.UNCLEAR, sentence, parts[0])
