"""The figures of any set of runs: jobs, GPU hours, failures, queueing, and what was lost. Sums over disjoint sets are the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from assistant.reports.figures import Cell, FigureGroup, FigureTable, IntervalValue, TableColumn
from assistant.reports.references import outcome_share, time_share
from assistant.reports.reliability.downtime import downtime, downtime_table
from assistant.reports.reliability.failure_tables import MOST_REASONS, Grouping, cost_table, times_table
from assistant.reports.reliability.goodput import MS_PER_HOUR, OPEN, PARTS, goodput, waterfall_plot, waterfall_table
from assistant.reports.reliability.runs import JoinedRuns
from assistant.reports.statistics import Mask, Values, median, quantile, share_of_count

LOST = tuple(part.key for part in PARTS if part.colour == "bad")
"""Parts of the waterfall that are known to be lost."""


class RunTotals(NamedTuple):
    """What a set of runs comes to."""

    jobs: int
    gpu_jobs: int
    """Of them with GPUs."""
    gpu_hours: float
    failed: IntervalValue | None
    """Share of the jobs with GPUs whose final state is failed, as in `report cluster`."""
    failures: int
    """As `report failures` counts them."""
    failure_hours: float
    """GPU hours of the failures."""
    lost_hours: float | None
    """GPU hours known to be lost; None without a store."""
    open_hours: float
    """GPU hours of which nobody knows how much was saved."""
    queueing: IntervalValue | None
    """Median of the jobs with GPUs, seconds."""


def run_totals(runs: JoinedRuns, among: Mask) -> RunTotals:
    """Return the totals of some runs."""
    jobs, on_gpus = runs.jobs, among & runs.jobs.on_gpus
    failures, good = among & runs.failed, goodput(runs, among)
    return RunTotals(
        int(among.sum()),
        int(on_gpus.sum()),
        gpu_hours(jobs.gpu_s[among]),
        outcome_share(jobs, "failed", on_gpus),
        int(failures.sum()),
        gpu_hours(jobs.gpu_s[failures]),
        sum(good.gpu_ms[key] for key in LOST) / MS_PER_HOUR if runs.has_store else None,
        sum(good.gpu_ms[key] for key in OPEN) / MS_PER_HOUR,
        median(sorted_known(jobs.queue_s[on_gpus])),
    )


TOTAL_COLUMNS = (
    TableColumn("jobs", "jobs", "count"),
    TableColumn("gpu_jobs", "with GPUs", "count"),
    TableColumn("gpu_hours", "GPU hours", "GPU h"),
    TableColumn("failed", "failed, with GPUs", "share"),
    TableColumn("failures", "failures", "count"),
    TableColumn("failure_hours", "GPU hours of failures", "GPU h"),
    TableColumn("lost_hours", "known to be lost", "GPU h"),
    TableColumn("open_hours", "not known whether", "GPU h"),
    TableColumn("median_queue_s", "median queueing", "s"),
)
"""For the fields of `RunTotals`, in order."""


def gpu_hours(gpu_s: Values) -> float:
    """Return the sum of GPU seconds in hours; what is not known counts nothing."""
    return float(np.nansum(gpu_s)) / 3600


def sorted_known(values: Values) -> Values:
    """Return the values that are known, sorted."""
    ordered: Values = np.sort(values[~np.isnan(values)])
    return ordered


def state_table(runs: JoinedRuns, among: Mask) -> FigureTable:
    """Return the final states of some runs by count and by GPU time, those with the most GPU time first."""
    jobs, state = runs.jobs, runs.jobs.by["state"]
    columns = (
        TableColumn("state", "state"),
        TableColumn("jobs", "jobs", "count"),
        TableColumn("share_of_jobs", "of them", "share"),
        TableColumn("gpu_hours", "GPU hours", "GPU h"),
        TableColumn("share_of_gpu_time", "of GPU time", "share"),
    )
    rows: list[tuple[Cell, ...]] = []
    gpu_s = np.where(among, jobs.gpu_s, np.nan)
    for code, name in enumerate(state.names):
        part = among & (state.codes == code)
        if part.any():
            count = int(part.sum())
            share = share_of_count(count, int(among.sum()))
            rows.append((name, count, share, gpu_hours(jobs.gpu_s[part]), time_share(gpu_s, part)))
    rows.sort(key=lambda row: (-float(str(row[3])), -int(str(row[1])), str(row[0])))
    return FigureTable("by_state", "Final states", columns, tuple(rows))


def queueing_table(runs: JoinedRuns, sets: dict[str, Mask]) -> FigureTable:
    """Return quantiles of queueing, of jobs with GPUs, for each of some sets of runs."""
    columns = (
        TableColumn("whose", "jobs"),
        TableColumn("n", "n", "count"),
        TableColumn("p25", "25 %", "s"),
        TableColumn("p50", "median", "s"),
        TableColumn("p75", "75 %", "s"),
        TableColumn("p90", "90 %", "s"),
        TableColumn("longest", "longest", "s"),
    )
    rows: list[tuple[Cell, ...]] = []
    for name, mask in sets.items():
        ordered = sorted_known(runs.jobs.queue_s[mask & runs.jobs.on_gpus])
        if len(ordered):
            quartiles = [quantile(ordered, part) for part in (0.25, 0.75, 0.9)]
            rows.append((name, len(ordered), quartiles[0], median(ordered), *quartiles[1:], float(ordered[-1])))
    return FigureTable("queueing", "Queueing", columns, tuple(rows))


def failure_group(runs: JoinedRuns, among: Mask, zone: str) -> FigureGroup:
    """Return why some runs failed: reasons with their cost and times, as in `report failures`."""
    lead = "The reason is that of the incident, else the final state; shares are of the failures here."
    failed_here = replace(runs, failed=runs.failed & among)
    if not failed_here.failed.any():
        return FigureGroup("why", "Why jobs failed", "None of these jobs failed.", ())
    grouping = Grouping(
        runs.reason, "by_reason", "Reasons of failures", "reason", runs.categories if runs.has_store else (), MOST_REASONS
    )
    return FigureGroup(
        "why", "Why jobs failed", lead, (cost_table(failed_here, grouping, zone), times_table(failed_here, grouping))
    )


def lost_group(runs: JoinedRuns, among: Mask) -> FigureGroup:
    """Return where the GPU hours of some runs went, and what was waited for behind their failures."""
    good, down = goodput(runs, among), downtime(runs, among)
    if not good.whole_ms:
        return FigureGroup("lost", "What was lost", "These jobs took no GPU time that is known.", ())
    lead = "The parts are those of report reliability; what is not known is a part of its own."
    return FigureGroup("lost", "What was lost", lead, (waterfall_plot(good), waterfall_table(good), downtime_table(runs, down)))
