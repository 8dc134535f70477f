"""What an evaluation is made of: datasets, pieces of them, trials. Seconds are of one slot (one GPU), items count from 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds that a dataset is expected to take, all of its items."""

    prepare_s: float
    """Reading and tokenising it, while the GPU waits; saved where another piece of it was prepared on the same node."""
    infer_s: float
    """On the GPU, without loading the model."""
    metric_s: float
    """On one CPU, after the output is there."""
    runs: int = 0
    """Past runs that it rests on; 0: the prior alone."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset of a suite."""

    name: str
    items: int
    infer: str
    """Command of inference, a template; see `commands`."""
    metric: str = ""
    """Command of the metric; empty where inference scores by itself."""
    data: str = ""
    """Path of the data; empty where the command finds it by the name."""
    gpus: int = 1
    split: bool = True
    """Whether a range of its items can be evaluated alone."""
    metric_timeout_s: float = 1800.0
    sandbox: bool = False
    """Whether the metric runs programs that the model wrote."""
    infer_s: float | None = None
    """What the author of the suite expects; None: the prior of its name, or of its size."""
    metric_s: float | None = None
    prepare_s: float | None = None


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """A range of a dataset's items: `first` <= item < `last`."""

    dataset: str
    first: int
    last: int

    @property
    def items(self) -> int:
        """How many items it has."""
        return self.last - self.first

    @property
    def id(self) -> str:
        """Name of its output: unique, safe in a path where the dataset's name is."""
        return f"{self.dataset}.{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class PieceTime:
    """Seconds that a finished piece took."""

    piece: Piece
    infer_s: float
    """With reading and tokenising it, where the command did not tell how long that took."""
    prepare_s: float = 0.0
    """0: the command did not tell, or the node had it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The pieces that one GPU job evaluates, in this order."""

    pieces: tuple[Piece, ...]
    seconds: float
    """Expected on the GPU, without loading the model."""
    tail_s: float
    """Expected seconds of the longest metric that follows from it."""
    gpus: int = 1


@dataclass(frozen=True, slots=True)
class Machines:
    """The nodes, GPUs and processors that an evaluation may use, and how fast they load."""

    nodes: int
    gpus_per_node: int
    cpus_per_node: int
    """For metrics."""
    load_s: float
    """From the node's memory into one GPU."""
    fetch_s: float
    """From remote storage into a node's memory or one GPU, when nobody else reads."""


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """Trials in the order in which free slots take them; planned seconds are of the estimates."""

    trials: Sequence[Trial]
    makespan_s: float
    bound_s: float
    """No schedule of this instance can be shorter."""
