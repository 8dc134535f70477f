"""What GPU hours cost: whose price counts, what sums to what, and what has no price."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from assistant.errors import ContentError
from assistant.reports.exports import as_object
from assistant.reports.figures import UsageReport, WaterfallPlot
from assistant.reports.page import page
from assistant.reports.reliability.cost import Prices, cost_report, read_prices
from tests.unit.failures_here import SITE_CASES, SITE_ROWS, Case, Row, frame_of, runs_of
from tests.unit.reports_here import column_of, table_of

HOUR = 3600
ROWS = (
    Row("1", 0, 10 * HOUR, user="ann", gpus=8, partition="big"),
    Row("2", 0, 10 * HOUR, "FAILED", user="bob", gpus=2, partition="small"),
    Row("3", 0, 1 * HOUR, user="bob", gpus=0, partition="small"),
)


def cost_of(prices: Prices, folder: Path, rows: Sequence[Row] = ROWS) -> UsageReport:
    read = runs_of(rows, folder)
    return cost_report(read, frame_of(read), prices)


@pytest.mark.parametrize(
    ("prices", "ann", "bob"),
    [
        (Prices(gpu_hour=2.0), 160.0, 40.0),
        (Prices(gpu_hour=2.0, partition={"small": 5.0}), 160.0, 100.0),
        (Prices(gpu_hour=2.0, partition={"small": 5.0}, account={"team": 1.0}), 80.0, 20.0),
        (Prices(partition={"big": 1.5}), 120.0, 0.0),
        (Prices(gpu_hour=0.5, account={"others": 9.0}), 40.0, 10.0),
    ],
)
def test_the_price_is_the_accounts_else_the_partitions_else_the_common_one(
    prices: Prices, ann: float, bob: float, tmp_path: Path
) -> None:
    costs = column_of(table_of(cost_of(prices, tmp_path), "cost_by_user"), "cost")
    assert costs == pytest.approx({"ann": ann, "bob": bob, "all": ann + bob})


def test_jobs_without_a_price_are_counted_and_in_no_cost(tmp_path: Path) -> None:
    report = cost_of(Prices(partition={"big": 1.5, "nowhere": 2.0}), tmp_path)
    headline = {name: value for name, value, _ in report.headline}
    assert headline["GPU hours without a price"] == 20
    assert headline["cost"] == 120
    texts = {remark.key: remark.text for remark in report.remarks}
    assert "1 jobs with 20 GPU hours" in texts["unpriced"]
    assert "nowhere" in texts["unused"]


@pytest.mark.parametrize("key", ["account", "user", "partition", "type"])
def test_groups_sum_to_the_whole(key: str, tmp_path: Path) -> None:
    read = runs_of(SITE_ROWS, tmp_path, SITE_CASES)
    report = cost_report(read, frame_of(read), Prices(gpu_hour=3.0))
    table = table_of(report, f"cost_by_{key}")
    rows = [row for row in table.rows if row[0] != "all"]
    headline = {name: value for name, value, _ in report.headline}
    for place, name in ((3, "cost"), (5, "of failures"), (6, "known to be lost"), (7, "not known whether lost")):
        assert sum(float(str(row[place])) for row in rows) == pytest.approx(headline[name])
    assert headline["cost"] == pytest.approx(3 * sum(row.gpus * (row.end - row.start) / HOUR for row in SITE_ROWS))
    (plot,) = [figure for _, figure in report.figures() if isinstance(figure, WaterfallPlot)]
    assert sum(bar.value for bar in plot.bars) == pytest.approx(plot.total)


def test_what_was_lost_is_that_of_the_waterfall(tmp_path: Path) -> None:
    read = runs_of(SITE_ROWS, tmp_path, SITE_CASES)
    headline = {name: value for name, value, _ in cost_report(read, frame_of(read), Prices(gpu_hour=3600.0)).headline}
    lost_gpu_s = 8 * 60 + 300 + 64 * 2000 + 64 * 1800 + 8 * 200
    assert headline["known to be lost"] == pytest.approx(lost_gpu_s, rel=1e-5)
    assert headline["not known whether lost"] == pytest.approx(8 * 60 + 8 * 7200)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("gpu_hour = -1.0", "at least 0"),
        ("gpu_hour = nan", "at least 0"),
        ("[account]\nx = inf", "at least 0"),
        ("gpu_hour = 1e308", "at most 1,000,000"),
        ("[partition]\nx = 1000001", "at most 1,000,000"),
        ('currency = "s"', "capital letters"),
        ('currency = "<b>"', "capital letters"),
        ("gpu_hours = 2", "unknown key"),
        ("x", "TOML"),
    ],
)
def test_wrong_prices_are_named(text: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(ContentError, match=word):
        read_prices(tmp_path / "prices.toml")


def test_prices_are_read(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('currency = "USD"\ngpu_hour = 2\n[account]\nteam = 1.5\n')
    assert read_prices(tmp_path / "prices.toml") == Prices("USD", 2, {"team": 1.5})


def test_without_a_store_it_is_not_known_what_was_lost(tmp_path: Path) -> None:
    report = cost_of(Prices(gpu_hour=2.0), tmp_path)
    headline = {name: value for name, value, _ in report.headline}
    assert headline["known to be lost"] == "not known"
    assert headline["of failures"] == 40
    assert as_object(report)["headline"]["known to be lost"] == {"unit": "EUR", "value": None}
    for key in ("account", "user", "partition", "type"):
        assert set(column_of(table_of(report, f"cost_by_{key}"), "lost").values()) == {None}
    assert "no_store" in [remark.key for remark in report.remarks]
    (tmp_path / "with").mkdir()
    read = runs_of(ROWS, tmp_path / "with", [Case("another", 100, 110)])
    report = cost_report(read, frame_of(read), Prices(gpu_hour=2.0))
    assert {name: value for name, value, _ in report.headline}["known to be lost"] == 0
    assert "no_store" not in [remark.key for remark in report.remarks]


@pytest.mark.parametrize("rows", [[], [Row("1", 0, 100, gpus=0)], [Row("1", 0, 0)]])
def test_sources_with_little_in_them_have_a_report(rows: list[Row], tmp_path: Path) -> None:
    report = cost_of(Prices(gpu_hour=2.0), tmp_path, rows)
    assert report.remarks
    assert page(report)
