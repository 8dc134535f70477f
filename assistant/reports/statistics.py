"""Quantiles, distributions and intervals, from sorted values. Pure; each formula and its source stands in docs/reports.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from assistant.reports.figures import IntervalValue

Values = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

Z = 1.959963984540054
"""Of a standard normal variable, 95 % lie within so much of 0."""
EXACT_N = 1000
"""Up to so many values the ranks of a median's interval are exact; beyond, the normal approximation is off by one rank at most."""
LEAST_RANKED = 6
"""Below so many values no pair of ranks holds the median with 95 %."""


def wilson(share: float, n: float) -> tuple[float, float]:
    """Return the 95 % interval of a share seen in n trials.

    Source:
        E. B. Wilson, J. Am. Stat. Assoc. 22 (1927), 209.
    """
    if n <= 0:
        return 0.0, 1.0
    middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return max(0.0, min(middle - half, share)), min(1.0, max(middle + half, share))


def share_of_count(count: int, n: int, unknown: int = 0) -> IntervalValue | None:
    """Return how many of n, as a share with its interval; None of nothing.

    Args:
        count: Those of which it is known.
        n: All.
        unknown: Those of which it is not known: the upper end of the interval is that of all of them, too.
    """
    if not n:
        return None
    return IntervalValue(count / n, wilson(count / n, n)[0], wilson((count + unknown) / n, n)[1], n, float(n))


def difference_interval(first: IntervalValue, second: IntervalValue) -> tuple[float, float]:
    """Return the 95 % interval of the second of two independent shares less the first, from their own intervals.

    Source:
        R. G. Newcombe, Statistics in Medicine 17 (1998), 873, method 10.
    """
    difference = second.value - first.value
    down = math.hypot(second.value - second.low, first.high - first.value)
    up = math.hypot(second.high - second.value, first.value - first.low)
    return difference - down, difference + up


def share_of_weight(part: float, total: float, squares: float, n: int, unknown: float = 0.0) -> IntervalValue | None:
    """Return a share of a sum of weights, with the interval of as many equal weights as would say as much (Kish).

    Args:
        part: Sum of the weights that count.
        total: Sum of all weights.
        squares: Sum of their squares.
        n: How many there are.
        unknown: Sum of the weights of which it is not known whether they count, as in `share_of_count`.

    Source:
        L. Kish, Survey Sampling (1965), section 11.7: n_eff = (sum w)^2 / sum w^2; then Wilson.
    """
    if total <= 0 or squares <= 0:
        return None
    equal_n = min(total * total / squares, float(n))
    low, high = (min(1.0, max(0.0, weight / total)) for weight in (part, part + unknown))
    return IntervalValue(low, wilson(low, equal_n)[0], wilson(high, equal_n)[1], n, equal_n)


@lru_cache(maxsize=4096)
def median_ranks(n: int) -> tuple[int, int]:
    """Return the ranks (from 1) of the sorted values between which the median lies with at least 95 %.

    Below `LEAST_RANKED` values no pair of ranks has 95 %: those of the least and the greatest are returned.

    Source:
        W. J. Conover, Practical Nonparametric Statistics (1999), section 3.2: P(Bin(n, 1/2) < rank) <= 2.5 %.
    """
    if n <= EXACT_N:
        rank, below, term = 0, 0, 1
        while rank <= n and (below + term) * 40 <= 2**n:
            below += term
            term = term * (n - rank) // (rank + 1)
            rank += 1
    else:
        rank = math.floor(n / 2 - Z * math.sqrt(n) / 2)
    rank = max(rank, 1)
    return rank, n + 1 - rank


def median(ordered: Values) -> IntervalValue | None:
    """Return the median of sorted values with its interval by ranks; None of nothing.

    Fewer than `LEAST_RANKED` values have no 95 % interval: its ends are NaN.
    """
    n = len(ordered)
    if not n:
        return None
    if n < LEAST_RANKED:
        return IntervalValue(quantile(ordered, 0.5), math.nan, math.nan, n, float(n))
    low, high = median_ranks(n)
    return IntervalValue(quantile(ordered, 0.5), float(ordered[low - 1]), float(ordered[high - 1]), n, float(n))


