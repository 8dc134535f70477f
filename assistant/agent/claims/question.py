"""A sentence that may be answered from the record: its words, its names and the turn in which it is answered."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from assistant.agent.claims.mentions import APPROVAL, MentionedNames, clauses_of
from assistant.agent.dialogue import Dialogue, QuestionTurn

_MARK = re.compile(r"[?？]\s*(?:\W{0,3})$|[?？]|吗|呢\W*$|么\W*$")
_ASKS = re.compile(
    r"^\W*(?:(?:and|so|but|ok|okay|well|ffs|hey|hi|also|und|aber|also|na)\b[\s,]*)*(?:who|whom|whose|when|why|how|what|which|where|did|does|do|is|are|was|were"
    r"|has|have|had|would|could|should|can|may|will|since when|any|wer|wem|wann|warum|wieso|wie|was|welche[rsmn]?|hat|haben"
    r"|ist|sind|war|wurde"
    r"|hätten?|würde|soll|kann|darf|gab|gibt)\b"
)


def begins_as_question(text: str) -> bool:
    """Tell whether a text in small letters begins with a word that asks."""
    return _ASKS.match(text) is not None


@dataclass(frozen=True)
class RecordQuestion:
    """What was typed, and what is known when it is answered."""

    sentence: str
    """As it was typed."""
    mention: MentionedNames
    dialogue: Dialogue
    turn: QuestionTurn

    @property
    def text(self) -> str:
        """The masked sentence in small letters."""
        return self.mention.text

    @property
    def asks(self) -> bool:
        """Whether it is a question by its mark or its first word."""
        return bool(_MARK.search(self.sentence) or _ASKS.match(self.text))

    @property
    def job(self) -> str:
        """The one job that it names; empty where it names none or several."""
        jobs = self.mention.jobs
        return jobs[0] if len(jobs) == 1 else ""

    @property
    def node(self) -> str:
        """The one node that it names; empty where it names none or several."""
        nodes = self.mention.nodes
        return nodes[0] if len(nodes) == 1 else ""

    @property
    def approvals(self) -> tuple[int, ...]:
        """Numbers of approvals in it."""
        return tuple(map(int, self.mention.of_kind(APPROVAL)))

    @property
    def clauses(self) -> list[str]:
        """Its clauses, masked."""
        return list(clauses_of(self.text))

    def spoken_job(self) -> str:
        """Return the job that it names, or the one that was spoken of last where it names nothing."""
        if self.job:
            return self.job
        is_last = not self.mention.names and self.dialogue.subject == "job" and bool(self.dialogue.jobs)
        return self.dialogue.jobs[0] if is_last else ""

    def spoken_node(self) -> str:
        """Return the node that it names, or the one that was spoken of last where it names nothing."""
        if self.node:
            return self.node
        is_last = not self.mention.names and self.dialogue.subject == "node" and len(self.dialogue.nodes) == 1
        return self.dialogue.nodes[0] if is_last else ""


RecordRule = Callable[[RecordQuestion], list[str]]
"""Returns the lines of an answer; none where the sentence asks for something else."""
