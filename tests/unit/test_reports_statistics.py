"""Quantiles, intervals and sums over time, against definitions that are computed another way."""

from __future__ import annotations

import math
import random
import statistics
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.reports.calendar import calendar_of
from assistant.reports.statistics import (
    Grouped,
    distribution,
    log_points,
    median,
    median_ranks,
    quantile,
    share_of_count,
    share_of_weight,
    spread,
    wilson,
)
from assistant.reports.wording import amount, between, cell_text, duration, share

NUMBERS = st.lists(st.floats(0, 1e7, allow_nan=False), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("count", "n", "low", "high"),
    # E. B. Wilson's formula by hand: (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662), (1, 1, 0.2065, 1.0)],
)
def test_intervals_of_shares(count: int, n: int, low: float, high: float) -> None:
    assert wilson(count / n, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 300), st.integers(1, 300))
def test_an_interval_holds_its_share_and_stays_within_0_and_1(count: int, n: int) -> None:
    measured = share_of_count(min(count, n), n)
    assert measured is not None
    assert 0.0 <= measured.low <= measured.value <= measured.high <= 1.0
    assert measured.small == (n < 30)


def test_a_share_of_equal_weights_has_the_interval_of_their_count_and_one_huge_weight_has_none() -> None:
    equal = share_of_weight(30.0, 100.0, 100.0, 100)
    counted = share_of_count(30, 100)
    assert equal is not None
    assert counted is not None
    assert (equal.low, equal.high) == pytest.approx((counted.low, counted.high))
    huge = share_of_weight(1e6, 1e6 + 99, 1e12 + 99, 100)
    assert huge is not None
    assert huge.small
    assert huge.low < 0.25
    assert share_of_weight(0.0, 0.0, 0.0, 0) is None


@pytest.mark.parametrize("n", [*range(1, 60), 97, 200, 501, 1000])
def test_ranks_of_the_median_are_the_narrowest_with_95_percent(n: int) -> None:
    low, high = median_ranks(n)

    def below(rank: int) -> float:
        """Return the probability that fewer than so many of n values lie below the median."""
        return float(sum(math.comb(n, k) for k in range(rank)) / 2**n)

    assert high == n + 1 - low
    if n >= 6:
        assert below(low) <= 0.025 < below(low + 1)
    else:
        assert (low, high) == (1, n)


def test_the_approximate_ranks_join_the_exact_ones() -> None:
    exact = 1
    while sum(math.comb(1001, k) for k in range(exact + 1)) * 40 <= 2**1001:
        exact += 1
    assert abs(median_ranks(1001)[0] - exact) <= 1


def test_the_interval_of_a_median_holds_the_true_one_in_95_of_100_draws() -> None:
    dice = random.Random(7)
    hits = 0
    for _ in range(2000):
        measured = median(np.sort([dice.lognormvariate(3, 2) for _ in range(41)]))
        assert measured is not None
        hits += measured.low <= math.exp(3) <= measured.high
    assert 0.94 <= hits / 2000 <= 0.985


@given(NUMBERS, st.floats(0, 1))
def test_quantiles_are_those_of_numpy(values: list[float], part: float) -> None:
    assert quantile(np.sort(values), part) == pytest.approx(float(np.quantile(values, part)), rel=1e-9, abs=1e-9)


@given(NUMBERS)
def test_the_median_is_that_of_plain_python(values: list[float]) -> None:
    measured = median(np.sort(values))
    assert measured is not None
    assert measured.value == pytest.approx(statistics.median(values))
    if len(values) >= 6:
        assert measured.low <= measured.value <= measured.high


@pytest.mark.parametrize("n", range(1, 8))
def test_a_median_of_fewer_than_six_values_has_no_interval(n: int) -> None:
    """Of two values the ends hold the median with 50 %, of five with 94 %; of six with 97 %."""
    measured = median(np.arange(1.0, n + 1) * 60)
    assert measured is not None
    shown = cell_text(measured, "s")
    if n < 6:
        assert (math.isnan(measured.low), math.isnan(measured.high), measured.small) == (True, True, True)
        assert f"(n = {n})" in shown
    else:
        assert (measured.low, measured.high) == (60, 60 * n)
        assert "n =" not in shown


@given(NUMBERS, NUMBERS)
def test_a_distribution_counts_what_is_at_most_each_point(values: list[float], points: list[float]) -> None:
    wanted = [sum(value <= point for value in values) / len(values) for point in points]
    assert distribution(np.sort(values), points) == pytest.approx(wanted)


@given(st.lists(st.tuples(st.one_of(st.floats(0, 1e6), st.just(math.nan)), st.integers(-1, 3)), max_size=80))
def test_groups_hold_the_known_values_of_each_code_sorted(pairs: list[tuple[float, int]]) -> None:
    values, codes = np.array([value for value, _ in pairs], dtype=float), np.array([code for _, code in pairs], dtype=np.int32)
    grouped = Grouped(values, codes, 4)
    for group in range(4):
        assert grouped.of(group).tolist() == sorted(value for value, code in pairs if code == group and not math.isnan(value))