def quantile(ordered: Values, share: float) -> float:
    """Return a quantile of sorted values, at least one: between two of them in proportion.

    Source:
        Hyndman and Fan, Am. Stat. 50 (1996), 361, definition 7; what NumPy, R and `quantile_cont` of DuckDB return.
    """
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def distribution(ordered: Values, points: Sequence[float]) -> tuple[float, ...]:
    """Return the share of sorted values that are at most each point."""
    places = np.searchsorted(ordered, np.asarray(points), side="right")
    return tuple((places / max(len(ordered), 1)).tolist())


def log_points(low: float, high: float, each_decade: int = 24) -> tuple[float, ...]:
    """Return points from below `low` to at or above `high`, evenly on a logarithmic axis: `10 ** (k / each_decade)` for whole k."""
    first = math.floor(math.log10(low) * each_decade)
    last = math.ceil(math.log10(max(high, low)) * each_decade)
    return tuple(float(10 ** (k / each_decade)) for k in range(first, max(last, first + 1) + 1))


class Grouped:
    """Values of each group, sorted, for as many questions as there are.

    Values that are not known (NaN) belong to no group.
    """

    def __init__(self, values: Values, codes: Codes, groups: int) -> None:
        """Sort once.

        Args:
            values: One a job.
            codes: The group of each job, 0 to groups - 1; negative for none.
            groups: How many there are.
        """
        valid = ~np.isnan(values) & (codes >= 0)
        values, codes = values[valid], codes[valid]
        by_value = np.argsort(values)
        values, codes = values[by_value], codes[by_value]
        by_group: npt.NDArray[Any] = np.argsort(codes.astype(np.uint16) if groups < 65_536 else codes, kind="stable")
        self._values = values[by_group]
        self._ends = np.cumsum(np.bincount(codes, minlength=groups))
        self.sorted_values = values
        """All values, sorted."""

    def of(self, group: int) -> Values:
        """Return the sorted values of a group."""
        ordered: Values = self._values[self._ends[group - 1] if group else 0 : self._ends[group]]
        return ordered


def weighted_sums(codes: Codes, groups: int, weights: Values | None = None) -> Values:
    """Return the count, or the sum of weights, of each group; negative codes belong to none."""
    valid = codes >= 0
    counts: Values = np.bincount(codes[valid], weights=None if weights is None else weights[valid], minlength=groups).astype(
        np.float64
    )
    return counts


def spread(starts: Values, ends: Values, weights: Values, edges: Values) -> Values:
    """Return how much of weights, each spread evenly from a start to an end, falls between edges; sums are kept exactly in sense.

    Args:
        starts: Seconds.
        ends: Seconds; what takes no time counts as one second.
        weights: What is spread.
        edges: Sorted; what lies outside of the first and last is in the first and last part.
    """
    lengths = np.maximum(ends - starts, 1.0)
    ends = starts + lengths
    rates = weights / lengths

    def until(points: Values) -> Values:
        total = np.zeros(len(points))
        for sign, times in ((1.0, starts), (-1.0, ends)):
            order = np.argsort(times)
            sorted_times, sorted_rates = times[order], rates[order]
            rate_sums = np.concatenate(([0.0], np.cumsum(sorted_rates)))
            moment_sums = np.concatenate(([0.0], np.cumsum(sorted_rates * (sorted_times - edges[0]))))
            place = np.searchsorted(sorted_times, points, side="right")
            total += sign * (rate_sums[place] * (points - edges[0]) - moment_sums[place])
        return total

    sums = until(edges[1:-1]) if len(edges) > 2 else np.zeros(0)
    return np.maximum(np.diff(np.concatenate(([0.0], sums, [float(weights.sum())]))), 0.0)
