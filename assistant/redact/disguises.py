r"""Look at a text behind what disguises it: colours, addresses of hyperlinks, signs without width, wide signs, escaped letters.

Escape sequences that colour a text stand between a name and its value, so they are left out; what a sequence carries (the address
of a hyperlink, the title of a window) is a text of its own. `pass\u0077ord`, `pa%73sword`, `API key：` are names, too.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

__all__ = ["disguised_spans", "undisguised_spans"]

SpansOf = Callable[[str], Iterable[tuple[int, int]]]

_ESCAPE = re.compile(r"\x1b\[[0-9;:?]{0,32}[A-Za-z]|\x1b\](?P<carried>[^\x07\x1b]{0,512})(?:\x07|\x1b\\)")
_WIDE_EQUALS, _WIDE_COLONS = "\uff1d\u2254\ufe66", "\uff1a\ufe55\u2236\ufe13\ua789"
_NO_WIDTH = "\u00ad\u200b-\u200f\u2060-\u2064\ufeff"
_WIDE = re.compile(rf"[{_NO_WIDTH}]{{1,64}}|[\uff01-\uff5e{_WIDE_EQUALS}{_WIDE_COLONS}]")
_ESCAPED = re.compile(
    r"\\{1,8}(?:u00|x|u\{)(?P<code>[2-7][0-9a-f])\}?|%(?P<percent>[2-7][0-9a-f])"
    r"|&#(?:x(?P<hex>[2-7][0-9a-f])|(?P<number>\d{2,3}));",
    re.IGNORECASE,
)
_LEAST_CARRIED = 8


def undisguised_spans(text: str, spans_of: SpansOf) -> list[tuple[int, int]]:
    """Return what a function finds in a text without its escape sequences, and in what these carry, as places of the whole text."""
    if "\x1b" not in text:
        return list(spans_of(text))
    plain, place_of = _replaced(text, ((match.start(), match.end(), "") for match in _ESCAPE.finditer(text)))
    spans = _in_whole_text(spans_of(plain), place_of)
    carried = [match.span("carried") for match in _ESCAPE.finditer(text) if len(match["carried"] or "") >= _LEAST_CARRIED]
    if carried:
        starts, shifts, length = [0], [0], 0
        for start, end in carried:
            starts.append(length)
            shifts.append(start - length)
            length += end - start + 1
        joined = "\n".join(text[start:end] for start, end in carried)
        carried_spans = _in_whole_text(spans_of(joined), lambda place: place + shifts[bisect_right(starts, place) - 1])
        spans += [(start, end) for start, end in carried_spans if end <= carried[bisect_right(carried, (start + 1,)) - 1][1]]
    return spans


def disguised_spans(text: str, spans_of: SpansOf) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of what a function finds only when wide signs, signs without width and escaped letters are plain ones."""
    if text.isascii() and "%" not in text and "\\" not in text and "&#" not in text:
        return
    if changes := sorted([*_wide(text), *_escaped(text)]):
        plain, place_of = _replaced(text, changes)
        yield from _in_whole_text(spans_of(plain), place_of)


def _wide(text: str) -> Iterator[tuple[int, int, str]]:
    if text.isascii():
        return
    for match in _WIDE.finditer(text):
        sign = match.group()
        if sign in _WIDE_EQUALS:
            plain = "="
        elif sign in _WIDE_COLONS:
            plain = ":"
        else:
            plain = chr(ord(sign) - 0xFEE0) if "\uff01" <= sign[0] <= "\uff5e" else ""
        yield match.start(), match.end(), plain


def _escaped(text: str) -> Iterator[tuple[int, int, str]]:
    if "\\u" not in text and "\\x" not in text and "&#" not in text and "%" not in text:
        return
    for match in _ESCAPED.finditer(text):
        number = int(match["number"]) if match["number"] else int(match["code"] or match["percent"] or match["hex"], 16)
        if chr(number).isascii() and (chr(number).isalnum() or number == _UNDERSCORE):
            yield match.start(), match.end(), chr(number)


_UNDERSCORE = ord("_")


def _replaced(text: str, changes: Iterable[tuple[int, int, str]]) -> tuple[str, Callable[[int], int]]:
    """Return a text with changes in it, and what tells where a character of it stands in the whole one."""
    pieces: list[str] = []
    starts, shifts = [0], [0]
    position = length = 0
    for start, end, plain in changes:
        pieces += (text[position:start], plain)
        length += start - position + len(plain)
        position = end
        starts.append(length)
        shifts.append(position - length)
    pieces.append(text[position:])
    return "".join(pieces), lambda place: place + shifts[bisect_right(starts, place) - 1]


def _in_whole_text(spans: Iterable[tuple[int, int]], place_of: Callable[[int], int]) -> list[tuple[int, int]]:
    return [(place_of(start), place_of(end - 1) + 1) for start, end in spans if start < end]
