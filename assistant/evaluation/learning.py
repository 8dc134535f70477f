"""Learn from what pieces took how wrong priors are: how fast the model is, and how much each dataset is off by itself.

The seconds of inference are `prior x speed x own`, where *speed* is of the model on its machine and *own* of the dataset. Both
are learned as logarithms. Speed is the median over the datasets of a run, so that one whose prior is wrong by a hundred does not
spoil the others; own is the mean of what is left, times n / (n + k): what empirical Bayes gives for a prior of mean 0 where k is
the variance between pieces of one dataset over the variance between datasets. Pieces of one dataset differ little and priors are
off by factors, so k is small: one measured piece outweighs the prior.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median

__all__ = ["Learned", "Point", "learned", "ratio"]

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
class Learned:
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


def learned(points: Iterable[Point], run: str, model_bytes: int) -> Learned:
    """Return the factors for one run; see the module for how."""
    points = list(points)
    inferred = [(p, p.infer) for p in points if p.infer is not None]
    past = [(p, value) for p, value in inferred if p.run != run]
    speeds = {name: _median((p.dataset, v) for p, v in past if p.run == name) for name in {p.run for p, _ in past}}
    own = _shrunk((p.dataset, value - speeds[p.run]) for p, value in past)
    sizes = {p.run: p.model_bytes for p, _ in past}
    alike = [speed for name, speed in speeds.items() if _same_class(sizes[name], model_bytes)]
    before = fmean(alike) * len(alike) / (len(alike) + _SPEED_K) if alike else 0.0
    mine = [(p.dataset, value - own.get(p.dataset, 0.0)) for p, value in inferred if p.run == run]
    many = len({name for name, _ in mine})
    speeds[run] = before + (_median(mine) - before) * many / (many + _SPEED_K) if mine else before
    own = _shrunk((p.dataset, value - speeds[p.run]) for p, value in inferred)
    metric = _shrunk((p.dataset, p.metric) for p in points if p.metric is not None)
    prepare = _shrunk((p.dataset, p.prepare) for p in points if p.prepare is not None)
    runs: dict[str, set[str]] = defaultdict(set)
    for p in points:
        runs[p.dataset].add(p.run)
    known = {name: len(found) for name, found in runs.items()}
    return Learned(math.exp(speeds[run]), _factors(own), _factors(metric), _factors(prepare), known)


def _factors(logarithms: Mapping[str, float]) -> dict[str, float]:
    return {name: math.exp(value) for name, value in logarithms.items()}


def _means(values: Iterable[tuple[str, float]]) -> dict[str, tuple[float, int]]:
    found: dict[str, list[float]] = defaultdict(list)
    for name, value in values:
        found[name].append(value)
    return {name: (fmean(some), len(some)) for name, some in found.items()}


def _median(values: Iterable[tuple[str, float]]) -> float:
    return median(mean for mean, _ in _means(values).values())


def _shrunk(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    return {name: mean * n / (n + _OWN_K) for name, (mean, n) in _means(values).items()}


def _same_class(one: int, other: int) -> bool:
    return not (one and other) or max(one, other) / min(one, other) < _SAME_CLASS
