"""What a plan is made from: how long datasets take, the nodes that the coordinator may use, trials to make of what is left."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from typing import Protocol

from assistant.content.reading import build, content_files, read_toml, wrong
from assistant.evaluation.files import STAGE, TRIAL, JobNote, JournalState, RunFolder
from assistant.evaluation.planning import RunningTrial, replan
from assistant.evaluation.suite import RunSpec
from assistant.evaluation.work import Dataset, Estimate, Holding, Machines, Piece, PieceTime, Trial, TrialPlan
from assistant.records import Node, NodeState

__all__ = ["DatasetPrior", "FittedFactors", "Measured", "Point", "Priors", "UnitCosts", "learned", "ratio"]


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """What seconds follow from sizes, and of what model and storage that is true."""

    source: str
    model_bytes: int
    nic_bits_s: int
    start_s: float
    prepare_s: float
    prepare_item_s: float
    write_factor: int
    hard_factor: int
    unit_s: float
    compare_item_s: float
    largest_task: int


@dataclass(frozen=True, slots=True)
class DatasetPrior:
    """What is known of a dataset by its name."""

    name: str
    items: int
    choices: int = 0
    """Answers that the model ranks; 0: it writes one."""
    hard: bool = False
    metric_item_s: float | None = None


@dataclass(frozen=True, slots=True)
class _File:
    unit: UnitCosts
    dataset: tuple[DatasetPrior, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """What one piece, or all of a dataset, took."""

    run: str
    """Which evaluation; speed is of one model on one sort of machine, so it is learned run by run."""
    dataset: str
    items: int
    infer_s: float
    """0: not measured."""
    metric_s: float = 0.0
    """0: not measured, or none."""
    prepare_s: float = 0.0
    """0: not measured, or it was prepared before."""
    model_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Priors:
    """What is known of datasets, with what was learned; unchanging: `learn` gives another."""

    unit: UnitCosts
    by_dataset: Mapping[str, DatasetPrior]
    speed: float = 1.0
    """Seconds of the model at hand over those of the prior."""
    own: Mapping[str, float] = field(default_factory=dict)
    """By dataset, the same for inference beyond the speed."""
    metric: Mapping[str, float] = field(default_factory=dict)
    """By dataset, measured seconds of the metric over the prior's."""
    prepare: Mapping[str, float] = field(default_factory=dict)
    """The same for preparing it on a node."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """By dataset, how many evaluations measured it."""

    @classmethod
    def load(cls, site: Path | None = None) -> Priors:
        """Return the shipped priors, or the site's in their place.

        Raises:
            ContentError: The file is wrong.
        """
        path = next(path for path in content_files("knowledge", site) if path.name == "evaluation.toml")
        document = build(_File, read_toml(path), path)
        priors_by_name: dict[str, DatasetPrior] = {}
        for number, entry in enumerate(document.dataset):
            if entry.name in priors_by_name:
                raise wrong(path, "name", f"{entry.name!r} is there twice", trail=(("dataset", number),))
            priors_by_name[entry.name] = entry
        return cls(document.unit, priors_by_name)

    def factor(self, dataset: str) -> int:
        """Return how many units an item of a dataset has; one of an unknown name is taken for one that is written."""
        prior = self.by_dataset.get(dataset)
        if prior is None:
            return self.unit.write_factor
        return (prior.choices or self.unit.write_factor) * (self.unit.hard_factor if prior.hard else 1)

    def before(self, dataset: Dataset) -> Estimate:
        """Return the estimate that nothing measured went into."""
        prior, unit = self.by_dataset.get(dataset.name), self.unit
        item_s = unit.compare_item_s if prior is None or prior.metric_item_s is None else prior.metric_item_s
        metric = dataset.items * item_s if dataset.metric or prior is not None else 0.0
        return Estimate(
            _stated_or(dataset.prepare_s, unit.prepare_s + unit.prepare_item_s * dataset.items),
            _stated_or(dataset.infer_s, dataset.items * self.factor(dataset.name) * unit.unit_s),
            _stated_or(dataset.metric_s, metric),
        )

    def estimate(self, dataset: Dataset, speed: float = 1.0) -> Estimate:
        """Return how long all items of a dataset are expected to take.

        Args:
            dataset: What its author expects stands in place of the prior; what was measured corrects either.
            speed: Of the machine beside the one of the prior: 2 halves the time on the GPU. What was learned has it in it already.
        """
        before = self.before(dataset)
        infer = before.infer_s * self.speed * self.own.get(dataset.name, 1.0) / speed
        metric = before.metric_s * self.metric.get(dataset.name, 1.0)
        prepare = before.prepare_s * self.prepare.get(dataset.name, 1.0)
        return replace(before, prepare_s=prepare, infer_s=infer, metric_s=metric, runs=self.runs.get(dataset.name, 0))

    def estimates(self, datasets: Iterable[Dataset], speed: float = 1.0) -> dict[str, Estimate]:
        """Return the estimates of several datasets by their names."""
        return {dataset.name: self.estimate(dataset, speed) for dataset in datasets}

    def learn(self, datasets: Sequence[Dataset], measured: Iterable[Measured], *, run: str = "", model_bytes: int = 0) -> Priors:
        """Return priors that are corrected by measurements, by all those given and no others.

        Args:
            datasets: Of the suite; what was measured of others tells of speeds only where their name is known.
            measured: Of past evaluations and of this one, in any order; values that cannot be are passed over.
            run: The evaluation that estimates are wanted for: its speed is its own as soon as it measured anything.
            model_bytes: Size of its model: until then it is taken to be as fast as past models of about that size; 0: of all.
        """
        fresh = replace(self, speed=1.0, own={}, metric={}, prepare={}, runs={})
        by_name = {dataset.name: fresh.before(dataset) for dataset in datasets}
        items = {dataset.name: dataset.items for dataset in datasets}
        for name, prior in self.by_dataset.items():
            if name not in by_name:
                by_name[name], items[name] = fresh.before(Dataset(name, prior.items, "")), prior.items
        points: list[Point] = []
        for measurement in measured:
            if measurement.dataset in by_name and measurement.items > 0:
                share, before = measurement.items / items[measurement.dataset], by_name[measurement.dataset]
                infer, metric = (
                    ratio(measurement.infer_s, before.infer_s * share),
                    ratio(measurement.metric_s, before.metric_s * share),
                )
                prepare = ratio(measurement.prepare_s, before.prepare_s) if before.prepare_s > 0 else None
                points.append(Point(measurement.run, measurement.dataset, infer, metric, prepare, measurement.model_bytes))
        fitted = learned(points, run, model_bytes)
        return replace(fresh, speed=fitted.speed, own=fitted.own, metric=fitted.metric, prepare=fitted.prepare, runs=fitted.runs)


def _stated_or(stated: float | None, prior: float) -> float:
    return prior if stated is None else stated


# Learn from what pieces took how wrong priors are: how fast the model is, and how much each dataset is off by itself.
#
# The seconds of inference are `prior x speed x own`, where *speed* is of the model on its machine and *own* of the dataset. Both
# are learned as logarithms. Speed is the median over the datasets of a run, so that one whose prior is wrong by a hundred does
# not
# spoil the others; own is the mean of what is left, times n / (n + k): what empirical Bayes gives for a prior of mean 0 where k
# is
# the variance between pieces of one dataset over the variance between datasets. Pieces of one dataset differ little and priors
# are
# off by factors, so k is small: one measured piece outweighs the prior.

_OWN_K = 0.06
"""Between pieces one deviation is a factor of 1.2, between datasets one of 2: (ln 1.2 / ln 2) squared."""
_SPEED_K = 0.5
_SAME_CLASS = 1.6
"""Models whose sizes differ by less than this factor are taken to be equally fast until the run shows."""
_LEAST_S = 1e-3
"""Shorter times say nothing of a ratio."""


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement beside its prior: logarithms of measured over expected; None where nothing was measured."""

    run: str
    dataset: str
    infer: float | None
    metric: float | None
    prepare: float | None = None
    model_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FittedFactors:
    """Factors on priors."""

    speed: float
    own: Mapping[str, float]
    metric: Mapping[str, float]
    prepare: Mapping[str, float]
    runs: Mapping[str, int]
    """In how many runs each dataset was measured."""


