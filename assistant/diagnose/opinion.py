"""Second opinions: what is asked where the rules are silent or doubtful."""

from __future__ import annotations

from typing import Protocol

from assistant.diagnose.facts import Facts
from assistant.records import Diagnosis

DOUBTFUL = 0.5
"""Below this confidence a verdict of the rules is put to the others."""


class Opinion(Protocol):
    """Memory or a model: something that may know better, and says what it rests on."""

    name: str

    def ask(self, facts: Facts, found: Diagnosis) -> Diagnosis | None:
        """Return a better diagnosis than the one found, or None.

        An implementation cites lines that stand in the case, names itself in `by`, keeps what the rules found among the rivals,
        and never names a node without a line against it. It is pure: the same case gets the same answer.

        Args:
            facts: Of the case.
            found: What is known so far; its reason may be `unknown`.
        """
        ...

    def note(self, facts: Facts, found: Diagnosis) -> Diagnosis:
        """Return the final diagnosis with what it has to add: past incidents like this one. Never another reason or action."""
        ...


def doubtful(found: Diagnosis) -> bool:
    """Tell whether others should be asked."""
    return found.reason == "unknown" or found.confidence < DOUBTFUL
