"""What flows through Nightshift: one frozen record a thing, and the closed lists of words.

An `Event` opens an `Incident`; reading calls bring `Evidence`; diagnosis turns evidence into a `Diagnosis`; a playbook turns
that into `Call`s; the gate answers each with a `Decision` and an `Outcome`. Nothing here does anything.
Timestamps are aware UTC datetimes. Ids are positive integers given by the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any


class Risk(IntEnum):
    """What a call may do to the cluster, mildest first."""

    READ = 0
    """Leaves everything as it is."""
    CHANGE = 1
    """Changes something that its undo brings back: a cordon, a new job."""
    DISRUPT = 2
    """Ends something that runs: a cancel, a requeue."""


class Category(StrEnum):
    """The three families of failures of arXiv 2403.07648, Table 3, and `none` for what is no failure."""

    INFRASTRUCTURE = "infrastructure"
    FRAMEWORK = "framework"
    SCRIPT = "script"
    NONE = "none"


class Action(StrEnum):
    """What is to be done about a failure."""

    RESTART_SAME_NODES = "restart_same_nodes"
    CORDON_AND_RESTART = "cordon_and_restart"
    ROLLBACK_AND_SKIP_DATA = "rollback_and_skip_data"
    WAIT_AND_RETRY = "wait_and_retry"
    FIX_AND_RESUBMIT = "fix_and_resubmit"
    """A person must change something first."""
    NONE = "none"


class JobState(StrEnum):
    """State of a job, in Slurm's words, lower case."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    NODE_FAIL = "node_fail"
    OUT_OF_MEMORY = "out_of_memory"
    PREEMPTED = "preempted"
    UNKNOWN = "unknown"
    """The scheduler did not answer; neither gone nor failed."""

    @property
    def ended(self) -> bool:
        """Whether the attempt is over; False for `unknown`."""
        return self not in (JobState.PENDING, JobState.RUNNING, JobState.UNKNOWN)

    @property
    def failed(self) -> bool:
        """Whether the attempt ended by a failure (not by completion, a person or preemption)."""
        return self in (JobState.FAILED, JobState.NODE_FAIL, JobState.OUT_OF_MEMORY, JobState.TIMEOUT)


class NodeState(StrEnum):
    """State of a node as far as placing jobs is concerned."""

    IDLE = "idle"
    ALLOCATED = "allocated"
    DRAINING = "draining"
    """Cordoned, jobs still running."""
    DRAINED = "drained"
    DOWN = "down"
    UNKNOWN = "unknown"


class IncidentState(StrEnum):
    """Where an incident stands; the order is the order of the pipeline."""

    OPEN = "open"
    DIAGNOSED = "diagnosed"
    RECOVERING = "recovering"
    WAITING = "waiting"
    """Parked until somebody answers an approval."""
    VERIFYING = "verifying"
    RECOVERED = "recovered"
    ESCALATED = "escalated"
    """Handed to a person, with the reason why."""
    CLOSED = "closed"
    """Nothing had to be done."""

    @property
    def ended(self) -> bool:
        """Whether nobody will work on it any more."""
        return self in (IncidentState.RECOVERED, IncidentState.ESCALATED, IncidentState.CLOSED)


class EventKind(StrEnum):
    """What a watch, or a person, noticed."""

    JOB_ENDED = "job_ended"
    """The scheduler says that the attempt failed."""
    HANG = "hang"
    LOSS_SPIKE = "loss_spike"
    SLOW_JOB = "slow_job"
    NODE_DOWN = "node_down"
    NODE_KEPT_OUT = "node_kept_out"
    """Its cordon was renewed so often that a person must decide about it."""
    REQUESTED = "requested"
    """A person asked for it."""


class DecidedBy(StrEnum):
    """Who made a diagnosis."""

    RULE = "rule"
    MEMORY = "memory"
    MODEL = "model"
    OPERATOR = "operator"


class RuleKind(StrEnum):
    """What a learned rule is for."""

    SIGNATURE = "signature"
    """A line that speaks for a reason."""
    FILTER = "filter"
    """Routine lines that compression folds."""


class RuleState(StrEnum):
    """The life of a learned rule."""

    PROPOSED = "proposed"
    """Written, its proof failed or was not made: it does nothing."""
    TRIAL = "trial"
    """Proven; it counts, and what it says is compared with what is found in the end."""
    ACTIVE = "active"
    """It was right often enough."""
    RETIRED = "retired"
    """Taken out: by misses, or by a person."""

    @property
    def counts(self) -> bool:
        """Whether rules in this state take part in scanning."""
        return self in (RuleState.TRIAL, RuleState.ACTIVE)


