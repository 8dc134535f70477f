"""Let a language model sum up an incident; what it says is taken only where every sentence stands on the lines it was given."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from assistant.agent.answer import AnswerSource
from assistant.agent.grounding import AnswerEvidence, check_answer, cited_in
from assistant.agent.wording import harmless, one_line
from assistant.errors import NightshiftError

logger = logging.getLogger(__name__)

FAILURES = (NightshiftError, ValueError, TypeError, KeyError, RuntimeError, OSError)
MOST_WORDS = 120
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'`(])|\n+")


class Summed(NamedTuple):
    """The summary of an answer by a model, or why there is none."""

    text: str
    """Empty where there is none that stands."""
    why_not: str = ""


def summed_up(lines: Sequence[str], write: Callable[[Sequence[str]], str]) -> Summed:
    """Return a model's summary of numbered lines, or why it was left out; never an error."""
    lines = [harmless(line) for line in lines]
    try:
        text = " ".join(harmless(write(lines)).split())
    except FAILURES as error:
        logger.info("no summary by the model: %s", error)
        return Summed("", one_line(error, 200))
    fault = _fault(text, lines)
    return Summed("", fault) if fault else Summed(text)


def _fault(text: str, lines: Sequence[str]) -> str:
    if not text:
        return "it said nothing"
    if len(text.split()) > MOST_WORDS:
        return f"it has more than {MOST_WORDS} words"
    for sentence in filter(None, map(str.strip, _SENTENCE.split(text))):
        if not cited_in(sentence):
            return f"it names no line for: {sentence[:120]}"
    sources = [AnswerSource(number, "incident", {}, line) for number, line in enumerate(lines, 1)]
    return next(iter(check_answer(text, AnswerEvidence(sources)).unsupported), "")
