"""What a screen shows before a change is taken back or a job is brought back, read on a lane and frozen before it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assistant.errors import NightshiftError, ToolError
from assistant.records import Call, CallStatus, Outcome, Risk, Verdict
from assistant.store.approvals import SHORT_DIGEST
from assistant.tooling import find_tool, found
from assistant.tui.snapshot import target_name

if TYPE_CHECKING:
    from assistant.engine import Engine
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.engine.plan import Plan


@dataclass(frozen=True, slots=True)
class UndoSnapshot:
    """What taking a change back would do."""

    call: Call
    """The change."""
    undo: Call | None
    """The prepared call that takes it back, frozen as it is shown; None when the change cannot be taken back."""
    risk: Risk
    verdict: Verdict
    """What the policy says to it now, with the person's yes."""
    rule: str
    why: str
    """The policy's reason, or why it cannot be taken back."""
    target: str = ""
    """What the person types first, since taking back cannot itself be undone; empty where it can."""

    @property
    def text(self) -> str:
        """The exact commands and their note; empty when the change cannot be taken back."""
        return self.undo.preview if self.undo is not None else ""

    @property
    def digest(self) -> str:
        """Digest of the commands, as far as people are shown it."""
        return self.undo.digest[:SHORT_DIGEST] if self.undo is not None else ""


def undo_of(engine: Engine, call_id: int, by: str) -> UndoSnapshot:
    """Write down what would take a change back, and return it with what the policy says to it; nothing runs.

    Who does not take the change back after all calls `leave_undo`.

    Raises:
        UsageError: There is no such call.
        Unavailable: The scheduler did not answer.
    """
    call, outcome = engine.store.call(call_id), engine.store.outcome(call_id)
    tool = found().get(call.tool)
    if tool is None or tool.undo is None or outcome is None or call.status is not CallStatus.DONE:
        why = f"it is {call.status}" if tool is not None and tool.undo else f"{call.tool} has no undo"
        return UndoSnapshot(call, None, Risk.READ, Verdict.DENY, "", why)
    undo_tool = find_tool(tool.undo)
    try:
        undo = engine.gate.prepare_undo(call_id, by)
    except ToolError as error:
        return UndoSnapshot(call, None, undo_tool.risk, Verdict.DENY, "", str(error))
    approval = engine.store.approval_of(undo.id)
    if approval is not None and approval.pending(engine.store.clock.now()):
        return UndoSnapshot(call, None, undo_tool.risk, Verdict.DENY, "", f"its undo waits as approval {approval.id} already")
    try:
        decision = engine.gate.preview(undo.tool, undo.arguments, by=by, incident=undo.incident, approved_by=by).decision
    except NightshiftError:
        engine.gate.withdraw(undo.id, by)
        raise
    target = "" if undo_tool.undo else target_name(undo.arguments) or f"call {call_id}"
    return UndoSnapshot(call, undo, undo_tool.risk, decision.verdict, decision.rule, decision.why, target)


def take_back(engine: Engine, undo: UndoSnapshot, by: str) -> Outcome:
    """Make the call that was shown, once a person has said yes to it.

    Raises:
        UsageError: Its commands are others by now, or there is nothing to make.
        Denied: The policy or a person refused.
        Parked: The cluster has changed meanwhile: what would be done now is asked about anew.
        Unavailable: Something did not answer.
    """
    if undo.undo is None:
        raise ToolError(f"call {undo.call.id} cannot be taken back: {undo.why}")
    return engine.gate.go_on(undo.undo.id, approved_by=by, digest=undo.undo.digest)


def leave_undo(engine: Engine, undo: UndoSnapshot, by: str) -> None:
    """Withdraw the prepared call of an undo that nobody wants."""
    if undo.undo is not None:
        engine.gate.withdraw(undo.undo.id, by, why="left as it is")


# What bringing a job back would take, found out on a lane; nothing is done and nothing kept.


@dataclass(frozen=True, slots=True)
class RecoverySnapshot:
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


def recovery_of(engine: Engine, *, by: str, incident: int | None = None, job: str = "") -> RecoverySnapshot:
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
    return RecoverySnapshot(about, planned, str(engine.gate.policy.mode), subject.job or subject.node or f"incident {number}")