def ratio(measured_s: float, prior_s: float) -> float | None:
    """Return the logarithm of measured over expected seconds; None where one of them is nothing or no number."""
    if not (math.isfinite(measured_s) and measured_s > 0):
        return None
    return math.log(max(measured_s, _LEAST_S) / max(prior_s, _LEAST_S))


def learned(points: Iterable[Point], run: str, model_bytes: int) -> FittedFactors:
    """Return the factors for one run; see the module for how."""
    points = list(points)
    inferred = [(p, p.infer) for p in points if p.infer is not None]
    past = [(p, value) for p, value in inferred if p.run != run]
    speeds = {name: _median((p.dataset, v) for p, v in past if p.run == name) for name in {p.run for p, _ in past}}
    own = _shrunk((p.dataset, value - speeds[p.run]) for p, value in past)
    sizes = {p.run: p.model_bytes for p, _ in past}
    same_class_speeds = [speed for name, speed in speeds.items() if _same_class(sizes[name], model_bytes)]
    before = fmean(same_class_speeds) * len(same_class_speeds) / (len(same_class_speeds) + _SPEED_K) if same_class_speeds else 0.0
    own_speeds = [(p.dataset, value - own.get(p.dataset, 0.0)) for p, value in inferred if p.run == run]
    many = len({name for name, _ in own_speeds})
    speeds[run] = before + (_median(own_speeds) - before) * many / (many + _SPEED_K) if own_speeds else before
    own = _shrunk((p.dataset, value - speeds[p.run]) for p, value in inferred)
    metric = _shrunk((p.dataset, p.metric) for p in points if p.metric is not None)
    prepare = _shrunk((p.dataset, p.prepare) for p in points if p.prepare is not None)
    runs: dict[str, set[str]] = defaultdict(set)
    for p in points:
        runs[p.dataset].add(p.run)
    run_counts = {name: len(measurements) for name, measurements in runs.items()}
    return FittedFactors(math.exp(speeds[run]), _factors(own), _factors(metric), _factors(prepare), run_counts)


