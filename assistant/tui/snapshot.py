"""What the chat shows at one moment, of nodes, and before a change: read in one go on a lane and never changed.

A snapshot has the store's side and the cluster's side; what is shown before a change is frozen before it is shown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.errors import NightshiftError, ToolError, Unavailable
from assistant.gate.consent import name_to_type, target_name
from assistant.gate.running import ENDED, stands
from assistant.gate.stops import kill_switch_note, stopped_by
from assistant.overall_state import StoreFacts
from assistant.records import Call, Incident, Job, JobState, Node, NodeState, Outcome, Risk, Verdict
from assistant.recover.identity import Lease, parse
from assistant.store import Approval, AuditRow
from assistant.store.calls import SHORT_DIGEST
from assistant.tooling import find_tool, found

if TYPE_CHECKING:
    from assistant.diagnose.learning.ledger import Score
    from assistant.engine import Engine
    from assistant.engine.dry_runs import Plan


OUT = (NodeState.DOWN, NodeState.DRAINED, NodeState.DRAINING)
"""States of nodes that no job can use."""
_NODES_FIRST = (*OUT, NodeState.UNKNOWN, NodeState.ALLOCATED, NodeState.IDLE)
_JOBS_FIRST = {JobState.RUNNING: 1, JobState.PENDING: 2, JobState.UNKNOWN: 1, JobState.COMPLETED: 4, JobState.CANCELLED: 3}


@dataclass(frozen=True, slots=True)
class IncidentEntry:
    """An incident and what its diagnosis says."""

    incident: Incident
    reason: str = ""
    """Empty before the diagnosis."""
    confidence: float = 0.0
    """0..1."""
    nodes: tuple[str, ...] = ()
    """To blame."""
    waits: int = 0
    """Approvals of it that nobody has answered."""


@dataclass(frozen=True, slots=True)
class ApprovalEntry:
    """A change that waits for a person, with all that they need to decide."""

    approval: Approval
    call: Call
    risk: Risk
    undo: str
    """The exact command that takes it back once it is made; empty where that cannot be."""

    @property
    def command(self) -> str:
        """The exact change as it is stored; the call itself where no command was stored."""
        return self.call.preview or f"{self.call.tool} {dict(self.call.arguments)}"

    @property
    def digest(self) -> str:
        """Digest of the stored commands, as far as people are shown it; empty for an approval of before there were digests."""
        return self.approval.digest[:SHORT_DIGEST]

    @property
    def target_name(self) -> str:
        """What a person types for a deliberate yes: the job, the node or the nodes that are changed."""
        return target_name(self.call.arguments) or f"call {self.call.id}"

    def same_change(self, candidate: ApprovalEntry) -> bool:
        """Tell whether a yes to one is a yes to the other: the same call, commands, digest and rule."""
        first, second = self.approval, candidate.approval
        return (first.id, first.call, first.digest, self.command) == (second.id, second.call, second.digest, candidate.command)


@dataclass(frozen=True, slots=True)
class KillSwitchSnapshot:
    """The file that stops every change."""

    path: str
    note: str
    """Who set it, since when and why, as far as the file says."""


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """What the store says."""

    at: datetime
    incidents: tuple[IncidentEntry, ...] = ()
    """Those that need somebody first, then the newest."""
    approvals: tuple[ApprovalEntry, ...] = ()
    """Oldest first."""
    happened: tuple[AuditRow, ...] = ()
    """Newest first, without readings."""
    breaker: str = ""
    """Since when and why the breaker stops all changes; empty when it does not."""
    unacknowledged: tuple[int, ...] = ()
    """Ids of escalated incidents that nobody has acknowledged."""
    facts: StoreFacts = field(default_factory=StoreFacts)
    """What is judged of it: the watch, what stops changes, how much is open."""
    newest_row: int = 0
    """Of the audit: up to there `happened` has all of it."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """What the scheduler says."""

    at: datetime | None = None
    """When it last answered; None before the first answer."""
    jobs: tuple[Job, ...] = ()
    nodes: tuple[Node, ...] = ()
    trouble: str = ""
    """Why it does not answer now; jobs and nodes are then those of `at`."""
    foremost: tuple[Job, ...] = ()
    """The jobs in the order in which an operator wants them: what failed, what runs, what waits, what is over."""
    states: Mapping[JobState, int] = field(default_factory=dict)
    """How many jobs are in each state."""
    groups: Mapping[tuple[NodeState, str], tuple[str, ...]] = field(default_factory=dict)
    """Names of nodes by state and reason: what is out of service first, and of that the largest part first."""
    name: str = ""
    """Of the cluster; the kind of its scheduler where that has no name for it."""
    configured: bool = True
    """Whether anybody has said where jobs run, or jobs run there all the same; else there are no nodes to show."""

    @property
    def out(self) -> int:
        """How many nodes are out of service."""
        return sum(len(names) for (state, _), names in self.groups.items() if state in OUT)


def cluster_snapshot_of(
    at: datetime, jobs: Sequence[Job], nodes: Sequence[Node], *, name: str = "", configured: bool = True
) -> ClusterSnapshot:
    """Return what the scheduler said at a time, ordered and counted: thousands of jobs are no work for the screens' thread.

    Args:
        at: When.
        jobs: All of them.
        nodes: All of them; those that the embedded scheduler makes by itself on a fresh machine are left out.
        name: Of the cluster.
        configured: Whether anybody has said where jobs run.
    """
    if not configured and not jobs:
        return ClusterSnapshot(at, name=name, configured=False)
    foremost = sorted(jobs, key=lambda job: 0 if job.state.failed else _JOBS_FIRST.get(job.state, 3))
    return ClusterSnapshot(
        at,
        tuple(jobs),
        tuple(nodes),
        foremost=tuple(foremost),
        states=Counter(job.state for job in jobs),
        groups=_grouped(nodes),
        name=name,
    )


def _grouped(nodes: Sequence[Node]) -> dict[tuple[NodeState, str], tuple[str, ...]]:
    groups: dict[tuple[NodeState, str], list[str]] = defaultdict(list)
    for node in nodes:
        groups[node.state, node.reason].append(node.name)
    order = sorted(groups, key=lambda key: (_NODES_FIRST.index(key[0]), -len(groups[key])))
    return {key: tuple(groups[key]) for key in order}


def read_kill_switch(paths: Iterable[Path]) -> KillSwitchSnapshot | None:
    """Return the kill switch that is set, None when none is."""
    for path in paths:
        stop = stopped_by((path,))
        if stop is not None:
            return KillSwitchSnapshot(stop, kill_switch_note(path))
    return None


LEDGER_DAYS = 60
"""How far back the ledger is read, as in `nightshift nodes ledger`."""
KERNEL_LINES = 2_000


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A node as the screen of nodes shows it."""

    name: str
    node: Node | None
    """As the scheduler shows it; None when it shows none of that name."""
    lease: Lease | None
    """Our cordon; None where there is none, or where the reason is somebody else's."""
    score: Score | None
    """Score of the node in the ledger; None for a node that was part of no failure."""


