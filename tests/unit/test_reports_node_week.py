"""Figures of `report node` and `report week`: beside the fleet, out of service, weeks that sum to the cluster in any zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from assistant.errors import UsageError
from assistant.ports import JumpingClock
from assistant.records import Call, CallStatus, Outcome
from assistant.reports.exports import as_object
from assistant.reports.figures import IntervalValue, ReportFrame, UsageReport
from assistant.reports.statistics import difference_interval, share_of_count
from assistant.reports.subjects.cordons import Cordon, read_cordons
from assistant.reports.subjects.nodes import NodeRuns, failure_ratio, node_report, read_node
from assistant.reports.subjects.run_totals import run_totals
from assistant.reports.subjects.weeks import Week, week_of, week_report, weeks_table
from assistant.store import Store
from tests.unit.failures_here import SITE_CASES, SITE_ROWS, ZERO_S, Row, at, facts_of, runs_of
from tests.unit.reports_here import column_of, table_of
from tests.unit.test_reports_subjects import headline_of, random_rows, request_of, total

ZONES = ("UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kathmandu")


def node_of(
    node: str, rows: list[Row], folder: Path, *, store: bool = True, anonymous: bool = False, cordons: tuple[Cordon, ...] = ()
) -> tuple[NodeRuns, UsageReport]:
    facts = facts_of(SITE_CASES, folder) if store else None
    read = read_node(request_of(rows, folder, anonymous=anonymous), node, facts, cordons if store else None, folder=folder)
    frame = ReportFrame("A node", "UTC", (), read.left_out)
    return read, node_report(read, frame, first_s=float("-inf"), last_s=ZERO_S + 50_000)


def test_a_blamed_node_has_its_incidents_and_those_of_jobs_on_it(tmp_path: Path) -> None:
    read, report = node_of("node08", list(SITE_ROWS), tmp_path)
    assert headline_of(report)["jobs on it"] == 1
    assert headline_of(report)["incidents that blame it"] == 1
    assert column_of(table_of(report, "incidents"), "blamed") == {"1": "yes"}
    ratio = column_of(table_of(report, "expected"), "ratio")["of machines, on it alone or blamed on it"]
    assert isinstance(ratio, IntervalValue)
    assert ratio.low < ratio.value < ratio.high
    assert read.hours is not None
    assert ratio.value == pytest.approx(read.hours.machine_failures / read.hours.machine_expected)
    (remark,) = [remark for remark in report.remarks if remark.key == "broken"]
    assert "Few jobs" in remark.text


def test_an_incident_of_a_job_on_a_node_does_not_blame_the_node(tmp_path: Path) -> None:
    _, report = node_of("node01", list(SITE_ROWS), tmp_path)
    assert set(column_of(table_of(report, "incidents"), "blamed").values()) == {"no"}
    assert headline_of(report)["incidents that blame it"] == 0


def test_jobs_of_single_nodes_sum_to_those_of_the_source(tmp_path: Path) -> None:
    rows = random_rows(3)
    counts = [headline_of(node_of(f"node{n:02}", rows, tmp_path, store=False)[1])["jobs on it"] for n in range(1, 5)]
    assert sum(int(str(count)) for count in counts) == len(rows)
    here, report = node_of("node01", rows, tmp_path, store=False)
    shares = column_of(table_of(report, "broken_off"), "broken")
    on_gpus = here.runs.broken & here.runs.jobs.on_gpus
    assert sum(int(str(count)) for count in shares.values()) == int(on_gpus.sum())


def test_a_ratio_of_no_failure_has_an_upper_end_and_of_nothing_expected_is_none() -> None:
    ratio = failure_ratio(0, 2.0)
    assert ratio is not None
    assert (ratio.value, ratio.low) == (0.0, 0.0)
    assert ratio.high == pytest.approx(3.689 / 2, abs=1e-3)
    assert failure_ratio(3, 0.0) is None


def test_time_out_of_service_counts_within_the_period_only(tmp_path: Path) -> None:
    cordons = (Cordon(ZERO_S - 500, ZERO_S + 100, "cli:ann", "hot"), Cordon(ZERO_S + 49_000, None, "playbook:x", "ECC"))
    _, report = node_of("node10", list(SITE_ROWS), tmp_path, cordons=cordons)
    assert headline_of(report)["out of service, by Nightshift"] == pytest.approx(100 + 1000)
    assert list(column_of(table_of(report, "cordons"), "end").values())[1] == "not put back"
    _, report = node_of("node10", list(SITE_ROWS), tmp_path, store=False)
    assert headline_of(report)["out of service, by Nightshift"] is None


def test_cordons_are_read_from_calls_that_were_carried_out(tmp_path: Path) -> None:
    with Store(tmp_path / "store.db", JumpingClock(at(0))) as store:
        for tool, moment, ok, value in (
            ("cordon_node", 10, True, {"cordoned": True}),
            ("cordon_node", 20, False, None),
            ("uncordon_node", 30, True, {}),
            ("uncordon_node", 35, True, {}),
            ("cordon_node", 40, True, {"cordoned": False}),
            ("cordon_node", 50, True, {"cordoned": True}),
        ):
            kind = tool.removesuffix("_node")
            wish = Call(0, None, tool, {"node": "node01"}, "why", "cli:ann", at(moment), CallStatus.INTENT, kind)
            call = store.write_call(wish, kind=kind)
            store.write_outcome(Outcome(call.id, ok, value, "" if ok else "it did not answer", at(moment)))
        spans = [(cordon.begin_s - ZERO_S, cordon.end_s and cordon.end_s - ZERO_S) for cordon in read_cordons(store, "node01")]
        assert spans == [(10, 30), (50, None)]
        assert read_cordons(store, "node02") == []


def test_an_unknown_node_is_an_error_with_near_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"node nod08 .* did you mean node"):
        node_of("nod08", list(SITE_ROWS), tmp_path)
    with pytest.raises(UsageError, match="add the column NodeList"):
        node_of("node08", [Row("1", 0, 60, nodes="")], tmp_path, store=False)


def test_no_name_is_in_the_report_of_a_node_where_asked(tmp_path: Path) -> None:
    _, report = node_of(
        "node08", list(SITE_ROWS), tmp_path, anonymous=True, cordons=(Cordon(ZERO_S, None, "cli:ann", "node08 is hot"),)
    )
    made = str(as_object(report))
    for name in ("node08", "'ann'", "cli:ann", "is hot", "'100'"):
        assert name not in made, name


@pytest.mark.parametrize("zone", ZONES)
def test_weeks_sum_to_the_cluster_in_any_zone(zone: str, tmp_path: Path) -> None:
    """Rows are spread over the days on which clocks are set forward and back in 2026."""
    rows = [row for seed in range(5) for row in random_rows(seed, 40)]
    rows = [Row(f"{n}", row.start, row.end, row.state, row.gpus, row.name, row.user, row.nodes) for n, row in enumerate(rows)]
    read = runs_of(rows, tmp_path, zone=zone)
    runs = read.runs
    first = week_of(datetime.fromtimestamp(float(runs.jobs.end_s.min()), UTC), zone)
    last = week_of(datetime.fromtimestamp(float(runs.jobs.end_s.max()), UTC), zone)
    weeks = [first]
    while weeks[-1].monday < last.monday:
        weeks.append(weeks[-1].next)
    table = weeks_table(runs, weeks)
    whole = run_totals(runs, np.ones(runs.jobs.count, dtype=np.bool_))
    assert total(table, "jobs") == whole.jobs
    assert total(table, "failures") == whole.failures
    assert total(table, "gpu_hours") == pytest.approx(whole.gpu_hours)
    assert total(table, "failure_hours") == pytest.approx(whole.failure_hours)
    assert total(table, "open_hours") == pytest.approx(whole.open_hours)


@pytest.mark.parametrize(
    ("zone", "monday", "hours"),
    [
        ("Europe/Berlin", date(2026, 3, 23), 167),
        ("Europe/Berlin", date(2026, 10, 19), 169),
        ("Australia/Lord_Howe", date(2026, 3, 30), 168.5),
        ("UTC", date(2026, 3, 23), 168),
    ],
)
def test_a_week_is_as_long_as_the_clock_makes_it(zone: str, monday: date, hours: float) -> None:
    week = Week(monday, zone)
    assert week.end - week.begin == timedelta(hours=hours)
    assert week_of(week.begin, zone) == week
    assert week_of(week.end - timedelta(microseconds=1), zone) == week
    assert week_of(week.end, zone) == week.next
    assert week.next.former == week


def test_the_week_around_new_year_has_the_name_of_iso_8601() -> None:
    assert Week(date(2026, 12, 28), "UTC").name == "2026-W53"
    assert Week(date(2024, 12, 30), "UTC").name == "2025-W01"


def two_weeks(before: int, after: int, *, n: int = 200) -> list[Row]:
    """Return n jobs in each of two weeks, some of which failed."""
    monday = 4 * 86_400
    return [
        Row(
            f"{week}_{job}", start := monday + week * 7 * 86_400 + job * 600, start + 300, "FAILED" if job < failed else "COMPLETED"
        )
        for week, failed in enumerate((before, after))
        for job in range(n)
    ]


@pytest.mark.parametrize(
    ("before", "after", "n", "level"),
    [(10, 60, 200, "unusual"), (20, 24, 200, "note"), (0, 9, 12, "note"), (60, 10, 200, "unusual")],
)
def test_a_share_changed_only_where_its_interval_says_so(before: int, after: int, n: int, level: str, tmp_path: Path) -> None:
    read = runs_of(two_weeks(before, after, n=n), tmp_path)
    week = Week(date(2026, 1, 12), "UTC")
    report = week_report(read, ReportFrame("A week", "UTC", (), read.left_out), week)
    (remark,) = [remark for remark in report.remarks if remark.key == "failed"]
    assert remark.level == level
    word = ("it rose" if after > before else "it fell") if level == "unusual" else "not to be told from chance"
    assert word in remark.text
    assert f"of {n:,}" in remark.text
    assert headline_of(report)["jobs"] == n
    assert headline_of(report)["failures"] == after


def test_the_interval_of_a_difference_is_the_published_one() -> None:
    """Newcombe 1998, table II, row (a): 56 of 70 less 48 of 80, method 10: 0.0524 to 0.3339."""
    first, second = share_of_count(48, 80), share_of_count(56, 70)
    assert first is not None
    assert second is not None
    assert difference_interval(first, second) == pytest.approx((0.0524, 0.3339), abs=1e-4)


def test_weeks_without_jobs_are_said_and_not_compared(tmp_path: Path) -> None:
    read = runs_of(two_weeks(10, 60), tmp_path)
    frame = ReportFrame("A week", "UTC", (), read.left_out)
    keys = {remark.key for remark in week_report(read, frame, Week(date(2026, 1, 5), "UTC")).remarks}
    assert keys == {"no_store", "no_former"}
    (remark,) = week_report(read, frame, Week(date(2030, 1, 7), "UTC")).remarks
    assert remark.key == "empty"
    gone = week_report(read, frame, Week(date(2026, 1, 19), "UTC"))
    assert "200 the week before, 0 now (-100.0 %)" in {remark.key: remark.text for remark in gone.remarks}["jobs"]


def test_a_new_reason_is_named(tmp_path: Path) -> None:
    rows = [*two_weeks(5, 5), Row("x", 12 * 86_400, 12 * 86_400 + 60, "NODE_FAIL")]
    read = runs_of(rows, tmp_path)
    report = week_report(read, ReportFrame("A week", "UTC", (), read.left_out), Week(date(2026, 1, 12), "UTC"))
    texts = {remark.key: remark.text for remark in report.remarks}
    assert "node_fail (n = 1)" in texts["new_reasons"]
    assert "failed (n" not in texts["new_reasons"]
