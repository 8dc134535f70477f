"""Second opinions: what is asked where the rules are silent or doubtful."""

from __future__ import annotations

from typing import Protocol

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.streams import ended_after_failure
from assistant.diagnose.weighing.findings import EXTERNAL
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


def contradicted(opinion: Diagnosis, facts: Facts, *, failed: bool) -> bool:
    """Tell whether the end of an attempt contradicts an opinion: that all is well, or that somebody from outside stopped it.

    Args:
        opinion: What somebody other than the rules makes of it.
        facts: Of the case.
        failed: Whether the scheduler saw it fail, or its last words tell of a failure.
    """
    if opinion.reason == "no_failure":
        return failed
    lines = opinion.root_cause
    return opinion.reason in EXTERNAL and bool(lines) and all(ended_after_failure(line, facts.tasks) for line in lines)
