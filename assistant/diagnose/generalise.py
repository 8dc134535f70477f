r"""Turn lines of a log into a pattern for the next one like them.

What differs from run to run becomes a bounded class (numbers, addresses, paths, hosts); words stay. Of several occurrences what
varies between them is widened too. Classes hold no nested repeat, so no pattern made here can take long in `re`, and all of them
compile in Hyperscan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from assistant.diagnose.readers.streams import Streams, host_like
from assistant.logs.prefix import parse

MOST_WORDS = 14
"""Words of a line that a pattern keeps; what stands behind is detail."""
PHRASE = 6
"""Words that make a phrase, plain ones included."""
MOST_CHARACTERS = 600
"""Of a line that are looked at."""
_HOST = r"[\w.\-]{1,64}"
_GAP = r".{0,120}"
_PATH_OR_URL = r"(?:[a-z][a-z0-9+.-]*://[^\s'\"]+|(?:[\w.~-]*/)+[\w.@%+-]*)"
_TOKEN = re.compile(
    rf"""
    (?P<path>{_PATH_OR_URL}(?::\d+)?)
  | (?P<address>0x[0-9a-fA-F]+|\b[0-9a-fA-F]{{8}}-(?:[0-9a-fA-F]{{4}}-){{3}}[0-9a-fA-F]{{12}}
      |\b[0-9a-fA-F]{{2,4}}(?::[0-9a-fA-F]{{2,4}})+(?:\.\d)?\b|\b\d{{1,3}}(?:\.\d{{1,3}}){{3}}\b|\b[0-9a-f]*\d[0-9a-f]{{7,}}\b)
  | (?P<number>(?<![\w.])[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?(?![\w]))
  | (?P<word>\w(?:[\w.-]*\w)?)
  | (?P<space>\s+)
  | (?P<other>.)
    """,
    re.VERBOSE,
)
_CLASSES = {
    "path": r"[^\s'\"]{1,300}",
    "address": r"[0-9a-fA-Fx:.\-]{2,64}",
    "number": r"[-+]?\d[\d.,eE+\-]{0,28}",
    "space": r"\s+",
}
_MARKS = re.compile(
    r"""
    \[?[IWEFD]\d{3,4}\ [\d:.]{1,32}\s{1,16}(?:\d{1,16}+\s)?[\w./-]{1,255}:\d{1,9}\]\s  # glog: [E0313 02:11:09 File.cpp:607]
  | [\w.-]{1,255}+:\d{1,16}+:\d{1,16}+\ \[\d{1,9}\]\ (?:[\w./-]{1,255}:\d{1,9}\ )?  # NCCL: host:pid:thread [gpu] file.cc:123
  | (?:[A-Z][a-z]{2}\s)?[A-Z][a-z]{2}\s+\d{1,2}\ \d\d:\d\d:\d\d(?:\.\d{1,9})?\ [\w.-]{1,255}+\ (?=[\w.()/-]{1,255}+  # syslog
    (?:\[\d{1,9}\])?:\ )
  | \[\s{0,16}\d{1,12}\.\d{1,12}\]\s                                           # dmesg: seconds since boot
  | \[[A-Z][a-z]{2}\ [A-Z][a-z]{2}\s+\d+\ [\d:]{1,16}\ \d{4}\]\s        # dmesg -T
  | kernel:\s | [A-Z]\ [\w./-]+\.(?:cc|cpp|h):\d+\]\s
  | (?=[A-Za-z_.-]{0,254}\d)[\w.-]{1,255}+:\s(?=\[|kernel:)
    """,
    re.VERBOSE,
)
"""What loggers and kernels put before a message; see `streams` and `logs.prefix` for launchers and clocks."""
_COUNTED = frozenset({"errno", "xid", "signal", "status", "code", "rc", "http", "exitcode"})
"""A number behind such a word says what happened."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LETTERS = re.compile(r"[^\W\d_]{3,}")
_PLAIN = """
error errors exception failed failure fail failing fatal critical warning warn info debug the and for are was were not from with
this that has have had while during after before file line rank node host process pid job task step runtime python torch value
type key index name attribute assertion import object none null true false main train training caught raised call last most
recent traceback cannot could unable can will does did its into than then get got set run running worker user system time data
code exit status killed exited terminated signal srun slurmstepd torchrun child unexpectedly
abnormally aborted received sending sigterm sigkill shutting closing launching started stopped aborting terminating
"""
PLAIN = frozenset(_PLAIN.split())
"""Words that stand in lines of every kind: a pattern of nothing else says nothing."""

_PEEL = Streams()


class Part(NamedTuple):
    """One piece of a pattern."""

    kind: str
    """`word` and `other` stand for themselves; the rest are classes."""
    pattern: str
    text: str
    """As it stood in the line."""

    @property
    def firm(self) -> bool:
        """Whether it stands for itself."""
        return self.kind in ("word", "other")


def message_of(text: str) -> str:
    """Return a line without what launchers, clocks, loggers and kernels put before it."""
    text = text.strip()
    for _ in range(4):
        body = _PEEL.body(text).text
        marks = parse(body)
        rest = marks.rest if marks.host is None or host_like(marks.host) else body
        match = _MARKS.match(rest)
        rest = (rest[match.end() :] if match is not None else rest).strip()
        if rest == text or not rest:
            break
        text = rest
    return text


def pattern_of(lines: Sequence[str], *, hosts: Iterable[str] = ()) -> str:
    """Return a pattern that matches each of some lines and others like them; empty where nothing firm is left.

    Args:
        lines: Without the marks of launchers; at least one.
        hosts: Names of machines, which are never kept.
    """
    names = frozenset(hosts)
    parts = parts_of(lines[0], names)
    for line in lines[1:]:
        parts = _merged(parts, parts_of(line, names))
    parts = _trimmed(parts)
    if not parts:
        return ""
    return r"\b" + "".join(part.pattern for part in parts) + r"\b"


class Words(NamedTuple):
    """The words that a pattern keeps."""

    telling: tuple[str, ...]
    """Those that are not plain, each once, in order."""
    kept: int
    """How many there are in all."""

    @property
    def specific(self) -> bool:
        """Whether they are enough to know a failure by: three telling ones, two long ones, or a long one in a whole phrase."""
        letters = sum(map(len, self.telling))
        return len(self.telling) >= 3 or (len(self.telling) == 2 and letters >= 16) or (self.kept >= PHRASE and letters >= 6)


def words_kept(lines: Sequence[str], *, hosts: Iterable[str] = ()) -> Words:
    """Return the words that a pattern of these lines keeps."""
    names = frozenset(hosts)
    parts = parts_of(lines[0], names)
    for line in lines[1:]:
        parts = _merged(parts, parts_of(line, names))
    found = [
        word.lower() for part in _trimmed(parts) if part.kind == "word" for word in _LETTERS.findall(_CAMEL.sub(" ", part.text))
    ]
    return Words(tuple(dict.fromkeys(word for word in found if word not in PLAIN)), len(found))


def parts_of(line: str, hosts: frozenset[str] = frozenset()) -> list[Part]:
    """Return a line in pieces, what differs from run to run as classes."""
    parts: list[Part] = []
    before = ""
    for match in _TOKEN.finditer(line.strip()[:MOST_CHARACTERS]):
        kind, text = match.lastgroup or "other", match.group()
        if kind == "number" and before in _COUNTED and len(text) <= 4:
            parts.append(Part("word", re.escape(text), text))
            continue
        if kind == "word":
            before = text.lower()
            parts.append(_word(text, hosts))
        elif kind == "other":
            parts.append(Part(kind, re.escape(text), text))
        else:
            parts.append(Part(kind, _CLASSES[kind], text))
    return parts


def _word(text: str, hosts: frozenset[str]) -> Part:
    if text in hosts or text.partition(".")[0] in hosts:
        return Part("host", _HOST, text)
    if any(sign.isdigit() for sign in text):
        digits = re.compile(r"\d+")
        pattern = r"\d{1,12}".join(re.escape(piece) for piece in digits.split(text))
        return Part("word", pattern, digits.sub("0", text))
    return Part("word", re.escape(text), text)


def _merged(one: Sequence[Part], other: Sequence[Part]) -> list[Part]:
    """Return what two lines have in common, with a class or a gap where they differ."""
    merged: list[Part] = []
    matcher = SequenceMatcher(None, [p.pattern for p in one], [p.pattern for p in other], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            merged += one[a:b]
        elif b - a == d - c == 1 and one[a].kind != "gap" and "" not in (one[a].text, other[c].text):
            merged.append(Part("host", r"\S{1,120}", ""))
        elif not merged or merged[-1].kind != "gap":
            merged.append(Part("gap", _GAP, ""))
    return merged


def _trimmed(parts: Sequence[Part]) -> list[Part]:
    """Return parts from the first to the last word, at most so many words."""
    words = [place for place, part in enumerate(parts) if part.kind == "word"]
    return list(parts[words[0] : words[min(len(words), MOST_WORDS) - 1] + 1]) if words else []
