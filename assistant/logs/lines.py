r"""Lines of a log as people see them, and a store of those that are worth keeping.

A line ends with `\n`; numbers are 1-based. Text is UTF-8 with what is broken replaced, without ANSI codes and control characters;
of each progress bar that redraws itself with `\r` the last state is left, and whatever else was printed in between.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from assistant.redact import secret_spans

ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[@-Z\\^_=>])")
"""Escape sequences of terminals: colours, cursor moves, titles."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2066-\u2069\ufeff]")
_WORDS = re.compile(r"[A-Za-z_]{2,}|/\d{1,15}(?= \[)")
"""Words of a state, and the total of a bar: several programs may draw into one line, and each bar has its own."""


class Line(NamedTuple):
    """One line."""

    number: int
    text: str


def strip_ansi(block: bytes) -> bytes:
    """Return a block without escape sequences; the block itself when it holds none."""
    return ANSI.sub(b"", block) if b"\x1b" in block else block


def clean(raw: bytes) -> str:
    r"""Return the text of a raw line (without its `\n`)."""
    text = strip_ansi(cut_line(raw)).decode("utf-8", "replace").rstrip("\r")
    if "\r" in text:
        text = _last_state(text.split("\r"))
    return _CONTROL.sub("", text)


_PLAIN = bytes((9, 10, *range(32, 127)))
"""Bytes of which `clean` takes none away."""


def clean_lines(block: bytes) -> list[str]:
    r"""Return the text of each line of a block without its last `\n`, as `clean` does."""
    if not block.translate(None, _PLAIN) and not _has_long_line(block):
        return block.decode("ascii").split("\n")
    return list(map(clean, block.split(b"\n")))


def _last_state(states: Sequence[str]) -> str:
    """Return the last state of a progress bar, after any earlier text that is no state of it."""
    latest_states: list[str] = []
    words: set[str] = set()
    for state in reversed(states[-500:]):
        own = set(_WORDS.findall(state))
        if state.strip() and (not latest_states or not own <= words):
            latest_states.append(state)
            words |= own
    return " ".join(reversed(latest_states))


