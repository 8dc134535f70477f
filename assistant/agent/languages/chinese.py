"""A Chinese sentence as clauses of units: longest match without spaces, numerals and measure words; names stay whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from assistant.agent.languages.chinese_spans import CONDITIONAL, CONSEQUENCE, REWRITES, SPANS
from assistant.agent.languages.glosses import Gloss, SentenceUnit, WordTag, english_words, entries, tables

HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_QUOTE = re.compile(
    r"\"[^\"]{1,200}\"|“[^”]{1,200}”|「[^」]{1,200}」|『[^』]{1,200}』|`[^`]{1,200}`|《[^》]{1,200}》|(?<![\w])'[^']{1,200}'(?!\w)"
)
_TOKEN = re.compile(r"[A-Za-z_][\w.-]*\[[\d,/-]+\][\w.-]*|[A-Za-z0-9_/~#@{][\w/.:+#@=~*{}'-]*", re.ASCII)
_STOPS = "，。；！？、：,;!?:"
_END = re.compile(r"[。！!；;，,？?：:]|\.(?=\s|$)")
_DIGITS = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_UNITS_OF = r"小时|个小时|个钟头|钟头|天|分钟|周|个星期|个礼拜|行|步|个月|号节点|号机"
_NUMERAL = re.compile(
    rf"(?<![第哪同这那每另上下])([零〇一二两三四五六七八九十百]{{1,5}})(?=(?:{_UNITS_OF}))|(?<=第)([一二三四五六七八九十百]+)(?=步)|半(?=小时)"
)
_SECTIONS = tuple(
    WordTag(section)
    for section in (
        "phrase asking polite negation question past yesno order time "
        "pronoun noun adjective verb after preposition conjunction adverb filler"
    ).split()
)
"""An earlier one is read first."""
_ID = r"[A-Za-z0-9][A-Za-z0-9_.\[\],-]*"
_SUBJECT = re.compile(
    r"(调度器|slurm\w*|控制器|内核)(?:日志)?(?:里|上|那边)?(?:对|关于|针对|有关)\s*([\w.\[\]-]+)的?", re.ASCII | re.IGNORECASE
)
_REWRITES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    # 7号节点 -> 节点7, 第400步 -> step 400, 最近3天 -> the last 3 days
    (re.compile(r"(\d+)\s*号\s*(节点|机器|任务|作业|事件|审批)"), r"\2\1"),
    (re.compile(r"第\s*(\d+)\s*步"), r" step \1 "),
    (re.compile(r"(?<![\w])步\s*(\d+)"), r" step \1 "),
    (_SUBJECT, r"\2\1"),
    (
        re.compile(
            rf"(?:不要|别|禁止|停止)再?(?:往|向|给|在)\s*({_ID})\s*上?再?(?:调度|分配|派|安排|放|提交|跑)新?的?(?:任务|作业|活)?了?|"
            rf"({_ID})\s*上?(?:不要|别)再?(?:分配|调度|接|跑|派|安排|放)新?的?(?:任务|作业|活)了?"
        ),
        lambda match: f"隔离{match.group(1) or match.group(2)}",
    ),
    (re.compile(r"的?\s*(?:drain|cordon|隔离|封锁)(?:状态)?(?:给)?(?:去掉|取消|解除|撤掉|撤销|移除)"), "解除隔离"),
    (
        re.compile(
            rf"在?\s*({_ID})\s*的?(?:日志|log)\s*(?:里面|里|中)?(?:有没有|有无|是否|有)(?:出现|包含|提到|含有)?过?\s*({_ID}|\0\d+\0)\s*[吗没]?"
        ),
        r"在\1的日志里搜索\2",
    ),
    (
        re.compile(rf"(?:调度器|slurm|slurmctld)\s*(?:里面|里|中|上)?\s*({_ID})\s*是?怎么(?:记录|写|说|讲)的?", re.IGNORECASE),
        r"\1调度器怎么说",
    ),
    (
        re.compile(rf"({_ID})\s*在\s*({_ID})\s*的?(?:日志|log)\s*(?:里面|里|中)?(?:出现|提到)(?:了|过)?(?:几|多少)[次回]"),
        r"在\2的日志里搜索\1",
    ),
    (re.compile(r"(从|用|在)\s*(?:检查点|存档|checkpoint|ckpt)\s*(\d+)"), r"从 step \2 "),
    (
        re.compile(rf"(?:取消|解除|撤销|去掉)\s*对?\s*({_ID})\s*的?\s*(?:隔离|封锁|drain|cordon)"),
        r"解除隔离\1",
    ),
    (re.compile(r"^那么?\s*(?=[A-Za-z0-9另上下前第])"), ""),
    # 不用node07重启: without it; 用上一个检查点重启: from it; 让4830继续跑: do not stop it
    (re.compile(r"(?:不用|不要用|别用|避开|绕开|排除|去掉)\s*(?=[A-Za-z][\w-]*[\d\[])"), "不带"),
    (re.compile(r"(?<![可能使不没有应占在要常启停采])用(?=[^，。？用]{0,12}(?:检查点|存档|ckpt|checkpoint))"), "从"),
    (re.compile(r"让\s*([\w\[\],.-]+?)\s*(?:继续跑|继续运行|继续训练|接着跑|跑完|跑着|跑下去|跑)", re.ASCII), r"别停\1"),
    (re.compile(r"(?:最近|过去|近|前|最后|这)\s*的?\s*(?=\d+\s*(?:个|小时|天|分钟|周|行|步))"), "过去"),
)
_MEASURES = (("行日志", "lines of log"), ("行", "lines"), ("步", "steps"))
_LATIN = re.compile(r"[A-Za-z0-9_]", re.ASCII)


@cache
def _book() -> tuple[Mapping[str, Gloss], Mapping[str, int], Mapping[str, Gloss]]:
    """Return the words with their glosses, the longest length by first sign, and the replies."""
    words: dict[str, Gloss] = {}
    longest: dict[str, int] = {}
    for word, gloss in entries("zh", *_SECTIONS):
        plain = word.replace(" ", "").lower()
        if plain not in words:
            words[plain] = gloss
            longest[plain[0]] = max(longest.get(plain[0], 0), len(plain))
    words.setdefault("的", Gloss("of", WordTag.OF))
    longest.setdefault("的", 1)
    return words, longest, {word.replace(" ", ""): gloss for word, gloss in entries("zh", WordTag.REPLY)}


@cache
def _simplified() -> Mapping[int, str]:
    pairs = " ".join(tables("zh")["traditional"]["map"]).split()
    return {ord(pair[0]): pair[1] for pair in pairs}


def chinese_clauses(sentence: str) -> list[list[SentenceUnit]]:
    """Return the clauses of a sentence; each ends with a unit of its stop, empty where there is none.

    Args:
        sentence: As from `question_of`.
    """
    text = sentence.translate(_simplified())
    aside: list[SentenceUnit] = []

    def put_aside(unit: SentenceUnit) -> str:
        aside.append(unit)
        return f" \0{len(aside) - 1}\0 "

    text = _QUOTE.sub(lambda match: put_aside(SentenceUnit(f'"{match.group()[1:-1]}"', WordTag.NAME, match.group()[1:-1])), text)
    for rewrite, replacement in REWRITES:
        text = rewrite.sub(replacement, text)
    for span, unit_of in SPANS:
        text = span.sub(lambda match, unit_of=unit_of: put_aside(unit_of(match)), text)  # type: ignore[misc]
    text = _arabic(text)
    for pattern, changed in _REWRITES:
        text = pattern.sub(changed, text)
    return [[*_units(clause, aside), SentenceUnit(stop, WordTag.STOP, stop)] for clause, stop in _clauses(text)]


def _arabic(text: str) -> str:
    def digits(match: re.Match[str]) -> str:
        numeral = match.group(1) or match.group(2)
        return str(_number(numeral)) if numeral else "1"

    return _NUMERAL.sub(digits, text)


def _number(numeral: str) -> int:
    """Return the value of a numeral below 1,000."""
    value = digit = 0
    for sign in numeral:
        if sign in ("十", "百"):
            value += (digit or 1) * (10 if sign == "十" else 100)
            digit = 0
        else:
            digit = _DIGITS[sign]
    return value + digit


_INSIDE = re.compile(r"[\w\]][:,][\w\]]", re.ASCII)
"""A sign within a name: node[01,03], step:400."""
_THEN = re.compile(r"(?=然后|接着再|但是|不过|并且|而且)")


def _clauses(text: str) -> Iterator[tuple[str, str]]:
    start = 0
    for match in [*_END.finditer(text), None]:
        if match is not None and match.group() in ":," and _INSIDE.match(text, match.start() - 1 if match.start() else 0):
            continue
        body, stop = (text[start:], "") if match is None else (text[start : match.start()], match.group())
        start = len(text) if match is None else match.end()
        body = body.strip()
        parting = CONSEQUENCE if CONDITIONAL.match(body) else _THEN
        parts = [part for part in parting.split(body) if part.strip()]
        for number, part in enumerate(parts):
            yield part.strip(), stop if number == len(parts) - 1 else ""
        if not parts and stop and stop in "?？":
            yield "", stop


def _units(clause: str, aside: Sequence[SentenceUnit]) -> list[SentenceUnit]:
    words, longest, replies = _book()
    bare = re.sub(r"(?<=[^\x00-\x7f])\s+|\s+(?=[^\x00-\x7f])", "", clause).replace("、", "和")
    reply = replies.get(bare) or replies.get(re.sub(r"[吧啊呀哦呢嘛的了]+$", "", bare))
    if reply is not None:
        return [SentenceUnit(reply.english, WordTag.REPLY, clause)]
    low = bare.lower()
    units: list[SentenceUnit] = []
    place = 0
    while place < len(bare):
        if bare[place] == "\0":
            end = bare.index("\0", place + 1)
            units.append(aside[int(bare[place + 1 : end])])
            place = end + 1
            continue
        if bare[place].isspace():
            place += 1
            continue
        end = _longest(low, place, words, longest)
        if end > place:
            gloss = words[low[place:end]]
            units.append(SentenceUnit(gloss.english, gloss.tag, bare[place:end]))
        else:
            end = _token(bare, place, units)
        place = end
    return units


def _longest(low: str, place: int, words: Mapping[str, Gloss], longest: Mapping[str, int]) -> int:
    """Return where the longest word at a place ends; the place itself where none begins. A Latin token is never cut."""
    if _LATIN.match(low[place]) and place and _LATIN.match(low[place - 1]):
        return place
    for end in range(min(len(low), place + longest.get(low[place], 0)), place, -1):
        if low[place:end] in words:
            cuts = end < len(low) and _LATIN.match(low[end - 1]) and re.match(r"[A-Za-z0-9_.\[/-]", low[end])
            if not cuts:
                return end
    return place


def _token(bare: str, place: int, units: list[SentenceUnit]) -> int:
    """Add the Latin token or the unknown signs at a place, and return where they end."""
    for sign, english in _MEASURES:
        if bare.startswith(sign, place) and units and units[-1].source[-1:].isdigit():
            units.append(SentenceUnit(english, WordTag.NOUN, sign))
            return place + len(sign)
    match = _TOKEN.match(bare, place)
    if match is None:
        if HAN.match(bare[place]) and units and units[-1].tag is WordTag.UNKNOWN and HAN.match(units[-1].source[-1]):
            joined = units[-1].source + bare[place]
            units[-1] = SentenceUnit(joined, WordTag.UNKNOWN, joined)
        elif bare[place] not in _STOPS + "()（）.…~-":
            units.append(SentenceUnit(bare[place], WordTag.UNKNOWN, bare[place]))
        return place + 1
    token = match.group().rstrip(".:'")
    if not token:
        return place + 1
    is_english = token.isalpha() and token.lower() in english_words()
    units.append(SentenceUnit(token, WordTag.NOUN if is_english else WordTag.NAME, token))
    return place + len(token)
