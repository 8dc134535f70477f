"""Take out of a line what differs from run to run: one generic set of masks for the lines of all programs.

A mask stands as one control character, which a cleaned line never holds, so text of a log cannot pose as a mask.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from functools import lru_cache
from operator import eq


class WordMask(StrEnum):
    """The kind of value that a mask stands for."""

    NUMBER = "\x01"
    HEX = "\x02"
    PATH = "\x03"
    HOST = "\x04"
    ADDRESS = "\x05"
    UUID = "\x06"
    TIME = "\x07"
    QUOTED = "\x08"
    WORD = "\x0e"
    """Words that differ from line to line; found by comparing lines, not by their form."""
    MORE = "\x0f"
    """Further values like the one before it: a list of any length."""


_CLOCK = r"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?"
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)?"
_WEEKDAY = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
FORMS: dict[WordMask, str] = {
    WordMask.TIME: rf"\b\d{{4}}[-/.]\d\d[-/.]\d\d(?:[T-]{_CLOCK}{_ZONE})?(?![\w.])|\b{_CLOCK}{_ZONE}(?![\w:])",
    WordMask.UUID: r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b",
    WordMask.ADDRESS: r"/?\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5}|<\d{1,5}>|/\d{1,2})?(?![\w.])"
    r"|\b(?:[0-9a-fA-F]{2}:){5,7}[0-9a-fA-F]{2}\b|(?<![\w:])[0-9a-fA-F]{1,4}:(?:[0-9a-fA-F]{0,4}:){2,6}[0-9a-fA-F]{1,4}\b",
    WordMask.PATH: r"\b[a-z][a-z0-9+]{1,9}://[^\s,;'\"<>()\[\]]+"
    r"|(?<![\w.])(?:~|\.{1,2})?/(?:[\w.@%+=~$-]+/?)+"
    r"|(?<![\w./])(?=[\d.-]{0,255}[a-zA-Z_])[\w.-]{1,255}/(?:[\w.@%+=~-]+/)+[\w.@%+=~-]+",
    WordMask.HOST: r"\b[a-zA-Z][\w-]{0,254}\[\d{1,9}[,-][\d,-]*\]"
    r"|\b(?:[a-zA-Z0-9][\w-]{0,62}\.){1,6}"
    r"(?:com|org|net|edu|gov|io|cn|jp|de|uk|tw|kr|local|internal|cluster|lan|hpc)(?::\d{1,5})?\b"
    r"|\b(?:[a-zA-Z](?=[a-zA-Z_-]{0,62}\d)[\w-]{1,63})(?:\.[a-zA-Z][\w-]{0,62}){2,5}\b",
    WordMask.HEX: r"\b\dx[0-9a-fA-F]+\b"
    r"|\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,}\b|\b(?=[0-9]*[A-F])(?=[A-F]*[0-9])[0-9A-F]{7,}\b",
    WordMask.NUMBER: r"(?:(?<![\w.)\]])[-+])?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?",
}
"""How each mask is found in a word; of two that begin at one place the earlier holds."""
QUOTES = r"""(?<![^\s=:,(\[{])(?:"[^"\n]{0,400}"|'[^'\n]{0,400}')(?!\w)"""
DAY = rf"\b(?:(?:{_WEEKDAY}),? )?{_MONTH} +\d{{1,2}} {_CLOCK}(?: \d{{4}})?\b"
"""A date as syslog and asctime write it; it has blanks, as quotes may."""

_FORM = re.compile("|".join(f"(?P<{mask.name}>{form})" for mask, form in FORMS.items()), re.ASCII)
_QUOTES = re.compile(QUOTES, re.ASCII)
_DAY = re.compile(rf"\b(?:(?:{_WEEKDAY}),? )?{_MONTH} {WordMask.NUMBER} {WordMask.TIME}(?: {WordMask.NUMBER})?")
_VALUE = re.compile("[\x01-\x06\x08]")
_FORM_LENGTHS = (1, 2, 3)
_ENDS = f",;{WordMask.MORE}"
_INNER = re.compile("([\x01-\x08])(?:,\\1)+")
_RUN = re.compile(r"([^\w\s])\1{4,}")
_PREAMBLE = re.compile(
    r"(?:\[?(?:rank|default)?\d{1,6}\]?(?:<std(?:out|err)>)?: ?|[a-zA-Z](?=[\w.-]*\d)[\w.-]{1,60}: ){1,3}", re.ASCII
)
_NAMES = str.maketrans(
    {mask.value: f"<{mask.name.lower()}>" for mask in WordMask if mask is not WordMask.MORE} | {WordMask.MORE.value: "…"}
)


def masked(text: str) -> str:
    """Return a cleaned line without what launchers put before it, its values as masks, its blanks as single spaces.

    A sign that fills up a column stands four times however often it stood.
    It is the same for all lines that differ in their digits only.
    """
    if before := _PREAMBLE.match(text):
        text = text[before.end() :]
    if '"' in text or "'" in text:
        text = _QUOTES.sub(WordMask.QUOTED.value, text)
    words = _listed([_masked_word(word) for word in text.split()])
    masked_text = " ".join(words)
    if WordMask.TIME in masked_text:
        masked_text = _DAY.sub(WordMask.TIME.value, masked_text.replace(f"{WordMask.TIME} {WordMask.TIME}", WordMask.TIME))
    return f" {masked_text}" if masked_text and text[:1] in (" ", "\t") else masked_text


def _listed(words: list[str]) -> list[str]:
    """Return words with runs of values of one form as one: `node1, node2, node3` is `node1…`; forms may have three words."""
    values = list(map(_value, words))
    if not any(True in map(eq, values, values[length:]) for length in _FORM_LENGTHS):
        return words
    masked_words: list[str] = []
    kept_values: list[str | float] = []
    for word, value in zip(words, values, strict=True):
        for length in _FORM_LENGTHS:
            if (
                len(masked_words) >= 2 * length - 1
                and kept_values[-length] == value
                and _repeats([*masked_words[-2 * length + 1 :], word])
            ):
                del masked_words[len(masked_words) - length + 1 :], kept_values[len(kept_values) - length + 1 :]
                masked_words[-1] = f"{value}{WordMask.MORE}{word[len(str(value)) :]}"
                break
        else:
            masked_words.append(word)
            kept_values.append(value)
    return masked_words


def _repeats(words: list[str]) -> bool:
    """Tell whether the second half of some words is the first again."""
    half = len(words) // 2
    return [word.rstrip(_ENDS) for word in words[:half]] == [word.rstrip(_ENDS) for word in words[half:]]


@lru_cache(maxsize=1 << 14)
def _value(word: str) -> str | float:
    """Return a word that holds a value without the sign behind it; of another word something that is equal to nothing."""
    return word.rstrip(",;") if _VALUE.search(word) else math.nan


def readable(text: str) -> str:
    """Return a masked text as people read it: `loss <number> at <time>`."""
    return text.translate(_NAMES)


@lru_cache(maxsize=1 << 16)
def _masked_word(word: str) -> str:
    masked_word = _FORM.sub(lambda match: WordMask[match.lastgroup or ""].value, _RUN.sub(r"\1\1\1\1", word))
    return _INNER.sub(rf"\1{WordMask.MORE.value}", masked_word)