def _factors(logarithms: Mapping[str, float]) -> dict[str, float]:
    return {name: math.exp(value) for name, value in logarithms.items()}


def _means(values: Iterable[tuple[str, float]]) -> dict[str, tuple[float, int]]:
    values_by_name: dict[str, list[float]] = defaultdict(list)
    for name, value in values:
        values_by_name[name].append(value)
    return {name: (fmean(values), len(values)) for name, values in values_by_name.items()}


def _median(values: Iterable[tuple[str, float]]) -> float:
    return median(mean for mean, _ in _means(values).values())


def _shrunk(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    return {name: mean * n / (n + _OWN_K) for name, (mean, n) in _means(values).items()}


def _same_class(size: int, other_size: int) -> bool:
    return not (size and other_size) or max(size, other_size) / min(size, other_size) < _SAME_CLASS


# The nodes that the coordinator may use, and the work of trials that run.

STRIKES = 3
"""So many jobs that ended without a piece to blame, and a node is used no more."""


class Fleet:
    """The nodes of a run, as of the last look."""

    def __init__(self, spec: RunSpec, state: JournalState) -> None:
        """Look after the nodes of a run; `state` grows while it runs."""
        self._spec, self._state = spec, state
        self._nodes: dict[str, Node] = {}

    def look(self, nodes: Sequence[Node]) -> None:
        """Take the state of the cluster's nodes."""
        partition = self._spec.partition
        self._nodes = {node.name: node for node in nodes if not partition or partition in node.partition.split(",")}

    @property
    def unavailable(self) -> set[str]:
        """Nodes of ours that cannot start a job now."""
        return {name for name in self._state.touched if not self._is_up(name)}

    def lost(self) -> list[str]:
        """Return the nodes that carried the model and went since the last look."""
        return [name for name in list(self._state.ready) if not self._is_up(name)]

    def ready(self) -> list[str]:
        """Return the nodes where trials may run, in the order of their names."""
        if self._spec.from_storage:
            return [name for name in sorted(self._nodes) if self._is_good(name)][: self._spec.nodes]
        return [name for name, staged in sorted(self._state.ready.items()) if staged and self._is_good(name)]

    @property
    def size(self) -> int:
        """How many nodes work for the run, those that get the model now included."""
        return len(set(self.ready()) | {note.node for note in self._state.live(STAGE)})

    def free_slots(self) -> Iterator[tuple[str, int]]:
        """Return the nodes that carry the model, each with its free GPUs as far as this run uses them; freest first."""
        used_gpus: dict[str, int] = {}
        for note in self._state.live(TRIAL):
            used_gpus[note.node] = used_gpus.get(note.node, 0) + note.gpus
        free = {name: self._spec.gpus_per_node - used_gpus.get(name, 0) for name in self.ready()}
        return iter(sorted(free.items(), key=lambda pair: (-pair[1], pair[0])))

    def staging_targets(self) -> list[str]:
        """Return the nodes to put the model on now; an empty name lets the scheduler choose."""
        staging = [note.node for note in self._state.live(STAGE)]
        missing = self._spec.nodes - len(self.ready()) - len(staging)
        usable = [name for name in self._candidates() if name not in staging]
        idle = [name for name in usable if self._nodes[name].state is NodeState.IDLE]
        nodes = idle[: max(0, missing)]
        if not nodes and missing > 0 and usable and not self.ready() and not staging:
            nodes = [""]  # all are taken by others: let the scheduler queue us
        return nodes

    def avoid(self) -> set[str]:
        """Return the nodes that must not be chosen for us."""
        return {name for name in self._nodes if name not in self._candidates()}

    def other_nodes(self, nodes: Collection[str]) -> set[str]:
        """Return the nodes of ours that are not among some; for these there is an alternative where it is not empty."""
        return set(self.ready()) - set(nodes)

    def may_work(self) -> bool:
        """Whether a node can do something for the run now."""
        return bool(self.ready() or self._candidates())

    def may_come_back(self) -> bool:
        """Whether a node that is out now could do something for the run when it is back."""
        return any(not self._is_up(name) and not self._is_struck(name) and name not in self._state.unfit for name in self._nodes)

    def reasons(self) -> list[str]:
        """Return what is wrong with the nodes that are not used, one line each."""
        reasons = [
            f"{name}: {self._state.whys.get(name, 'its jobs ended before they began')}" for name in sorted(self._state.strikes)
        ]
        down = (node for node in self._nodes.values() if not self._is_up(node.name))
        return [*reasons, *(f"{node.name} is {node.state.value}{f': {node.reason}' if node.reason else ''}" for node in down)]

    def reachable(self, nodes: Sequence[Node]) -> set[str]:
        """Return the nodes that could start a job."""
        self.look(nodes)
        return {name for name in self._nodes if self._is_up(name)}

    def _candidates(self) -> list[str]:
        return [name for name in sorted(self._nodes) if self._is_good(name) and not self._state.ready.get(name)]

    def _is_good(self, name: str) -> bool:
        return self._is_up(name) and not self._is_struck(name) and name not in self._state.unfit

    def _is_struck(self, name: str) -> bool:
        return self._state.strikes.get(name, 0) >= STRIKES

    def _is_up(self, name: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and node.state in (NodeState.IDLE, NodeState.ALLOCATED)


LEAST_S = 2.0
"""Less is not worth a job of its own."""


def holding(
    folder: RunFolder, note: JobNote, finished_pieces: Container[Piece], seconds_of: Callable[[Piece], float], now: float
) -> Holding:
    """Return what a trial still has to do.

    A trial that has begun nothing keeps its first piece: else pieces could go round without one being begun.

    Args:
        folder: Of the run.
        note: The trial's job.
        finished_pieces: Pieces that have an output.
        seconds_of: Expected of a piece on the GPU.
        now: Seconds since the epoch.
    """
    waiting = [
        piece for piece in note.own_pieces if piece not in finished_pieces and not folder.failed(note.number, piece).exists()
    ]
    since = {piece: _since(folder.claim_file(note.number, piece)) for piece in waiting}
    at_work = {piece: begin_time for piece, begin_time in since.items() if begin_time is not None}
    begun_s = sum(max(0.0, seconds_of(piece) - max(0.0, now - begin_time)) for piece, begin_time in at_work.items())
    unbegun = [(piece, seconds_of(piece)) for piece in waiting if piece not in at_work]
    if unbegun and len(unbegun) == len(note.own_pieces):
        begun_s, unbegun = unbegun[0][1], unbegun[1:]
    return Holding(begun_s, unbegun, max(1, note.gpus))


def _since(claim: Path) -> float | None:
    try:
        return claim.stat().st_mtime
    except FileNotFoundError:
        return None


class Planner(Protocol):
    """Makes trials of what is left."""

    def __call__(
        self,
        datasets: Sequence[Dataset],
        estimates: Mapping[str, Estimate],
        machines: Machines,
        *,
        running: Sequence[tuple[Trial, float]],
        completed: Iterable[Piece],
    ) -> TrialPlan:
        """Return trials, in the order in which free slots take them, of all that is neither done nor running.

        Args:
            datasets: Those that are not given up.
            estimates: As they are now.
            machines: What there is now.
            running: Trials that hold slots, each with the seconds that it still needs.
            completed: Pieces that have an output.
        """
        ...


Estimator = Callable[[Sequence[PieceTime]], Mapping[str, Estimate]]
"""Returns estimates after pieces of this run took so many seconds."""


def planner(
    datasets: Sequence[Dataset],
    estimates: Mapping[str, Estimate],
    machines: Machines,
    *,
    running: Sequence[tuple[Trial, float]],
    completed: Iterable[Piece],
) -> TrialPlan:
    """Return trials for what is neither done nor running."""
    return replan(
        datasets, estimates, machines, running=[RunningTrial(trial, left_s) for trial, left_s in running], completed=completed
    )


def estimator(priors: Priors, datasets: Sequence[Dataset], past: Sequence[Measured], *, run: str, model_bytes: int) -> Estimator:
    """Return what estimates datasets after what past evaluations and this one measured."""

    def estimates(measured: Sequence[PieceTime]) -> Mapping[str, Estimate]:
        own = [
            Measured(
                run,
                piece_time.piece.dataset,
                piece_time.piece.items,
                piece_time.infer_s,
                prepare_s=piece_time.prepare_s,
                model_bytes=model_bytes,
            )
            for piece_time in measured
        ]
        learned = priors.learn(datasets, [*past, *own], run=run, model_bytes=model_bytes)
        return learned.estimates(datasets)

    return estimates
