"""What an evaluation consists of: datasets, pieces of them, trials, and what of them is left to do.

Seconds are of one slot (one GPU), items count from 0. Left are the ranges of items without an output that nobody works on; it is
said how long they take, and how they are cut. Nothing here reads or writes a file.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median


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


FEW = 3
"""So many datasets must have been seen before they say something about the others."""
CLOSE_FACTOR = 1.5
"""An estimate that far off or less is good enough."""


def gaps(dataset: Dataset, covered: Iterable[Piece]) -> list[Piece]:
    """Return the ranges of a dataset that no piece covers; all of one that cannot be split, unless it is covered."""
    spans = sorted((piece.first, piece.last) for piece in covered if piece.dataset == dataset.name)
    missing, at = list[Piece](), 0
    for first, last in spans:
        if first > at:
            missing.append(Piece(dataset.name, at, first))
        at = max(at, last)
    if at < dataset.items:
        missing.append(Piece(dataset.name, at, dataset.items))
    if missing and not dataset.split:
        return [Piece(dataset.name, 0, dataset.items)]
    return missing


def is_complete(dataset: Dataset, finished: Iterable[Piece]) -> bool:
    """Whether all items of a dataset have an output."""
    return not gaps(dataset, finished)


def corrected(
    estimates: Mapping[str, Estimate], measurements: Sequence[PieceTime], items: Mapping[str, int]
) -> dict[str, Estimate]:
    """Return estimates after what was measured: a dataset's own seconds count most, for others what all have in common.

    Args:
        estimates: Before the run.
        measurements: Pieces that are done.
        items: Of each dataset.
    """
    seconds: dict[str, float] = {}
    counts: dict[str, int] = {}
    for piece_time in measurements:
        name = piece_time.piece.dataset
        seconds[name] = seconds.get(name, 0.0) + piece_time.infer_s
        counts[name] = counts.get(name, 0) + piece_time.piece.items
    measured = {name: seconds[name] / max(1, counts[name]) * items[name] for name in seconds}
    ratios = [measured[name] / estimates[name].infer_s for name in measured if estimates[name].infer_s > 0]
    common = median(ratios) if len(ratios) >= FEW else 1.0
    corrected_estimates = {}
    for name, before in estimates.items():
        corrected_estimates[name] = replace(before, infer_s=measured.get(name, before.infer_s * common))
    return corrected_estimates


def is_far(before: Mapping[str, Estimate], now: Mapping[str, Estimate], names: Iterable[str]) -> bool:
    """Whether estimates of some datasets moved by so much that the plan should be made anew."""
    for name in names:
        old, new = max(before[name].infer_s, 1e-9), max(now[name].infer_s, 1e-9)
        if max(old / new, new / old) > CLOSE_FACTOR and max(old, new) > 1.0:
            return True
    return False


def seconds_of(piece: Piece, estimates: Mapping[str, Estimate], items: Mapping[str, int]) -> float:
    """Return how long a piece should take on the GPU."""
    estimate = estimates[piece.dataset]
    return estimate.prepare_s + estimate.infer_s * piece.items / max(1, items[piece.dataset])


_FEELERS = (1 / 64, 1 / 16, 1 / 4)
"""Of a range, ends of its first pieces: that it takes a hundred times what was expected is found out after a sixty-fourth."""


@dataclass(slots=True, eq=False)
class Work:
    """A range of a dataset with what it is expected to take; never changed once made."""

    dataset: Dataset
    first: int
    last: int
    item_s: float
    prepare_s: float
    metric_s: float
    """Of the whole dataset: it is computed when its last piece is there."""
    is_measured: bool
    """Whether what is expected was measured."""
    infer_s: float = field(init=False)
    """Seconds on the GPU without preparing."""
    seconds: float = field(init=False)
    """Seconds on the GPU."""

    def __post_init__(self) -> None:
        self.infer_s = (self.last - self.first) * self.item_s
        self.seconds = self.prepare_s + self.infer_s

    @property
    def can_be_cut(self) -> bool:
        """Whether two trials could share it."""
        return self.dataset.split and self.last - self.first > 1 and self.item_s > 0

    def part(self, first: int, last: int) -> Work:
        """Return a range of it."""
        return Work(self.dataset, first, last, self.item_s, self.prepare_s, self.metric_s, self.is_measured)

    def edges(self, most_s: float) -> list[int]:
        """Return where to cut it so that no part has more seconds of inference than so many, as far as items allow."""
        items = self.last - self.first
        parts = 1
        if self.can_be_cut and self.infer_s > most_s:
            parts = min(items, math.ceil(self.infer_s / max(most_s, self.item_s)))
        return [self.first + items * n // parts for n in range(parts + 1)]

    def cut(self, most_s: float) -> list[Work]:
        """Return it in parts of about the same size, none with more seconds of inference than so many, as far as items allow."""
        edges = self.edges(most_s)
        return [self] if len(edges) == 2 else [self.part(first, last) for first, last in itertools.pairwise(edges)]

    def pieces(self, most_s: float, *, feel_out: bool = False) -> list[Piece]:
        """Return the same as pieces; to feel out how long they take, small ones come first."""
        edges = self.edges(most_s)
        if feel_out and self.dataset.split:
            edges = sorted({*edges, *(self.first + round((self.last - self.first) * share) for share in _FEELERS)})
        return [Piece(self.dataset.name, first, last) for first, last in itertools.pairwise(edges)]

    def cut_off(self, seconds: float) -> tuple[Work, Work] | None:
        """Return it parted so that the second part takes about so many seconds of inference; None where either would be empty."""
        items = int(seconds / self.item_s) if self.can_be_cut else 0
        if not 0 < items < self.last - self.first:
            return None
        return self.part(self.first, self.last - items), self.part(self.last - items, self.last)


def open_work(datasets: Iterable[Dataset], estimates: Mapping[str, Estimate], done_pieces: Iterable[Piece]) -> list[Work]:
    """Return the ranges that are left, in the order of the datasets.

    Args:
        datasets: Of the suite; the items of each are counted from 0.
        estimates: By their names.
        done_pieces: Pieces that need not be done; they may overlap. A dataset that cannot be split is left whole until all of
            it is done.
    """
    by_dataset: dict[str, list[Piece]] = defaultdict(list)
    for piece in done_pieces:
        by_dataset[piece.dataset].append(piece)
    works: list[Work] = []
    for dataset in datasets:
        estimate = estimates[dataset.name]
        ranges = _gaps(dataset.items, by_dataset[dataset.name])
        if ranges and not dataset.split:
            ranges = [(0, dataset.items)]
        works += [work_of(dataset, estimate, first, last) for first, last in ranges]
    return works


def work_of(dataset: Dataset, estimate: Estimate, first: int, last: int) -> Work:
    """Return a range of a dataset with its part of what all of it takes."""
    item_s = estimate.infer_s / dataset.items
    return Work(dataset, first, last, item_s, estimate.prepare_s, estimate.metric_s, estimate.runs > 0)


def _gaps(items: int, done_pieces: list[Piece]) -> list[tuple[int, int]]:
    gaps: list[tuple[int, int]] = []
    at = 0
    for piece in sorted(done_pieces, key=lambda done_piece: done_piece.first):
        if piece.first > at:
            gaps.append((at, min(piece.first, items)))
        at = max(at, piece.last)
    if at < items:
        gaps.append((at, items))
    return [(first, last) for first, last in gaps if first < last]
