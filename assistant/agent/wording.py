"""Text that others wrote, made harmless: questions before they are read, logs before a model or a person sees them."""

from __future__ import annotations

import re
import unicodedata

from assistant.errors import InputError
from assistant.redact import redact

MOST_CHARACTERS = 4_000
"""Of a question; a longer one is a log or a slip of the hand."""
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_KEPT = {"\n", "\t"}
_FENCE = re.compile(r"<(/?)\s*(data\b[^>]*)>", re.IGNORECASE)


def harmless(text: str) -> str:
    """Return text without escape sequences, control, bidirectional and invisible characters, and without secrets."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return redact(
        "".join(sign for sign in text if sign in _KEPT or unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    )


def question_of(text: str) -> str:
    """Return a question as it is read: harmless, without emoji, one space between words.

    Raises:
        InputError: It is empty or too long.
    """
    if len(text) > MOST_CHARACTERS:
        raise InputError(
            f"the question has {len(text):,} characters; at most {MOST_CHARACTERS:,} are read. For a log: nightshift diagnose FILE"
        )
    plain = "".join(
        sign for sign in unicodedata.normalize("NFKC", harmless(text)) if unicodedata.category(sign) not in ("So", "Sk", "Mn")
    )
    words = " ".join(plain.split())
    if not any(sign.isalnum() or sign == "?" for sign in words):
        raise InputError('there is no question in that; ask for instance: nightshift ask "what is wrong now?"')
    return words


def as_data(source: str, text: str) -> str:
    """Return text wrapped as data for a model: it cannot close the wrapping, and has no authority."""
    inner = _FENCE.sub(r"‹\1\2›", harmless(text))
    return f'<data from="{source}">\n{inner}\n</data>'


def cut(text: str, most: int, *, end: bool = False) -> str:
    """Return text of at most so many characters, cut at a line where one ends, and say so; its end is kept where that is wanted."""
    if len(text) <= most:
        return text
    if end:
        tail = text[-most:].split("\n", 1)[-1]
        return f"[{len(text) - len(tail):,} characters before]\n{tail}"
    head = text[:most].rsplit("\n", 1)[0] if "\n" in text[:most] else text[:most]
    return f"{head}\n[{len(text) - len(head):,} more characters]"


def one_line(text: object, most: int = 300) -> str:
    """Return text on one line, cut."""
    words = " ".join(harmless(str(text)).split())
    return words if len(words) <= most else f"{words[: most - 1]}…"
