"""Figures of `report failures` and `report job`: by hand, by a second database, and from a trace whose figures are known."""

from __future__ import annotations

import json
import random
import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from assistant.display import json_text
from assistant.errors import UsageError
from assistant.records import Category, IncidentState
from assistant.reports.exports import as_object, csv_files
from assistant.reports.figures import FigureTable, IntervalValue, UsageReport
from assistant.reports.intake import TimeRange
from assistant.reports.page import page
from assistant.reports.reading import ReadRequest
from assistant.reports.reliability.failures import failures_report
from assistant.reports.reliability.job_life import life_report, read_life
from assistant.reports.workload_types import type_rules
from tests.unit.failures_here import SITE_CASES, SITE_ROWS, ZERO_S, Case, Row, at, facts_of, frame_of, plain_facts, runs_of, text_of
from tests.unit.reports_here import NOW, column_of, table_of
from tests.unit.test_reports_page import elements


def site(folder: Path, **more: object) -> UsageReport:
    read = runs_of(SITE_ROWS, folder, SITE_CASES, **more)  # type: ignore[arg-type]
    return failures_report(read, frame_of(read))


def test_each_failure_has_the_reason_of_its_incident(tmp_path: Path) -> None:
    table = table_of(site(tmp_path), "by_reason")
    assert column_of(table, "failures") == {
        "nvlink_error": 1,
        "hang": 1,  # it was cancelled, and is a failure since it was diagnosed as one
        "type_error": 1,
        "ecc_error": 1,
        "not diagnosed, failed": 2,
        "not diagnosed, node_fail": 1,
        "all": 7,
    }
    hours = column_of(table, "gpu_hours")
    assert hours["nvlink_error"] == pytest.approx(64 * 10_000 / 3600)
    assert hours["not diagnosed, failed"] == pytest.approx((8 * 60 + 1 * 300) / 3600)
    assert column_of(table, "category")["ecc_error"] == "infrastructure"


def test_times_are_those_of_the_runs_that_failed_and_went_on(tmp_path: Path) -> None:
    table = table_of(site(tmp_path), "by_reason_times")
    to_restart = {key: cell.value for key, cell in column_of(table, "mean_to_restart_s").items() if isinstance(cell, IntervalValue)}
    # the second run of each: by the store for 100, 101 and 500, by user and name for 200
    assert to_restart["nvlink_error"] == 400
    assert to_restart["hang"] == 600
    assert to_restart["ecc_error"] == 200
    assert to_restart["type_error"] == 140
    assert column_of(table, "mean_to_restart_s")["not diagnosed, node_fail"] is None
    to_failure = column_of(table, "median_to_failure_s")["hang"]
    assert isinstance(to_failure, IntervalValue)
    assert to_failure.value == 10_000


@pytest.mark.parametrize(
    ("state", "reason", "shown"),
    [
        ("CANCELLED by 1", "hang", "hang"),
        ("CANCELLED by 1", "cancelled", None),
        ("PREEMPTED", "preempted", None),
        ("CANCELLED by 1", "unknown", None),
        ("COMPLETED", "hang", None),
        ("FAILED", "unknown", "not diagnosed, failed"),
        ("FAILED", "cancelled", "cancelled"),
        ("TIMEOUT", "time_limit", "time_limit"),
        ("TIMEOUT", "hang", "hang"),
    ],
)
def test_what_is_a_failure_and_what_it_is_called(state: str, reason: str, shown: str | None, tmp_path: Path) -> None:
    """As knowledge has them, a hang and a time limit are of the category none."""
    read = runs_of([Row("1", 0, 100, state)], tmp_path, facts=plain_facts([Case("1", 100, 105, reason, Category.NONE)]))
    report = failures_report(read, frame_of(read))
    if shown is None:
        assert not read.runs.failed.any()
    else:
        assert list(column_of(table_of(report, "by_reason"), "failures")) == [shown]
        assert read.runs.broken.tolist() == [reason != "time_limit"]


def test_without_a_store_reasons_are_final_states(tmp_path: Path) -> None:
    read = runs_of(SITE_ROWS, tmp_path)
    report = failures_report(read, frame_of(read))
    assert column_of(table_of(report, "by_reason"), "failures") == {"failed": 5, "node_fail": 1, "all": 6}
    assert "no store was read" in dict(report.facts)["incidents"]
    assert set(column_of(table_of(report, "by_node"), "blamed").values()) == {None}
    assert not [figure for _, figure in report.figures() if figure.key in ("beside_paper", "unmatched")]


