"""What an encoder sees of a text: words, without what differs from run to run.

Lines of logs lose stamps, ranks, hosts, paths, addresses and marks; of numbers only codes stay (`errno 28`, `xid 74`). Sentences of
operators keep everything but names of jobs and nodes and numbers, for which a plain word stands. Short texts are what makes an
encoder fast, and equal texts need to be looked at only once.
"""

from __future__ import annotations

import re

from assistant.llm.features import codes_of, words_of

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
_WORD = re.compile(r"\w+(?:'\w+)?|[?!]")


def line(text: str) -> str:
    """Return what is seen of a line of a log; empty where it holds no words."""
    prepared = _ZERO.sub(" by zero ", _NONE_OF.sub("no ", text))
    words = [
        ("s3" if word == "sthree" else word)[:LONGEST_WORD] for word in words_of(_NOT_A_NUMBER.sub(" not-a-number ", prepared))
    ]
    if len(words) > LONGEST_LINE:
        words = words[: LONGEST_LINE // 2] + words[-LONGEST_LINE // 2 :]
    prepared = _SPLIT.sub(lambda match: _JOINED[match.group()], " ".join(words))
    return " ".join((prepared, *dict.fromkeys(codes_of(text)[:4]))).strip()


def sentence(text: str) -> str:
    """Return what is seen of a sentence; empty where it holds no words."""
    prepared = text[:4000]
    for pattern, instead in _PLACES:
        prepared = pattern.sub(instead, prepared)
    return " ".join(word[:LONGEST_WORD].lower() for word in _WORD.findall(prepared)[:LONGEST_SENTENCE])
