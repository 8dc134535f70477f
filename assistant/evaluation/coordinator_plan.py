"""The planner and the estimates of a real evaluation, as the coordinator asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from assistant.evaluation.planning import RunningTrial, replan
from assistant.evaluation.priors import Measured, Priors
from assistant.evaluation.records import Dataset, Estimate, Machines, Piece, Took, Trial, TrialPlan


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


Estimator = Callable[[Sequence[Took]], Mapping[str, Estimate]]
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

    def estimates(measured: Sequence[Took]) -> Mapping[str, Estimate]:
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