class Lines(Sequence[Line]):
    """Lines in order of their numbers, with gaps where lines were not kept; cleaned when they are asked for."""

    def __init__(self, chunks: Sequence[tuple[int, bytes]] = ()) -> None:
        r"""Keep chunks of whole lines.

        Args:
            chunks: (number of the first line, bytes), ascending and not overlapping; a last `\n` ends a line, it starts none.
        """
        self._chunks = [(first, raw) for first, raw in chunks if raw]
        self._counts = [raw.count(b"\n") + (not raw.endswith(b"\n")) for _, raw in self._chunks]
        self._firsts = [first for first, _ in self._chunks]
        self._starts = [0]
        for count in self._counts:
            self._starts.append(self._starts[-1] + count)
        self._split: dict[int, list[bytes]] = {}

    @classmethod
    def of(cls, texts: Sequence[str]) -> Lines:
        """Return lines numbered from 1."""
        return cls([(1, "".join(f"{text}\n" for text in texts).encode("utf-8", "surrogatepass"))])

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Line]:
        for place in range(len(self._chunks)):
            yield from self._lines_of(place)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        """Return by position among the kept lines, not by number; `get` takes a number."""
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        place = bisect_right(self._starts, position) - 1
        return self._line(place, position - self._starts[place])

    def get(self, number: int) -> Line | None:
        """Return the line of a number, None where it was not kept or does not exist."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0 or number >= self._firsts[place] + self._counts[place]:
            return None
        return self._line(place, number - self._firsts[place])

    def window(self, first: int, last: int) -> list[Line]:
        """Return the kept lines from number `first` to number `last`, both included."""
        place = max(bisect_right(self._firsts, first) - 1, 0)
        lines: list[Line] = []
        while place < len(self._chunks) and self._firsts[place] <= last:
            start = max(first - self._firsts[place], 0)
            stop = min(last + 1 - self._firsts[place], self._counts[place])
            lines += [self._line(place, offset) for offset in range(start, stop)]
            place += 1
        return lines

    def tail(self, count: int) -> list[Line]:
        """Return the last `count` kept lines, oldest first."""
        return [self[position] for position in range(max(len(self) - count, 0), len(self))]

    def _raw(self, place: int) -> list[bytes]:
        if place not in self._split:
            if len(self._split) > 8:  # a split chunk weighs several times its bytes
                self._split.clear()
            self._split[place] = self._chunks[place][1].split(b"\n")
        return self._split[place]

    def _line(self, place: int, offset: int) -> Line:
        return Line(self._firsts[place] + offset, clean(self._raw(place)[offset]))

    def _lines_of(self, place: int) -> Iterator[Line]:
        raw = self._raw(place)
        for offset in range(self._counts[place]):
            yield Line(self._firsts[place] + offset, clean(raw[offset]))


# Cut very long lines before anything is matched in them: head, tail, and what a search for literals finds in the middle.
#
# A line of a log is a few hundred bytes; one of a megabyte is a dump, or somebody's wish to keep this machine busy. The cut is
# marked with `[... N bytes ...]`. A secret that the cut would split is masked first: half of it would no longer be known as one.

LONGEST_UNCUT = 4_096
"""Bytes up to which a line stays as it is."""
_HEAD, _TAIL = 2_048, 1_024
_AROUND, _PLACES = 160, 4
"""Bytes that stay on either side of a literal in the middle, and how many such places: the first ones."""
_MARGIN = 4_096
"""Bytes beyond a piece in which the rest of a secret is looked for; a longer one is cut at a space."""
_MASK = b"[redacted]"

_TELLING = re.compile(
    rb"Error\b|Exception\b|Traceback|ERROR|FATAL|[Ff]atal|CRITICAL|[Ff]ailed|FAILED"
    rb"|Aborted|SIG(?:ABRT|SEGV|BUS|KILL|TERM)"
    rb"|Segmentation"
    rb"|core dumped|[Tt]imed out|Killed|[Oo]ut of memory|oom-kill|refused|unreachable|denied|No such file|No space"
    rb"|NCCL WARN|Xid|ECC"
    rb"|uncorrectable|fallen off|CANCELLED|TERMINATED|PREEMPT|corrupt|not found"
)
"""Words for which the middle of a line is searched."""


def cut_line(raw: bytes) -> bytes:
    r"""Return a line of at most `LONGEST_UNCUT` bytes and a few marks; a short one as it is.

    Args:
        raw: One line, without its `\n`.
    """
    if len(raw) <= LONGEST_UNCUT:
        return raw
    pieces = _pieces(raw)
    chunks: list[bytes] = []
    last = 0
    for start, end in pieces:
        if start > last:
            chunks.append(b" [... %d bytes ...] " % (start - last))
        chunks.append(_without_secrets(raw, start, end))
        last = end
    return b"".join(chunks)


def cut_lines(block: bytes) -> bytes:
    r"""Return a block of lines with each long one cut; the block itself when none is."""
    if len(block) <= LONGEST_UNCUT or not _has_long_line(block):
        return block
    return b"\n".join(map(cut_line, block.split(b"\n")))


def _has_long_line(block: bytes) -> bool:
    position = 0
    while len(block) - position > LONGEST_UNCUT:
        # one step for each few KiB: the last newline that a short line may have
        newline = block.rfind(b"\n", position, position + LONGEST_UNCUT + 1)
        if newline < 0:
            return True
        position = newline + 1
    return False


def _pieces(raw: bytes) -> list[tuple[int, int]]:
    """Return (start, end) of what stays of a line, ascending and apart; the last one ends the line."""
    pieces = [(0, _HEAD)]
    tail = len(raw) - _TAIL
    for match in islice(_TELLING.finditer(raw, _HEAD, tail), _PLACES):
        start, end = max(match.start() - _AROUND, _HEAD), min(match.end() + _AROUND, tail)
        if start <= pieces[-1][1]:
            pieces[-1] = (pieces[-1][0], end)
        else:
            pieces.append((start, end))
    if pieces[-1][1] >= tail:
        return [*pieces[:-1], (pieces[-1][0], len(raw))]
    return [*pieces, (tail, len(raw))]


def _without_secrets(raw: bytes, start: int, end: int) -> bytes:
    """Return a piece of a line with its secrets masked: the name of one, or half of it, may stand beyond the piece."""
    first, last = max(start - _MARGIN, 0), min(end + _MARGIN, len(raw))
    text = raw[first:last].decode("latin-1")  # one character a byte
    spans = [(a + first, b + first) for a, b in secret_spans(text)]
    chunks: list[bytes] = []
    position = start
    for a, b in spans:
        if b <= position or a >= end:
            continue
        chunks += [raw[position : max(a, position)], _MASK]
        position = min(b, end)
    chunks.append(raw[position:end])
    return b"".join(chunks)
