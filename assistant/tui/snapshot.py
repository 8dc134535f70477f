"""What the chat shows at one moment, read in one go and never changed: the store's side and the cluster's side."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from assistant.gate.stops import kill_switch_note, stopped_by
from assistant.nodeset import fold
from assistant.records import Call, CallStatus, Incident, IncidentState, Job, JobState, Node, NodeState, Risk
from assistant.store import Approval, AuditRow, Store
from assistant.store.approvals import SHORT_DIGEST
from assistant.store.breaker import why_open
from assistant.tooling import found

MOST_INCIDENTS = 200
MOST_HAPPENED = 300

OUT = (NodeState.DOWN, NodeState.DRAINED, NodeState.DRAINING)
"""States of nodes that no job can use."""
_NODES_FIRST = (*OUT, NodeState.UNKNOWN, NodeState.ALLOCATED, NodeState.IDLE)
_JOBS_FIRST = {JobState.RUNNING: 1, JobState.PENDING: 2, JobState.UNKNOWN: 1, JobState.COMPLETED: 4, JobState.CANCELLED: 3}

_SILENT = frozenset(
    {"incident.claimed", "incident.released", "decision", *(f"call.{status}" for status in CallStatus if status != "undone")}
)
"""Rows of the audit that say nothing by themselves."""

_TOLD_OTHERWISE = (IncidentState.DIAGNOSED, IncidentState.WAITING)
"""States whose cause has a row of its own."""

PARTS = {
    IncidentState.WAITING: 0,
    IncidentState.OPEN: 1,
    IncidentState.DIAGNOSED: 1,
    IncidentState.RECOVERING: 1,
    IncidentState.VERIFYING: 1,
    IncidentState.ESCALATED: 2,
}
"""What comes first in the list of incidents; what is over comes last."""


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
        own, its = self.approval, candidate.approval
        return (own.id, own.call, own.digest, self.command) == (its.id, its.call, its.digest, candidate.command)


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

    @property
    def unfinished(self) -> int:
        """How many incidents are not over."""
        return sum(not incident.incident.state.ended for incident in self.incidents)

    @property
    def handed_over(self) -> int:
        """How many incidents wait for a person's hands, and nobody has said that he knows of them."""
        return len(self.unacknowledged)


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

    @property
    def out(self) -> int:
        """How many nodes are out of service."""
        return sum(len(names) for (state, _), names in self.groups.items() if state in OUT)


def cluster_snapshot_of(at: datetime, jobs: Sequence[Job], nodes: Sequence[Node]) -> ClusterSnapshot:
    """Return what the scheduler said at a time, ordered and counted: thousands of jobs are no work for the screens' thread."""
    foremost = sorted(jobs, key=lambda job: 0 if job.state.failed else _JOBS_FIRST.get(job.state, 3))
    return ClusterSnapshot(
        at,
        tuple(jobs),
        tuple(nodes),
        foremost=tuple(foremost),
        states=Counter(job.state for job in jobs),
        groups=_grouped(nodes),
    )


def _grouped(nodes: Sequence[Node]) -> dict[tuple[NodeState, str], tuple[str, ...]]:
    groups: dict[tuple[NodeState, str], list[str]] = defaultdict(list)
    for node in nodes:
        groups[node.state, node.reason].append(node.name)
    order = sorted(groups, key=lambda key: (_NODES_FIRST.index(key[0]), -len(groups[key])))
    return {key: tuple(groups[key]) for key in order}


def read_store(store: Store, now: datetime) -> StoreSnapshot:
    """Return what the store says now, one state of it."""
    with store.snapshot():
        approvals = tuple(_approval(store, record) for record in store.approvals())
        waiting = [record.call.incident for record in approvals]
        incidents = [_incident(store, record, waiting) for record in store.incidents(limit=MOST_INCIDENTS)]
        happened = _happened(store, store.audit(limit=MOST_HAPPENED * 3))
        breaker, needs = why_open(store) or "", tuple(store.unacknowledged())
    incidents.sort(key=lambda record: (PARTS.get(record.incident.state, 3), -record.incident.id))
    return StoreSnapshot(now, tuple(incidents), approvals, tuple(reversed(happened[-MOST_HAPPENED:])), breaker, needs)


def _incident(store: Store, incident: Incident, waiting: Sequence[int | None]) -> IncidentEntry:
    diagnosis = store.diagnosis(incident.id)
    waits = waiting.count(incident.id)
    if diagnosis is None:
        return IncidentEntry(incident, waits=waits)
    return IncidentEntry(incident, diagnosis.reason, diagnosis.confidence, diagnosis.faulty_nodes, waits)


def _approval(store: Store, approval: Approval) -> ApprovalEntry:
    call = store.call(approval.call)
    tool = found().get(call.tool)
    # a tool that this version does not know may do anything
    undo = f"nightshift undo {call.id}" if tool is not None and tool.undo else ""
    return ApprovalEntry(approval, call, tool.risk if tool else Risk.DISRUPT, undo)


def target_name(arguments: Mapping[str, Any]) -> str:
    """Return the name of what a call changes, as a person types it: its job, node, folded nodes or run; empty for none of these."""
    for name in ("job", "node", "nodes", "run"):
        value = arguments.get(name)
        if isinstance(value, (list, tuple)) and value:
            return fold([str(element) for element in value])
        if isinstance(value, (str, int)) and str(value).strip():
            return str(value).strip()
    return ""


def read_kill_switch(paths: Iterable[Path]) -> KillSwitchSnapshot | None:
    """Return the kill switch that is set, None when none is."""
    for path in paths:
        stop = stopped_by((path,))
        if stop is not None:
            return KillSwitchSnapshot(stop, kill_switch_note(path))
    return None


def _happened(store: Store, rows: Sequence[AuditRow]) -> list[AuditRow]:
    """Return the rows that are news for a person, oldest first: no readings, no leases, nothing twice in a row."""
    news: list[AuditRow] = []
    for row in rows:
        if row.what in _SILENT or (row.what == "outcome" and not _changes(store, row)):
            continue
        if row.what == "incident.state" and row.outcome in _TOLD_OTHERWISE:
            continue
        if not news or (news[-1].what, news[-1].why, news[-1].preview) != (row.what, row.why, row.preview):
            news.append(row)
    return news


def _changes(store: Store, row: AuditRow) -> bool:
    tool = found().get(store.call(row.call).tool) if row.call is not None else None
    return tool is None or tool.risk > Risk.READ