SPANS = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e5), st.floats(0, 1e4)), min_size=1, max_size=30)


@given(SPANS, st.lists(st.floats(-1e5, 1.2e6), min_size=2, max_size=8, unique=True))
@settings(deadline=None)
def test_what_is_spread_over_time_sums_to_the_whole(spans: list[tuple[float, float, float]], edges: list[float]) -> None:
    starts, lengths, weights = (np.array(column) for column in zip(*spans, strict=True))
    parts = spread(starts, starts + lengths, weights, np.array(sorted(edges)))
    assert len(parts) == len(edges) - 1
    assert parts.sum() == pytest.approx(weights.sum(), rel=1e-6, abs=1e-3)


def test_what_is_spread_falls_where_the_job_ran() -> None:
    edges = np.array([0.0, 100.0, 200.0, 300.0])
    parts = spread(np.array([50.0, 150.0, 210.0]), np.array([250.0, 150.0, 220.0]), np.array([20.0, 7.0, 5.0]), edges)
    assert parts.tolist() == pytest.approx([5.0, 17.0, 10.0])


def test_points_of_an_axis_begin_below_and_end_at_or_above() -> None:
    points = log_points(1.0, 5000.0, each_decade=4)
    assert points[0] <= 1.0
    assert points[-1] >= 5000.0
    assert all(a < b for a, b in pairwise(points))


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC", "Asia/Shanghai"]
)
def test_hours_of_a_year_are_those_that_the_clock_shows(zone: str) -> None:
    begin = datetime(2023, 1, 2, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    moments = [begin + timedelta(minutes=15 * n) for n in range(4 * 24 * 364)]
    seconds = np.array([moment.timestamp() for moment in moments])
    arrivals = calendar_of(seconds[0], seconds[-1], zone).arrivals(seconds)
    wanted = np.zeros((7, 24))
    for moment in moments:
        local = moment.astimezone(ZoneInfo(zone))
        wanted[local.weekday(), local.hour] += 1
    assert arrivals.counts.tolist() == wanted.tolist()
    # one submission in each quarter of an hour: four an hour, also in the hour that is skipped or shown twice
    assert (arrivals.counts / arrivals.hours).tolist() == np.full((7, 24), 4.0).tolist()
    assert arrivals.hours.sum() == 24 * 364


def test_days_have_23_24_or_25_hours_where_the_clock_changes() -> None:
    begin = datetime(2023, 10, 27, 12, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    calendar = calendar_of(begin, begin + 5 * 86400, "Europe/Berlin")
    hours = dict(zip(calendar.labels, (np.diff(calendar.edges) / 3600).tolist(), strict=True))
    assert calendar.step == "day"
    assert (hours["2023-10-28"], hours["2023-10-29"], hours["2023-10-30"]) == (24, 25, 24)


@pytest.mark.parametrize(("days", "step"), [(3, "day"), (28, "day"), (60, "week"), (700, "week"), (1500, "month")])
def test_steps_fit_the_length_and_cover_it(days: int, step: str) -> None:
    first, last = 1690000000.0, 1690000000.0 + 86400 * (days - 1)
    calendar = calendar_of(first, last, "Asia/Shanghai")
    assert calendar.step == step
    assert calendar.edges[0] <= first
    assert calendar.edges[-1] > last
    assert len(calendar.labels) == len(calendar.edges) - 1 <= 120


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (duration(0), "0 s"),
        (duration(0.5), "0.5 s"),
        (duration(89), "89 s"),
        (duration(90), "1.5 min"),
        (duration(5400), "1.5 h"),
        (duration(1e6), "11.6 d"),
        (amount(0.25), "0.25"),
        (amount(12), "12"),
        (amount(9_999), "9,999"),
        (amount(12_345), "12.3 k"),
        (amount(302_339), "302 k"),
        (amount(999_900), "1 M"),
        (amount(1_234_567), "1.23 M"),
        (amount(5e9), "5 G"),
        (amount(5e12), "5,000 G"),
        (share(0), "0.0 %"),
        (share(0.00001), "< 0.1 %"),
        (share(0.99999), "> 99.9 %"),
        (share(0.429), "42.9 %"),
    ],
)
def test_numbers_are_worded(text: str, wanted: str) -> None:
    assert text == wanted


def test_an_interval_has_its_unit_once() -> None:
    measured = share_of_count(30, 100)
    assert measured is not None
    assert between(measured, "share") == "21.9–39.6 %"
    assert between(measured._replace(low=0.0001), "share") == "< 0.1 % to 39.6 %"
    assert between(measured._replace(low=80, high=100), "s") == "80 s–1.7 min"


@given(st.floats(1e-3, 1e14))
def test_a_shortened_number_is_off_by_a_twentieth_at_most(value: float) -> None:
    digits, _, letter = amount(value).partition(" ")
    size = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}[letter]
    assert float(digits.replace(",", "")) * size == pytest.approx(value, rel=0.051 if value < 1 else 0.0501)
