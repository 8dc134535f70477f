"""What comes back for a question: text with numbered sources, and what was proposed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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
    return text if len(text) <= 60 else f"{text[:59]}…"
