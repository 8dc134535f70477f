"""Decide when to plan again: nodes went or came, or a piece took so much longer or shorter that what is planned no longer holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from assistant.evaluation.planning import Running, replan
from assistant.evaluation.priors import Measured, Priors
from assistant.evaluation.records import Dataset, Estimate, Machines, Trial
from assistant.evaluation.replay import Begun, Rules, Situation

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

    def __call__(self, now: Situation) -> Sequence[Trial] | None:
        """Return other trials, or None where the plan holds."""
        new = now.measured[self.seen :]
        self.seen = len(now.measured)
        off = any(self._is_off(piece.dataset, piece.items, seconds) for piece, seconds in new)
        if not off and not now.nodes_changed:
            return None
        measured = [Measured(_RUN, piece.dataset, piece.items, seconds) for piece, seconds in now.measured]
        self.expected = self.before.learn(self.datasets, measured, run=_RUN).estimates(self.datasets)
        self.plans += 1
        staged = replace(self.machines, nodes=now.machines.nodes)
        datasets, expected, machines = held(self.rules, self.datasets, self.expected, staged)
        running = [self._running(one) for one in now.running]
        return replan(datasets, expected, replace(machines, fetch_s=0.0), running=running, done=now.done).trials

    def _is_off(self, dataset: str, items: int, seconds: float) -> bool:
        expected = self.expected[dataset].infer_s * items / self.items[dataset]
        return expected <= 0 < seconds or (seconds > 0 and abs(math.log(seconds / expected)) > _OFF)

    def _running(self, begun: Begun) -> Running:
        if begun.piece is None:
            return Running(Trial((), 0.0, 0.0, begun.gpus), 0.0)
        expected = self.expected[begun.piece.dataset].infer_s * begun.piece.items / self.items[begun.piece.dataset]
        left = max(0.0, expected - begun.seconds)
        return Running(Trial((begun.piece,), left, 0.0, begun.gpus), left)
