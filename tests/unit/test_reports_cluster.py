"""Figures of `report cluster` against the same ones computed another way: plain Python over a real trace, and known marginals."""

from __future__ import annotations

import csv
import math
import random
import statistics
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from assistant.reports.figures import CurvePlot, IntervalValue, PlotCurve, SharePlot, StackPlot, UsageReport
from assistant.reports.intake import TimeRange
from assistant.reports.references import reference_clusters
from bench import _accounting
from tests.unit.reports_here import column_of, read_text, report_of, table_of

OPENB = Path(__file__).parents[3] / "shared" / "data" / "openb_pod_list_default.csv"
OPENB_MAP = """
seconds_from = 2023-01-01
[columns]
id = "name"
partition = "gpu_spec"
account = "qos"
cpus = { column = "cpu_milli", scale = 0.001 }
gpus = { column = "num_gpu", times = "gpu_milli", scale = 0.001 }
submit = "creation_time"
start = "scheduled_time"
end = "deletion_time"
state = "pod_phase"
[states]
Succeeded = "completed"
Failed = "failed"
Pending = "pending"
Running = "unknown"
"""
needs_openb = pytest.mark.skipif(
    not OPENB.is_file(), reason=f"the public trace is not here: {OPENB.name} of cluster-trace-gpu-v2023"
)


def pods() -> list[dict[str, str]]:
    with OPENB.open(newline="") as file:
        return list(csv.DictReader(file))


def openb(folder: Path) -> UsageReport:
    (folder / "map.toml").write_text(OPENB_MAP)
    return report_of(read_text(OPENB.read_bytes(), folder, columns=folder / "map.toml"))


