"""What a scheduler and a trainer show: jobs, nodes, reservations, checkpoints, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from assistant.records.processes import ProcessReport
from assistant.records.words import JobState, NodeState

HELD_REASON = "JobHeld"
"""What Slurm's reasons for a held job begin with: `JobHeldUser`, `JobHeldAdmin`."""
REQUEUED_HELD = "job requeued in held state"
"""Slurm's reason for a job behind `scontrol requeuehold`; squeue writes it with underscores."""


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
    """Carries `nightshift:<store>:<incident>:<call>` on jobs that we submitted."""
    time_limit_s: int | None = None
    options: tuple[str, ...] = ()
    """More options of the scheduler's own submit command, as words; kept from the first submission."""
    arguments: tuple[str, ...] = ()
    """Arguments of the script."""
    hold: bool = False
    """Whether it waits, once submitted, until it is released: nothing of it runs before."""
    doubt: str = ""
    """Why a new submission would not be the same job, for people: the scheduler kept too little. Empty where it would be."""
    environment_lost: bool = False
    """Whether it was given variables of the shell that submitted it, of which the scheduler keeps none."""


@dataclass(frozen=True, slots=True)
class JobStep:
    """One `srun` of a job, as the accounting keeps it."""

    id: str
    """`12.0`, `12_3.1`, `12+1.0`; the batch script itself is none."""
    state: JobState
    exit_code: int | None
    signal: int | None
    command: str
    """The line that started it, its words joined by blanks; empty where the accounting does not keep it."""


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
    step_exit_code: int | None = None
    """The highest of its steps; None where the scheduler does not tell. A script may go on behind a step that failed."""
    steps: tuple[JobStep, ...] = ()
    """Of an attempt that ended badly, in the order in which they began; empty where nobody keeps them."""
    account: str = ""
    """The account of this machine with whose rights its files are read; empty where its processes run with our own."""
    expected_start: datetime | None = None
    """When the scheduler expects a pending job to begin; None where it does not say."""
    raw_id: str = ""
    """The scheduler's id that each task of an array has for itself, as in `%j` and SLURM_JOB_ID; empty: the same as `id`."""
    error_log: Path | None = None
    """Standard error where it is not in `log`."""
    discards: tuple[str, ...] = ()
    """Streams that the scheduler writes to /dev/null: `standard output`, `standard error`."""
    appends: bool = False
    """Whether `log` and `error_log` keep what stood there before the attempt; Slurm cuts it off unless it is told to append."""
    site_logs: tuple[str, ...] = ()
    """Patterns of logs that the site's settings name for every job."""
    dependency: str = ""
    """Of a pending job, as the scheduler shows it: `afternotok:12(unfulfilled)`; empty where nothing of it is unfulfilled."""
    interactive: bool = False
    """Whether it is an allocation of salloc or srun, without a batch script: it cannot be submitted again."""
    dated_logs: bool = False
    """Whether times of files can be compared with `started` and `ended`: not where time is simulated or a job is replayed."""
    processes: ProcessReport | None = None
    """What its processes were seen to write in this attempt, as the store keeps it; None where no look was taken."""
    never_requeued: bool = False
    """Whether the scheduler never queues it again by itself: `--no-requeue`, or preempted for good; False where it does not say."""
    ended_by: str = ""
    """Who cancelled it, as the scheduler names them: an account, or `uid 2001`; empty where it does not say."""
    hidden_failure: str = ""
    """What its log proves of a training that failed although the scheduler calls it completed; empty where nothing is known."""

    @property
    def ended_badly(self) -> bool:
        """Whether the scheduler or its log calls it failed in any way, or it ended by itself with a code that is not zero."""
        if self.state in (JobState.FAILED, JobState.NODE_FAIL, JobState.OUT_OF_MEMORY, JobState.TIMEOUT):
            return True
        return self.state is JobState.COMPLETED and bool(self.exit_code or self.signal or self.hidden_failure)

    @property
    def over(self) -> datetime | None:
        """When the last of it was over, as far as is known; None where it has not ended.

        That is `ended`, or the last look at processes that lived on after it: a scheduler that loses a node calls the job ended
        while its program may go on there.
        """
        if self.ended is None or self.processes is None:
            return self.ended
        return max(self.ended, self.processes.at)

    @property
    def held(self) -> bool:
        """Whether it waits until somebody releases it."""
        return self.state is JobState.PENDING and (self.reason.startswith(HELD_REASON) or self.requeued_held)

    @property
    def requeued_held(self) -> bool:
        """Whether it was queued again under its own id and waits until somebody releases it."""
        return self.state is JobState.PENDING and self.reason.replace("_", " ") == REQUEUED_HELD


def partition_names(text: str) -> tuple[str, ...]:
    """Return the names in a partition field of a node or a waiting job, which may be a list: `train,eval`."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


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
    window: bool = False
    """Whether it is out only for the time of a reservation, such as maintenance: jobs may wait for it."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """Names of the partitions that the node belongs to; Slurm writes several as `train,eval`."""
        return partition_names(self.partition)


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
    """Why it must not be loaded, or why nobody can say that it may; empty when healthy."""
    unread: str = ""
    """What of it no reader knows, so that it was not judged; where it is healthy, `grounds` stand for that."""
    grounds: tuple[str, ...] = ()
    """What speaks for one that was not judged."""
    undecided: bool = False
    """Whether it was not judged and nothing stands for it: it is neither whole nor refused, and a person decides."""


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
    batch: int | None = None
    """Samples of the step over all ranks."""
    counted: bool = False
    """Whether the step was only counted on from line to line: it is not to be compared with that of a checkpoint."""
    epoch: int | None = None
    """Number of the epoch, as the line says it; None where it does not."""
