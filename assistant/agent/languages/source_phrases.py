"""Phrases of German and Chinese that are put otherwise before a sentence is taken apart: 15除外 as 除了15."""

from __future__ import annotations

import re

_NAME = r"(?:(?:node|节点|机器|任务|作业|job)\s*)?(?:[A-Za-z][A-Za-z_-]*)?\d+(?:-\d+)?(?:号)?"
_NAMES = rf"{_NAME}(?:\s*(?:和|跟|与|、|及)\s*{_NAME})*"
_CHINESE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<=\d)号(?!节点|机器|机|任务|作业)"), " "),
    (
        re.compile(
            rf"^(?P<order>.+?)[，,、;；\s]*(?P<but>{_NAMES})(?:号|节点|机器)?(?:除外|不算|不要动?|别动|不用|不在内|保留)[。.!！]*$"
        ),
        r"除了\g<but>，\g<order>",
    ),
    (
        re.compile(rf"^(?P<order>.+?)[，,、;；\s]*(?:但|但是|不过)?(?:不包括|不含|不包含|除掉|除去)(?P<but>{_NAMES})[。.!！]*$"),
        r"除了\g<but>，\g<order>",
    ),
    (re.compile(r"(?<![\d.])(\d{1,2})(?:号)?\s*(?:到|至|~|～|—)\s*(\d{1,2})(?![\d:点步小天])号?(?:节点|机器)?"), r"\1-\2"),
    (
        re.compile(
            rf"^(?:那|然后|还有)?(?P<new>{_NAMES})号?(?:也一样|也是|也要|也|同样|一样|也一样处理|照样|也这么办|也这样)(?:吧"
            rf"|处理|办|弄|的)?[。.!！]*$"
        ),
        r"same for \g<new>",
    ),
)
_VERB_WORDS = {
    "cancel": "取消|停掉?|杀掉?|kill掉?|cancel掉?",
    "restart": "重启|重新提交|重跑|恢复|重新启动",
    "drain": "排空|隔离|下线|drain掉?|摘掉?",
    "undrain": "放回去?|上线|放回来|恢复上线|解除隔离",
    "touch": "动|碰|改|修改|处理",
}
_VERBS = "|".join(f"(?P<{verb}>{words})" for verb, words in _VERB_WORDS.items())
_DID_YOU = (
    re.compile(
        rf"^(?:(?P<before>.*)[，,。；;\s])?(?:这|那|它|(?P<lead>{_NAME}))?是你(?:们)?(?:自己)?(?:把)?(?P<what>(?:{_NAME})?)(?:给)?(?:{_VERBS})(?:了|过|掉)*的?[吗么嘛吧]?[？?]?$"
    ),
    re.compile(
        rf"^(?:(?P<before>.*)[，,。；;\s])?你(?:们)?(?:刚才|刚刚|刚|已经|有没有|是不是|今晚|之前|后来|到底|真的"
        rf"|是否)*(?:把)?(?P<what>(?:{_NAME})?)(?:给)?"
        rf"(?:{_VERBS})(?:了|过|掉)*(?P<more>(?:{_NAME})?)(?:了|没有|没)*[吗么嘛没][？?]?$"
    ),
)
_RISKY = re.compile(
    rf"^(?:现在|今晚|如果)?(?:把)?(?P<what>(?:{_NAME})?)(?:给)?(?:{_VERBS})(?:掉|了)?(?P<more>(?:{_NAME})?)"
    r"(?:的话)?(?:会不会|会|有没有|有|是否)?(?:有|很|太)?(?:风险|危险|问题|影响|坏处|害处)(?:吗|么|嘛|没有)?[？?]?$"
)
"""取消4830有风险吗: what harm a change would do."""
_QUOTED = re.compile(r"[“\"「『]([^”\"」』]{1,120})[”\"」』]")
_CHINESE = (
    *_CHINESE,
    (
        re.compile(
            rf"^(?P<what>{_NAMES})(?:现在|今晚)?(?:可以|能|能不能|可不可以)(?P<verb>放回去?|重启|取消|排空|上线"
            rf"|恢复)(?:了)?[吗么嘛]?[？?]?$"
        ),
        r"可以\g<verb>\g<what>吗？",
    ),
)


def did_you(sentence: str) -> str:
    """Return `did you drain node12?` for 是你把node12排空的吗: who did it is asked for, and nothing is ordered; else nothing."""
    match = next(filter(None, (pattern.match(sentence.strip()) for pattern in _DID_YOU)), None)
    if match is None and (risky := _RISKY.match(sentence.strip())) is not None:
        object_name = risky["what"] or risky["more"]
        verb = next(name for name in _VERB_WORDS if risky[name])
        plain = f"put {object_name} back" if verb == "undrain" else f"{verb} {object_name}"
        return f"is it risky to {plain}?" if object_name else ""
    if match is None:
        return ""
    groups = match.groupdict()
    verb = next(name for name in _VERB_WORDS if groups[name])
    object_text = groups["what"] or groups.get("more") or groups.get("lead") or "it"
    quoted = _QUOTED.search(groups["before"] or "")
    object_name = re.findall(_NAME, _QUOTED.sub(" ", groups["before"] or ""))
    object_text = object_name[-1] if object_text == "it" and len(object_name) == 1 else object_text
    return f"{f'{chr(34)}{quoted[1]}{chr(34)}: ' if quoted else ''}did you {verb} {object_text}?"


_GERMAN = (
    (
        re.compile(
            r"(?<![\d.:])(\d{1,2})\s+bis\s+(\d{1,2})(?![\d:.]|\s*(?:uhr|h\b|minuten|stunden|tage|schritte?))", re.IGNORECASE
        ),
        r"\1-\2",
    ),
    (re.compile(r"(?<!\w)von\s+(\d{1,2}-\d{1,2})(?!\w)", re.IGNORECASE), r"\1"),
    (
        re.compile(
            rf"^(?:und |dann |bitte )*(?:das ?selbe|das gleiche|genauso|ebenso|gleiches)\s+(?:auch\s+)?(?:für|bei"
            rf"|mit)?\s*(?:die\s+)?"
            rf"(?P<new>{_NAME}(?:\s*(?:und|,)\s*{_NAME})*)\W*$",
            re.IGNORECASE,
        ),
        r"same for \g<new>",
    ),
    (
        re.compile(
            rf"^(?:und |dann )*(?:die\s+)?(?P<new>{_NAME}(?:\s*(?:und|,)\s*{_NAME})*)\s+(?:auch|ebenso|genauso|gleich mit"
            rf"|dann auch)(?: noch| bitte)*\W*$",
            re.I,
        ),
        r"same for \g<new>",
    ),
)
"""What is typed, and how it is read."""


def plain_source(sentence: str, *, chinese: bool) -> str:
    """Return a sentence in words that its tables know.

    Args:
        sentence: As it was typed.
        chinese: Its language; else German.
    """
    for pattern, plain in _CHINESE if chinese else _GERMAN:
        sentence = pattern.sub(plain, sentence)
    return sentence
