"""Phrases of German and Chinese that are put otherwise before a sentence is taken apart: 15除外 as 除了15, `13 bis 16` as `13-16`."""

from __future__ import annotations

import re

_NAME = r"(?:(?:node|节点|机器|任务|作业|job)\s*)?(?:[A-Za-z][A-Za-z_-]*)?\d+(?:-\d+)?(?:号)?"
_NAMES = rf"{_NAME}(?:\s*(?:和|跟|与|、|及)\s*{_NAME})*"
_CHINESE = (
    (re.compile(rf"^(?P<order>.+?)[，,、;；\s]*(?P<but>{_NAMES})(?:号|节点|机器)?(?:除外|不算|不要动?|别动|不用|不在内|保留)[。.!！]*$"), r"除了\g<but>，\g<order>"),
    (re.compile(rf"^(?P<order>.+?)[，,、;；\s]*(?:但|但是|不过)?(?:不包括|不含|不包含|除掉|除去|除了)(?P<but>{_NAMES})[。.!！]*$"), r"除了\g<but>，\g<order>"),
    (re.compile(r"(?<![\d.])(\d{1,2})(?:号)?\s*(?:到|至|~|～|—)\s*(\d{1,2})(?![\d:点步小天])号?(?:节点|机器)?"), r"\1-\2"),
    (re.compile(rf"^(?:那|然后|还有)?(?P<new>{_NAMES})号?(?:也一样|也是|也要|也|同样|一样|也一样处理|照样|也这么办|也这样)(?:吧|处理|办|弄|的)?[。.!！]*$"), r"same for \g<new>"),
)
_GERMAN = (
    (re.compile(r"(?<![\d.:])(\d{1,2})\s+bis\s+(\d{1,2})(?![\d:.]|\s*(?:uhr|h\b|minuten|stunden|tage|schritte?))", re.IGNORECASE), r"\1-\2"),
    (re.compile(r"(?<!\w)von\s+(\d{1,2}-\d{1,2})(?!\w)", re.IGNORECASE), r"\1"),
    (
        re.compile(
            rf"^(?:und |dann |bitte )*(?:das ?selbe|das gleiche|genauso|ebenso|gleiches)\s+(?:auch\s+)?(?:für|bei|mit)?\s*(?:die\s+)?"
            rf"(?P<new>{_NAME}(?:\s*(?:und|,)\s*{_NAME})*)\W*$",
            re.IGNORECASE,
        ),
        r"same for \g<new>",
    ),
    (re.compile(rf"^(?:und |dann )*(?:die\s+)?(?P<new>{_NAME}(?:\s*(?:und|,)\s*{_NAME})*)\s+(?:auch|ebenso|genauso|gleich mit|dann auch)(?: noch| bitte)*\W*$", re.I), r"same for \g<new>"),
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
