"""Cut very long lines before anything is matched in them: head, tail, and what a search for literals finds in the middle.

A line of a log is a few hundred bytes; one of a megabyte is a dump, or somebody's wish to keep this machine busy. The cut is marked
with `[... N bytes ...]`. A secret that the cut would split is masked first: half of it would no longer be known as one.
"""

from __future__ import annotations

import re
from itertools import islice

from assistant.redact import secret_spans

LONGEST = 4_096
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
    r"""Return a line of at most `LONGEST` bytes and a few marks; a short one as it is.

    Args:
        raw: One line, without its `\n`.
    """
    if len(raw) <= LONGEST:
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
    if len(block) <= LONGEST or not _has_long_line(block):
        return block
    return b"\n".join(map(cut_line, block.split(b"\n")))


def _has_long_line(block: bytes) -> bool:
    position = 0
    while len(block) - position > LONGEST:
        # one step for each few KiB: the last newline that a short line may have
        newline = block.rfind(b"\n", position, position + LONGEST + 1)
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