def test_incidents_without_a_run_are_counted_and_named(tmp_path: Path) -> None:
    table = table_of(site(tmp_path), "unmatched")
    assert column_of(table, "incidents") == {"network_error": 1}
    assert column_of(table, "examples")["network_error"] == "incident 5: job 999"


@pytest.mark.parametrize(
    ("failed", "attempt", "place"), [(100.0, 0, 0), (400.0, 1, 1), (1000.0, 2, 2), (405.0, 0, 1), (5000.0, 0, None)]
)
def test_an_incident_belongs_to_the_run_in_which_it_happened(
    failed: float, attempt: int, place: int | None, tmp_path: Path
) -> None:
    """Three runs of one id; the last incident is of another job, for nothing ran under the id then."""
    rows = [Row("7", begin, begin + 100, "FAILED", submit=begin - 1) for begin in (0.0, 300.0, 900.0)]
    read = runs_of(rows, tmp_path, [Case("7", failed, failed + 5, attempt=attempt)])
    assert sorted(read.runs.incidents) == ([] if place is None else [place])


def test_runs_that_touch_are_told_apart_by_the_attempt(tmp_path: Path) -> None:
    rows = [Row("7", 0, 100, "FAILED"), Row("7", 100, 200, "FAILED", submit=100)]
    read = runs_of(rows, tmp_path, [Case("7", 100, 105, attempt=1)])
    assert sorted(read.runs.incidents) == [1]


def test_of_runs_of_one_name_at_the_same_time_nothing_is_concluded(tmp_path: Path) -> None:
    rows = [Row("1", 0, 100, "FAILED", name="sweep"), Row("2", 10, 80, "FAILED", name="sweep"), Row("3", 200, 300, name="sweep")]
    read = runs_of(rows, tmp_path)
    assert read.runs.parallel.tolist() == [True, True, False]
    gone_on = column_of(table_of(failures_report(read, frame_of(read)), "by_reason_times"), "restarted")["failed"]
    assert isinstance(gone_on, IntervalValue)
    assert (gone_on.value, gone_on.high) == (0.0, 1.0)


def test_what_comes_long_after_or_ran_to_its_end_is_another_run(tmp_path: Path) -> None:
    rows = [Row("1", 0, 100), Row("2", 200, 300, "FAILED"), Row("3", 300 + 4 * 86400, 400 + 4 * 86400)]
    assert runs_of(rows, tmp_path).runs.next_place.tolist() == [-1, -1, -1]


TABLE = {
    # reason: failures, GPUs, seconds to failure, seconds to restart; the shape of the paper's rows
    ("nvlink_error", Category.INFRASTRUCTURE): (54, 800, 52_080, 5_736),
    ("connection_error", Category.INFRASTRUCTURE): (147, 29, 3_120, 48),
    ("dataloader_killed", Category.FRAMEWORK): (6, 445, 94_860, 6_900),
    ("file_not_found", Category.SCRIPT): (300, 21, 840, 24),
}


def known_trace(seed: int) -> tuple[list[Row], list[Case], dict[str, list[tuple[int, int, int]]]]:
    """Return a trace whose failures have the means of `TABLE`, spread around them, in a shuffled order."""
    dice = random.Random(seed)
    rows: list[Row] = []
    cases: list[Case] = []
    drawn: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    number = 0
    for (reason, category), (count, gpus, to_failure, to_restart) in TABLE.items():
        for place in range(count):
            sign = 0 if place == count - 1 and count % 2 else 1 if place % 2 else -1
            run_s, gap_s = to_failure + sign * to_failure // 2, to_restart + sign * to_restart // 3
            begin = dice.randrange(0, 9_000_000)
            number += 1
            name = f"{reason}_{number}"
            end = begin + run_s
            rows.append(
                Row(f"{number}", begin, end, "FAILED", gpus, name, f"u{number % 7}", nodes=f"node{number % 50:03}", exit="1:0")
            )
            rows.append(
                Row(f"{10_000 + number}", end + gap_s, end + gap_s + 500, "COMPLETED", gpus, name, f"u{number % 7}", submit=end + 1)
            )
            cases.append(Case(f"{number}", end, end + 5, reason, category))
            drawn[reason].append((gpus, run_s, gap_s))
    dice.shuffle(rows)
    return rows, cases, drawn


