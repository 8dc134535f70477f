"""Incidents: what was noticed, why it failed, what was done about it; rules and ledger that were learned from others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from assistant.records.words import (
    Action,
    CallStatus,
    Category,
    DecidedBy,
    EventKind,
    IncidentState,
    PatternKind,
    RuleKind,
    RuleState,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a watch or a person noticed about a job, a node or a service."""

    kind: EventKind
    job: str | None
    node: str | None
    at: datetime
    detail: Mapping[str, Any] = field(default_factory=dict)
    """JSON values only."""
    attempt: int = 0
    """How often the same job id had been requeued before; 0 for the first run."""
    service: str | None = None
    """What failed for several jobs at once: a host, a bucket, a path, `node NAME`, `error LINE`."""


@dataclass(frozen=True, slots=True)
class Incident:
    """An open case about one job attempt, one node, or one service that failed for several jobs."""

    id: int
    state: IncidentState
    job: str | None
    attempt: int
    node: str | None
    kind: EventKind
    opened: datetime
    failed_at: datetime | None
    """When the failure happened, as far as the scheduler or the log tells."""
    closed: datetime | None
    owner: str | None
    """Who holds the lease; None when nobody works on it."""
    lease_until: datetime | None
    playbook: str | None
    playbook_digest: str | None
    note: str
    """Why it stands where it stands, for people."""
    parent: int | None = None
    """The earlier incident whose restart this job was; None for a first failure."""
    service: str | None = None
    """As in `Event.service`."""

    @property
    def subject(self) -> str:
        """What it is about, in words: `job 4821`, `node gpu007`, `service minio.local:9000`, `path /lustre/pile`."""
        if self.job is not None:
            return f"job {self.job}"
        if self.service is None:
            return f"node {self.node}"
        kind = "path " if self.service.startswith("/") else "" if self.service.startswith(("node ", "error ")) else "service "
        return f"{kind}{self.service}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact that a reading call brought."""

    id: int
    incident: int
    source: str
    """Which call brought it: `kernel_log(nodes=node02)`."""
    text: str
    facts: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class Call:
    """A tool, its arguments, why, and for which incident."""

    id: int
    incident: int | None
    tool: str
    arguments: Mapping[str, Any]
    why: str
    by: str
    """The interface or component that asked: `cli:alice`, `playbook:ecc_error`, `agent`."""
    at: datetime
    status: CallStatus
    step: str | None = None
    """Name of the playbook step it belongs to, unique within an incident."""
    preview: str = ""
    """The exact commands, frozen when the call was first decided; behind ` # ` stand notes for people."""
    digest: str = ""
    """SHA-256 (hex) of the frozen commands and of `preview`; empty until the call was decided for the first time."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Who allowed or refused a call, and by which rule."""

    verdict: Verdict
    rule: str
    """Name of the policy rule, as in knowledge/policy.toml."""
    by: str
    """`policy`, or the person who answered."""
    at: datetime
    why: str = ""
    policy: str = ""
    """Digest of the policy that it was decided under; empty for a person's answer, and where no policy could be read whole."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a call."""

    call: int
    ok: bool
    value: Any
    """JSON value: a playbook reads it with `{step.key}`."""
    error: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Citation:
    """A line that was read, quoted with its place."""

    file: str
    """Name inside the case: `job.log`, `dmesg.log`, `slurmctld.log`, `metrics.jsonl`, `probes.log`.

    `scheduler` stands for its words on the job."""
    line: int
    """1-based."""
    text: str
    rule: str
    """Id of the signature or of the reasoning step that made it count."""
    role: str = "root"
    """root, cascade, teardown, benign or recovered."""


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """A node and what speaks against it."""

    node: str
    why: str
    citations: tuple[Citation, ...] = ()


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a failure showed itself, for a person to look at; it accuses no node."""

    why: str
    """What happened there: it raised the error, it failed first, it did not join, its peers lost it."""
    node: str | None = None
    rank: int | None = None
    task: int | None = None
    """Slurm task, where only that is known."""
    gpu: int | None = None
    """Number of the GPU on its node."""
    citations: tuple[Citation, ...] = ()
    """The line that shows it and the one that places it."""

    @property
    def sentence(self) -> str:
        """The place, what happened there and its lines, for a person."""
        speaker = f"rank {self.rank}" if self.rank is not None else f"task {self.task}" if self.task is not None else ""
        parts = [speaker, f"GPU {self.gpu}" if self.gpu is not None else "", self.node or "node unknown"]
        lines = ", ".join(f"{citation.file}:{citation.line}" for citation in self.citations)
        return f"{', '.join(part for part in parts if part)}: {self.why}{f' ({lines})' if lines else ''}"


@dataclass(frozen=True, slots=True)
class Rival:
    """Another explanation that was weighed."""

    reason: str
    confidence: float
    """0..1."""
    speaks_for: str
    speaks_against: str
    test: str
    """The cheapest check that would decide."""


@dataclass(frozen=True, slots=True)
class Recall:
    """A past incident that looks like this one."""

    incident: int
    reason: str
    similarity: float
    """0..1."""
    shared: tuple[str, ...]
    """What both have: words or masked lines, the most telling first."""
    cure: str
    """What brought that job back; empty where nothing did or nobody knows."""
    at: datetime


@dataclass(frozen=True, slots=True)
class NodePattern:
    """Evidence across nodes, time and incidents. It says where to look; it never sets a node aside by itself."""

    kind: PatternKind
    nodes: tuple[str, ...]
    text: str
    """One sentence with its figures."""
    chance: float | None = None
    """0..1: how likely that much is by chance, corrected for the number of things looked at; None where nothing was tested."""
    incidents: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sighting:
    """A node of a job that failed of infrastructure, as the ledger keeps it."""

    node: str
    incident: int
    at: datetime
    reason: str
    blamed: bool
    of: int
    """Nodes of the job."""
    traits: Mapping[str, str]
    """What may be shared: rack, switch, partition, driver, by name."""
    heat: Mapping[str, float]
    """Degrees Celsius: `gpu` (the hottest), `inlet`; empty where nothing was read."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why an attempt failed, and the evidence for that."""

    reason: str
    category: Category
    action: Action
    confidence: float
    """0..1."""
    by: DecidedBy
    root_cause: tuple[Citation, ...]
    nodes: tuple[NodeFinding, ...]
    rivals: tuple[Rival, ...]
    summary: str
    """One sentence for a person woken at night."""
    advice: str
    """What to do, for the operator or the owner of the job."""
    step: int | None = None
    """Last training step seen before the failure."""
    spike_step: int | None = None
    """First step of a loss spike."""
    seen_before: tuple[Recall, ...] = ()
    """Past incidents like this one, most alike first."""
    phase: str = ""
    """start, loading, first_step, training, evaluation, checkpoint or end; empty when unknown."""
    patterns: tuple[NodePattern, ...] = ()
    """What neighbours, time and the ledger of nodes add."""
    where: tuple[Whereabouts, ...] = ()
    """Where it happened, what raised the error first; `nodes` says who is at fault."""
    tail: str = ""
    """What failed behind the end of the training: upload, export, report; empty where the training itself failed."""

    @property
    def faulty_nodes(self) -> tuple[str, ...]:
        """Names of the nodes to blame, in order of evidence."""
        return tuple(finding.node for finding in self.nodes)

    @property
    def reason_shown(self) -> str:
        """The reason as people see it, with its category unless that blames a machine for what the owner has to change."""
        blames = self.category is Category.INFRASTRUCTURE and self.action is Action.FIX_AND_RESUBMIT and not self.nodes
        return self.reason if blames else f"{self.reason} ({self.category})"


@dataclass(frozen=True, slots=True)
class LearnedRule:
    """A rule that was not shipped: where it comes from, how it fares."""

    id: str
    """`<reason>.learned-<n>` for a signature, `learned.<word>-<n>` for a filter; unique, never used again."""
    kind: RuleKind
    pattern: str
    """Compiles in Hyperscan and `re`."""
    examples: tuple[str, ...]
    """The lines it was made from; it must match each."""
    of: str
    """The reason it speaks for; what a filter folds."""
    state: RuleState
    by: str
    """Who proposed it: `operator:alice`, `memory`, `model:<name>`, `templates`."""
    why: str
    """What it rests on, for people; a refused one says what its proof found."""
    made: datetime
    incident: int | None = None
    task: str = ""
    """Key of the task whose logs it was made from; empty: any task."""
    source: str = "job"
    """Where the line stands: `job`, `kernel` or `scheduler`."""
    weight: float = 0.7
    """0..1, as of a signature."""
    hits: int = 0
    """Cases in which it matched and the reason was confirmed; for a filter lines folded."""
    misses: int = 0
    """Cases in which it matched and another reason was confirmed."""
