"""Join parts of advice into one voice: what has to be changed in front, no sentence twice, none that only says so again.

Parts come from templates, from the message and from what stands around it, and know nothing of one another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from assistant.diagnose.answer import DEEDS, NO_HELP
from assistant.records import Action

_TWO_STOPS = re.compile(r"(?<![./])\.\.(?=\s|$)")
"""A sentence that was quoted with its stop at the end of another one."""
_SENTENCE_ENDS = re.compile(r"(?<=[a-z0-9)`'\"][.!?]) (?=[A-Z`])")
_WORDS = re.compile(r"[a-z0-9_./-]+")
SHORTEST = 4
"""Words from which on a sentence that comes a second time is left out."""
SAME_SHARE = 0.85
"""Share of the words of a sentence that an earlier one has, from which on it says nothing new."""
FEWEST_WORDS = 7
"""Words of a sentence from which on it may be compared by their share."""


_PLAIN_WORD = re.compile(r"[a-z]+(?=[\s,;:.']|$)(?!\.\w)")


def with_capital(sentence: str) -> str:
    """Return a sentence with a capital at its beginning; a path, a name or code with which it begins stays as it is."""
    return f"{sentence[:1].upper()}{sentence[1:]}" if _PLAIN_WORD.match(sentence) else sentence


_OPENERS = {")": "(", "]": "[", "}": "{"}
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")


def without_unopened(text: str) -> str:
    """Return a text less the closing quotes and brackets at its end that nothing in it opens, as of a sentence cut out of JSON."""
    while text:
        last = text[-1]
        quotes = _APOSTROPHE.sub("", text).count(last) if last in "\"'`" else 0
        opener = _OPENERS.get(last)
        if not (quotes % 2 or (opener is not None and text.count(last) > text.count(opener))):
            return text
        text = text[:-1].rstrip(" ,;:")
    return text


def joined(parts: Sequence[str]) -> str:
    """Return the parts as one text."""
    return " ".join(_new(_change_first(parts)))


def _change_first(parts: Sequence[str]) -> list[str]:
    """Return the parts of advice with what has to be changed in front: that a restart is no help comes last, and short."""
    refusal = DEEDS[Action.FIX_AND_RESUBMIT]
    changes = [part for part in parts if part and part != refusal]
    return [*changes, NO_HELP] if refusal in parts and changes else [*parts]


def _new(parts: Sequence[str]) -> Iterator[str]:
    """Yield the sentences that say something that none before has said, each part ended."""
    before: list[frozenset[str]] = []
    text = ""
    for part in parts:
        if not part or part in text:
            continue
        sentences = []
        for sentence in _SENTENCE_ENDS.split(part):
            words = frozenset(_WORDS.findall(sentence.lower()))
            if len(words) < SHORTEST or not any(_repeats(words, earlier) for earlier in before):
                sentences.append(sentence)
                before.append(words)
        if sentences:
            ended = _TWO_STOPS.sub(".", " ".join(sentences))
            yield ended if ended.endswith((".", "…", "!", "?")) else f"{ended}."
        text += part


def _repeats(words: frozenset[str], earlier: frozenset[str]) -> bool:
    return words <= earlier or (len(words) >= FEWEST_WORDS and len(words & earlier) >= SAME_SHARE * len(words))
