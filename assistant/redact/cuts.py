"""Cut text of logs for people, models and the store: the one way to take a piece of such a text.

Half a secret is not known for what it is any more, and a value without its name is none. So what is secret is looked for in the
whole text (or so far around the piece that no known form reaches further), and of a secret that the cut would split nothing stays.
What slices by itself where text is put together fails tests/contract/test_cuts.py; text that is only matched may be sliced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from assistant.redact.text import MASK, redact, redact_lines, secret_spans

__all__ = ["ends_of", "head_of", "line_texts", "piece_of", "remains", "tail_of", "without_remains"]

_AROUND = 20_480
"""Characters on either side of a piece within which the rest of a secret is looked for: the longest key, 20,000."""


def piece_of(text: str, start: int, end: int) -> str:
    """Return the characters from `start` to `end` of a text without its secrets, or what of them lies in between."""
    first, last = max(start - _AROUND, 0), min(end + _AROUND, len(text))
    pieces: list[str] = []
    position = start
    for begin, stop in ((a + first, b + first) for a, b in secret_spans(text[first:last])):
        if stop <= position or begin >= end:
            continue
        pieces += [text[position : max(begin, position)], MASK]
        position = min(stop, end)
    return redact("".join([*pieces, text[position:end]]))


def head_of(text: str, most: int, mark: str = "") -> str:
    """Return at most `most` characters from the beginning of a text, less its secrets, and `mark` where something was cut off."""
    return text if len(text) <= most else f"{piece_of(text, 0, most)[:most]}{mark}"


def tail_of(text: str, most: int) -> str:
    """Return at most `most` characters from the end of a text, less its secrets."""
    return text if len(text) <= most else piece_of(text, len(text) - most, len(text))[-most:]


def ends_of(text: str, head: int, tail: int, mark: str = " … ") -> str:
    """Return beginning and end of a text that is longer than both, less its secrets, with a mark for its middle."""
    if len(text) <= head + tail + len(mark):
        return text
    return f"{piece_of(text, 0, head)[:head].rstrip()}{mark}{piece_of(text, len(text) - tail, len(text))[-tail:].lstrip()}"


NEIGHBOURS, NEIGHBOURS_BEHIND = 40, 3
"""Lines before and behind a line that can tell that it is a part of a secret: of a key all rows but the last one are full."""


def line_texts(numbers: Sequence[int], text_of: Callable[[int], str | None]) -> dict[int, str]:
    """Return lines of one log by their numbers, less their secrets, also those that only lines beside them tell.

    Args:
        numbers: Ascending; they need not follow one another.
        text_of: Returns the text of a line, None where there is none.
    """
    texts: dict[int, str] = {}
    for group in _groups(numbers):
        requested = {number: text for number in group if (text := text_of(number)) is not None}
        bare = any(map(_is_bare, (*list(requested.values())[:NEIGHBOURS], *list(requested.values())[-NEIGHBOURS_BEHIND:])))
        before = range(group[0] - NEIGHBOURS, group[0]) if bare else ()
        after = range(group[-1] + 1, group[-1] + 1 + NEIGHBOURS_BEHIND) if bare else ()
        around = {number: text for number in (*before, *after) if (text := text_of(number)) is not None}
        rows = sorted({**around, **requested}.items())
        redacted = dict(zip((number for number, _ in rows), redact_lines([text for _, text in rows]), strict=True))
        texts.update({number: redacted[number] for number in requested})
    return texts


def _groups(numbers: Sequence[int]) -> Iterable[list[int]]:
    group: list[int] = []
    for number in numbers:
        if group and number != group[-1] + 1:
            yield group
            group = []
        group.append(number)
    if group:
        yield group


_BARE_WORDS = 6


def _is_bare(text: str) -> bool:
    """Tell whether a line is hardly more than one value, so that it may be a row of a key or of a block of YAML."""
    words = text[:_LONGEST_BARE].split(None, _BARE_WORDS)
    return bool(words) and len(words) <= _BARE_WORDS and len(text) <= _LONGEST_BARE


_LONGEST_BARE = 300

_PIECE = 8
"""Characters of the shortest piece of a secret that counts as one."""
_MOST_OF_SECRET = 2_048
"""A longer secret is no token: a text of names of secrets, of which all was hidden."""


def remains(texts: Iterable[str], names: Iterable[str] = ()) -> frozenset[str]:
    """Return the pieces by which what is left of the secrets of some texts is known wherever it stands.

    Args:
        texts: Lines of a log, as they are.
        names: What stays though they may be part of a secret: of nodes.
    """
    all_names = tuple(names)
    pieces: set[str] = set()
    for text in texts:
        for start, end in secret_spans(text):
            secret = text[start:end]
            if len(secret) <= _MOST_OF_SECRET:
                pieces.update(secret[at : at + _PIECE] for at in range(len(secret) - _PIECE + 1))
    pieces = {piece for piece in pieces if MASK[:_PIECE] not in piece and not any(map(str.isspace, piece))}
    return frozenset(piece for piece in pieces if not any(piece in name for name in all_names))


def _is_telling(remnant: str) -> bool:
    """Tell whether consecutive pieces are none of an ordinary word: long, with a digit, or with letters of both kinds."""
    letters = {sign.isupper() for sign in remnant if sign.isalpha()}
    return len(remnant) >= _LONGEST_WORD or any(map(str.isdigit, remnant)) or len(letters) > 1


_LONGEST_WORD = 16


def without_remains(text: str, pieces: frozenset[str]) -> str:
    """Return a text in which no piece of a secret is left: the second look at what was put together of pieces of lines."""
    if not pieces or len(text) < _PIECE:
        return text
    parts: list[str] = []
    position = at = 0
    while at + _PIECE <= len(text):
        if text[at : at + _PIECE] not in pieces:
            at += 1
            continue
        end = at + _PIECE
        while end < len(text) and text[end - _PIECE + 1 : end + 1] in pieces:
            end += 1
        if _is_telling(text[at:end]):
            parts += [text[position:at], MASK]
            position = end
        at = end
    return "".join([*parts, text[position:]])