def test_a_trace_with_known_failures_gives_them_back(tmp_path: Path) -> None:
    rows, cases, drawn = known_trace(3)
    read = runs_of(rows, tmp_path, facts=plain_facts(cases))
    report = failures_report(read, frame_of(read))
    cost, times = table_of(report, "by_reason"), table_of(report, "by_reason_times")
    total_s = sum(gpus * run_s for values in drawn.values() for gpus, run_s, _ in values)
    for (reason, _), (count, gpus, to_failure, to_restart) in TABLE.items():
        assert column_of(cost, "failures")[reason] == count
        assert column_of(cost, "mean_gpus")[reason] == gpus == column_of(cost, "median_gpus")[reason]
        assert column_of(cost, "gpu_hours")[reason] == pytest.approx(count * gpus * to_failure / 3600, rel=1e-3)
        shares = column_of(cost, "share_of_gpu_time")[reason]
        assert isinstance(shares, IntervalValue)
        assert shares.value == pytest.approx(sum(g * run_s for g, run_s, _ in drawn[reason]) / total_s)
        for key, wanted, part in (("to_failure_s", to_failure, 1), ("to_restart_s", to_restart, 2)):
            values = [value[part] for value in drawn[reason]]
            middle, typical = column_of(times, f"mean_{key}")[reason], column_of(times, f"median_{key}")[reason]
            assert isinstance(middle, IntervalValue)
            assert isinstance(typical, IntervalValue)
            assert middle.value == pytest.approx(statistics.fmean(values))
            assert middle.value == pytest.approx(wanted, rel=0.01)
            assert middle.low <= wanted * 1.01
            assert middle.high >= wanted * 0.99
            assert typical.value == statistics.median(values)


