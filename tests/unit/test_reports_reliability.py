"""Figures of `report reliability`: exact intervals, sums of the waterfall, rates, lemon nodes and people, each a second way."""

from __future__ import annotations

import math
import random
import statistics
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.records import Action, Category, EventKind, IncidentState
from assistant.reports.exports import as_object
from assistant.reports.figures import IntervalValue, RangePlot, UsageReport, WaterfallPlot
from assistant.reports.intake import TimeRange
from assistant.reports.page import page
from assistant.reports.plots import svg
from assistant.reports.reliability.downtime import downtime
from assistant.reports.reliability.failure_rates import FailureRate, RestartCost, chains, effective_ratio, failure_rate
from assistant.reports.reliability.goodput import PARTS, goodput
from assistant.reports.reliability.incident_facts import Handling
from assistant.reports.reliability.intervals import (
    lower_gamma,
    mean,
    mean_between,
    poisson_interval,
    poisson_tail,
    q_values,
    ratio_of_sums,
)
from assistant.reports.reliability.reliability import handling_table, reliability_report, share_alone
from assistant.reports.wording import cell_text
from bench import _accounting
from tests.unit.failures_here import SITE_CASES, SITE_ROWS, Case, Row, at, facts_of, frame_of, plain_facts, runs_of
from tests.unit.reports_here import column_of, table_of


def poisson_at_most(count: int, average: float) -> float:
    """Return P(X <= count) by summing, not by our gamma function."""
    return math.fsum(math.exp(k * math.log(average) - average - math.lgamma(k + 1)) for k in range(count + 1))


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # F. Garwood, Biometrika 28 (1936), table of 95 % limits
    [(0, 0.0, 3.689), (1, 0.0253, 5.572), (2, 0.242, 7.225), (5, 1.623, 11.668), (10, 4.795, 18.390), (50, 37.111, 65.919)],
)
def test_intervals_of_counts_are_the_published_ones(count: int, low: float, high: float) -> None:
    assert poisson_interval(count) == pytest.approx((low, high), abs=6e-4)


@given(st.integers(1, 400))
def test_intervals_of_counts_leave_two_and_a_half_percent_at_each_side(count: int) -> None:
    low, high = poisson_interval(count)
    assert poisson_at_most(count, high) == pytest.approx(0.025, rel=1e-6)
    assert 1 - poisson_at_most(count - 1, low) == pytest.approx(0.025, rel=1e-6)


def test_intervals_of_large_counts_meet_the_exact_ones() -> None:
    below, above = poisson_interval(1999), poisson_interval(2001)
    assert above[0] - below[0] == pytest.approx(2.0, abs=0.05)
    assert above[1] - below[1] == pytest.approx(2.0, abs=0.05)


@given(st.integers(1, 200), st.floats(0.01, 300))
def test_the_gamma_function_is_the_tail_of_a_poisson_variable(count: int, average: float) -> None:
    assert lower_gamma(float(count), average) == pytest.approx(1 - poisson_at_most(count - 1, average), abs=1e-11)
    assert poisson_tail(count, average) == lower_gamma(float(count), average)


def test_time_between_no_failures_has_a_lower_end_only() -> None:
    measured = mean_between(0, 369.0)
    assert measured is not None
    assert (measured.value, measured.high, measured.small) == (math.inf, math.inf, True)
    assert measured.low == pytest.approx(100.03, abs=0.01)
    assert mean_between(3, 0.0) is None


def test_the_interval_of_a_time_between_failures_holds_the_truth_as_often_as_it_says() -> None:
    dice = np.random.default_rng(7)
    counts = dice.poisson(6.0, 4000)
    held = sum(
        measured.low <= 100.0 <= measured.high for count in counts if (measured := mean_between(int(count), 600.0)) is not None
    )
    assert 0.95 <= held / 4000 <= 0.99


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_false_discoveries_are_held_as_defined(chances: list[float]) -> None:
    """A test is called at a level where its chance is at most level × rank ÷ tests of some rank at or above it."""
    found = q_values(chances)
    ordered = sorted(chances)
    for chance, q in zip(chances, found, strict=True):
        wanted = min(
            (ordered[rank] * len(chances) / (rank + 1) for rank in range(len(chances)) if ordered[rank] >= chance), default=1.0
        )
        assert q == pytest.approx(min(1.0, wanted))


