"""How long a dataset will take: from what is known of its name or its size, corrected by what past and running trials took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from assistant.content.reading import build, content_files, read_toml, wrong
from assistant.evaluation.learning import Point, learned, ratio
from assistant.evaluation.records import Dataset, Estimate

__all__ = ["Known", "Measured", "Priors", "Unit"]


@dataclass(frozen=True, slots=True)
class Unit:
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
class Known:
    """What is known of a dataset by its name."""

    name: str
    items: int
    choices: int = 0
    """Answers that the model ranks; 0: it writes one."""
    hard: bool = False
    metric_item_s: float | None = None


@dataclass(frozen=True, slots=True)
class _File:
    unit: Unit
    dataset: tuple[Known, ...]


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

    unit: Unit
    known: Mapping[str, Known]
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
        found = build(_File, read_toml(path), path)
        known: dict[str, Known] = {}
        for number, one in enumerate(found.dataset):
            if one.name in known:
                raise wrong(path, "name", f"{one.name!r} is there twice", trail=(("dataset", number),))
            known[one.name] = one
        return cls(found.unit, known)

    def factor(self, dataset: str) -> int:
        """Return how many units an item of a dataset has; one of an unknown name is taken for one that is written."""
        one = self.known.get(dataset)
        if one is None:
            return self.unit.write_factor
        return (one.choices or self.unit.write_factor) * (self.unit.hard_factor if one.hard else 1)

    def before(self, dataset: Dataset) -> Estimate:
        """Return the estimate that nothing measured went into."""
        one, unit = self.known.get(dataset.name), self.unit
        item_s = unit.compare_item_s if one is None or one.metric_item_s is None else one.metric_item_s
        metric = dataset.items * item_s if dataset.metric or one is not None else 0.0
        return Estimate(
            _given(dataset.prepare_s, unit.prepare_s + unit.prepare_item_s * dataset.items),
            _given(dataset.infer_s, dataset.items * self.factor(dataset.name) * unit.unit_s),
            _given(dataset.metric_s, metric),
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
        return {one.name: self.estimate(one, speed) for one in datasets}

    def learn(self, datasets: Sequence[Dataset], measured: Iterable[Measured], *, run: str = "", model_bytes: int = 0) -> Priors:
        """Return priors that are corrected by measurements, by all those given and no others.

        Args:
            datasets: Of the suite; what was measured of others tells of speeds only where their name is known.
            measured: Of past evaluations and of this one, in any order; values that cannot be are passed over.
            run: The evaluation that estimates are wanted for: its speed is its own as soon as it measured anything.
            model_bytes: Size of its model: until then it is taken to be as fast as past models of about that size; 0: of all.
        """
        fresh = replace(self, speed=1.0, own={}, metric={}, prepare={}, runs={})
        by_name = {one.name: fresh.before(one) for one in datasets}
        items = {one.name: one.items for one in datasets}
        for name, kept in self.known.items():
            if name not in by_name:
                by_name[name], items[name] = fresh.before(Dataset(name, kept.items, "")), kept.items
        points: list[Point] = []
        for one in measured:
            if one.dataset in by_name and one.items > 0:
                share, before = one.items / items[one.dataset], by_name[one.dataset]
                infer, metric = ratio(one.infer_s, before.infer_s * share), ratio(one.metric_s, before.metric_s * share)
                prepare = ratio(one.prepare_s, before.prepare_s) if before.prepare_s > 0 else None
                points.append(Point(one.run, one.dataset, infer, metric, prepare, one.model_bytes))
        found = learned(points, run, model_bytes)
        return replace(fresh, speed=found.speed, own=found.own, metric=found.metric, prepare=found.prepare, runs=found.runs)


def _given(said: float | None, prior: float) -> float:
    return prior if said is None else said
