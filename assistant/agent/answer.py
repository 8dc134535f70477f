"""The answer to a question: text with numbered sources and proposals; how its times, counts and quotations are worded.

What others wrote is escaped and has no secrets: questions lose theirs before they are read, logs before a model sees them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from assistant.display import block, line, prompt_data, removed, shorten, unambiguous
from assistant.errors import InputError
from assistant.redact import head_of, redact, tail_of


class AnswerKind(StrEnum):
    """The kinds of answers."""

    ANSWER = "answer"
    ASKS_BACK = "asks_back"
    """Which of two readings is meant, or which job."""
    PROPOSAL = "proposal"
    """A change waits for a yes."""
    REFUSED = "refused"
    """A change may not even be proposed now."""
    UNKNOWN = "unknown"
    """Nothing that is known here answers it."""


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """What an answer rests on: one reading call."""

    number: int
    """As it stands in the text: `[1]`."""
    tool: str
    arguments: Mapping[str, Any]
    value: Any
    """What it returned, harmless and without secrets; None when it failed."""
    error: str = ""

    @property
    def call(self) -> str:
        """The call as a person reads it."""
        return f"{self.tool}({', '.join(f'{name}={_short(value)}' for name, value in self.arguments.items())})"


Listener = Callable[[AnswerSource | str], None]
"""Is told of each reading call when it was made, and of text as a model says it, before it is held against the evidence; an empty
text is a sign of life. What it raises ends the answer."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that was proposed."""

    tool: str
    arguments: Mapping[str, Any]
    preview: str
    """The exact change, as a person would type it."""
    approval: int | None
    """By which it is answered; None when it was refused."""
    why_not: str = ""
    """Why it was refused, and what to do instead."""
    digest: str = ""
    """Digest of the stored commands, as far as people are shown it; empty where nothing waits."""
    joined: bool = False
    """Whether it waited already, so that nothing new was proposed."""
    already: bool = False
    """Whether the cluster is so already: nothing was done, and nobody was asked."""
    allowed_by: str = ""
    """Who said yes to it while it was asked, as it is recorded; empty where nobody did."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer."""

    text: str
    kind: AnswerKind
    mode: str
    """`semantic`, or `model:<name>`."""
    intent: str = ""
    """What the question was taken for; empty with a model."""
    confidence: float = 1.0
    """0..1: of that reading."""
    sources: tuple[AnswerSource, ...] = ()
    evidence: tuple[int, ...] = ()
    """Ids of evidence in the store."""
    incidents: tuple[int, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    options: tuple[str, ...] = ()
    """When it asks back: what to say instead."""
    notes: tuple[str, ...] = ()
    """What the reader should know: something did not answer, a sentence is not supported."""
    figures: Mapping[str, float] = field(default_factory=dict)
    begun: str = ""
    """What a model had said when it was ended in the middle of its answer; held against nothing. This is the answer without it."""


def _short(value: Any) -> str:
    text = ",".join(str(element) for element in value) if isinstance(value, (list, tuple)) else str(value)
    return shorten(text, 60)


_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_SPANS = (("day", 86_400.0), ("h", 3600.0), ("min", 60.0))


def time_text(text: str | None, now: datetime) -> str:
    """Return a time as it is read: `2026-03-01 02:00 UTC, 4 h ago`; text that is no time stays as it is."""
    if not text:
        return "at no known time"
    try:
        at = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return text
    return f"{at:%Y-%m-%d %H:%M} UTC, {_distance((now - at).total_seconds())}"


def _distance(seconds: float) -> str:
    size = abs(seconds)
    if size < 60:
        return "just now"
    name, length = next((name, length) for name, length in _SPANS if size >= length)
    count = round(size / length)
    phrase = f"{count} {name}{'s' if name == 'day' and count > 1 else ''}"
    return f"{phrase} ago" if seconds > 0 else f"in {phrase}"


def count_text(number: int, name: str) -> str:
    """Return `1 line`, `2 lines`."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def without_repeats(text: str) -> str:
    """Return text without sentences that it holds already."""
    return " ".join(dict.fromkeys(_SENTENCE.split(text)))


def without_quote(text: str, quote: str) -> str:
    """Return a summary without the line that is shown below it anyway."""
    place = text.find(quote[:40]) if len(quote) >= 12 else -1
    return f"{text[:place].rstrip(' :')}." if place > 0 else text


MOST_CHARACTERS = 4_000
"""Of a question; a longer one is a log or a slip of the hand."""


def harmless(text: str) -> str:
    """Return text as `display.block` shows it, without secrets."""
    return redact(block(text))


def question_of(text: str) -> str:
    """Return a question as it is read: without secrets, hidden characters and emoji, one space between words.

    Raises:
        InputError: It is empty or too long.
    """
    if len(text) > MOST_CHARACTERS:
        raise InputError(
            f"the question has {len(text):,} characters; at most {MOST_CHARACTERS:,} are read. For a log: nightshift diagnose FILE"
        )
    plain = "".join(
        sign for sign in unicodedata.normalize("NFKC", removed(text)) if unicodedata.category(sign) not in ("So", "Sk", "Mn")
    )
    # last, for a secret may be written in letters of full width
    words = redact(" ".join(plain.split()))
    if not any(sign.isalnum() or sign == "?" for sign in words):
        raise InputError('there is no question in that; ask for instance: nightshift ask "what is wrong now?"')
    return words


def as_data(source: str, text: str) -> str:
    """Return text wrapped as data for a model: it cannot close the wrapping, and has no authority."""
    return prompt_data(redact(source), redact(text))


def cut_text(text: str, most: int, *, end: bool = False) -> str:
    """Return text of at most so many characters, cut at a line where one ends, and say so; its end is kept where that is wanted."""
    if len(text) <= most:
        return text
    if end:
        tail = tail_of(text, most).split("\n", 1)[-1]
        return f"[{len(text) - len(tail):,} characters before]\n{tail}"
    head = head_of(text, most)
    head = head.rsplit("\n", 1)[0] if "\n" in head else head
    return f"{head}\n[{len(text) - len(head):,} more characters]"


def command_text(command: str) -> str:
    """Return a stored command as the chat's cards and the inbox show it; only one of several thousand characters is cut."""
    return unambiguous(command, MOST_CHARACTERS)


def one_line(text: object, most: int = 300) -> str:
    """Return text on one line without secrets, cut; a newline in it is an escape, spaces are one."""
    return shorten(" ".join(filter(None, line(redact(str(text))).split(" "))), most)
