"""What bringing a job back would take, found out on a lane; nothing is done and nothing kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assistant.records import Verdict

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.engine.plan import Plan


@dataclass(frozen=True, slots=True)
class RecoverySeen:
    """What would be done."""

    about: str
    """`job 4821`, `incident 3`."""
    plan: Plan
    mode: str
    """Of the policy."""

    def count(self, verdict: Verdict) -> int:
        """Return how many changes the policy answers so."""
        return sum(step.change and step.verdict is verdict for step in self.plan.steps)


def recovery_of(engine: Engine, *, by: str, incident: int | None = None, job: str = "") -> RecoverySeen:
    """Return what going on with an incident would do, or with that of a job, which would be opened where there is none.

    Raises:
        UsageError: There is nothing to recover.
        ToolError: The scheduler knows no such job.
        Unavailable: The scheduler or a node that is asked did not answer.
    """
    from assistant.engine.plan import plan
    from assistant.engine.rehearsal import rehearsal
    from assistant.engine.requested import requested

    with rehearsal(engine) as tried:
        number = incident if incident is not None else requested(tried, job, by=by).id
        found = plan(tried, number, by=by)
    return RecoverySeen(f"incident {incident}" if incident is not None else f"job {job}", found, str(engine.gate.policy.mode))
