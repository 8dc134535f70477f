"""The ways to evaluate a suite that are compared: the paper's baseline, each technique alone, all of them, and the lower bound.

Source: arXiv 2403.07648, section 6.2. The baseline submits one job per dataset in the order of the suite; each loads the model from
remote storage, prepares its data, infers and computes its metric while it holds its GPU. `sized` is a stronger baseline, the
partition by size of OpenCompass: datasets above `largest_task` units are cut evenly, smaller ones share a job up to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assistant.evaluation.bound import lower_bound
from assistant.evaluation.planning import plan
from assistant.evaluation.priors import Priors
from assistant.evaluation.records import Dataset, Estimate, Machines, Piece, Trial
from assistant.evaluation.replanning import Elastic, held
from assistant.evaluation.replay import Change, Outcome, Rules
from assistant.evaluation.simulate import simulate
from assistant.evaluation.storage import Storage

__all__ = ["NAMES", "STRATEGIES", "Comparison", "Strategy", "baseline_trials", "compare", "sized_trials"]


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to evaluate a suite."""

    name: str
    title: str
    rules: Rules
    planned: bool = False
    """Trials by `planning`; else one per dataset."""
    by_size: bool = False


STRATEGIES = (
    Strategy("baseline", "one job per dataset", Rules(staged=False, apart=False)),
    Strategy("sized", "jobs by size, as in OpenCompass", Rules(staged=False, apart=False), by_size=True),
    Strategy("loading", "decoupled loading alone", Rules(staged=True, apart=False)),
    Strategy("metrics", "decoupled metrics alone", Rules(staged=False, apart=True)),
    Strategy("elastic", "scheduling by priors alone", Rules(staged=False, apart=False), planned=True),
    Strategy("all", "all three", Rules(staged=True, apart=True), planned=True),
)
"""In the order in which they are shown; the first is what the others are compared with."""
NAMES = tuple(one.name for one in STRATEGIES)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What each strategy came to, by its name."""

    outcomes: Mapping[str, Outcome]
    bound_s: float
    """No schedule could be shorter."""

    def speedup(self, name: str, over: str = "baseline") -> float:
        """Return how many times sooner a strategy is done than another."""
        return self.outcomes[over].makespan_s / self.outcomes[name].makespan_s

    def over_bound(self, name: str) -> float:
        """Return by what share a strategy is above the bound."""
        return self.outcomes[name].makespan_s / self.bound_s - 1


def compare(
    datasets: Sequence[Dataset],
    priors: Priors,
    machines: Machines,
    storage: Storage,
    *,
    truth: Mapping[str, Estimate] | None = None,
    changes: Sequence[Change] = (),
    names: Sequence[str] = NAMES,
) -> Comparison:
    """Simulate a suite with each strategy.

    Args:
        datasets: Of the suite.
        priors: What is expected of them, and their sizes in units.
        machines: What there is.
        storage: Where the model lies.
        truth: What they really take; without it what is expected.
        changes: Nodes that go or come.
        names: Of the strategies.
    """
    expected = priors.estimates(datasets)
    true = dict(truth or expected)
    machines = replace(machines, fetch_s=storage.fetch_s)
    outcomes: dict[str, Outcome] = {}
    for one in STRATEGIES:
        if one.name in names:
            trials = _trials(one, datasets, priors, expected, machines)
            planner = Elastic(datasets, priors, one.rules, machines) if one.planned else None
            outcomes[one.name] = simulate(datasets, true, machines, storage, trials, one.rules, changes=changes, planner=planner)
    return Comparison(outcomes, lower_bound(datasets, true, machines))


def baseline_trials(datasets: Sequence[Dataset], estimates: Mapping[str, Estimate]) -> list[Trial]:
    """Return one trial per dataset, in their order."""
    return [_whole((one,), estimates) for one in datasets]


def sized_trials(datasets: Sequence[Dataset], priors: Priors, estimates: Mapping[str, Estimate]) -> list[Trial]:
    """Return trials as OpenCompass makes tasks: datasets above the largest are cut evenly, others packed in descending order."""
    most = priors.unit.largest_task
    trials: list[Trial] = []
    packed: list[Dataset] = []
    room = most
    for one in sorted(datasets, key=lambda one: -one.items * priors.factor(one.name)):
        units = one.items * priors.factor(one.name)
        if units > most and one.split:
            parts = -(-units // most)
            edges = [one.items * n // parts for n in range(parts + 1)]
            seconds = estimates[one.name].prepare_s + estimates[one.name].infer_s / parts
            trials += [
                Trial((Piece(one.name, first, last),), seconds, 0.0, one.gpus)
                for first, last in itertools.pairwise(edges)
                if first < last
            ]
            continue
        if packed and (units > room or packed[0].gpus != one.gpus):
            trials.append(_whole(packed, estimates))
            packed, room = [], most
        packed.append(one)
        room -= units
    return trials + ([_whole(packed, estimates)] if packed else [])


def _whole(datasets: Sequence[Dataset], estimates: Mapping[str, Estimate]) -> Trial:
    found = [estimates[one.name] for one in datasets]
    seconds = sum(one.prepare_s + one.infer_s for one in found)
    pieces = tuple(Piece(one.name, 0, one.items) for one in datasets)
    return Trial(pieces, seconds, max(one.metric_s for one in found), datasets[0].gpus)


def _trials(
    strategy: Strategy, datasets: Sequence[Dataset], priors: Priors, expected: Mapping[str, Estimate], machines: Machines
) -> Sequence[Trial]:
    if strategy.by_size:
        return sized_trials(datasets, priors, expected)
    if not strategy.planned:
        return baseline_trials(datasets, expected)
    return plan(*held(strategy.rules, datasets, expected, machines)).trials
