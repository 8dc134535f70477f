"""Find keys of several lines: PEM, OpenSSH, PGP and PuTTY, whole or cut off at either end, also with escaped newlines."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----")
_END = re.compile(r"-----END (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----|---- END SSH2 ENCRYPTED PRIVATE KEY ----")
_PUTTY = re.compile(r"Private-Lines: *\d{1,3}|Private-MAC: *[0-9a-f]{20,}")
_ALONE = re.compile(
    r"(?<![A-Za-z0-9+/=._-])(?=[A-Za-z0-9+/]{0,40}[a-z])(?=[A-Za-z0-9+/]{0,40}[A-Z])(?=[A-Za-z0-9+/]{0,40}[0-9])"
    r"[A-Za-z0-9+/]{64}(?:[A-Za-z0-9+/]{6}|[A-Za-z0-9+/]{12})?(?=[ \t\r\"',]{0,4}(?:\n|\Z))"
)
"""A line out of the middle of a key: PEM has 64 characters, OpenSSH 70, old tools 76."""
_KUBERNETES = re.compile(
    r"(?:string)?data:[ \t]*\n(?P<lines>(?:[ \t]+[\w.-]{1,253}:[ \t]*[^\n]{1,4096}(?:\n|\Z)){1,200})", re.IGNORECASE
)
_ENTRY = re.compile(r":[ \t]*(?P<value>[^\s][^\n]*)")
_LONGEST = 20_000
"""Characters of the longest key: RSA of 16,384 bits is 12,700, and line marks come on top."""

_BODY = re.compile(
    r"(?:[^\n]{0,200}?[^A-Za-z0-9+/=\n]|)"  # what a launcher puts before a line
    r"(?:[A-Za-z0-9+/]{16,}={0,2}|[A-Za-z0-9+/]{1,75}={1,2}|={1,2}[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{4,})[\"',\\ \t\r]{0,4}"
)
"""A line of base64, at the end of a line of a log."""
_HEADER = re.compile(r"[^\n]{0,200}\b(?:Proc-Type|DEK-Info|Version|Comment|Hash|Key-Lines|MessageID|Charset)\b[:=][^\n]{0,300}")
_ESCAPED = re.compile(r"(?:[A-Za-z0-9+/=]{0,100}(?:\\{1,8}[nr])?){0,400}")
"""The body on one line, with newlines written as backslash n."""


def block_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of keys, from the first to the last line."""
    yield from (match.span() for match in _ALONE.finditer(text))
    if "kind: secret" in lowered:
        for block in _KUBERNETES.finditer(text):
            yield from (entry.span("value") for entry in _ENTRY.finditer(text, block.start("lines"), block.end("lines")))
    if "private" not in lowered:
        return
    ends = [match.span() for match in _END.finditer(text)]
    starts = [start for start, _ in ends]
    last = 0
    for begin in _BEGIN.finditer(text):
        if begin.start() < last:
            continue
        following = bisect_left(starts, begin.end())
        closing = ends[following] if following < len(ends) else None
        paired = closing is not None and closing[0] - begin.end() <= _LONGEST
        last = closing[1] if closing and paired else _behind(text, begin.end())
        yield begin.start(), last
    yield from ((_before(text, start), end) for start, end in ends if start >= last or _tail_alone(text, start))
    yield from _putty_spans(text)


def _tail_alone(text: str, end: int) -> bool:
    return "-----BEGIN" not in text[max(end - _LONGEST, 0) : end]


def _behind(text: str, position: int) -> int:
    """Return where a key ends that has no last line: behind what looks like base64."""
    escaped = _ESCAPED.match(text, position)
    end = escaped.end() if escaped else position
    while end < len(text) and text[end] == "\n" and end - position < _LONGEST:
        stop = _line_end(text, end + 1)
        line = text[end + 1 : stop]
        if line.strip() and not (_BODY.fullmatch(line[-300:]) or _HEADER.fullmatch(line)):
            break
        end = stop
    return end


def _before(text: str, position: int) -> int:
    """Return where the tail of a key begins whose first line is gone."""
    start = position
    while start > 0 and position - start < _LONGEST and _is_escape_or_base64(text[start - 1]):
        start -= 1
    while start > 0 and text[start - 1] == "\n" and position - start < _LONGEST:
        begin = text.rfind("\n", max(start - 1 - 300, 0), start - 1) + 1
        if not _BODY.fullmatch(text[begin : start - 1]):
            break
        start = begin
    return start


def _is_escape_or_base64(sign: str) -> bool:
    return sign.isascii() and (sign.isalnum() or sign in "+/=\\")


def _putty_spans(text: str) -> Iterator[tuple[int, int]]:
    for match in _PUTTY.finditer(text):
        if match.group().startswith("Private-Lines"):
            yield match.start(), _behind(text, match.end())
        else:
            yield match.span()


def _line_end(text: str, start: int) -> int:
    stop = text.find("\n", start)
    return len(text) if stop < 0 else stop
