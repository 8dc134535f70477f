"""Small decisions of the coordinator: when a dataset is given up, which metrics share a job, where a trial may run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from assistant.evaluation.journal import Failure
from assistant.evaluation.records import Dataset, Estimate, Piece, Trial

SHORT_S = 10.0
"""Metrics shorter than this share a job where slots are few."""
LEAST_SHORTS_S, MOST_SHORTS_S = 5.0, 60.0
"""Seconds of metrics that share a job, in all: what each processor has to do of what waits now, within these bounds."""


def overlap(one: Piece, other: Piece) -> bool:
    """Whether two pieces have items in common."""
    return one.dataset == other.dataset and one.first < other.last and other.first < one.last


def why_sunk(failures: Iterable[Failure], dataset: str, retries: int) -> str:
    """Return why a dataset is to be given up; empty while it may be tried again."""
    own = [one for one in failures if one.dataset == dataset]
    for last in reversed(own):
        same = [one for one in own if _same(one, last)]
        if last.final or len(same) > retries:
            what = f"items {last.piece.first} to {last.piece.last - 1}" if last.piece else "its metric"
            tried = f", tried {len(same)} times," if len(same) > 1 else ""
            return f"{what}{tried} on {last.node or 'a node'}: {last.why}"
    return ""


def _same(one: Failure, other: Failure) -> bool:
    if one.piece is None or other.piece is None:
        return one.piece is other.piece
    return overlap(one.piece, other.piece)


def grouped(datasets: Sequence[Dataset], estimates: Mapping[str, Estimate], slots: int, cpus: int) -> list[list[Dataset]]:
    """Return datasets as metric jobs take them, long ones first and alone, short ones together where slots are few.

    Args:
        datasets: Whose outputs are there.
        estimates: Of their metrics.
        slots: Processors that are free; so many jobs at most.
        cpus: All processors: those that are busy will take what is left here.
    """
    share_s = sum(estimates[one.name].metric_s for one in datasets) / max(1, cpus)
    most_s = min(max(share_s, LEAST_SHORTS_S), MOST_SHORTS_S)
    ordered = sorted(datasets, key=lambda one: -estimates[one.name].metric_s)
    groups: list[list[Dataset]] = []
    room = 0.0
    for one in ordered:
        seconds = estimates[one.name].metric_s
        if seconds > SHORT_S or room < seconds or len(ordered) <= slots:
            groups.append([one])
            room = most_s - seconds if seconds <= SHORT_S else 0.0
        else:
            groups[-1].append(one)
            room -= max(seconds, 1.0)
    return groups[: max(0, slots)]


def failed_nodes(trial: Trial, failures: Iterable[Failure]) -> set[str]:
    """Return the nodes where a piece of a trial has failed."""
    return {one.node for one in failures if one.piece and any(overlap(one.piece, piece) for piece in trial.pieces)}