@dataclass(frozen=True, slots=True)
class NodesSnapshot:
    """Some nodes."""

    at: datetime
    nodes: tuple[NodeEntry, ...]
    incidents: tuple[IncidentEntry, ...]
    """In which they were to blame, or which are about them; newest first."""
    unknown: str = ""
    """Why the scheduler's side is not known."""


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """What one probe said of one node."""

    node: str
    probe: str
    status: str
    """ok, warning, critical or unknown."""
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    """What a health check said."""

    rows: tuple[ProbeRow, ...] = ()
    """Worst first."""
    faulty: tuple[str, ...] = ()
    trouble: str = ""
    """Why there is no answer."""


@dataclass(frozen=True, slots=True)
class KernelLogSnapshot:
    """The ends of kernel logs, one text with a header for each node."""

    text: str
    trouble: str = ""


def read_nodes(engine: Engine, names: Sequence[str], nodes_shown: Sequence[Node] | None, now: datetime) -> NodesSnapshot:
    """Return what is known about nodes; `known` are all nodes as the scheduler showed them last, None when it is to be asked."""
    from assistant.diagnose.learning.ledger import scores

    unknown = ""
    if nodes_shown is None:
        try:
            nodes_shown = engine.scheduler.nodes()
        except Unavailable as error:
            nodes_shown, unknown = (), f"the scheduler does not answer: {error}"
    by_name = {node.name: node for node in nodes_shown}
    store = engine.store
    with store.snapshot():
        standing = {score.node: score for score in scores(store.sightings(now - timedelta(days=LEDGER_DAYS)), now)}
        incidents = _incidents(engine, names, standing)
    nodes = tuple(
        NodeEntry(name, node, parse(node.reason) if node is not None else None, standing.get(name))
        for name in names
        for node in (by_name.get(name),)
    )
    return NodesSnapshot(now, nodes, incidents, unknown)


