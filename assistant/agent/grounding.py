"""Hold an answer against what the tools returned: every number, quote and name in it must stand there or in the question.

Of states and reasons it must be the record of their own subject that holds them, see `claims`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from assistant.agent import claims
from assistant.agent.answer import AnswerSource

MARK = "[not supported by evidence]"
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'`\[(])|\n+")
_CITED = re.compile(r"\[(\d{1,3}(?:\s?,\s?\d{1,3})*)\]")
_QUOTED = re.compile(r"\"([^\"\n]{3,400})\"|`([^`\n]{2,400})`|\u201c([^\u201d\n]{3,400})\u201d")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?%?(?![\w])")
_NAME = re.compile(r"\b[A-Za-z](?=[A-Za-z_.-]{0,254}\d)[\w.-]{1,255}\b|\b[a-z]{1,64}(?:_[a-z]{1,64}){1,16}\b|(?<!\w)/[\w./-]{3,}")
_DENIES = re.compile(r"\b(?:not|no|nothing|nobody|unknown|none|never|cannot|refused|denied|did not|isn't|doesn't)\b", re.IGNORECASE)
_LIST_NUMBER = re.compile(r"^\s*(?:\d{1,2}[.)]|[-*])\s+")


_WORD = re.compile(r"[a-z]{3,}|\d+")
_GLUE = frozenset(
    {"the", "and", "are", "was", "were", "has", "have", "had", "this", "that", "there", "its", "for", "with", "from", "but", "not"}
)


def cited_in(text: str) -> list[int]:
    """Return the numbers of the sources that a text cites, as [1] or [1, 2]."""
    return [int(number) for group in _CITED.findall(text) for number in group.split(",")]


class CheckedAnswer(NamedTuple):
    """An answer that was checked."""

    text: str
    """With a mark behind every sentence that nothing supports."""
    unsupported: tuple[str, ...]
    nothing_stands: bool = False
    """Whether every sentence that says something is marked."""
    cites: bool = False
    """Whether a sentence that stands names its source, or says that something is not known, or asks."""


class AnswerEvidence:
    """What may be said: all that the tools returned in this conversation, and the question itself."""

    def __init__(self, sources: Sequence[AnswerSource], questions: Sequence[str] = ()) -> None:
        good = [f"{_text(source.value)} {_text(source.arguments)}" for source in sources if not source.error]
        self._text = _plain(" ".join([*good, *questions]))
        # what a model asked for in vain is no fact; of it can only be said that it is not known
        self._failed_calls = _plain(" ".join(f"{_text(source.arguments)} {source.error}" for source in sources if source.error))
        self._numbers = {number for match in _NUMBER.finditer(self._text) for number in _forms(match.group())}
        self._numbers |= {str(size) for source in sources for size in _sizes(source.value)}
        self._cited = {source.number for source in sources}
        self._records, self._questions = claims.SourceRecords(sources), _plain(" ".join(questions))
        self._of = {source.number: _plain(f"{source.call} {_text(source.value)} {source.error}") for source in sources}

    def faults(self, sentence: str) -> Iterator[str]:
        """Yield what a sentence says that stands nowhere."""
        for number in cited_in(sentence):
            if number not in self._cited:
                yield f"there is no source {number}"
        remainder = _CITED.sub(" ", _LIST_NUMBER.sub("", sentence))
        for groups in _QUOTED.findall(remainder):
            quote = next(group for group in groups if group)
            if _plain(quote) not in self._text and not (_plain(quote) in self._failed_calls and _DENIES.search(remainder)):
                yield f"quote {quote!r}"
        remainder = _QUOTED.sub(" ", remainder)
        yield from claims.faults(remainder, frozenset(cited_in(sentence)), self._records, self._questions)
        for name in _NAME.findall(remainder):
            plain = _plain(name.rstrip(".-"))
            if plain not in self._text and not (plain in self._failed_calls and _DENIES.search(remainder)):
                yield f"name {name!r}"
        for match in _NUMBER.finditer(_NAME.sub(" ", remainder)):
            if not _forms(match.group()) & self._numbers and not (
                match.group() in self._failed_calls and _DENIES.search(remainder)
            ):
                yield f"number {match.group()}"

    def elsewhere(self, sentence: str) -> Iterator[str]:
        """Yield a fault where a sentence shares not one word with what it cites."""
        remainder = _CITED.sub(" ", _LIST_NUMBER.sub("", sentence))
        cited = [self._of[number] for number in cited_in(sentence) if number in self._of]
        words = [word for word in _WORD.findall(remainder.lower()) if word not in _GLUE]
        if cited and words and not any(word in text for text in (*cited, self._questions) for word in words):
            yield f"nothing of it stands in source {cited_in(sentence)[0]}"


def check_answer(text: str, evidence: AnswerEvidence) -> CheckedAnswer:
    """Return an answer with its unsupported sentences marked."""
    parts: list[str] = []
    wrong: list[str] = []
    position, stands, cites = 0, False, False
    for match in [*_SENTENCE.finditer(text), None]:
        sentence = text[position : match.start() if match else len(text)]
        faults = list(evidence.faults(sentence)) or list(evidence.elsewhere(sentence))
        parts.append(f"{sentence} {MARK}" if faults else sentence)
        cites |= not faults and bool(_CITED.search(sentence))
        stands |= not faults and any(sign.isalnum() for sign in _CITED.sub("", sentence))
        wrong += [f"{fault} in: {sentence.strip()[:160]}" for fault in faults[:2]]
        if match:
            parts.append(match.group())
            position = match.end()
    # whoever does not know, or asks, has no source to name
    plain = not wrong and bool(_DENIES.search(text) or text.rstrip().endswith("?"))
    return CheckedAnswer("".join(parts), tuple(wrong), bool(wrong) and not stands, cites or plain)


def _forms(number: str) -> set[str]:
    """Return how a number may be written: with and without separators, rounded to what was said, as a share."""
    bare = number.replace(",", "").lstrip("+")
    forms = {bare, bare.rstrip("%")}
    try:
        value = float(bare.rstrip("%"))
    except ValueError:
        return forms
    # 0.93 and 93 % say the same
    forms |= {f"{value:g}", f"{value:.0f}", f"{value:.1f}", f"{value:.2f}"}
    if bare.endswith("%"):
        forms |= {f"{value / 100:g}", f"{value / 100:.2f}"}
    return forms


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _sizes(value: Any) -> Iterator[int]:
    """Yield how many things the lists of a value hold: `3 jobs failed` is no number of the text."""
    if isinstance(value, (list, tuple)):
        yield len(value)
        for item in value:
            yield from _sizes(item)
    elif isinstance(value, dict):
        yield len(value)
        for item in value.values():
            yield from _sizes(item)
