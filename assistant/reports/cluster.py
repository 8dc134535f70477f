"""Make `report cluster`: what a cluster's work was, from accounting alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assistant.reports import cluster_groups
from assistant.reports.calendar import Calendar, calendar_of
from assistant.reports.figures import Cell, FigureGroup, FigureTable, UsageReport
from assistant.reports.job_arrays import JobArrays
from assistant.reports.references import References, compare, outcome_share, outcome_time_share, reference_tables
from assistant.reports.remarks import remarks
from assistant.reports.statistics import median


@dataclass(frozen=True, slots=True)
class ReportFrame:
    """What a report says of itself."""

    title: str
    zone: str
    """By which hours and days are counted."""
    facts: Sequence[tuple[str, str]]
    left_out: FigureTable


def cluster_report(jobs: JobArrays, references: References, frame: ReportFrame) -> UsageReport:
    """Return the report of all counted jobs."""
    compared = compare(jobs, references)
    groups: list[FigureGroup] = []
    facts = list(frame.facts)
    if jobs.count:
        begin, end = float(np.nanmin(np.fmin(jobs.submit_s, jobs.start_s))), float(jobs.end_s.max())
        calendar = calendar_of(float(jobs.start_s.min()), end, frame.zone)
        word = "began" if np.isnan(jobs.submit_s).all() else "submitted"
        facts.append(
            ("jobs", f"{jobs.count:,} that ran and ended; {word} from {_day(begin, calendar)}, ended until {_day(end, calendar)}")
        )
        groups = [
            cluster_groups.work(jobs, references),
            cluster_groups.states(jobs, references),
            FigureGroup(
                "references",
                "Beside others",
                "This cluster beside five that were published; intervals are 95 %.",
                reference_tables(compared, references),
            ),
            cluster_groups.sizes(jobs),
            cluster_groups.lengths(jobs, "run"),
            cluster_groups.lengths(jobs, "queue"),
            cluster_groups.owners(jobs),
            cluster_groups.over_time(jobs, calendar),
        ]
        if not np.isnan(jobs.submit_s).all():
            groups.append(cluster_groups.arrivals(jobs, calendar))
    facts.append(("hours and days", f"of the zone {frame.zone}"))
    return UsageReport(
        kind="cluster",
        title=frame.title,
        facts=tuple(facts),
        headline=tuple(_headline(jobs)),
        remarks=tuple(remarks(jobs, compared)),
        groups=tuple(groups),
        left_out=frame.left_out,
        sources=(f"Published clusters: {references.summary}; kinds of work: {references.types}.",),
    )


def _day(moment_s: float, calendar: Calendar) -> str:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    return f"{datetime.fromtimestamp(moment_s, ZoneInfo(calendar.zone)):%Y-%m-%d %H:%M}"


def _headline(jobs: JobArrays) -> list[tuple[str, Cell, str]]:
    mask = jobs.on_gpus
    gpu_s = float(np.nansum(jobs.gpu_s))
    length_s = float(jobs.end_s.max() - jobs.start_s.min()) if jobs.count else 0.0
    waits = jobs.queue_s[mask & ~np.isnan(jobs.queue_s)]
    return [
        ("jobs", jobs.count, "count"),
        ("jobs with GPUs", int(mask.sum()), "count"),
        ("GPU hours", gpu_s / 3600, "GPU h"),
        ("GPUs in use, mean", gpu_s / length_s if length_s > 0 else None, "number"),
        ("failed, of jobs with GPUs", outcome_share(jobs, "failed", mask), "share"),
        ("failed, of GPU time", outcome_time_share(jobs, "failed"), "share"),
        ("cancelled, of GPU time", outcome_time_share(jobs, "cancelled"), "share"),
        ("median queueing, with GPUs", median(np.sort(waits)), "s"),
    ]
