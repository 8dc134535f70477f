"""The tables of `report failures`: by reason, node, user, partition and exit status, and the Pareto of their GPU time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from assistant.reports.figures import BarPart, Cell, FigureTable, TableColumn, WaterfallPlot
from assistant.reports.job_arrays import Dimension
from assistant.reports.references import time_share
from assistant.reports.reliability.intervals import mean
from assistant.reports.reliability.nodes import NodeFailures
from assistant.reports.reliability.runs import JoinedRuns
from assistant.reports.statistics import Mask, Values, median, share_of_count, weighted_sums
from assistant.reports.wording import share

MOST_REASONS = 40
MOST_GROUPS = 20
MOST_BARS = 12


class Grouping(NamedTuple):
    """By what failures are grouped, and how the tables are called."""

    dimension: Dimension
    key: str
    title: str
    heading: str
    categories: Sequence[str] = ()
    """A category for each group; none where empty."""
    most: int = MOST_GROUPS
    """Groups beyond them are one row."""


def cost_table(runs: JoinedRuns, grouping: Grouping, zone: str) -> FigureTable:
    """Return how many failures each group had and what they cost, the costliest first, and all together."""
    columns = (
        TableColumn("failures", "failures", "count"),
        TableColumn("share_of_failures", "of failures", "share"),
        TableColumn("gpu_hours", "GPU hours", "GPU h"),
        TableColumn("share_of_gpu_time", "of their GPU time", "share"),
        TableColumn("mean_gpus", "mean GPUs", "number"),
        TableColumn("median_gpus", "median", "number"),
        TableColumn("first", "first"),
        TableColumn("last", "last"),
    )
    place = ZoneInfo(zone)

    def figures(mask: Mask) -> tuple[Cell, ...]:
        count, gpus, ends = int(mask.sum()), _finite(runs.jobs.gpus[mask]), runs.jobs.end_s[mask]
        return (
            count,
            share_of_count(count, int(runs.failed.sum())),
            float(np.nansum(runs.jobs.gpu_s[mask])) / 3600,
            failure_time_share(runs, mask),
            float(gpus.mean()) if len(gpus) else None,
            float(np.median(gpus)) if len(gpus) else None,
            _day(float(ends.min()), place),
            _day(float(ends.max()), place),
        )

    return _table(runs, grouping, columns, figures)


def times_table(runs: JoinedRuns, grouping: Grouping) -> FigureTable:
    """Return times to failure and to restart of each group, in the order of their cost."""
    columns = (
        TableColumn("failures", "failures", "count"),
        TableColumn("mean_to_failure_s", "time to failure, mean", "s"),
        TableColumn("median_to_failure_s", "median", "s"),
        TableColumn("restarted", "gone on with", "share"),
        TableColumn("by_name", "of them by name alone", "share"),
        TableColumn("mean_to_restart_s", "time to restart, mean", "s"),
        TableColumn("median_to_restart_s", "median", "s"),
    )
    gap_s = np.maximum(runs.next_start_s - runs.jobs.end_s, 0.0)

    def figures(mask: Mask) -> tuple[Cell, ...]:
        run_s, gaps = np.sort(runs.jobs.run_s[mask]), _finite(gap_s[mask])
        unknown = int((mask & runs.parallel & np.isnan(gap_s)).sum())
        restarted = share_of_count(len(gaps), int(mask.sum()), unknown)
        by_name = share_of_count(int((mask & runs.joined_by_name & ~np.isnan(gap_s)).sum()), len(gaps))
        return (int(mask.sum()), mean(run_s), median(run_s), restarted, by_name, mean(gaps), median(gaps))

    of_times = grouping._replace(key=f"{grouping.key}_times", title=f"{grouping.title}: times")
    return _table(runs, of_times, columns, figures)


def group_table(runs: JoinedRuns, grouping: Grouping, zone: str) -> FigureTable:
    """Return for each group the share of its jobs that failed, the cost, and the medians of the times."""
    columns = (
        TableColumn("failures", "failures", "count"),
        TableColumn("share_of_jobs", "of its jobs", "share"),
        TableColumn("gpu_hours", "GPU hours", "GPU h"),
        TableColumn("share_of_gpu_time", "of GPU time of failures", "share"),
        TableColumn("median_to_failure_s", "time to failure, median", "s"),
        TableColumn("median_to_restart_s", "time to restart, median", "s"),
        TableColumn("last", "last"),
    )
    gap_s, place = np.maximum(runs.next_start_s - runs.jobs.end_s, 0.0), ZoneInfo(zone)
    jobs = grouping.dimension.codes

    def figures(mask: Mask) -> tuple[Cell, ...]:
        codes = np.unique(jobs[mask])
        return (
            int(mask.sum()),
            share_of_count(int(mask.sum()), int(np.isin(jobs, codes).sum())),
            float(np.nansum(runs.jobs.gpu_s[mask])) / 3600,
            failure_time_share(runs, mask),
            median(np.sort(runs.jobs.run_s[mask])),
            median(_finite(gap_s[mask])),
            _day(float(runs.jobs.end_s[mask].max()), place),
        )

    return _table(runs, grouping, columns, figures)


def _table(
    runs: JoinedRuns, grouping: Grouping, columns: Sequence[TableColumn], figures: Callable[[Mask], tuple[Cell, ...]]
) -> FigureTable:
    names, categories = grouping.dimension.names, grouping.categories
    codes = np.where(runs.failed, grouping.dimension.codes, -1).astype(np.int32)
    counts = weighted_sums(codes, len(names))
    sums = weighted_sums(codes, len(names), np.nan_to_num(runs.jobs.gpu_s))
    order = sorted((code for code in range(len(names)) if counts[code]), key=lambda code: (-sums[code], -counts[code], names[code]))
    blank = ("–",) if categories else ()
    rows: list[tuple[Cell, ...]] = []
    for code in order[: grouping.most]:
        rows.append((names[code], *((categories[code] or "–",) if categories else ()), *figures(codes == code)))
    if further := order[grouping.most :]:
        rows.append((f"{len(further):,} others", *blank, *figures(np.isin(codes, further))))
    # failures of a group that is not known, such as a size without GPUs, are in no other row
    if (runs.failed & (codes < 0)).any():
        rows.append(("(not known)", *blank, *figures(runs.failed & (codes < 0))))
    if len(rows) > 1:
        rows.append(("all", *blank, *figures(runs.failed)))
    head = (TableColumn(grouping.heading, grouping.heading), *((TableColumn("category", "category"),) if categories else ()))
    return FigureTable(grouping.key, grouping.title, (*head, *columns), tuple(rows))


def failure_time_share(runs: JoinedRuns, part: Mask) -> Cell:
    """Return which share of the GPU time of failures some of them took."""
    return time_share(np.where(runs.failed, runs.jobs.gpu_s, np.nan), part)


def _finite(values: Values) -> Values:
    ordered: Values = np.sort(values[~np.isnan(values)])
    return ordered


def _day(moment_s: float, zone: ZoneInfo) -> str:
    return f"{datetime.fromtimestamp(moment_s, zone):%Y-%m-%d}"


def pareto(runs: JoinedRuns) -> WaterfallPlot:
    """Return the reasons by their GPU time, each bar beginning where those before it ended."""
    codes = np.where(runs.failed, runs.reason.codes, -1).astype(np.int32)
    sums = weighted_sums(codes, len(runs.reason.names), np.nan_to_num(runs.jobs.gpu_s)) / 3600
    counts = weighted_sums(codes, len(runs.reason.names))
    names = runs.reason.names
    order = sorted(np.flatnonzero(sums > 0).tolist(), key=lambda code: (-sums[code], -counts[code], names[code]))
    bars = [
        BarPart(runs.reason.names[code], float(sums[code]), "bad" if runs.categories[code] or not runs.has_store else "none")
        for code in order[:MOST_BARS]
    ]
    if further := order[MOST_BARS:]:
        bars.append(BarPart(f"{len(further):,} others", float(sums[further].sum()), "none"))
    total_amount = float(sum(bar.value for bar in bars))
    reached, words = 0.0, []
    for bar in bars[:3]:
        reached += bar.value
        words.append(f"{bar.name}, with it {share(reached / total_amount)}")
    about = f"Of {total_amount:,.0f} GPU hours of failures: {'; '.join(words)}." if bars else "No failure took GPU time."
    return WaterfallPlot("pareto", "Reasons by GPU time, adding up", "GPU h", tuple(bars), total_amount, False, about)


def nodes_table(table: NodeFailures, show: Callable[[str], str], most: int = MOST_GROUPS, *, has_store: bool) -> FigureTable:
    """Return the nodes with the most failures; without a store it is not known which were blamed."""
    columns = (
        TableColumn("node", "node"),
        TableColumn("hours", "hours of jobs with GPUs", "number"),
        TableColumn("jobs", "jobs", "count"),
        TableColumn("failures", "failures on it alone", "count"),
        TableColumn("machine_failures", "of machines", "count"),
        TableColumn("blamed", "blamed by the store", "count"),
        TableColumn("together", "failures with others", "count"),
    )
    listed = sorted(table.nodes, key=lambda node: (-node.failures - node.machine_failures, -node.together, -node.hours, node.name))
    rows: list[tuple[Cell, ...]] = [
        (
            show(node.name),
            node.hours,
            node.jobs,
            node.failures,
            node.machine_failures,
            node.blamed if has_store else None,
            node.together,
        )
        for node in listed[:most]
        if node.failures or node.machine_failures or node.together
    ]
    note = (
        f"Of {len(table.nodes):,} nodes; {table.unread:,} jobs with GPUs are in it nowhere, for their nodes are not said. On a "
        "node alone failures of one user count once a day. Which of them fail more than their work explains: nightshift report "
        "reliability."
    )
    return FigureTable("by_node", "Nodes with the most failures", columns, tuple(rows), note)


def unmatched_table(runs: JoinedRuns, *, with_ids: bool) -> FigureTable:
    """Return incidents about jobs of which the source has no run at that time, by reason."""
    by_reason: dict[str, list[int]] = {}
    for place in runs.unmatched:
        by_reason.setdefault(runs.facts[place].reason or "not diagnosed", []).append(place)
    columns = (
        TableColumn("reason", "reason"),
        TableColumn("incidents", "incidents", "count"),
        TableColumn("share", "of incidents about jobs", "share"),
        TableColumn("examples", "first of them"),
    )
    about_jobs = sum(fact.job is not None for fact in runs.facts)
    rows: list[tuple[Cell, ...]] = []
    for reason, places in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        examples = ", ".join(
            f"incident {runs.facts[place].id}" + (f": job {runs.facts[place].job}" if with_ids else "") for place in places[:3]
        )
        rows.append((reason, len(places), share_of_count(len(places), about_jobs), examples))
    title = "Incidents without a run in the source"
    return FigureTable(
        "unmatched", title, columns, tuple(rows), "Their jobs ended at another time, run yet, or are of another cluster."
    )
