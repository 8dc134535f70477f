"""How long a dataset will take: from what is known of its name or its size, corrected by what past and running trials took."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median

from assistant.content.reading import build, content_files, read_toml, wrong
from assistant.evaluation.work import Dataset, Estimate

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
