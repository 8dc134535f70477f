"""Decide when to plan again: nodes went or came, or a piece took so much longer or shorter that what is planned no longer holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from assistant.evaluation.planning import Running, replan
from assistant.evaluation.priors import Measured, Priors
from assistant.evaluation.records import Dataset, Estimate, Machines, Piece, Trial
from assistant.evaluation.replay import Begun, Orders, Rules, Situation
from assistant.evaluation.shedding import Holding, to_shed

__all__ = ["Elastic", "held"]

_OFF = math.log(1.4)
"""A piece that is off by less than this factor is not worth another plan: slots that are free early take the next trial anyway."""
_RUN = "this"


def held(
    rules: Rules, datasets: Sequence[Dataset], expected: Mapping[str, Estimate], machines: Machines
) -> tuple[Sequence[Dataset], Mapping[str, Estimate], Machines]:
    """Return what to plan with where a trial does more on its GPU: read remote storage beside its neighbours, compute metrics."""
    if not rules.staged:
        machines = replace(machines, load_s=machines.load_s + machines.fetch_s * machines.gpus_per_node, fetch_s=0.0)
    if not rules.apart:
        # whichever trial has the last piece computes the metric, so a dataset with a long one is better left to one trial
        datasets = [
            replace(one, split=one.split and 10 * expected[one.name].metric_s < expected[one.name].infer_s) for one in datasets
        ]
        expected = {name: replace(one, infer_s=one.infer_s + one.metric_s, metric_s=0.0) for name, one in expected.items()}
    return datasets, expected, machines


class Elastic:
    """The planner of a simulated evaluation: learns from each piece, plans again where that changes something."""

    def __init__(self, datasets: Sequence[Dataset], priors: Priors, rules: Rules, machines: Machines) -> None:
        """Begin with what is expected."""
        self.datasets, self.before, self.rules, self.machines = datasets, priors, rules, machines
        self.items = {one.name: one.items for one in datasets}
        self.expected = priors.estimates(datasets)
        self.seen = 0
        self.plans = 0

    def __call__(self, now: Situation) -> Orders | None:
        """Return what should change, or None where the plan holds."""
        new = now.measured[self.seen :]
        self.seen = len(now.measured)
        off = any(self._is_off(piece, seconds) for piece, seconds in new)
        if not off and not now.nodes_changed and not now.idle:
            return None
        if off:
            measured = [Measured(_RUN, piece.dataset, piece.items, seconds) for piece, seconds in now.measured]
            self.expected = self.before.learn(self.datasets, measured, run=_RUN).estimates(self.datasets)
        there = replace(self.machines, nodes=now.machines.nodes)
        datasets, expected, machines = held(self.rules, self.datasets, self.expected, there)
        begun = now.running()
        # what was cut once stays cut: as a whole it would do again the items of its pieces that are done or in somebody's hands
        pieces = [*now.done, *(piece for trial in begun for piece in (*trial.unbegun, trial.piece) if piece is not None)]
        cut = {piece.dataset for piece in pieces if piece.items < self.items[piece.dataset]}
        datasets = [replace(dataset, split=dataset.split or dataset.name in cut) for dataset in datasets]
        holding = {one.number: self._holding(one, expected) for one in begun}
        waiting = sum(self._seconds(piece, expected) * trial.gpus for trial in now.waiting for piece in trial.pieces)
        taken = to_shed(holding, waiting, machines.nodes * machines.gpus_per_node, machines.load_s)
        if not taken and not (now.waiting and (off or now.nodes_changed)):
            return None
        self.plans += 1
        running = [self._running(one, holding[one.number], taken.get(one.number, ())) for one in begun]
        machines = replace(machines, fetch_s=0.0)
        return Orders(replan(datasets, expected, machines, running=running, done=now.done).trials, taken)

    def _is_off(self, piece: Piece, seconds: float) -> bool:
        expected = self._seconds(piece, self.expected)
        return expected <= 0 < seconds or (seconds > 0 and abs(math.log(seconds / expected)) > _OFF)

    def _seconds(self, piece: Piece, expected: Mapping[str, Estimate]) -> float:
        return expected[piece.dataset].infer_s * piece.items / self.items[piece.dataset]

    def _holding(self, one: Begun, expected: Mapping[str, Estimate]) -> Holding:
        unbegun = [(piece, self._seconds(piece, expected)) for piece in one.unbegun]
        if one.piece is not None:
            return Holding(max(0.0, self._seconds(one.piece, expected) - one.seconds), unbegun, one.gpus)
        # a trial that still loads keeps its first piece: else pieces could go round for ever without one being begun
        return Holding(unbegun[0][1] if unbegun else 0.0, unbegun[1:], one.gpus)

    def _running(self, one: Begun, holding: Holding, taken: Sequence[Piece]) -> Running:
        kept = [(piece, seconds) for piece, seconds in holding.unbegun if piece not in taken]
        first = one.piece if one.piece is not None else one.unbegun[0] if one.unbegun else None
        pieces = tuple(piece for piece in [first, *(piece for piece, _ in kept)] if piece is not None)
        left = holding.begun_s + sum(seconds for _, seconds in kept)
        return Running(Trial(pieces, left, 0.0, one.gpus), left)
