"""Make `report failures`: why jobs failed, what that cost, and how fast they came back; the paper's Table 3 for this site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from assistant.reports.figures import (
    Cell,
    Figure,
    FigureGroup,
    FigureTable,
    IntervalValue,
    ReportFrame,
    TableColumn,
    UsageRemark,
    UsageReport,
)
from assistant.reports.references import time_share
from assistant.reports.reliability.failure_tables import (
    MOST_REASONS,
    Grouping,
    cost_table,
    failure_time_share,
    group_table,
    nodes_table,
    pareto,
    times_table,
    unmatched_table,
)
from assistant.reports.reliability.intervals import mean
from assistant.reports.reliability.reading import ReadRuns
from assistant.reports.reliability.runs import INFRASTRUCTURE, JoinedRuns
from assistant.reports.statistics import Mask, median, share_of_count
from assistant.reports.wording import cell_text, share

PARETO_SHARE = 0.8


class PaperShare(NamedTuple):
    """What the paper says of a category of failures."""

    failures: int
    gpu_time: float


PAPER: Mapping[str, PaperShare] = {
    "infrastructure": PaperShare(281, 0.8206),
    "framework": PaperShare(404, 0.1471),
    "script": PaperShare(1890, 0.0320),
}
"""Sums over the rows of arXiv 2403.07648, Table 3."""


def failures_report(read: ReadRuns, frame: ReportFrame, *, with_names: bool = True) -> UsageReport:
    """Return the report of the failures of all counted runs.

    Args:
        read: The runs.
        frame: What the report says of itself.
        with_names: Whether ids of jobs may stand in it.
    """
    runs = read.runs
    groups = []
    if runs.failed.any():
        groups = [_why(runs, frame.zone), *_groups(runs, frame.zone), _nodes(read)]
    if runs.has_store:
        unmatched = unmatched_table(runs, with_ids=with_names)
        groups.append(
            FigureGroup(
                "store", "Incidents of the store", f"{len(runs.facts):,} incidents, and what of them is not above.", (unmatched,)
            )
        )
    return frame.report(
        "failures",
        groups,
        facts=_facts(runs),
        headline=_headline(runs),
        remarks=_remarks(read),
        sources=("Shares of the paper: arXiv 2403.07648, Table 3, summed by category.",),
    )


def _facts(runs: JoinedRuns) -> list[tuple[str, str]]:
    failed = int(runs.failed.sum())
    facts = [("jobs", f"{runs.jobs.count:,} that ran and ended, {failed:,} of them failures")]
    if runs.has_store:
        joined = sum(len(numbers) for numbers in runs.incidents.values())
        facts.append(("incidents", f"{len(runs.facts):,} in the store, {joined:,} of them about a run that is counted here"))
    else:
        facts.append(
            ("incidents", "no store was read, or it has none of this time: reasons are the final states of the accounting")
        )
    return facts


def diagnosed(runs: JoinedRuns) -> Mask:
    """Return which failures have a reason from an incident."""
    names = np.array([bool(category) for category in runs.categories] + [False])
    mask: Mask = runs.failed & names[runs.reason.codes]
    return mask


def _headline(runs: JoinedRuns) -> list[tuple[str, Cell, str]]:
    failed = runs.failed
    gap_s = np.maximum(runs.next_start_s - runs.jobs.end_s, 0.0)[failed]
    gaps = np.sort(gap_s[~np.isnan(gap_s)])
    headline: list[tuple[str, Cell, str]] = [
        ("failures", int(failed.sum()), "count"),
        ("failures, of all jobs", share_of_count(int(failed.sum()), runs.jobs.count), "share"),
        ("GPU hours of failures", float(np.nansum(runs.jobs.gpu_s[failed])) / 3600, "GPU h"),
        ("failures, of all GPU time", time_share(runs.jobs.gpu_s, failed), "share"),
        ("time to failure, median", median(np.sort(runs.jobs.run_s[failed])), "s"),
        ("time to restart, median", median(gaps), "s"),
        ("time to restart, mean", mean(gaps), "s"),
    ]
    if runs.has_store:
        headline.append(("diagnosed, of failures", share_of_count(int(diagnosed(runs).sum()), int(failed.sum())), "share"))
    return headline


def _why(runs: JoinedRuns, zone: str) -> FigureGroup:
    source = "The reason is that of the incident" if runs.has_store else "Without a store the reason is the final state"
    lead = (
        f"{source}; time to failure is from start to end, time to restart from the end to the start of the run that went on. "
        "Ordered by GPU time, not by count: the most frequent failures are seldom the costly ones."
    )
    categories = runs.categories if runs.has_store else ()
    grouping = Grouping(runs.reason, "by_reason", "Reasons of failures", "reason", categories, MOST_REASONS)
    figures: list[Figure] = [pareto(runs), cost_table(runs, grouping, zone), times_table(runs, grouping)]
    if diagnosed(runs).any():
        figures.append(_beside_paper(runs))
    return FigureGroup("why", "Why jobs failed", lead, tuple(figures))


def _in_paper(runs: JoinedRuns) -> Mask:
    """Return which failures have one of the paper's three categories."""
    listed = np.array([category in PAPER for category in runs.categories] + [False])
    mask: Mask = diagnosed(runs) & listed[runs.reason.codes]
    return mask


