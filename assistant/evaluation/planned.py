"""The planner and the estimates of a real evaluation, as the coordinator asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from assistant.evaluation.planning import Running, replan
from assistant.evaluation.priors import Measured, Priors
from assistant.evaluation.records import Dataset, Estimate, Machines, Piece, Plan, Trial


def planner(
    datasets: Sequence[Dataset],
    estimates: Mapping[str, Estimate],
    machines: Machines,
    *,
    running: Sequence[tuple[Trial, float]],
    done: Iterable[Piece],
) -> Plan:
    """Return trials for what is neither done nor running."""
    return replan(datasets, estimates, machines, running=[Running(trial, left) for trial, left in running], done=done)


def estimator(
    priors: Priors, datasets: Sequence[Dataset], past: Sequence[Measured], *, run: str, model_bytes: int
) -> Callable[[Sequence[tuple[Piece, float]]], Mapping[str, Estimate]]:
    """Return what estimates datasets after what past evaluations and this one measured."""

    def estimates(seen: Sequence[tuple[Piece, float]]) -> Mapping[str, Estimate]:
        own = [Measured(run, piece.dataset, piece.items, seconds, model_bytes=model_bytes) for piece, seconds in seen]
        learned = priors.learn(datasets, [*past, *own], run=run, model_bytes=model_bytes)
        return learned.estimates(datasets)

    return estimates
