"""Figures of `report user`, `node` and `week` agree with those of the cluster, whatever the rows, the zone and the week are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from assistant.errors import UsageError
from assistant.reports.cluster import cluster_report
from assistant.reports.exports import as_object
from assistant.reports.figures import Cell, FigureTable, IntervalValue, ReportFrame, UsageReport
from assistant.reports.reading import ReadRequest
from assistant.reports.references import reference_clusters
from assistant.reports.reliability.failures import failures_report
from assistant.reports.reliability.goodput import goodput
from assistant.reports.subjects.users import ALL, UserRuns, read_user, user_report, users_table
from assistant.reports.workload_types import type_rules
from tests.unit.failures_here import SITE_CASES, SITE_ROWS, Case, Row, facts_of, runs_of, text_of
from tests.unit.reports_here import NOW, column_of, table_of

STATES = ("COMPLETED", "COMPLETED", "FAILED", "CANCELLED by 0", "TIMEOUT", "NODE_FAIL", "PREEMPTED")


def random_rows(seed: int, count: int = 120) -> list[Row]:
    """Return runs of some users, of all states, over ten weeks."""
    dice = random.Random(seed)
    rows = []
    for number in range(count):
        start = dice.randrange(0, 70 * 86_400)
        words = (f"name{dice.randrange(6)}", f"user{dice.randrange(5)}", f"node{dice.randrange(1, 5):02}")
        rows.append(
            Row(str(number), start, start + dice.randrange(1, 200_000), dice.choice(STATES), dice.choice((0, 1, 8)), *words)
        )
    return rows


def request_of(rows: Sequence[Row], folder: Path, *, zone: str = "UTC", anonymous: bool = False) -> ReadRequest:
    path = folder / "rows.txt"
    path.write_text(text_of(rows))
    return ReadRequest(str(path), type_rules(None), zone, NOW, anonymous=anonymous)


def user_of(
    user: str, rows: Sequence[Row], folder: Path, cases: Sequence[Case] | None = None, *, anonymous: bool = False
) -> tuple[UserRuns, UsageReport]:
    facts = None if cases is None else facts_of(cases, folder)
    read = read_user(request_of(rows, folder, anonymous=anonymous), user, facts, folder=folder)
    return read, user_report(read, ReportFrame("A user", "UTC", (), read.left_out))


def total(table: FigureTable, key: str) -> float:
    """Return the sum of a column, without the row of all."""
    return sum(float(str(cell)) for name, cell in column_of(table, key).items() if name != "all")


def headline_of(report: UsageReport) -> dict[str, Cell]:
    return {name: cell for name, cell, _ in report.headline}


@pytest.mark.parametrize("seed", range(4))
def test_users_sum_to_the_cluster(seed: int, tmp_path: Path) -> None:
    rows = random_rows(seed)
    read = runs_of(rows, tmp_path)
    table = users_table(read.runs)
    frame = ReportFrame("The cluster", "UTC", (), read.left_out)
    whole = headline_of(cluster_report(read.runs.jobs, reference_clusters(None), frame))
    failed = headline_of(failures_report(read, frame))
    assert total(table, "jobs") == whole["jobs"] == len(rows)
    assert total(table, "gpu_jobs") == whole["jobs with GPUs"]
    assert total(table, "gpu_hours") == pytest.approx(whole["GPU hours"])
    assert total(table, "failures") == failed["failures"]
    assert total(table, "failure_hours") == pytest.approx(failed["GPU hours of failures"])
    parts = goodput(read.runs).gpu_ms
    assert total(table, "open_hours") == pytest.approx(sum(parts[key] for key in parts if key.endswith("_open")) / 3_600_000)
    assert {row[0] for row in table.rows} == {*(row.user for row in rows), "all"}


def test_users_beyond_the_table_are_a_row(tmp_path: Path) -> None:
    rows = [Row(str(number), 0, 3600, user=f"u{number}", gpus=1) for number in range(60)]
    table = users_table(runs_of(rows, tmp_path).runs)
    assert column_of(table, "jobs")["10 others"] == 10
    assert total(table, "gpu_hours") == pytest.approx(60)


def test_a_user_has_the_figures_of_the_site_that_were_worked_out_by_hand(tmp_path: Path) -> None:
    read, report = user_of("ann", SITE_ROWS, tmp_path, SITE_CASES)
    assert read.runs.has_store
    assert column_of(table_of(report, "by_state"), "jobs") == {"completed": 1, "failed": 1, "cancelled": 1}
    assert set(column_of(table_of(report, "by_reason"), "failures")) == {"nvlink_error", "hang", "all"}
    hours = column_of(table_of(report, "goodput_parts"), "gpu_hours")
    # a tenth of 1000 steps was made again, 600 s stood still unnoticed and 1000 s for a person, of 64 GPUs
    assert hours["hang, unnoticed"] == pytest.approx(64 * 600 / 3600)
    assert hours["hang, a person was asked"] == pytest.approx(64 * 1000 / 3600)
    assert sum(float(str(value)) for value in hours.values()) == pytest.approx(64 * 40_000 / 3600)
    assert [row[0] for row in table_of(report, "largest_jobs").rows] == ["102", "100", "101"]
    assert "not known" not in str(headline_of(report)["known to be lost"])


def test_the_users_failures_are_those_of_the_clusters_report(tmp_path: Path) -> None:
    rows = random_rows(9)
    read = runs_of(rows, tmp_path)
    by_user = table_of(failures_report(read, ReportFrame("All", "UTC", (), read.left_out)), "by_user")
    for user in ("user0", "user3"):
        _, report = user_of(user, rows, tmp_path)
        assert headline_of(report)["failures"] == column_of(by_user, "failures")[user]
        assert headline_of(report)["GPU hours of failures"] == pytest.approx(column_of(by_user, "gpu_hours")[user])


def test_without_a_store_nothing_is_said_to_be_lost(tmp_path: Path) -> None:
    _, report = user_of("ann", SITE_ROWS, tmp_path)
    assert headline_of(report)["known to be lost"] is None
    assert any(remark.key == "no_store" for remark in report.remarks)


def test_a_user_without_jobs_is_an_error_that_names_a_near_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"user anna: .* did you mean ann"):
        user_of("anna", SITE_ROWS, tmp_path)
    with pytest.raises(UsageError, match="none in") as caught:
        user_of("anna", SITE_ROWS, tmp_path, anonymous=True)
    assert "did you mean" not in str(caught.value)


def test_names_of_a_user_are_gone_where_asked(tmp_path: Path) -> None:
    read, report = user_of("bob", SITE_ROWS, tmp_path, SITE_CASES, anonymous=True)
    made = str(as_object(report))
    assert read.name.startswith("user ")
    for name in ("'bob'", "'ann'", "debug", "'200'"):
        assert name not in made, name


def test_a_user_without_gpus_and_no_rows_have_reports(tmp_path: Path) -> None:
    _, report = user_of("ann", [Row("1", 0, 60, gpus=0), Row("2", 0, 60, user="bob")], tmp_path)
    assert headline_of(report)["failed, of jobs with GPUs"] is None
    _, report = user_of(ALL, [Row("1", 0, 60, "RUNNING")], tmp_path)
    assert report.remarks[0].key == "empty"


def test_a_small_n_is_marked_and_concluded_from_by_nobody(tmp_path: Path) -> None:
    rows = [Row("1", 0, 60, "FAILED"), *(Row(str(number), 0, 60, user="bob") for number in range(2, 60))]
    _, report = user_of("ann", rows, tmp_path)
    failed = headline_of(report)["failed, of jobs with GPUs"]
    assert isinstance(failed, IntervalValue)
    assert failed.small
    (remark,) = [remark for remark in report.remarks if remark.key == "failed"]
    assert remark.level == "note"
    assert "Few jobs" in remark.text
