"""What a simulated evaluation is told, what its planner may know, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from assistant.evaluation.records import Machines, Piece, Trial

__all__ = [
    "BegunTrial",
    "FleetChange",
    "Orders",
    "PhaseSpan",
    "Planner",
    "ReplayOutcome",
    "ReplayPhase",
    "ReplaySituation",
    "Rules",
]


class ReplayPhase(StrEnum):
    """What holds a GPU or a processor."""

    LOAD = "load"
    PREPARE = "prepare"
    INFER = "infer"
    METRIC = "metric"
    """On the GPU that inferred."""
    APART = "apart"
    """A metric on a processor, with no GPU."""


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """What held one GPU or processor of a node, and how long."""

    node: int
    slot: int
    phase: ReplayPhase
    begin: float
    end: float
    piece: Piece | None = None
    """None for loading; of a metric its dataset, whole."""
    whole: bool = True
    """False: the node was lost before its end."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How trials work."""

    staged: bool
    """Each node reads the model once into its memory; else each trial reads it from remote storage."""
    apart: bool
    """Metrics are computed on processors; else by the trial that made the last output of a dataset, which holds its GPU."""


@dataclass(frozen=True, slots=True)
class FleetChange:
    """A node goes or comes."""

    at_s: float
    node: int
    lost: bool


@dataclass(frozen=True, slots=True)
class BegunTrial:
    """A trial that has its GPUs."""

    number: int
    piece: Piece | None
    """What it is at; None while it loads or when it is just done with one."""
    seconds: float
    """For how long."""
    gpus: int
    unbegun: Sequence[Piece]
    """What it still has behind that."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a planner wants."""

    trials: Sequence[Trial]
    """Instead of those that wait."""
    withdrawn: Mapping[int, Sequence[Piece]]
    """By the number of a trial, pieces that it has not begun and that are in other trials now."""


@dataclass(frozen=True, slots=True)
class ReplaySituation:
    """What a planner may know when it is asked for other trials."""

    now: float
    machines: Machines
    """With the nodes that there are now."""
    completed: Sequence[Piece]
    running: Callable[[], Sequence[BegunTrial]]
    """Lists the trials that have their GPUs: a function, for most pieces change nothing and the list is long."""
    waiting: Sequence[Trial]
    idle: int
    """GPUs that nothing waits for."""
    measured: Sequence[tuple[Piece, float]]
    """Seconds of inference of each piece done."""
    nodes_changed: bool


Planner = Callable[[ReplaySituation], Orders | None]
"""Asked when a piece or a trial is done and when nodes change; None leaves all as it is."""


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What came of it."""

    makespan_s: float
    """Until the last output and score; infinite where no node was left to make them."""
    spans: Sequence[PhaseSpan]
    reads: Sequence[tuple[float, Mapping[int, tuple[int, float]]]]
    """When the sharing of the storage changed: readers of each node and the rate of each."""
    trials: int

    @property
    def gpu_hours(self) -> float:
        """Hours for which GPUs were held."""
        return sum(span.end - span.begin for span in self.spans if span.phase is not ReplayPhase.APART) / 3600
