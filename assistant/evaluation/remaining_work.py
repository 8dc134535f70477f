"""What is left to do: ranges of items that have no output and are in nobody's hands; and how long it should take. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from assistant.evaluation.records import Dataset, Estimate, Piece, Took

FEW = 3
"""So many datasets must have been seen before they say something about the others."""
CLOSE_FACTOR = 1.5
"""An estimate that far off or less is good enough."""


def gaps(dataset: Dataset, covered: Iterable[Piece]) -> list[Piece]:
    """Return the ranges of a dataset that no piece covers; all of one that cannot be split, unless it is covered."""
    spans = sorted((piece.first, piece.last) for piece in covered if piece.dataset == dataset.name)
    missing, at = list[Piece](), 0
    for first, last in spans:
        if first > at:
            missing.append(Piece(dataset.name, at, first))
        at = max(at, last)
    if at < dataset.items:
        missing.append(Piece(dataset.name, at, dataset.items))
    if missing and not dataset.split:
        return [Piece(dataset.name, 0, dataset.items)]
    return missing


def is_complete(dataset: Dataset, finished: Iterable[Piece]) -> bool:
    """Whether all items of a dataset have an output."""
    return not gaps(dataset, finished)


def corrected(estimates: Mapping[str, Estimate], measurements: Sequence[Took], items: Mapping[str, int]) -> dict[str, Estimate]:
    """Return estimates after what was measured: a dataset's own seconds count most, for others what all have in common.

    Args:
        estimates: Before the run.
        measurements: Pieces that are done.
        items: Of each dataset.
    """
    seconds: dict[str, float] = {}
    counts: dict[str, int] = {}
    for piece_time in measurements:
        name = piece_time.piece.dataset
        seconds[name] = seconds.get(name, 0.0) + piece_time.infer_s
        counts[name] = counts.get(name, 0) + piece_time.piece.items
    measured = {name: seconds[name] / max(1, counts[name]) * items[name] for name in seconds}
    ratios = [measured[name] / estimates[name].infer_s for name in measured if estimates[name].infer_s > 0]
    common = median(ratios) if len(ratios) >= FEW else 1.0
    corrected_estimates = {}
    for name, before in estimates.items():
        corrected_estimates[name] = replace(before, infer_s=measured.get(name, before.infer_s * common))
    return corrected_estimates


def is_far(before: Mapping[str, Estimate], now: Mapping[str, Estimate], names: Iterable[str]) -> bool:
    """Whether estimates of some datasets moved by so much that the plan should be made anew."""
    for name in names:
        old, new = max(before[name].infer_s, 1e-9), max(now[name].infer_s, 1e-9)
        if max(old / new, new / old) > CLOSE_FACTOR and max(old, new) > 1.0:
            return True
    return False


def seconds_of(piece: Piece, estimates: Mapping[str, Estimate], items: Mapping[str, int]) -> float:
    """Return how long a piece should take on the GPU."""
    estimate = estimates[piece.dataset]
    return estimate.prepare_s + estimate.infer_s * piece.items / max(1, items[piece.dataset])