def _incidents(engine: Engine, names: Sequence[str], standing: Mapping[str, Score]) -> tuple[IncidentEntry, ...]:
    store = engine.store
    numbers = {sighting.incident for name in names if name in standing for sighting in standing[name].blamed}
    for name in names[:64]:  # each is a query of its own
        numbers |= {incident.id for incident in store.incidents(node=name)}
    incidents = []
    for number in sorted(numbers, reverse=True)[:200]:
        diagnosis = store.diagnosis(number)
        reason = (diagnosis.reason, diagnosis.confidence, diagnosis.faulty_nodes) if diagnosis is not None else ("", 0.0, ())
        incidents.append(IncidentEntry(store.incident(number), *reason))
    return tuple(incidents)


def read_health(engine: Engine, names: Sequence[str], by: str) -> HealthSnapshot:
    """Return what the health probes say of nodes now, by the reading call of that name."""
    try:
        outcome = engine.gate.call("check_nodes", {"nodes": list(names)}, why="asked for in the chat", by=by)
    except NightshiftError as error:
        return HealthSnapshot(trouble=str(error))
    if not outcome.ok or not isinstance(outcome.value, Mapping):
        return HealthSnapshot(trouble=outcome.error or "the check returned nothing")
    order = ("critical", "warning", "unknown", "ok")
    rows = [
        ProbeRow(node, str(row["probe"]), str(row["status"]), str(row["text"]), str(row.get("remedy") or ""))
        for node, health in outcome.value["nodes"].items()
        for row in health["probes"]
    ]
    rows.sort(key=lambda row: order.index(row.status) if row.status in order else 0)
    return HealthSnapshot(tuple(rows), tuple(outcome.value.get("faulty", ())))


def read_kernel(engine: Engine, names: Sequence[str], by: str) -> KernelLogSnapshot:
    """Return the ends of the kernel logs of nodes, by the reading call of that name."""
    arguments = {"nodes": list(names), "lines": KERNEL_LINES}
    try:
        outcome = engine.gate.call("kernel_log", arguments, why="asked for in the chat", by=by)
    except NightshiftError as error:
        return KernelLogSnapshot("", str(error))
    if not outcome.ok or not isinstance(outcome.value, Mapping):
        return KernelLogSnapshot("", outcome.error)
    texts, silent = outcome.value.get("text", {}), outcome.value.get("unknown", {})
    text = "".join(f"# {node}\n{kernel_text or '(empty)'}\n" for node, kernel_text in texts.items())
    return KernelLogSnapshot(text, "; ".join(f"{node}: {why}" for node, why in silent.items()))


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
    if tool is None or tool.undo is None or outcome is None or call.status not in ENDED or not stands(outcome):
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
    target = name_to_type(undo_tool, undo.arguments, call_id)
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
    from assistant.engine.dry_runs import plan, rehearsal
    from assistant.engine.intake import requested_incident

    with rehearsal(engine) as tried:
        number = incident if incident is not None else requested_incident(tried, job, by=by).id
        planned = plan(tried, number, by=by)
        subject = tried.store.incident(number)
    about = f"incident {incident}" if incident is not None else f"job {job}"
    return RecoverySnapshot(about, planned, str(engine.gate.policy.mode), subject.job or subject.node or f"incident {number}")