def test_means_have_intervals_that_hold_them_and_one_value_has_none() -> None:
    dice = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        measured = mean(dice.exponential(10.0, 80))
        assert measured is not None
        assert measured.low <= measured.value <= measured.high
        held += measured.low <= 10.0 <= measured.high
    assert held >= 180
    one = mean(np.array([5.0]))
    assert one is not None
    assert one.value == 5.0
    assert math.isnan(one.low)
    assert mean(np.zeros(0)) is None
    many = mean(dice.exponential(10.0, 5000))
    assert many is not None
    assert many.high - many.low == pytest.approx(2 * 1.96 * 10 / math.sqrt(5000), rel=0.1)


def test_ratios_of_sums_do_not_depend_on_the_order() -> None:
    dice = np.random.default_rng(4)
    wholes = dice.uniform(1, 9, 50)
    parts = wholes * dice.uniform(0.4, 0.9, 50)
    order = dice.permutation(50)
    assert ratio_of_sums(parts, wholes) == ratio_of_sums(parts[order], wholes[order])


STATES = ("COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "CANCELLED by 3", "PREEMPTED", "SHINY")


@pytest.mark.parametrize("seed", range(3))
def test_the_parts_sum_to_the_whole_exactly(seed: int, tmp_path: Path) -> None:
    """Any rows and incidents: runs of no time, incidents before, after and across runs, of jobs that nobody knows."""
    dice = random.Random(seed)
    rows = []
    for number in range(300):
        begin, run_s = dice.randrange(10_000), dice.choice((0, 1, 7, dice.randrange(90_000)))
        gpus, name = dice.choice((0, 1, 3, 8, 64)), dice.choice(("eval", "train", f"n{number}"))
        rows.append(Row(f"{number}", begin, begin + run_s, dice.choice(STATES), gpus, name, f"u{number % 20}"))
    cases = []
    for _ in range(300):
        failed = dice.randrange(95_000)
        cases.append(
            Case(
                f"{dice.randrange(320)}", failed, failed + dice.randrange(-50, 4000), dice.choice(("hang", "", "ecc_error")),
                kind=dice.choice((EventKind.HANG, EventKind.JOB_ENDED)), step=dice.choice((None, 0, 1, dice.randrange(900))),
                phase=dice.choice(("training", "start", "")), restart=dice.choice((None, ("5", failed, dice.randrange(1000)))),
                asked=dice.choice((None, (failed - 10, failed + dice.randrange(9000)))),
            )
        )  # fmt: skip
    read = runs_of(rows, tmp_path, facts=plain_facts(cases))
    good = goodput(read.runs)
    assert set(good.gpu_ms) == {part.key for part in PARTS}
    assert all(part >= 0 for part in good.gpu_ms.values())
    assert sum(good.gpu_ms.values()) == good.whole_ms == sum(row.gpus * int(row.end - row.start) * 1000 for row in rows)
    # any division of the runs divides the parts
    half = np.arange(read.runs.jobs.count) % 2 == 0
    first, second = goodput(read.runs, half), goodput(read.runs, ~half)
    assert {key: first.gpu_ms[key] + second.gpu_ms[key] for key in good.gpu_ms} == dict(good.gpu_ms)


def site_report(folder: Path, period: TimeRange | None = None) -> UsageReport:
    read = runs_of(SITE_ROWS, folder, SITE_CASES)
    return reliability_report(read, frame_of(read), RestartCost(), period or TimeRange())


def test_the_waterfall_of_the_site_is_the_one_by_hand(tmp_path: Path) -> None:
    parts = column_of(table_of(site_report(tmp_path), "goodput_parts"), "gpu_hours")
    gpu_s = {
        "ended before its first step": 8 * 60,  # 200: its incident saw its start only
        "evaluations that failed": 1 * 300,  # 300
        "hang, unnoticed": 64 * 600,  # 101 stood still at 18,400, which was noticed at 19,000
        "hang, a person was asked": 64 * 1000,
        "hang, noticed": 64 * 400,
        # 100 lost 100 of its 1,000 steps; 101 went from 900 to 1,900 in the 8,000 s before it stood still, and lost 100;
        # 500 lost 100 of 500 steps
        "rollback: steps made again": 64 * 1000 + 64 * 800 + 8 * 200,
        "failed: saved work not known": 8 * 60 + 8 * 7200,  # 201 and 400 have no incident
        "time limit: saved work not known": 0,
        "cancelled: saved work not known": 0,
        "final state not known": 0,
        "evaluation": 1 * 400,
        "productive": 64 * 9000 + 64 * 7200 + 64 * 20_000 + 8 * 3000 + 8 * 800 + 8 * 3800,
    }
    assert parts == pytest.approx({name: seconds / 3600 for name, seconds in gpu_s.items()})


@pytest.mark.parametrize(("state", "hangs"), [(IncidentState.CLOSED, False), (IncidentState.ESCALATED, True)])
def test_a_standstill_that_passed_is_not_why_a_run_ended(state: IncidentState, hangs: bool, tmp_path: Path) -> None:
    """The incident ended 600 s after its notice, long before somebody cancelled the run; handed to a person it lasted."""
    rows = [Row("1", 0, 90_000, "CANCELLED by 5")]
    runs = runs_of(rows, tmp_path, [Case("1", 1000, 1300, "hang", Category.NONE, kind=EventKind.HANG, state=state)]).runs
    assert runs.failed.tolist() == [hangs]
    assert goodput(runs).gpu_ms["hang_unnoticed"] == (8 * 300_000 if hangs else 0)
    assert goodput(runs).gpu_ms["hang_noticed"] == (8 * 88_700_000 if hangs else 0)


@pytest.mark.parametrize("restart", [None, ("2", 5000.0, 10)])
def test_a_slow_job_is_a_failure_where_it_was_started_again(restart: tuple[str, float, int] | None, tmp_path: Path) -> None:
    case = Case("1", 1000, 1300, "slow_job", Category.NONE, kind=EventKind.SLOW_JOB, restart=restart)
    runs = runs_of([Row("1", 0, 4000, "CANCELLED by 5")], tmp_path, facts=plain_facts([case])).runs
    assert runs.failed.tolist() == [restart is not None]


def test_without_a_store_nothing_is_called_productive_but_what_completed(tmp_path: Path) -> None:
    good = goodput(runs_of(SITE_ROWS, tmp_path).runs)
    assert good.gpu_ms["productive"] == 1000 * (64 * 20_000 + 8 * 3000 + 8 * 3800)
    assert good.gpu_ms["hang_unnoticed"] == good.gpu_ms["rollback"] == 0
    productive = good.productive
    assert productive is not None
    assert (
        productive.high > (good.gpu_ms["productive"] + good.gpu_ms["failed_open"] + good.gpu_ms["cancelled_open"]) / good.whole_ms
    )


def test_time_between_runs_is_divided_by_what_it_waited_for(tmp_path: Path) -> None:
    runs = runs_of(SITE_ROWS, tmp_path, SITE_CASES).runs
    down = downtime(runs)
    gaps = down.gap_s[down.places]
    assert sum(down.stages.values()) == pytest.approx(gaps)
    assert sorted(gaps.tolist()) == [100, 140, 200, 400, 600, 2240]
    totals = {key: float(seconds.sum()) for key, seconds in down.stages.items()}
    # 100: 30 s to notice, 20 to diagnose, 250 to submit, 100 queued; 101 ended long after it was diagnosed: 500 and 100;
    # 500: 10, 20, 70 and 100; 200, 201 and 300 were submitted 10 s before they began by whom nobody knows
    assert totals == {
        "detect": 40, "diagnose": 40, "person": 0, "resubmit": 820, "submitted": 130 + 2230 + 90, "queue": 300 + 30, "unknown": 0,
    }  # fmt: skip
    assert (down.without_next, down.not_known) == (1, 0)


def test_without_a_store_what_only_incidents_tell_is_not_known(tmp_path: Path) -> None:
    read = runs_of(SITE_ROWS, tmp_path)
    report = reliability_report(read, frame_of(read), RestartCost(), TimeRange())
    parts = table_of(report, "goodput_parts")
    kinds = column_of(parts, "known")
    for key in ("gpu_hours", "share", "runs"):
        cells = column_of(parts, key)
        unknown = {name for name, cell in cells.items() if cell is None}
        assert unknown == {part.title for part in PARTS if part.key == "beginning" or part.key.startswith(("hang", "roll"))}
        assert {kinds[name] for name in unknown} == {"not known"}
    hours = column_of(parts, "gpu_hours").values()
    assert sum(float(str(cell)) for cell in hours if cell is not None) == pytest.approx(
        sum(row.gpus * (row.end - row.start) / 3600 for row in SITE_ROWS)
    )
    waits = table_of(report, "downtime")
    assert [row[0] for row in waits.rows if row[1] is None] == [row[0] for row in waits.rows[:4]]
    assert "no_store" in [remark.key for remark in report.remarks]
    (tmp_path / "with").mkdir()
    read = runs_of(SITE_ROWS, tmp_path / "with", [Case("another", 100, 110)])
    report = reliability_report(read, frame_of(read), RestartCost(), TimeRange())
    assert None not in column_of(table_of(report, "goodput_parts"), "gpu_hours").values()
    assert "no_store" not in [remark.key for remark in report.remarks]


def test_one_run_has_no_interval_of_its_ratio(tmp_path: Path) -> None:
    measured = ratio_of_sums(np.array([9.0]), np.array([10.0]))
    assert measured is not None
    assert (measured.value, math.isnan(measured.low), math.isnan(measured.high), measured.n) == (0.9, True, True, 1)
    read = runs_of([Row("1", 0, 40_000)], tmp_path)
    ratios = table_of(reliability_report(read, frame_of(read), RestartCost(), TimeRange()), "ratios")
    for key in ("running", "ratio"):
        assert cell_text(column_of(ratios, key)["8"], "share").endswith("(n = 1) *")


def test_failures_and_hours_by_size_are_those_by_hand(tmp_path: Path) -> None:
    table = table_of(site_report(tmp_path), "failure_rates")
    assert column_of(table, "failures") == {"1": 1, "8": 4, "64–255": 2}
    assert column_of(table, "machine_failures") == {"1": 0, "8": 2, "64–255": 1}
    assert column_of(table, "run_hours")["64–255"] == pytest.approx(40_000 / 3600)
    between = column_of(table, "between_s")["64–255"]
    assert isinstance(between, IntervalValue)
    assert between.value == 20_000
    assert (between.low, between.high) == pytest.approx((40_000 / poisson_interval(2)[1], 40_000 / poisson_interval(2)[0]))


def test_a_rate_that_is_known_is_found_again_and_carried_to_other_sizes(tmp_path: Path) -> None:
    """Jobs of 8 to 256 GPUs whose GPUs each fail once in 8,000 hours; those that do not fail within their time complete."""
    dice = random.Random(9)
    rate = 1 / (8_000 * 3600)
    rows = []
    for number in range(4000):
        gpus, plan_s = dice.choice((8, 32, 64, 256)), dice.uniform(3600, 40_000)
        fails_s = dice.expovariate(rate * gpus)
        end = math.ceil(min(fails_s, plan_s))
        state = "NODE_FAIL" if fails_s < plan_s else "COMPLETED"
        rows.append(Row(f"{number}", 100, 100 + end, state, gpus, f"n{number}", nodes=""))
    runs = runs_of(rows, tmp_path).runs
    model = failure_rate(runs, runs.infrastructure)
    measured = model.per_gpu_s
    assert measured is not None
    assert measured.n > 150
    assert measured.low < rate < measured.high
    expected = model.between(16384)
    assert expected is not None
    assert expected.low < 8_000 * 3600 / 16384 < expected.high


def test_the_published_projections_follow_from_the_published_rate() -> None:
    """6.50 failures in 1,000 node days of 8 GPUs: 1.8 hours at 16,384 GPUs and 0.23 at 131,072."""
    model = FailureRate(6500, 1_000_000 * 8 * 86400.0, 8)
    for gpus, hours in ((16384, 1.8), (131072, 0.23)):
        expected = model.between(gpus)
        assert expected is not None
        assert expected.value / 3600 == pytest.approx(hours, rel=0.03)


@pytest.mark.parametrize("failures_per_day", [0.5, 4.0])
def test_the_expected_ratio_is_that_of_runs_that_are_played_through(failures_per_day: float) -> None:
    dice = random.Random(2)
    cost, wait_s = RestartCost(600.0, 3600.0), 900.0
    made_s = all_s = 0.0
    for _ in range(30_000):
        run_s = dice.expovariate(failures_per_day / 86400)
        # of each attempt its start is lost, and what lies behind the last whole hour of training
        trained_s = max(0.0, run_s - cost.start_s)
        made_s += trained_s - trained_s % cost.checkpoint_s
        all_s += run_s + wait_s
    assert effective_ratio(failures_per_day / 86400, cost, wait_s) == pytest.approx(made_s / all_s, abs=0.01)


def test_attempts_of_a_run_are_one_chain(tmp_path: Path) -> None:
    runs = runs_of(SITE_ROWS, tmp_path, SITE_CASES).runs
    sizes = sorted(np.unique(chains(runs), return_counts=True)[1].tolist())
    assert sizes == [1, 2, 2, 3, 3]


def fleet(seed: int, lemon: str = "", failures: int = 0) -> list[Row]:
    """Return jobs on 60 nodes, of which one in twenty fails wherever it runs; a lemon fails more of them."""
    dice = random.Random(seed)
    rows = []
    for number in range(3000):
        begin, run_s = dice.randrange(0, 8_000_000), dice.randrange(600, 20_000)
        node = f"n{dice.randrange(60):02}"
        state = "FAILED" if dice.random() < run_s / 200_000 else "COMPLETED"
        rows.append(Row(f"{number}", begin, begin + run_s, state, 8, f"j{number}", f"u{number % 40}", node))
    for number in range(failures):
        begin = 100_000 * number
        rows.append(Row(f"x{number}", begin, begin + 3000, "NODE_FAIL", 8, f"x{number}", f"u{number}", lemon))
    return rows


@pytest.mark.parametrize("seed", range(4))
def test_a_fleet_of_equal_nodes_has_no_lemon(seed: int, tmp_path: Path) -> None:
    assert runs_of(fleet(seed), tmp_path).nodes.lemons == ()


def test_jobs_that_fail_at_their_start_and_few_that_run_for_days_make_no_lemon(tmp_path: Path) -> None:
    """Failures come with starts, hours with the few long jobs: by hours alone a third of these nodes would be lemons."""
    text = [f"{line}|{f'n{place % 40:02}' if place else 'NodeList'}" for place, line in enumerate(_accounting.lines(8000, "sacct"))]
    table = runs_of("\n".join(text), tmp_path).nodes
    assert table.lemons == ()
    hours = sum(node.hours for node in table.nodes)
    failures = sum(node.failures for node in table.nodes)
    by_hours = [poisson_tail(node.failures, failures * node.hours / hours) for node in table.nodes]
    assert sum(q <= 0.05 for q in q_values(by_hours)) > 12


def test_a_lemon_is_found_among_equal_nodes(tmp_path: Path) -> None:
    table = runs_of(fleet(1, "n07", 14), tmp_path).nodes
    assert [node.name for node in table.lemons] == ["n07"]
    assert sum(node.failures for node in table.nodes) == pytest.approx(sum(node.expected for node in table.nodes))
    assert sum(node.machine_failures for node in table.nodes) == pytest.approx(sum(node.machine_expected for node in table.nodes))


def test_neither_a_script_that_fails_all_day_nor_large_jobs_make_a_lemon(tmp_path: Path) -> None:
    rows = fleet(2)
    rows += [Row(f"s{n}", n * 100, n * 100 + 50, "FAILED", 8, "s", "bob", "n03") for n in range(300)]
    rows += [Row(f"l{n}", n * 9000, n * 9000 + 8000, "NODE_FAIL", 64, "l", "liz", "n[10-17]") for n in range(30)]
    table = runs_of(rows, tmp_path).nodes
    assert table.lemons == ()
    by_name = {node.name: node for node in table.nodes}
    assert by_name["n12"].together == 30


def test_a_node_that_the_store_blames_is_held_to_account_for_large_jobs(tmp_path: Path) -> None:
    rows = fleet(2) + [Row(f"l{n}", n * 9000, n * 9000 + 8000, "FAILED", 64, "l", "liz", "n[10-17]") for n in range(12)]
    cases = [Case(f"l{n}", n * 9000 + 8000, n * 9000 + 8010, blamed=("n12",)) for n in range(12)]
    table = runs_of(rows, tmp_path, facts=plain_facts(cases)).nodes
    assert [node.name for node in table.lemons] == ["n12"]
    assert table.lemons[0].blamed == 12


def test_each_incident_is_handled_in_one_way(tmp_path: Path) -> None:
    cases = [
        *SITE_CASES,
        Case("600", 0, 5, state=IncidentState.CLOSED),
        Case("601", 0, 5, state=IncidentState.CLOSED, closed_by="cli:ann"),
        Case("602", 0, 5, state=IncidentState.ESCALATED),
        Case("603", 0, 5, state=IncidentState.WAITING),
        Case("604", 0, 5, kind=EventKind.REQUESTED, state=IncidentState.CLOSED),
        Case("605", 0, 5, action=Action.FIX_AND_RESUBMIT, category=Category.SCRIPT, state=IncidentState.ESCALATED),
        Case(None, 0, 5, kind=EventKind.NODE_DOWN, blamed=("node01",)),
    ]
    facts = facts_of(cases, tmp_path)
    counts = column_of(handling_table(facts), "incidents")
    assert sum(int(str(count)) for count in counts.values()) == len(cases)
    assert {str(name): count for name, count in counts.items() if count} == {
        str(Handling.ALONE): 4,
        str(Handling.APPROVED): 1,
        str(Handling.OWNER): 2,
        str(Handling.HANDED_OVER): 1,
        str(Handling.TAKEN_UP): 1,
        str(Handling.NOTHING): 1,
        str(Handling.REQUESTED): 1,
        str(Handling.UNFINISHED): 1,
    }
    alone = share_alone(facts)
    assert alone is not None
    assert (alone.value, alone.n) == (4 / 9, 9)


def test_times_of_incidents_are_those_of_their_stages(tmp_path: Path) -> None:
    table = table_of(site_report(tmp_path), "stages")
    medians = [row[2] for row in table.rows]
    wanted = [[30, 10, 600, 10, 10], [20] * 5, [250, 1880, 70], [1000, 3600]]
    assert [cell.value for cell in medians if isinstance(cell, IntervalValue)] == [statistics.median(values) for values in wanted]


def test_incidents_of_another_period_are_not_counted(tmp_path: Path) -> None:
    report = site_report(tmp_path, TimeRange(at(0), at(900)))
    assert sum(int(str(count)) for count in column_of(table_of(report, "handling"), "incidents").values()) == 2


def test_plots_say_what_they_show_and_stay_within_their_picture(tmp_path: Path) -> None:
    plots = [figure for _, figure in site_report(tmp_path).figures() if isinstance(figure, WaterfallPlot | RangePlot)]
    assert len(plots) == 3
    for plot in plots:
        text = svg(plot)
        assert "nan" not in text.split("</desc>")[1]
        assert "inf" not in text.split("</desc>")[1]
    (fall,) = [plot for plot in plots if isinstance(plot, WaterfallPlot)]
    assert math.fsum(bar.value for bar in fall.bars[1:]) == pytest.approx(fall.total)


def test_the_order_of_rows_and_the_zone_change_nothing(tmp_path: Path) -> None:
    rows = list(SITE_ROWS)
    random.Random(1).shuffle(rows)
    (tmp_path / "a").mkdir()
    shuffled = runs_of(rows, tmp_path / "a", SITE_CASES, zone="Asia/Shanghai")
    made = reliability_report(shuffled, frame_of(shuffled, "Asia/Shanghai"), RestartCost(), TimeRange())
    assert as_object(made)["figures"] == as_object(site_report(tmp_path))["figures"]


def test_slices_of_time_sum_to_the_whole(tmp_path: Path) -> None:
    facts = facts_of(SITE_CASES, tmp_path)
    whole = goodput(runs_of(SITE_ROWS, tmp_path, facts=facts).runs)
    cuts = [None, at(800), at(10_000), None]
    parts = [
        goodput(runs_of(SITE_ROWS, tmp_path, facts=facts, period=TimeRange(since, until)).runs) for since, until in pairwise(cuts)
    ]
    assert {key: sum(part.gpu_ms[key] for part in parts) for key in whole.gpu_ms} == dict(whole.gpu_ms)


@pytest.mark.parametrize("rows", [[], [Row("1", 0, 100, gpus=0)], [Row("1", 0, 0, "FAILED")], [Row("1", 0, 100, nodes="node[")]])
@pytest.mark.parametrize("has_store", [False, True])
def test_sources_with_little_in_them_have_a_report(rows: list[Row], has_store: bool, tmp_path: Path) -> None:
    read = runs_of(rows, tmp_path, [] if has_store else None)
    report = reliability_report(read, frame_of(read), RestartCost(0.0, 0.0), TimeRange())
    assert report.remarks
    assert page(report)
