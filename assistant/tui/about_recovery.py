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
    target: str = ""
    """The job or node that it is about."""

    @property
    def irreversible(self) -> bool:
        """Whether a change that cannot be undone would be made at once, without another question."""
        return any(step.change and step.verdict is Verdict.ALLOW and not step.undo for step in self.plan.steps)

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
        planned = plan(tried, number, by=by)
        subject = tried.store.incident(number)
    about = f"incident {incident}" if incident is not None else f"job {job}"
    return RecoverySeen(about, planned, str(engine.gate.policy.mode), subject.job or subject.node or f"incident {number}")
