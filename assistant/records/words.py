"""The closed lists of words."""

from __future__ import annotations

from enum import IntEnum, StrEnum


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
    CHECKPOINTS_LATE = "checkpoints_late"
    """It makes steps, and no checkpoint for several of its own intervals: a failure now costs more than it should."""
    OUTAGE = "outage"
    """Several jobs failed of one service, path, node or error; it is about that, its detail names the jobs."""
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