class Verdict(StrEnum):
    """The policy's answer to a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class CallStatus(StrEnum):
    """How far a call came. `intent` after a crash means unknown: look it up, never repeat it blindly."""

    PENDING = "pending"
    """Waits for an approval."""
    INTENT = "intent"
    """Written, about to run."""
    DONE = "done"
    FAILED = "failed"
    DENIED = "denied"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True)
class Event:
    """Something was noticed."""

    kind: EventKind
    job: str | None
    node: str | None
    at: datetime
    detail: Mapping[str, Any] = field(default_factory=dict)
    """JSON values only."""
    attempt: int = 0
    """How often the same job id had been requeued before; 0 for the first run."""


@dataclass(frozen=True, slots=True)
class Incident:
    """An open case about one job attempt or one node."""

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
class Citation:
    """A line that was read, quoted with its place."""

    file: str
    """Name inside the case: `job.log`, `dmesg.log`, `slurmctld.log`, `metrics.jsonl`."""
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


class PatternKind(StrEnum):
    """What nodes have in common or against them, beyond one incident's own lines."""

    FIRST = "first"
    """One failed before the others."""
    DIFFERS = "differs"
    """One reads otherwise than its neighbours."""
    REPEAT = "repeat"
    """One was to blame before."""
    SUSPECT = "suspect"
    """One was there too often when nobody was named."""
    SHARED = "shared"
    """Those to blame sit in one rack, on one switch, run one driver."""
    HEAT = "heat"
    """Those to blame were hotter than their neighbours."""


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
    """Why an attempt failed, with what that rests on."""

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

    @property
    def faulty_nodes(self) -> tuple[str, ...]:
        """Names of the nodes to blame, in order of evidence."""
        return tuple(finding.node for finding in self.nodes)


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


@dataclass(frozen=True, slots=True)
class Call:
    """A tool, its arguments, why, and for which incident."""

    id: int
    incident: int | None
    tool: str
    arguments: Mapping[str, Any]
    why: str
    by: str
    """The door or component that asked: `cli:alice`, `playbook:ecc_error`, `agent`."""
    at: datetime
    status: CallStatus
    step: str | None = None
    """Name of the playbook step it belongs to, unique within an incident."""
    preview: str = ""
    """The exact command or change, as a person would type it."""


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call."""

    call: int
    ok: bool
    value: Any
    """JSON value: a playbook reads it with `{step.key}`."""
    error: str
    at: datetime


@dataclass(frozen=True, slots=True)
class JobSpec:
    """All that is needed to submit a job, again and again."""

    name: str
    script: str
    """Text of the batch script; `#NIGHTSHIFT` lines in it speak to us."""
    nodes: int = 1
    ranks_per_node: int = 1
    work_dir: Path = Path()
    log: str | None = None
    """Path, may hold Slurm's `%j`; None lets the scheduler choose."""
    partition: str = ""
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    comment: str = ""
    """Carries `nightshift:<incident>:<call>` on jobs that we submitted."""
    time_limit_s: int | None = None
    options: tuple[str, ...] = ()
    """More options of the scheduler's own submit command, as words; kept from the first submission."""
    arguments: tuple[str, ...] = ()
    """Arguments of the script."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the scheduler shows it."""

    id: str
    name: str
    user: str
    state: JobState
    partition: str
    nodes: tuple[str, ...]
    log: Path | None
    work_dir: Path | None
    submitted: datetime | None
    started: datetime | None
    ended: datetime | None
    exit_code: int | None
    signal: int | None
    attempt: int = 0
    comment: str = ""
    reason: str = ""
    """The scheduler's own words on why it is in this state."""
    spec: JobSpec | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the scheduler shows it."""

    name: str
    state: NodeState
    partition: str = ""
    reason: str = ""
    jobs: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    """The site's own words for what it has: `a100`, `rack7`."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that the scheduler keeps for some users."""

    name: str
    nodes: tuple[str, ...]
    users: tuple[str, ...]
    start: datetime | None
    end: datetime | None
    active: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk and what its files tell about it."""

    path: Path
    step: int
    format: str
    size_bytes: int
    saved_at: datetime
    healthy: bool
    problems: tuple[str, ...]
    """Why it must not be loaded; empty when healthy."""


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """Training metrics of one optimiser step; NaN and inf are kept."""

    step: int
    loss: float | None
    grad_norm: float | None
    line: int
    """1-based line it stands on."""
    at: datetime | None = None
    seconds: float | None = None
    """Time the step took."""
