"""The ways to evaluate a suite that are compared: the paper's baseline, each technique alone, all of them, and the lower bound.

Source: arXiv 2403.07648, section 6.2. The baseline submits one job per dataset in the order of the suite; each loads the model from
remote storage, prepares its data, infers and computes its metric while it holds its GPU. `sized` is a stronger baseline, the
partition by size of OpenCompass: datasets above `largest_task` units are cut evenly, smaller ones share a job up to it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assistant.evaluation.plan_inputs import Measured, Priors
from assistant.evaluation.planning import RunningTrial, lower_bound, plan, replan
from assistant.evaluation.simulate import BegunTrial, FleetChange, Orders, ReplayOutcome, ReplaySituation, Rules, simulate
from assistant.evaluation.work import Dataset, Estimate, Holding, Machines, Piece, Storage, Trial, to_shed

__all__ = [
    "NAMES",
    "STRATEGIES",
    "Elastic",
    "Holding",
    "Strategy",
    "StrategyComparison",
    "baseline_trials",
    "compare",
    "planning_inputs",
    "sized_trials",
    "to_shed",
]


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
NAMES = tuple(strategy.name for strategy in STRATEGIES)


@dataclass(frozen=True, slots=True)
class StrategyComparison:
    """Results of the compared strategies, by name."""

    outcomes: Mapping[str, ReplayOutcome]
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
    changes: Sequence[FleetChange] = (),
    names: Sequence[str] = NAMES,
) -> StrategyComparison:
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
    outcomes: dict[str, ReplayOutcome] = {}
    for strategy in STRATEGIES:
        if strategy.name in names:
            trials = _trials(strategy, datasets, priors, expected, machines)
            planner = Elastic(datasets, priors, strategy.rules, machines) if strategy.planned else None
            outcomes[strategy.name] = simulate(
                datasets, true, machines, storage, trials, strategy.rules, changes=changes, planner=planner
            )
    return StrategyComparison(outcomes, lower_bound(datasets, true, machines))


def baseline_trials(datasets: Sequence[Dataset], estimates: Mapping[str, Estimate]) -> list[Trial]:
    """Return one trial per dataset, in their order."""
    return [_packed_trial((dataset,), estimates) for dataset in datasets]


def sized_trials(datasets: Sequence[Dataset], priors: Priors, estimates: Mapping[str, Estimate]) -> list[Trial]:
    """Return trials as OpenCompass makes tasks: datasets above the largest are cut evenly, others packed in descending order."""
    most = priors.unit.largest_task
    trials: list[Trial] = []
    packed: list[Dataset] = []
    room = most
    for dataset in sorted(datasets, key=lambda dataset: -dataset.items * priors.factor(dataset.name)):
        units = dataset.items * priors.factor(dataset.name)
        if units > most and dataset.split:
            parts = -(-units // most)
            edges = [dataset.items * n // parts for n in range(parts + 1)]
            seconds = estimates[dataset.name].prepare_s + estimates[dataset.name].infer_s / parts
            trials += [
                Trial((Piece(dataset.name, first, last),), seconds, 0.0, dataset.gpus)
                for first, last in itertools.pairwise(edges)
                if first < last
            ]
            continue
        if packed and (units > room or packed[0].gpus != dataset.gpus):
            trials.append(_packed_trial(packed, estimates))
            packed, room = [], most
        packed.append(dataset)
        room -= units
    return trials + ([_packed_trial(packed, estimates)] if packed else [])


def _packed_trial(datasets: Sequence[Dataset], estimates: Mapping[str, Estimate]) -> Trial:
    dataset_estimates = [estimates[dataset.name] for dataset in datasets]
    seconds = sum(estimate.prepare_s + estimate.infer_s for estimate in dataset_estimates)
    pieces = tuple(Piece(dataset.name, 0, dataset.items) for dataset in datasets)
    return Trial(pieces, seconds, max(estimate.metric_s for estimate in dataset_estimates), datasets[0].gpus)


def _trials(
    strategy: Strategy, datasets: Sequence[Dataset], priors: Priors, expected: Mapping[str, Estimate], machines: Machines
) -> Sequence[Trial]:
    if strategy.by_size:
        return sized_trials(datasets, priors, expected)
    if not strategy.planned:
        return baseline_trials(datasets, expected)
    return plan(*planning_inputs(strategy.rules, datasets, expected, machines)).trials


# Decide when to plan again: nodes went or came, or a piece took so much longer or shorter that what is planned no longer holds.

_OFF = math.log(1.4)
"""A piece that is off by less than this factor is not worth another plan: slots that are free early take the next trial anyway."""
_RUN = "this"


def planning_inputs(
    rules: Rules, datasets: Sequence[Dataset], expected: Mapping[str, Estimate], machines: Machines
) -> tuple[Sequence[Dataset], Mapping[str, Estimate], Machines]:
    """Return what to plan with where a trial does more on its GPU: read remote storage beside its neighbours, compute metrics."""
    if not rules.staged:
        machines = replace(machines, load_s=machines.load_s + machines.fetch_s * machines.gpus_per_node, fetch_s=0.0)
    if not rules.apart:
        # whichever trial has the last piece computes the metric, so a dataset with a long one is better left to one trial
        datasets = [
            replace(dataset, split=dataset.split and 10 * expected[dataset.name].metric_s < expected[dataset.name].infer_s)
            for dataset in datasets
        ]
        expected = {
            name: replace(estimate, infer_s=estimate.infer_s + estimate.metric_s, metric_s=0.0)
            for name, estimate in expected.items()
        }
    return datasets, expected, machines


class Elastic:
    """The planner of a simulated evaluation: learns from each piece, plans again where that changes something."""

    def __init__(self, datasets: Sequence[Dataset], priors: Priors, rules: Rules, machines: Machines) -> None:
        """Begin with the estimates from before the run."""
        self.datasets, self.before, self.rules, self.machines = datasets, priors, rules, machines
        self.items = {dataset.name: dataset.items for dataset in datasets}
        self.expected = priors.estimates(datasets)
        self.pieces_learned = 0
        self.plans = 0

    def __call__(self, now: ReplaySituation) -> Orders | None:
        """Return what should change, or None where the plan holds."""
        new = now.measured[self.pieces_learned :]
        self.pieces_learned = len(now.measured)
        off = any(self._is_off(piece, seconds) for piece, seconds in new)
        if not off and not now.nodes_changed and not now.idle:
            return None
        if off:
            measured = [Measured(_RUN, piece.dataset, piece.items, seconds) for piece, seconds in now.measured]
            self.expected = self.before.learn(self.datasets, measured, run=_RUN).estimates(self.datasets)
        available = replace(self.machines, nodes=now.machines.nodes)
        datasets, expected, machines = planning_inputs(self.rules, self.datasets, self.expected, available)
        begun_trials = now.running()
        # what was cut once stays cut: as a whole it would do again the items of its pieces that are done or in somebody's hands
        pieces = [
            *now.completed,
            *(piece for trial in begun_trials for piece in (*trial.unbegun, trial.piece) if piece is not None),
        ]
        cut = {piece.dataset for piece in pieces if piece.items < self.items[piece.dataset]}
        datasets = [replace(dataset, split=dataset.split or dataset.name in cut) for dataset in datasets]
        holding = {trial.number: self._holding(trial, expected) for trial in begun_trials}
        waiting = sum(self._seconds(piece, expected) * trial.gpus for trial in now.waiting for piece in trial.pieces)
        taken_pieces = to_shed(holding, waiting, machines.nodes * machines.gpus_per_node, machines.load_s)
        if not taken_pieces and not (now.waiting and (off or now.nodes_changed)):
            return None
        self.plans += 1
        running = [self._running(trial, holding[trial.number], taken_pieces.get(trial.number, ())) for trial in begun_trials]
        machines = replace(machines, fetch_s=0.0)
        return Orders(replan(datasets, expected, machines, running=running, completed=now.completed).trials, taken_pieces)

    def _is_off(self, piece: Piece, seconds: float) -> bool:
        expected = self._seconds(piece, self.expected)
        return expected <= 0 < seconds or (seconds > 0 and abs(math.log(seconds / expected)) > _OFF)

    def _seconds(self, piece: Piece, expected: Mapping[str, Estimate]) -> float:
        return expected[piece.dataset].infer_s * piece.items / self.items[piece.dataset]

    def _holding(self, trial: BegunTrial, expected: Mapping[str, Estimate]) -> Holding:
        unbegun = [(piece, self._seconds(piece, expected)) for piece in trial.unbegun]
        if trial.piece is not None:
            return Holding(max(0.0, self._seconds(trial.piece, expected) - trial.seconds), unbegun, trial.gpus)
        # a trial that still loads keeps its first piece: else pieces could go round for ever without one being begun
        return Holding(unbegun[0][1] if unbegun else 0.0, unbegun[1:], trial.gpus)

    def _running(self, trial: BegunTrial, holding: Holding, taken_pieces: Sequence[Piece]) -> RunningTrial:
        remaining = [(piece, seconds) for piece, seconds in holding.unbegun if piece not in taken_pieces]
        first = trial.piece if trial.piece is not None else trial.unbegun[0] if trial.unbegun else None
        pieces = tuple(piece for piece in [first, *(piece for piece, _ in remaining)] if piece is not None)
        left_s = holding.begun_s + sum(seconds for _, seconds in remaining)
        return RunningTrial(Trial(pieces, left_s, 0.0, trial.gpus), left_s)