def plain_quantile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = int(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


@needs_openb
def test_counts_of_the_public_trace_agree_with_plain_python(tmp_path: Path) -> None:
    report, ran = openb(tmp_path), [pod for pod in pods() if pod["scheduled_time"]]
    assert len(pods()) == 8152
    assert column_of(report.left_out, "rows")["never began"] == len(pods()) - len(ran) == 897
    by_account = Counter(pod["qos"] for pod in ran)
    assert column_of(table_of(report, "by_account"), "jobs") == by_account
    gpus = {pod["name"]: int(pod["num_gpu"]) * int(pod["gpu_milli"]) / 1000 for pod in ran}
    on_gpus = [pod for pod in ran if gpus[pod["name"]] > 0]
    states = Counter({"Running": "unknown", "Failed": "failed", "Succeeded": "completed"}[pod["pod_phase"]] for pod in on_gpus)
    assert column_of(table_of(report, "by_state"), "jobs") == states
    hours: dict[str, float] = defaultdict(float)
    for pod in ran:
        hours[pod["qos"]] += gpus[pod["name"]] * (float(pod["deletion_time"]) - float(pod["scheduled_time"])) / 3600
    assert column_of(table_of(report, "by_account"), "gpu_hours") == pytest.approx(dict(hours))


@needs_openb
@pytest.mark.parametrize("measure", ["run", "queue"])
def test_quantiles_and_curves_of_the_public_trace_agree_with_plain_python(measure: str, tmp_path: Path) -> None:
    report = openb(tmp_path)
    begin, end = ("scheduled_time", "deletion_time") if measure == "run" else ("creation_time", "scheduled_time")
    by_size: dict[str, list[float]] = defaultdict(list)
    for pod in pods():
        gpus = int(pod["num_gpu"]) * int(pod["gpu_milli"]) / 1000
        if pod["scheduled_time"] and gpus > 0:
            size = "< 1 GPU" if gpus < 1 else "1" if gpus < 2 else "2–7" if gpus < 8 else "8"
            by_size[size].append(float(pod[end]) - float(pod[begin]))
    everything = [value for values in by_size.values() for value in values]
    table = table_of(report, f"{measure}_quantiles_by_size")
    for key, part in (("p10", 0.1), ("p25", 0.25), ("p75", 0.75), ("p90", 0.9), ("p99", 0.99)):
        wanted = {"all": plain_quantile(everything, part), **{size: plain_quantile(v, part) for size, v in by_size.items()}}
        assert column_of(table, key) == pytest.approx(wanted)
    medians = {size: value.value for size, value in column_of(table, "p50").items() if isinstance(value, IntervalValue)}
    assert medians == pytest.approx({"all": statistics.median(everything), **{k: statistics.median(v) for k, v in by_size.items()}})
    assert column_of(table, "mean")["all"] == pytest.approx(statistics.fmean(everything))
    (plot,) = [figure for _, figure in report.figures() if figure.key == f"{measure}_by_size"]
    assert isinstance(plot, CurvePlot)
    for curve in plot.curves:
        values = by_size[curve.name]
        assert curve.n == len(values)
        assert curve.ys == pytest.approx([sum(value <= x for value in values) / len(values) for x in curve.xs])


@needs_openb
def test_the_figures_of_the_facts_are_met(tmp_path: Path) -> None:
    """Over all tasks, those without GPUs too: queue of the 7,255 median 2 s, mean 61.3 s, longest 14,330 s."""
    (tmp_path / "map.toml").write_text(OPENB_MAP)
    jobs = read_text(OPENB.read_bytes(), tmp_path, columns=tmp_path / "map.toml").jobs
    assert jobs.count == 7255
    assert float(np.median(jobs.queue_s)) == 2
    assert float(jobs.queue_s.mean()) == pytest.approx(61.3, abs=0.05)
    assert float(jobs.queue_s.max()) == 14330


def seren_like(jobs: int) -> str:
    """Return a trace with Seren's published marginals of jobs with GPUs: states by count and by GPU time, medians and means.

    One GPU for most jobs and a few large ones; the lengths of each state are set so that its share of GPU time comes out.
    """
    (seren,) = [cluster for cluster in reference_clusters(None).cluster if cluster.name == "Seren"]
    dice = random.Random(11)
    total = seren.mean_run_s * jobs * 1.0
    shares = {"COMPLETED": (seren.completed, seren.completed_time), "CANCELLED": (seren.cancelled, seren.cancelled_time)}
    shares["FAILED"] = (seren.failed, seren.failed_time)
    lines = ["job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time"]
    number = 0
    for state, (by_count, by_time) in shares.items():
        assert by_count is not None
        assert by_time is not None
        count = round(by_count * jobs)
        short = [math.exp(dice.gauss(math.log(seren.median_run_s), 1.0)) for _ in range(count)]
        scale = by_time * total / sum(short)
        # the small half keeps its length, so that medians stay; what is left of the state's time goes to one job in twenty
        spare = by_time * total - sum(short)
        longer = set(dice.sample(range(count), max(1, count // 20)))
        for place, run in enumerate(short):
            number += 1
            length = run + (spare / len(longer) if place in longer and spare > 0 else 0.0) if spare > 0 else run * scale
            start = 1690000000 + number
            stamps = [datetime.fromtimestamp(moment, UTC).isoformat(" ") for moment in (start - 1, start, start + length)]
            lines.append(f"{number},u1,1,1,16,Other,{state},{','.join(stamps)},{length},1,{length}")
    return "\n".join(lines)


def test_a_trace_with_the_marginals_of_seren_gives_them_back(tmp_path: Path) -> None:
    report = report_of(read_text(seren_like(20_000), tmp_path))
    (seren,) = [cluster for cluster in reference_clusters(None).cluster if cluster.name == "Seren"]
    for key, suffix in (("states_by_jobs", ""), ("states_by_gpu_time", "_time")):
        (plot,) = [figure for _, figure in report.figures() if figure.key == key]
        assert isinstance(plot, SharePlot)
        own = plot.rows[0].parts
        published = {name: getattr(seren, f"{name}{suffix}") for name in ("completed", "cancelled", "failed")}
        assert own == pytest.approx(published, abs=0.0015)
    queue = column_of(table_of(report, "queue_quantiles_by_type"), "p50")["all"]
    assert isinstance(queue, IntervalValue)
    assert queue.value == seren.median_queue_s
    assert column_of(table_of(report, "run_quantiles_by_type"), "mean")["all"] == pytest.approx(seren.mean_run_s, rel=0.01)


def test_what_is_as_published_is_not_called_unusual(tmp_path: Path) -> None:
    report = report_of(read_text(seren_like(20_000), tmp_path))
    assert [remark.key for remark in report.remarks if remark.level == "unusual" and "_time" in remark.key] == []


def made(folder: Path, jobs: int = 3000, zone: str = "Asia/Shanghai", **more: object) -> UsageReport:
    text = "\n".join(_accounting.lines(jobs, "sacct"))
    return report_of(read_text(text, folder, zone=zone, **more), zone)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["type", "size", "user", "account", "partition"])
def test_groups_sum_to_the_whole(key: str, tmp_path: Path) -> None:
    report = made(tmp_path)
    table = table_of(report, f"by_{key}")
    total = {name: value for name, value, _ in report.headline}
    jobs, hours = column_of(table, "jobs"), column_of(table, "gpu_hours")
    assert sum(float(value) for value in jobs.values() if isinstance(value, int | float)) == total["jobs"]
    assert sum(float(value) for value in hours.values() if isinstance(value, int | float)) == pytest.approx(total["GPU hours"])
    shares = [cell.value for cell in column_of(table, "share_of_gpu_time").values() if isinstance(cell, IntervalValue)]
    assert sum(shares) == pytest.approx(1.0)


def test_time_sums_to_the_whole_in_every_zone(tmp_path: Path) -> None:
    for zone in ("UTC", "Asia/Shanghai", "America/New_York"):
        report = made(tmp_path, zone=zone)
        total = {name: value for name, value, _ in report.headline}["GPU hours"]
        (plot,) = [figure for _, figure in report.figures() if figure.key == "gpu_hours_over_time"]
        assert isinstance(plot, StackPlot)
        assert sum(sum(values) for values in plot.values) == pytest.approx(total)
        table = table_of(report, "arrivals_by_hour")
        assert sum(int(str(count)) for count in column_of(table, "jobs").values()) == 3000


def test_hours_of_the_day_follow_the_zone(tmp_path: Path) -> None:
    east = column_of(table_of(made(tmp_path, zone="Asia/Shanghai"), "arrivals_by_hour"), "jobs")
    west = column_of(table_of(made(tmp_path, zone="UTC"), "arrivals_by_hour"), "jobs")
    assert [east[f"{(hour + 8) % 24:02}:00"] for hour in range(24)] == [west[f"{hour:02}:00"] for hour in range(24)]


def test_slices_of_time_sum_to_the_whole(tmp_path: Path) -> None:
    whole = {name: value for name, value, _ in made(tmp_path).headline}
    cuts = [None, datetime(2023, 4, 15, tzinfo=UTC), datetime(2023, 7, 1, 3, tzinfo=UTC), None]
    parts = [
        {name: value for name, value, _ in made(tmp_path, period=TimeRange(since, until)).headline}
        for since, until in pairwise(cuts)
    ]
    for key in ("jobs", "jobs with GPUs", "GPU hours"):
        assert sum(float(str(part[key])) for part in parts) == pytest.approx(float(str(whole[key])))


def test_sacct_and_the_released_form_of_the_same_jobs_give_the_same_figures(tmp_path: Path) -> None:
    text = "\n".join(_accounting.lines(3000, "csv"))
    other = report_of(read_text(text, tmp_path, zone="Asia/Shanghai"), "Asia/Shanghai")
    report = made(tmp_path)
    for key in ("by_size", "by_state", "run_quantiles_by_size", "queue_quantiles_by_size", "over_time", "arrivals_by_hour"):
        assert table_of(report, key).rows == table_of(other, key).rows


def test_few_jobs_are_called_few_and_nothing_is_concluded(tmp_path: Path) -> None:
    report = made(tmp_path, jobs=12)
    assert {remark.level for remark in report.remarks} == {"note"}
    assert any("Too few jobs" in remark.text for remark in report.remarks)


def test_a_source_without_a_job_that_ran_says_so(tmp_path: Path) -> None:
    report = made(tmp_path, jobs=0)
    assert [remark.key for remark in report.remarks] == ["empty"]
    assert report.groups == ()


def test_a_source_without_gpus_says_so(tmp_path: Path) -> None:
    rows = [f"{n}|x|ann|a|p|COMPLETED|0:0|1690000000|1690000010|{1690000100 + n}|1|8|cpu=8" for n in range(50)]
    report = report_of(read_text("\n".join([_accounting.COLUMNS, *rows]), tmp_path))
    assert [remark.key for remark in report.remarks] == ["no_gpus"]
    assert column_of(table_of(report, "by_size"), "jobs") == {"CPU only": 50}


def test_states_that_are_not_known_are_not_taken_for_others(tmp_path: Path) -> None:
    """Of 1,000 jobs 300 failed and 700 ended nobody knows how: whether few were cancelled cannot be said."""
    states = ["FAILED"] * 300 + ["SHINY"] * 700
    rows = [f"{n}|x|ann|a|p|{state}|1:0|1690000000|1690000001|{1690000200 + n}|1|8|gres/gpu=1" for n, state in enumerate(states)]
    report = report_of(read_text("\n".join([_accounting.COLUMNS, *rows]), tmp_path))
    assert {remark.key for remark in report.remarks} & {
        "cancelled",
        "cancelled_time",
        "completed",
        "failed",
        "failed_time",
    } == set()
    failed = {name: value for name, value, _ in report.headline}["failed, of jobs with GPUs"]
    assert isinstance(failed, IntervalValue)
    assert (failed.value, failed.high) == (0.3, 1.0)


def test_what_lies_outside_all_published_clusters_is_said_with_n_and_interval(tmp_path: Path) -> None:
    rows = [f"{n}|x|ann|a|p|FAILED|1:0|{1690000000 + n}|{1690090000 + n}|{1690093600 + n}|1|8|gres/gpu=8" for n in range(400)]
    report = report_of(read_text("\n".join([_accounting.COLUMNS, *rows]), tmp_path))
    texts = {remark.key: remark.text for remark in report.remarks if remark.level == "unusual"}
    assert {"median_queue_s", "median_gpus", "failed", "failed_time", "median_run_s"} <= set(texts)
    assert "n = 400" in texts["failed"]
    assert "95 % interval" in texts["failed"]
    assert "42.9 % (Seren)" in texts["failed"]


def test_published_figures_are_those_of_the_summary() -> None:
    summary = OPENB.with_name("acme_cluster_summary.csv")
    if not summary.is_file():
        pytest.skip("the published summary is not here: cluster_summary.csv of AcmeTrace")
    with summary.open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    columns = {
        "jobs": "job_num", "gpu_jobs": "gpu_job_num", "mean_run_s": "avg_run_time_gpu", "median_run_s": "med_run_time_gpu",
        "mean_queue_s": "avg_que_time_gpu", "median_queue_s": "med_que_time_gpu", "mean_gpus": "avg_gpu_num",
        "median_gpus": "med_gpu_num", "completed": "complete_rate_gpu", "cancelled": "cancel_rate_gpu", "failed": "fail_rate_gpu",
        "completed_time": "complete_rate_gpu_time", "cancelled_time": "cancel_rate_gpu_time", "failed_time": "fail_rate_gpu_time",
    }  # fmt: skip
    clusters = reference_clusters(None).cluster
    assert [cluster.name for cluster in clusters] == list(rows)
    for cluster in clusters:
        published = {key: float(rows[cluster.name][column]) for key, column in columns.items() if rows[cluster.name][column]}
        assert {key: value for key in columns if (value := getattr(cluster, key)) is not None} == pytest.approx(published)


def test_a_curve_is_a_distribution(tmp_path: Path) -> None:
    curves: list[PlotCurve] = [
        curve for _, plot in made(tmp_path).figures() if isinstance(plot, CurvePlot) for curve in plot.curves
    ]
    assert curves
    for curve in curves:
        assert all(a <= b for a, b in pairwise(curve.ys))
        assert curve.ys[-1] == 1.0
