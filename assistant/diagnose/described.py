"""A language model as the last opinion: where rules, memory and ranker end it may say what the lines speak for.

It only describes: a reason from the list, numbers of lines, rivals. The lines are quoted by us from the case, so no citation can be
made up. It names no node and asks for no restart, and its confidence stays below what acts alone. What was found before stays when
the model is slow, wrong or absent, and stays a rival when it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from assistant.content.reasons import Reason
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.candidate_lines import CandidateLine, candidate_lines
from assistant.ports import Describer
from assistant.records import Action, DecidedBy, Diagnosis, Rival

MOST_LINES = 50
MOST_CHARACTERS = 300
"""Of one line for the model."""
CONFIDENCE = 0.35
"""Below what is acted on without a person; a model's own word about how sure it is says nothing."""
MOST_CITED = 4


class ModelOpinion:
    """The opinion of a language model."""

    name = "model"

    def __init__(self, describer: Callable[[], Describer | None], reasons: Callable[[], Mapping[str, Reason]]) -> None:
        """Prepare to ask; nothing is opened before.

        Args:
            describer: Gives the model; None where there is none, or where it has not shown that it is of use.
            reasons: Gives what may be named.
        """
        self._describer, self._reasons = describer, reasons

    def ask(self, facts: Facts, found: Diagnosis) -> Diagnosis | None:
        """Return what the model makes of a case in which nothing else was found."""
        if found.reason != "unknown":
            return None
        told = candidate_lines(facts)[-MOST_LINES:]
        describer = self._describer() if told else None
        if describer is None:
            return None
        known = self._reasons()
        names = [name for name, reason in known.items() if reason.action is not Action.NONE]
        said = describer.describe([line.text[:MOST_CHARACTERS] for line in told], names)
        if said is None or said.reason not in names:
            return None
        lines = [told[number - 1] for number in dict.fromkeys(said.lines) if 1 <= number <= len(told)]
        lines = [line for line in lines if line.text.strip()][:MOST_CITED]
        return _answer(known, said.reason, said.rivals, lines, found, describer.name) if lines else None

    def note(self, facts: Facts, found: Diagnosis) -> Diagnosis:
        """Return the diagnosis as it is: the model adds nothing to what others found."""
        return found


def _answer(
    known: Mapping[str, Reason], name: str, others: tuple[str, ...], lines: list[CandidateLine], found: Diagnosis, model: str
) -> Diagnosis:
    reason, first = known[name], lines[0]
    # what a model says alone restarts nothing and sets nothing aside
    action = reason.action if reason.action is Action.FIX_AND_RESUBMIT else Action.NONE
    thought = [
        Rival(other, 0.1, f"{model} thought of it", "it named another reason", "Look at the lines cited.")
        for other in dict.fromkeys(others)
        if other in known and other != name
    ]
    before = Rival(
        found.reason, found.confidence, "nothing that rules, memory and ranker know holds", "", "Look at the lines cited."
    )
    return replace(
        found,
        reason=reason.name,
        category=reason.category,
        action=action,
        confidence=CONFIDENCE,
        by=DecidedBy.MODEL,
        root_cause=tuple(line.cite(f"model {model}") for line in lines),
        nodes=(),
        rivals=(before, *thought)[:3],
        summary=(
            f"{reason.title}, says the language model {model}; no rule knows the line: "
            f"{first.text.strip()[:180]} ({first.file}:{first.line})."
        ),
        advice=f"Look at the lines cited before anything is done. {reason.remedy}",
    )
