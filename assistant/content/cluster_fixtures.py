"""Fixtures of a playbook that are played on the simulated cluster: what a job does there, and what must come of it.

Plain data: `cli/playbooks.py` turns it into a cluster, an engine and a job. The keys of a run are those of the simulated
cluster's.

    [fixture.cluster]
    runs    = [{ fails_at = 50, only_on = "node02", lines = ["..."] }]
    happens = [{ after_s = 20, what = "cordon node03" }]
    changes = ["cordon node02", "submit 2"]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from assistant.records import IncidentState, JobState

HAPPENINGS = {
    "ask": "a job id: a person asks for help with it, where no watch would notice anything",
    "submit": "a job id: its owner submits the same again",
    "slow": "a job id: somebody measured that it has become slow",
    "cancel": "a job id: a person ends it",
    "requeue": "a job id: the scheduler puts it back in the queue, after a preemption",
    "cordon": "a node: a person takes it out",
    "down": "a node: it dies, with the job on it",
    "up": "a node: it comes back",
    "storage_away": "nothing: the checkpoint folder does not answer",
    "storage_back": "nothing: it answers again",
    "scheduler_away": "nothing: the scheduler does not answer",
    "scheduler_back": "nothing: it answers again",
}
"""What may happen that is not the job's doing, and what stands behind the word."""


@dataclass(frozen=True)
class FixtureRun:
    """What one submission of the job does; all keys as in the simulated cluster's `SimulatedRun`."""

    steps: int = 100
    """Last step of the whole training; a step takes a second."""
    save_every: int = 20
    cut: tuple[int, ...] = ()
    """Steps whose checkpoints are damaged."""
    fails_at: int | None = None
    """The step after which it ends badly."""
    hangs_at: int | None = None
    """The step after which nothing happens any more."""
    spikes_at: int | None = None
    """The step from which the loss is high, unless its samples are skipped."""
    lines: tuple[str, ...] = ()
    """What the log says when it ends badly, or at `says_at`."""
    says_at: int | None = None
    """The step after which the log says them while training goes on."""
    kernel: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Lines for the kernel logs of nodes then."""
    downs: str | None = None
    """The node that dies then."""
    only_on: str | None = None
    """Ends badly only when this node is among its own."""
    state: JobState = JobState.FAILED
    exit_code: int | None = 1
    signal: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 1 or self.save_every < 1:
            raise ValueError(f"a run makes and saves steps: steps = {self.steps}, save_every = {self.save_every}")
        for key in ("fails_at", "hangs_at", "spikes_at", "says_at"):
            step = getattr(self, key)
            if step is not None and not 0 <= step <= self.steps:
                raise ValueError(f"{key} = {step} is no step of a run with steps = {self.steps}")
        if not self.state.ended:
            raise ValueError(f"state = {self.state} is no end of a run")


@dataclass(frozen=True)
class Happening:
    """Something that a person, the scheduler or the machines do."""

    what: str
    """A word of `HAPPENINGS` and what it is about: `cancel 1`, `cordon node03`, `storage_away`."""
    after_s: float = 0.0
    """Seconds after the job was submitted."""

    def __post_init__(self) -> None:
        needs = HAPPENINGS.get(self.word)
        if needs is None:
            raise ValueError(f"what = {self.what!r} begins with none of: {', '.join(HAPPENINGS)}")
        if bool(self.about) is needs.startswith("nothing") or " " in self.about:
            raise ValueError(f"what = {self.what!r}: behind {self.word} stands {needs.partition(':')[0]}")

    @property
    def word(self) -> str:
        """What happens."""
        return self.what.partition(" ")[0]

    @property
    def about(self) -> str:
        """The job or node that it happens to; empty for storage and scheduler."""
        return self.what.partition(" ")[2]


@dataclass(frozen=True)
class ClusterFixture:
    """A job on the simulated cluster, and what must come of it; how its incident ends stands in the fixture."""

    runs: tuple[FixtureRun, ...]
    """What each submission of the job does; the last one repeats, `{}` trains to its end."""
    changes: tuple[str, ...]
    """What Nightshift changed on the cluster, in order: "cordon node02", "cancel 1", "submit 2"."""
    note: str = ""
    """Words that the note of the first incident must contain."""
    later: tuple[IncidentState, ...] = ()
    """How the incidents after the first ended."""
    restart_step: int | None = None
    """Step that the last submission began with."""
    excluded: tuple[str, ...] | None = None
    """Nodes that the last submission stays away from."""
    skipped: tuple[int, ...] | None = None
    """First step whose data the last submission leaves out, and the first one that counts again."""
    happens: tuple[Happening, ...] = ()
    nodes: int = 8
    """Of the cluster: node01, node02, …"""
    job_nodes: int = 2
    """Of the job; it gets the first ones that are free."""
    time_limit_s: int | None = None
    directives: str = ""
    """More for the script's `#NIGHTSHIFT` line: "act=never restarts=1"."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("runs names no run: say what the job does")
        if not 1 <= self.job_nodes <= self.nodes:
            raise ValueError(f"job_nodes = {self.job_nodes} do not fit on nodes = {self.nodes}")
        names = self.node_names
        unknown = [node for node in self._named_nodes() if node not in names]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is none of {names[0]} to {names[-1]}")

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the cluster's nodes, in order."""
        return tuple(f"node{number:02}" for number in range(1, self.nodes + 1))

    def _named_nodes(self) -> Iterator[str]:
        for run in self.runs:
            yield from (node for node in (run.only_on, run.downs) if node is not None)
            yield from run.kernel
        yield from (happening.about for happening in self.happens if HAPPENINGS[happening.word].startswith("a node"))
