r"""Write the pattern of a filter from a template: its text as it stands, each value as a class of characters.

The pattern describes the whole line, from `^` (behind the marks of launchers) to `(?:$)`. The end is written so, not as a bare `$`,
because a bare `$` would let the filter hide lines with alarm words; no learned filter may.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from assistant.errors import ContentError
from assistant.linear_patterns import holds, linear_pattern
from assistant.rules.matching import MARKS

END = " *(?:$)"
"""How a learned filter ends."""
CLASSES = {
    "number": r"[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?",
    "hex": r"(?:\dx)?[0-9a-fA-F]+",
    "path": r"[^\s,;'\"<>()\[\]]{1,400}",
    "host": r"[\w.:,\[\]-]{1,120}",
    "address": r"[/\da-fA-F.:<>]{2,64}",
    "uuid": r"[0-9a-fA-F-]{36}",
    "time": r"(?:[A-Z][a-z][a-z],? +){0,2}\d[-\d:./,TZ+ ]{1,40}",
    "quoted": r"""(?:"[^"]{0,400}"|'[^']{0,400}')""",
    "word": r"[^\s=:,;|()\[\]{}<>\"]{1,200}",
}
"""What each mask may be, as a class of characters with an end."""
WIDE_WORD = r"[^\s=;|(){}\"]{1,200}"
_LISTS = {"number": r"[-+]?\d[-+\d.,; eE]*", "hex": r"[0-9a-fA-F][0-9a-fA-Fx,; ]*"}
"""What a run of them may be; runs of other values are not written down."""
_BEFORE_NOTHING = ("=", "(", "[")
_PLAIN = re.compile(r"[\w ,;:=/<>@#%&~'\"!-]")
_FILL = re.compile(r"([^\w\s])\1{3}")


def pattern_of(pieces: Sequence[tuple[str, str]], examples: Iterable[str] = ()) -> str | None:
    """Return the pattern for the lines of a template; None for one that holds lists of composed values, or is too long for RE2.

    Args:
        pieces: Name of the mask and text in turn, as `assistant.logs.templates.Template.pieces` gives them.
        examples: Lines that it must match; where a word among them is an address or a node set, words get a wider class.
    """
    narrow = _written(pieces, CLASSES)
    if narrow is None:
        return None
    try:  # by RE2: texts of a template are lines of a job's log, and as many classes in a row as somebody wrote
        behind_marks = linear_pattern(f"^{MARKS}{narrow[1:]}", multiline=False)
    except ContentError:
        return None
    return narrow if all(holds(behind_marks, line) for line in examples) else _written(pieces, {**CLASSES, "word": WIDE_WORD})


def _written(pieces: Sequence[tuple[str, str]], classes: Mapping[str, str]) -> str | None:
    written: list[str] = []
    for place, (mask, text) in enumerate(pieces):
        if not mask:
            written.append(_text(text))
        elif mask != "more":
            may_be_empty = mask == "word" and place > 0 and pieces[place - 1][1][-1:] in _BEFORE_NOTHING
            written.append(classes[mask].replace("{1,", "{0,") if may_be_empty else classes[mask])
        elif place == 0 or pieces[place - 1][0] not in _LISTS or _is_composed(pieces, place):
            return None
        else:
            written[-1] = _LISTS[pieces[place - 1][0]]
    return f"^{''.join(written)}{END}"


def _is_composed(pieces: Sequence[tuple[str, str]], place: int) -> bool:
    """Tell whether the value that is repeated has more to it than its mask."""
    before = pieces[place - 2] if place > 1 else ("", " ")
    return bool(before[0]) or before[1][-1:].isalnum() or before[1][-1:] in "_-."


def _text(text: str) -> str:
    """Return text for a pattern: blanks of any number, signs that fill a column four times or more."""
    parts: list[str] = []
    while text:
        if fill := _FILL.match(text):
            parts.append(f"{_sign(fill[1])}{{4,}}")
            text = text[4:]
        else:
            parts.append(" +" if text[0] == " " else _sign(text[0]))
            text = text[1:]
    return "".join(parts)


def _sign(sign: str) -> str:
    return sign if _PLAIN.match(sign) or not sign.isascii() else f"\\{sign}"


def name_of(pieces: Sequence[tuple[str, str]], most: int = 3) -> str:
    """Return a name of a few words for the lines of a template, for ids: `step-loss`."""
    words = [word.lower() for mask, text in pieces if not mask for word in re.findall(r"[A-Za-z]{3,}", text)]
    return "-".join(list(dict.fromkeys(words))[:most]) or "line"
