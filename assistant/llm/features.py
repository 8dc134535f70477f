"""What a linear model sees of a log line: words, pairs of words and pieces of words, as places in a hashed vector.

What differs from run to run is taken out first: stamps, ranks, hosts, paths, addresses, numbers that are no codes. What is left
gets the same places in every process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

BITS = 15
DIMS = 1 << BITS
LONGEST = 1200
"""Characters of a line that are looked at; what is longer keeps its head and its tail."""
_PREAMBLE = re.compile(
    r"^(?:\[?(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?: \d{4})?\]?"
    r"|\[(?:rank|default|RANK|Rank)?[ :=]?\d{1,6}\]:?|\[\d+,\d+\](?:<\w+>)?:?|\d{1,6}:|\([\w.]*,? ?pid=\d+(?:, ip=[\d.]+)?\)"
    r"|\[? *\d+\.\d+\]|<\d+>|\[?\d{4}[-/]\d\d[-/]\d\d[T _]?(?:\d\d:\d\d:\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?\]?"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?|[a-zA-Z](?=[A-Za-z_-]{0,254}\d)[\w.-]{1,255}+(?: \||:))[ :,|-]*"
)
_VARYING = (
    (re.compile(r"\bs3(?![a-zA-Z\d])", re.IGNORECASE), "sthree"),
    (re.compile(r"\b(sthree|gs|hdfs|oss|az|https?|ftp|tcp|file|nfs|boto3|wss?)://\S+"), r" \1 url "),
    (
        re.compile(
            r"(?:(?<![\w.])(?:~|\.{1,2})?/|(?:\b[\w.@%+-]{1,255}/){2})(?:[\w.@%+=~-]{1,255}/)*+([\w.@%+=~-]{0,255}?)(\.[A-Za-z]{1,11})?(?![\w/])"
        ),
        r" path \2 ",
    ),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+|<\d+>)?"), " ip "),
    (re.compile(r"\b(?:0x[0-9a-fA-F]+|(?:[0-9a-fA-F]{2,4}:){2,}[0-9a-fA-F]{2,4}(?:\.\d)?|(?=[a-f]{0,64}\d)[0-9a-f]{8,})\b"), " "),
    (re.compile(r"\b[a-zA-Z]{1,63}-?\d{1,63}+(?:-\d{1,63}+){0,8}(?:\.[a-z][\w-]{0,62}){1,5}\b"), " host "),
)
_CODE = re.compile(
    r"\b(errno|xid|signal|status|code|exitcode|rc|http|error|err|wc)\b[^\w\n]{0,4}(?:\([^)\n]{0,40}\)\W{0,3})?(-?\d{1,3})(?![\w.])",
    re.IGNORECASE,
)
"""Numbers that are words: `[Errno 113]`, `Xid (PCI:0000:c1:00): 48`."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_|(?<=[a-zA-Z])(?=\d)|(?<=\d)(?=[a-zA-Z])")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_PIECES = range(2, 6)


def body(text: str) -> str:
    """Return a line without the marks and stamps before it."""
    for _ in range(5):
        match = _PREAMBLE.match(text)
        if match is None:
            break
        text = text[match.end() :]
    return text


def words_of(text: str) -> list[str]:
    """Return the words of a line, lower case, in order; whole identifiers stand beside their parts' places."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} {text[-LONGEST // 2 :]}"
    text = body(text)
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    parts = (part for word in _WORD.findall(text) for part in _CAMEL.split(word))
    return [part.lower() for part in parts if len(part) > 1 and not part.isdigit()]


def codes_of(text: str) -> list[str]:
    """Return the numbers of a line that are words, with what they number."""
    return [f"{name.lower()} {number}" for name, number in _CODE.findall(text[:LONGEST])]


def places_of(words: Sequence[str], codes: Sequence[str] = ()) -> list[int]:
    """Return the places that words and codes take, each once, ascending."""
    places: set[int] = set()
    for word in set(words):
        places.update(_of_word(word))
    places.update(_place(f"b {first} {second}") for first, second in pairwise(words))
    places.update(_place(f"c {code}") for code in codes)
    if words:
        places.add(_place(f"s {words[0]}"))
    return sorted(places)


def places(text: str) -> list[int]:
    """Return the places of a line."""
    return places_of(words_of(text), codes_of(text))


@lru_cache(maxsize=1 << 14)
def _of_word(word: str) -> tuple[int, ...]:
    padded = f"<{word[:40]}>"
    pieces = {padded[start : start + size] for size in _PIECES for start in range(len(padded) - size + 1)}
    return (_place(f"w {word}"), *(_place(f"p {piece}") for piece in sorted(pieces)))


def _place(feature: str) -> int:
    return crc32(feature.encode("utf-8", "replace")) & (DIMS - 1)