def _beside_paper(runs: JoinedRuns) -> FigureTable:
    columns = (
        TableColumn("category", "category"),
        TableColumn("failures", "failures", "count"),
        TableColumn("share_of_failures", "of failures", "share"),
        TableColumn("paper_share", "the paper", "share"),
        TableColumn("share_of_gpu_time", "of their GPU time", "share"),
        TableColumn("paper_gpu_time", "the paper", "share"),
    )
    diagnosed_runs = _in_paper(runs)
    total = sum(published.failures for published in PAPER.values())
    rows: list[tuple[Cell, ...]] = []
    for name, published in PAPER.items():
        part = diagnosed_runs & np.array([category == name for category in runs.categories] + [False])[runs.reason.codes]
        count = int(part.sum())
        rows.append(
            (
                name,
                count,
                share_of_count(count, int(diagnosed_runs.sum())),
                published.failures / total,
                time_share(np.where(diagnosed_runs, runs.jobs.gpu_s, np.nan), part),
                published.gpu_time,
            )
        )
    note = (
        "The paper counts failures of a log corpus; shares of a site's own jobs need not agree. Hangs, loss spikes, slow jobs and "
        "time limits are in none of the three categories, and not in this table."
    )
    return FigureTable("beside_paper", "Categories beside the paper's", columns, tuple(rows), note)


def _groups(runs: JoinedRuns, zone: str) -> list[FigureGroup]:
    tables = []
    for key, title in (
        ("user", "Users"),
        ("partition", "Partitions"),
        ("account", "Accounts"),
        ("size", "Sizes"),
        ("type", "Types"),
    ):
        if len(runs.jobs.by[key].names) > 1 or key == "user":
            grouping = Grouping(runs.jobs.by[key], f"by_{key}", f"{title}, by GPU time of failures", key)
            tables.append(group_table(runs, grouping, zone))
    groups = [
        FigureGroup(
            "who",
            "Whose failures",
            "Failures by user, partition, account, GPUs and type; the share is of all jobs of the group.",
            tuple(tables),
        )
    ]
    if len(runs.exit.names) > 1:
        lead = "What the accounting says beyond the final state: code and signal. It is the last process's word, not the cause."
        table = cost_table(runs, Grouping(runs.exit, "by_exit", "Exit status of failures", "exit"), zone)
        groups.append(FigureGroup("exits", "How they ended", lead, (table,)))
    return groups


def _nodes(read: ReadRuns) -> FigureGroup:
    lead = "Nodes of failures. A job on several nodes counts for a node only where an incident blames it."
    if not read.nodes.nodes:
        lead = "The source does not say on which nodes jobs ran: add the column NodeList."
    return FigureGroup(
        "where",
        "Where they failed",
        lead,
        (nodes_table(read.nodes, lambda name: name, has_store=read.runs.has_store),) if read.nodes.nodes else (),
    )


def _remarks(read: ReadRuns) -> list[UsageRemark]:
    runs = read.runs
    if not runs.jobs.count:
        return [UsageRemark("empty", "No job that ran and ended was counted: the table of what was left out says why.", "note")]
    if not runs.failed.any():
        return [UsageRemark("no_failure", f"None of the {runs.jobs.count:,} jobs failed.", "note")]
    sentences = []
    plot = pareto(runs)
    reached, count = 0.0, 0
    for bar in plot.bars:
        if reached < PARETO_SHARE * plot.total:
            reached += bar.value
            count += 1
    if plot.total:
        names = ", ".join(bar.name for bar in plot.bars[:count])
        word = "reason takes" if count == 1 else "reasons take"
        sentences.append(
            UsageRemark("pareto", f"{count} {word} {share(reached / plot.total)} of the GPU time of failures: {names}.")
        )
    if runs.has_store:
        sentences += _on_diagnoses(runs)
    gaps = runs.next_start_s[runs.failed]
    gone_on = int((~np.isnan(gaps)).sum())
    by_name = int((runs.joined_by_name[runs.failed] & ~np.isnan(gaps)).sum())
    if by_name:
        text = (
            f"Of {gone_on:,} failures that a run went on with, {by_name:,} ({share(by_name / gone_on)}) are joined to it by user, "
            "name and GPUs alone: these are guesses, and so are their times to restart."
        )
        sentences.append(UsageRemark("by_name", text, "note"))
    unknown = int((runs.parallel[runs.failed] & np.isnan(gaps)).sum())
    if unknown:
        part = share(unknown / int(runs.failed.sum()))
        sentences.append(
            UsageRemark("parallel", f"Of {unknown:,} failures ({part}) it cannot be known whether a run went on with them.", "note")
        )
    return sentences or [UsageRemark("no_time", "The failures took no GPU time that is known.", "note")]


def _on_diagnoses(runs: JoinedRuns) -> list[UsageRemark]:
    diagnosed_runs, failed = diagnosed(runs), int(runs.failed.sum())
    sentences = []
    if not_known := failed - int(diagnosed_runs.sum()):
        undiagnosed_share = failure_time_share(runs, runs.failed & ~diagnosed_runs)
        cost = (
            f", with {share(undiagnosed_share.value)} of the GPU time of failures"
            if isinstance(undiagnosed_share, IntervalValue)
            else ""
        )
        text = f"{not_known:,} of {failed:,} failures are not diagnosed{cost}: no incident, or none with a reason."
        sentences.append(UsageRemark("not_diagnosed", text, "note"))
    in_paper = _in_paper(runs)
    infra = in_paper & np.array([category == INFRASTRUCTURE for category in runs.categories] + [False])[runs.reason.codes]
    by_count = share_of_count(int(infra.sum()), int(in_paper.sum()))
    by_time = time_share(np.where(in_paper, runs.jobs.gpu_s, np.nan), infra)
    if by_count is not None and by_time is not None:
        caution = " Few failures stand behind this." if by_count.small or by_time.small else ""
        sentences.append(
            UsageRemark(
                "infrastructure",
                f"Infrastructure: {cell_text(by_count, 'share')} of failures of the three categories (the paper: 10.9 %) and "
                f"{cell_text(by_time, 'share')} of their GPU time (the paper: 82.1 %).{caution}",
                "note",
            )
        )
    return sentences
