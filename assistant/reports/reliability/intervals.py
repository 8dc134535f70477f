"""Intervals of counts, rates and means, and tests of many nodes at once. Pure; each formula stands in docs/failure_reports.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from assistant.reports.figures import IntervalValue
from assistant.reports.statistics import Values, Z

TAIL = 0.025
"""Of each side of a 95 % interval."""
EXACT_COUNT = 2000
"""Counts above it have the interval by the cube root of Wilson and Hilferty, which is then right to five digits."""
RESAMPLES = 1000
MOST_RESAMPLED = 2000
"""Values up to which a mean is resampled; the mean of more is as good as normal."""
SEED = 2410_21680
"""The same values give the same interval."""


def lower_gamma(a: float, x: float) -> float:
    """Return the regularised lower incomplete gamma function P(a, x), to 12 digits: by its series, or its continued fraction.

    Args:
        a: Above 0.
        x: At least 0.

    Source:
        Abramowitz and Stegun (1964), 6.5.29 and 6.5.31.
    """
    if x <= 0:
        return 0.0
    factor = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1.0 / a
        step = a
        while abs(term) > abs(total) * 1e-15:
            step += 1
            term *= x / step
            total += term
        return min(1.0, total * factor)
    return max(0.0, 1.0 - factor * _upper_fraction(a, x))


def _upper_fraction(a: float, x: float) -> float:
    """Return the continued fraction of the upper function by Lentz's method."""
    tiny = 1e-300
    b = x + 1 - a
    c, d = 1 / tiny, 1 / b
    value = d
    for number in range(1, 100_000):
        an = -number * (number - a)
        b += 2
        d = an * d + b
        d = 1 / (d if abs(d) > tiny else tiny)
        c = b + an / c
        c = c if abs(c) > tiny else tiny
        change = d * c
        value *= change
        if abs(change - 1) < 1e-15:
            break
    return value


@lru_cache(maxsize=4096)
def poisson_interval(count: int) -> tuple[float, float]:
    """Return the exact 95 % interval of the mean of a Poisson variable that was seen as `count`.

    Source:
        Garwood, Biometrika 28 (1936), 437: half the quantiles of chi-square with 2 count and 2 count + 2 degrees of freedom.
    """
    low = 0.0 if count == 0 else _gamma_quantile(float(count), TAIL)
    return low, _gamma_quantile(count + 1.0, 1 - TAIL)


def _gamma_quantile(a: float, share: float) -> float:
    """Return x with P(a, x) = share."""
    root = 1 - 1 / (9 * a) + (Z if share > 0.5 else -Z) / (3 * math.sqrt(a))
    guess = a * max(root, 0.0) ** 3
    if a > EXACT_COUNT:
        return guess
    low, high = 0.0, max(2 * guess, 2 * a) + 10
    for _ in range(200):
        middle = (low + high) / 2
        if lower_gamma(a, middle) < share:
            low = middle
        else:
            high = middle
        if high - low < 1e-11 * high:
            break
    return (low + high) / 2


def poisson_tail(count: int, mean: float) -> float:
    """Return how likely a Poisson variable of this mean is at least `count`."""
    return 1.0 if count <= 0 else lower_gamma(float(count), mean)


def rate(count: int, exposure: float) -> IntervalValue | None:
    """Return events for each unit of exposure with the exact interval; None without exposure."""
    if exposure <= 0:
        return None
    low, high = poisson_interval(count)
    return IntervalValue(count / exposure, low / exposure, high / exposure, count, float(count))


def mean_between(count: int, exposure: float) -> IntervalValue | None:
    """Return the exposure between two events with the exact interval; value and upper end are infinite where there was none."""
    if exposure <= 0:
        return None
    low, high = poisson_interval(count)
    value = exposure / count if count else math.inf
    return IntervalValue(value, exposure / high, exposure / low if low else math.inf, count, float(count))


def mean(values: Values) -> IntervalValue | None:
    """Return the mean with its 95 % interval: from 2.5 % to 97.5 % of the means of resampled values; of many values the normal one.

    One value has no interval: its ends are NaN.

    Source:
        Efron and Tibshirani, An Introduction to the Bootstrap (1993), 13.3 (percentile interval).
    """
    n = len(values)
    if not n:
        return None
    ordered = np.sort(values)
    middle = float(ordered.mean())
    if n == 1:
        return IntervalValue(middle, math.nan, math.nan, 1, 1.0)
    if n > MOST_RESAMPLED:
        half = Z * float(ordered.std(ddof=1)) / math.sqrt(n)
        return IntervalValue(middle, middle - half, middle + half, n, float(n))
    means = ordered[_resampled(n)].mean(axis=1)
    low, high = (float(edge) for edge in np.quantile(means, (TAIL, 1 - TAIL)))
    return IntervalValue(middle, min(low, middle), max(high, middle), n, float(n))


def ratio_of_sums(parts: Values, wholes: Values) -> IntervalValue | None:
    """Return sum of parts by sum of wholes with the percentile interval of resampled pairs; None where the wholes are nothing.

    One pair has no interval: its ends are NaN.

    Source:
        As for `mean`.
    """
    n = len(wholes)
    total = float(wholes.sum())
    if not n or total <= 0:
        return None
    order = np.lexsort((parts, wholes))
    parts, wholes = parts[order], wholes[order]
    value = float(parts.sum()) / total
    if n == 1:
        return IntervalValue(value, math.nan, math.nan, 1, 1.0)
    if n > MOST_RESAMPLED:
        half = Z * float(np.std(parts - value * wholes, ddof=1)) * math.sqrt(n) / total
        return IntervalValue(value, value - half, value + half, n, float(n))
    drawn = _resampled(n)
    sums = wholes[drawn].sum(axis=1)
    ratios = parts[drawn].sum(axis=1)[sums > 0] / sums[sums > 0]
    low, high = (float(edge) for edge in np.quantile(ratios, (TAIL, 1 - TAIL)))
    return IntervalValue(value, min(low, value), max(high, value), n, float(n))


def _resampled(n: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return places of resampled values, shape (RESAMPLES, n)."""
    drawn: np.ndarray[tuple[int, int], np.dtype[np.int64]] = np.random.default_rng(SEED + n).integers(0, n, (RESAMPLES, n))
    return drawn


def q_values(chances: Sequence[float]) -> list[float]:
    """Return for each test the least share of false discoveries at which it would be called one.

    Source:
        Benjamini and Hochberg, J. R. Stat. Soc. B 57 (1995), 289.
    """
    order = sorted(range(len(chances)), key=lambda place: chances[place], reverse=True)
    q_of_tests = [1.0] * len(chances)
    least = 1.0
    for number, place in enumerate(order):
        least = min(least, chances[place] * len(chances) / (len(chances) - number))
        q_of_tests[place] = least
    return q_of_tests