def second_database(rows: Sequence[Row]) -> sqlite3.Connection:
    """Return the rows in SQLite, read by nothing of ours."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE r (id, state, user, part, gpus REAL, begin REAL, until REAL)")
    lines = [row.line.split("|") for row in rows]
    values = [
        (f[0], f[5].split(" ")[0], f[2], f[4], float(f[12].partition("gres/gpu=")[2] or 0), float(f[8]), float(f[9])) for f in lines
    ]
    connection.executemany("INSERT INTO r VALUES (?,?,?,?,?,?,?)", values)
    return connection


@pytest.mark.parametrize(("key", "column"), [("by_user", "user"), ("by_reason", "lower(state)")])
def test_counts_and_hours_agree_with_a_second_database(key: str, column: str, tmp_path: Path) -> None:
    dice = random.Random(5)
    states = ("COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "CANCELLED by 5", "PREEMPTED")
    rows = [
        Row(f"{n}", begin, begin + dice.randrange(1, 90_000), dice.choice(states), dice.choice((0, 1, 8, 64)), f"n{n}", f"u{n % 9}")
        for n in range(1500)
        for begin in [dice.randrange(0, 9_000_000)]
    ]
    read = runs_of(rows, tmp_path)
    table = table_of(failures_report(read, frame_of(read)), key)
    sql = (
        f"SELECT {column}, count(*), sum(gpus * (until - begin)) / 3600, min(until), max(until) FROM r "
        "WHERE state IN ('FAILED', 'TIMEOUT', 'NODE_FAIL', 'OUT_OF_MEMORY') GROUP BY 1"
    )
    wanted = second_database(rows).execute(sql).fetchall()
    counts, hours = column_of(table, "failures"), column_of(table, "gpu_hours")
    assert {name: counts[name] for name, *_ in wanted} == {name: count for name, count, *_ in wanted}
    assert len(counts) == len(wanted) + 1
    assert {name: hours[name] for name, *_ in wanted} == pytest.approx({name: value for name, _, value, *_ in wanted})
    last = column_of(table, "last")
    assert {name: last[name] for name, *_ in wanted} == {
        name: f"{datetime.fromtimestamp(until, UTC):%Y-%m-%d}" for name, _, _, _, until in wanted
    }


@pytest.mark.parametrize("key", ["by_reason", "by_user", "by_size", "by_type", "by_exit"])
def test_groups_sum_to_all_failures(key: str, tmp_path: Path) -> None:
    table = table_of(site(tmp_path), key)
    for column in ("failures", "gpu_hours"):
        values = column_of(table, column)
        total = values.pop("all")
        assert sum(float(str(value)) for value in values.values()) == pytest.approx(float(str(total)))


def test_the_order_of_rows_changes_nothing(tmp_path: Path) -> None:
    rows = list(SITE_ROWS)
    random.Random(1).shuffle(rows)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    shuffled = runs_of(rows, tmp_path / "b", SITE_CASES)
    assert as_object(failures_report(shuffled, frame_of(shuffled)))["figures"] == as_object(site(tmp_path / "a"))["figures"]


def test_slices_of_time_sum_to_the_whole(tmp_path: Path) -> None:
    rows, _, _ = known_trace(4)
    whole = runs_of(rows, tmp_path)
    cuts = [None, at(3_000_000), at(6_345_678), None]
    parts = [runs_of(rows, tmp_path, period=TimeRange(since, until)) for since, until in pairwise(cuts)]
    assert sum(int(part.runs.failed.sum()) for part in parts) == int(whole.runs.failed.sum())
    # a run that goes on behind the end of a slice is known all the same
    gaps = sum(int((part.runs.next_start_s > 0).sum()) for part in parts)
    assert gaps == int((whole.runs.next_start_s > 0).sum())
    assert sum(float(part.runs.jobs.gpu_s.sum()) for part in parts) == pytest.approx(float(whole.runs.jobs.gpu_s.sum()))


def test_zones_move_dates_and_nothing_else(tmp_path: Path) -> None:
    read = runs_of([Row("1", 0, 20 * 3600, "FAILED")], tmp_path, zone="Asia/Shanghai")
    east, west = (
        table_of(failures_report(read, frame_of(read, zone)), "by_reason") for zone in ("Asia/Shanghai", "America/New_York")
    )
    assert (east.rows[0][-1], west.rows[0][-1]) == ("2026-01-02", "2026-01-01")
    assert east.rows[0][:-2] == west.rows[0][:-2]


def test_names_are_gone_where_asked(tmp_path: Path) -> None:
    rows = [
        Row("secretid", 0, 100, "FAILED", name="secretname", user="secretuser", nodes="secretnode1", partition="secretpart")
    ] * 1
    cases = [Case("secretid", 100, 105, summary="secretsummary", blamed=("secretnode1",)), Case("secretother", 1, 2)]
    read = runs_of([*rows, Row("x", 0, 50)], tmp_path, cases, anonymous=True)
    made = failures_report(read, frame_of(read), with_names=False)
    shown = page(made) + json_text(as_object(made)) + "".join(text for _, text in csv_files(made))
    assert "secret" not in shown
    assert "node 1" in shown


def life(job: str, folder: Path, rows: Sequence[Row] = SITE_ROWS, cases: Sequence[Case] | None = SITE_CASES) -> UsageReport:
    (folder / "rows.txt").write_text(text_of(rows))
    request = ReadRequest(str(folder / "rows.txt"), type_rules(None), "UTC", NOW)
    read = read_life(request, job, None if cases is None else facts_of(cases, folder), folder=folder)
    return life_report(read, frame_of(read))  # type: ignore[arg-type]


@pytest.mark.parametrize("job", ["100", "101", "102"])
def test_the_life_of_a_run_is_that_of_all_its_attempts(job: str, tmp_path: Path) -> None:
    report = life(job, tmp_path)
    table = table_of(report, "attempts")
    assert [row[1] for row in table.rows] == ["100", "101", "102"]
    assert list(column_of(table, "reason").values()) == ["nvlink_error", "hang", ""]
    assert list(column_of(table, "steps_lost").values()) == [100, 100, None]
    headline = {name: value for name, value, _ in report.headline}
    assert headline["GPU hours"] == pytest.approx(64 * 40_000 / 3600)
    assert headline["steps lost"] == 200
    assert column_of(table_of(report, "attempt_nodes"), "changed")["2"] == "without node08, with node09"
    gaps = table_of(report, "downtime")
    assert column_of(gaps, "seconds")["all"] == 400 + 600
    assert sum(float(str(row[1])) for row in gaps.rows[:-1]) == 1000
    parts = column_of(table_of(report, "goodput_parts"), "gpu_hours")
    assert sum(float(str(value)) for value in parts.values()) == pytest.approx(64 * 40_000 / 3600)


def test_the_life_of_a_run_without_a_store_is_joined_by_name(tmp_path: Path) -> None:
    report = life("200", tmp_path, cases=None)
    assert [row[1] for row in table_of(report, "attempts").rows] == ["200", "201", "202"]
    assert {name: value for name, value, _ in report.headline}["incidents"] == "not known"


@pytest.mark.parametrize(
    ("job", "with_store", "joins"),
    [
        ("100", True, ["", "store", "store"]),
        ("200", True, ["", "name", "name"]),
        ("500", False, ["", "id"]),
        ("500", True, ["", "store"]),
    ],
)
def test_by_what_attempts_are_joined_is_shown(job: str, with_store: bool, joins: list[str], tmp_path: Path) -> None:
    report = life(job, tmp_path, cases=SITE_CASES if with_store else None)
    table = table_of(report, "attempts")
    assert [row[-1] for row in table.rows] == joins
    texts = {remark.key: remark.text for remark in report.remarks}
    assert ("by_name" in texts) == ("name" in joins)
    if "name" in joins:
        assert "Of its 3 attempts 2 are joined to the one before by user, name and GPUs alone: a guess" in texts["by_name"]


def test_how_many_restarts_are_guessed_is_said(tmp_path: Path) -> None:
    report = site(tmp_path)
    by_name = column_of(table_of(report, "by_reason_times"), "by_name")
    # 200, 201 and 300 went on in 201, 202 and 301, by name; the store submitted those behind 100, 101 and 500
    wanted = {"type_error": (1.0, 1), "not diagnosed, failed": (1.0, 2), "hang": (0.0, 1), "all": (0.5, 6)}
    for reason, (value, n) in wanted.items():
        cell = by_name[reason]
        assert isinstance(cell, IntervalValue)
        assert (cell.value, cell.n) == (value, n)
    assert by_name["not diagnosed, node_fail"] is None
    texts = {remark.key: remark.text for remark in report.remarks}
    assert texts["by_name"].startswith(
        "Of 6 failures that a run went on with, 3 (50.0 %) are joined to it by user, name and GPUs alone"
    )


def test_an_attempt_whose_state_is_not_known_is_worded(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text(text_of([Row("1", 0, 100)]))
    request = ReadRequest(str(tmp_path / "rows.txt"), type_rules(None), "UTC", NOW)
    read = read_life(request, "1", None, folder=tmp_path)
    read = replace(read, attempts=[attempt._replace(state=None) for attempt in read.attempts])
    report = life_report(read, frame_of(read))  # type: ignore[arg-type]
    assert {remark.key: remark.text for remark in report.remarks}["last"] == (
        "The attempt ended in a state that is not known, after 1.7 min."
    )


def test_of_a_job_that_only_the_store_knows_its_incidents_are_shown(tmp_path: Path) -> None:
    report = life("999", tmp_path)
    assert [remark.key for remark in report.remarks] == ["no_run"]
    assert column_of(table_of(report, "incidents"), "reason") == {"5": "network_error (infrastructure)"}


@pytest.mark.parametrize(("job", "word"), [("77", "neither"), ("7", "7_1"), ("8", "running")])
def test_a_job_that_is_not_there_is_named_with_what_is(job: str, word: str, tmp_path: Path) -> None:
    running = Row("8", 5, 6, "RUNNING").line.replace(str(ZERO_S + 6), "Unknown")
    (tmp_path / "rows.txt").write_text(text_of([Row("7_1", 0, 5), Row("7_2", 0, 5)]) + running + "\n")
    request = ReadRequest(str(tmp_path / "rows.txt"), type_rules(None), "UTC", NOW)
    with pytest.raises(UsageError, match=word):
        read_life(request, job, [], folder=tmp_path)


HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e=cmd|x"


def test_what_logs_and_people_wrote_stays_text(tmp_path: Path) -> None:
    key = "password=hunter2hunter2"
    rows = [Row("1", 0, 100, "FAILED", name="<b>x</b>", user="<i>u</i>", nodes="node[1-"), Row("2", 0, 50, nodes="<svg onload=x>")]
    cases = [Case("1", 100, 101, "<script>x", Category.SCRIPT, summary=f"{HOSTILE} {key}", state=IncidentState.ESCALATED)]
    (tmp_path / "f").mkdir()
    read = runs_of(rows, tmp_path / "f", cases)
    for report in (life("1", tmp_path, rows, cases), failures_report(read, frame_of(read))):
        text = page(report)
        parsed = elements(text)
        assert (parsed.open, parsed.wrong) == ([], [])
        assert "onload" not in dict(parsed.attributes)
        assert "<script" not in text
        assert "\x1b" not in text
        assert "hunter2hunter2" not in text + json_text(as_object(report))
        json.loads(json_text(as_object(report)))


@pytest.mark.parametrize("rows", [[], [Row("1", 0, 100, gpus=0)], [Row("1", 0, 0, "FAILED")], [Row("1", 0, 100)]])
def test_sources_with_little_in_them_have_a_report(rows: list[Row], tmp_path: Path) -> None:
    read = runs_of(rows, tmp_path, [])
    report = failures_report(read, frame_of(read))
    assert report.remarks
    assert page(report)
    assert all(isinstance(figure, FigureTable) or figure.about for _, figure in report.figures())
