"""What models see of a text: a line of a log or a sentence, without what differs from run to run.

A linear model sees words, pairs of words and pieces of words, as places in a hashed vector; an encoder sees words. Stamps, ranks,
hosts, paths, addresses and marks are taken out; of numbers only codes stay (`errno 28`, `xid 74`). What is left gets the same
places in every process. Sentences of operators keep everything but names of jobs and nodes and numbers, for which a plain word
stands. Short texts are what makes an encoder fast, and equal texts need to be looked at only once.
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


LONGEST_LINE = 48
"""Words of a line that are looked at: head and tail of longer ones."""
LONGEST_SENTENCE = 96
LONGEST_WORD = 40
_NONE_OF = re.compile(r"\b0 (?=(?:\w+ )?(?:error|warning|failure|fault|mismatch|retr))", re.IGNORECASE)
_ZERO = re.compile(r"\b(?:by|modulo|divide[ds]?|division) 0\b|\b0/0\b", re.IGNORECASE)
_NOT_A_NUMBER = re.compile(r"\bnan\b|(?<![\w.])-?inf\b", re.IGNORECASE)
_PLACES = (
    (
        re.compile(
            r"(?:(?<![a-z0-9])[a-z0-9]{1,32}://\S+|(?:(?<![\w.])(?:~|\.{1,2})?/|(?:\b[\w.@%+-]{1,255}/){2})[\w./@%+=~-]*)",
            re.IGNORECASE,
        ),
        " path ",
    ),
    (re.compile(r"\b[a-z][\w.-]{0,254}+\[[\d,-]+\]", re.IGNORECASE), " nodes "),
    (re.compile(r"\b(?:pretrain|train|sft|eval|finetune)-(?=[A-Za-z_.-]{0,254}\d)[\w.-]{1,255}", re.IGNORECASE), " job "),
    (
        re.compile(
            r"\b(?!xid|int|fp|bf|step|cuda|level|s3|rank|h100|a100|v100)[a-z]{1,12}(?:-[a-z0-9]{1,8}){0,4}-?\d{1,6}(?:\.[a-z][\w.-]*)?\b",
            re.IGNORECASE,
        ),
        " node ",
    ),
    (re.compile(r"#?\b\d{4,9}(?:_\d+)?\b"), " job "),
    (re.compile(r"\b\d+(?:[.,:]\d+)*\b"), " n "),
    (re.compile(r"\b(job|node|path|nodes|incident|step) (?:(?:id|number|no) )?(?:\1|job|n)\b", re.IGNORECASE), r"\1"),
)
_JOINED = {
    "nv link": "nvlink",
    "nv switch": "nvswitch",
    "num py": "numpy",
    "py torch": "pytorch",
    "data loader": "dataloader",
    "deep speed": "deepspeed",
}
"""Names that are split where their letters change case, and must not be: they are written in other cases as often."""
_SPLIT = re.compile(rf"\b(?:{'|'.join(_JOINED)})\b")
_SPLIT_WORD = re.compile(r"\w+(?:'\w+)?|[?!]")


def prepared_line(text: str) -> str:
    """Return what is seen of a line of a log; empty where it holds no words."""
    prepared = _ZERO.sub(" by zero ", _NONE_OF.sub("no ", text))
    words = [
        ("s3" if word == "sthree" else word)[:LONGEST_WORD] for word in words_of(_NOT_A_NUMBER.sub(" not-a-number ", prepared))
    ]
    if len(words) > LONGEST_LINE:
        words = words[: LONGEST_LINE // 2] + words[-LONGEST_LINE // 2 :]
    prepared = _SPLIT.sub(lambda match: _JOINED[match.group()], " ".join(words))
    return " ".join((prepared, *dict.fromkeys(codes_of(text)[:4]))).strip()


def prepared_sentence(text: str) -> str:
    """Return what is seen of a sentence; empty where it holds no words."""
    prepared = text[:4000]
    for pattern, instead in _PLACES:
        prepared = pattern.sub(instead, prepared)
    return " ".join(word[:LONGEST_WORD].lower() for word in _SPLIT_WORD.findall(prepared)[:LONGEST_SENTENCE])
