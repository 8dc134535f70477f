"""What an evaluation consists of: datasets, pieces of them, trials, what of them is left to do, and the storage that all read.

Seconds are of one slot (one GPU), items count from 0. Left are the ranges of items without an output that nobody works on; it is
said how long they take, and how they are cut. Nothing here reads or writes a file.
"""

from __future__ import annotations

import heapq
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


# What trials that run longer than the others should give up: pieces that they have not begun, from their end. Pure.
#
# A trial may come to have less left than the others: what is taken is planned again, cut anew, and may come back to its slot.

_SLACK = 0.05
"""Of what each slot still has to do: less of a difference is not worth another trial."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What a running trial still has to do."""

    begun_s: float
    """Expected seconds until it is done with what it is at."""
    unbegun: Sequence[tuple[Piece, float]]
    """In the order in which it takes them, with expected seconds."""
    gpus: int = 1

    @property
    def left_s(self) -> float:
        """Expected seconds until its slot is free."""
        return self.begun_s + sum(seconds for _, seconds in self.unbegun)


def to_shed(running: Mapping[int, Holding], waiting_s: float, slots: int, load_s: float) -> dict[int, list[Piece]]:
    """Return which pieces to take from which trials, so that none runs on when all others are done.

    Args:
        running: By a number of the caller's.
        waiting_s: Expected seconds of all trials that wait for a slot, each times its GPUs.
        slots: All GPUs, those that are free among them.
        load_s: What another trial costs first; for less nothing is taken.
    """
    fair = (sum(holding.left_s * holding.gpus for holding in running.values()) + waiting_s) / max(1, slots)
    shed_pieces: dict[int, list[Piece]] = {}
    for number, holding in running.items():
        if holding.left_s <= fair * (1 + _SLACK) + 2 * load_s:
            continue
        pieces: list[Piece] = []
        taken_s = 0.0
        for piece, seconds in reversed(holding.unbegun):
            if holding.left_s - taken_s <= fair:
                break
            pieces.append(piece)
            taken_s += seconds
        if taken_s > load_s:
            shed_pieces[number] = pieces[::-1]
    return shed_pieces


# Remote storage that readers share fairly: each node's network card is a limit, the storage behind all of them another.
#
# Max-min fair: no reader could get more without taking it from one that has no more than itself. Readers of one node are alike,
# so the rates follow from how many each node has.


@dataclass(frozen=True, slots=True)
class Storage:
    """Where models lie; rates in bytes a second."""

    model_bytes: float
    nic: float
    """Of one node."""
    shared: float = math.inf
    """Of all nodes together."""
    reader: float = math.inf
    """Of one reader alone."""

    @property
    def fetch_s(self) -> float:
        """Seconds to read the model when nobody else reads."""
        return self.model_bytes / min(self.nic, self.shared, self.reader)


def fair_rates(readers: Mapping[int, int], storage: Storage) -> dict[int, float]:
    """Return what each reader of a node gets, in bytes a second.

    Args:
        readers: How many read on each node; at least one.
        storage: Its limits.
    """
    demands = sorted((min(storage.reader, storage.nic / many), node) for node, many in readers.items())
    left_rate, waiting = storage.shared, sum(readers.values())
    rates: dict[int, float] = {}
    for want, node in demands:
        # who wants less than an equal part of what is left gets all of it, and leaves the more to the others
        rates[node] = min(want, left_rate / waiting)
        left_rate -= rates[node] * readers[node]
        waiting -= readers[node]
    return rates


class Reads:
    """Reads under way. Those of a node progress alike, so each is known by the progress at which it ends."""

    def __init__(self, storage: Storage) -> None:
        """Begin without a reader."""
        self.storage = storage
        self.now = 0.0
        self.rates: dict[int, float] = {}
        self.samples: list[tuple[float, Mapping[int, tuple[int, float]]]] = []
        """When rates changed, and how many readers each node had from then on at which rate."""
        self._progress: dict[int, float] = {}
        self._ends: dict[int, list[tuple[float, int]]] = {}

    def begin(self, node: int, reader: int) -> None:
        """Let a reader on a node begin to read the model."""
        self._progress.setdefault(node, 0.0)
        heapq.heappush(self._ends.setdefault(node, []), (self._progress[node] + self.storage.model_bytes, reader))
        self._share()

    def stop(self, node: int) -> None:
        """Drop all readers of a node."""
        if self._ends.pop(node, None) is not None:
            self._share()

    def next_end(self) -> tuple[float, int, int] | None:
        """Return when which node's which reader ends next, if nothing changes before."""
        best: tuple[float, int, int] | None = None
        for node, ends in self._ends.items():
            at = self.now + max(0.0, ends[0][0] - self._progress[node]) / self.rates[node]
            if best is None or (at, node) < best[:2]:
                best = (at, node, ends[0][1])
        return best

    def end(self, node: int) -> None:
        """Take the reader of a node that ends next off."""
        heapq.heappop(self._ends[node])
        if not self._ends[node]:
            del self._ends[node]
        self._share()

    def advance(self, now: float) -> None:
        """Let time pass; not beyond the next end."""
        for node in self._ends:
            self._progress[node] += (now - self.now) * self.rates[node]
        self.now = now

    def _share(self) -> None:
        readers = {node: len(ends) for node, ends in self._ends.items()}
        self.rates = fair_rates(readers, self.storage) if readers else {}
        self.samples.append((self.now, {node: (many, self.rates[node]) for node, many in readers.items()}))
