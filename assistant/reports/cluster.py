"""Make `report cluster`: what a cluster's work was, from accounting alone, and what is unusual in it.

Unusual is only what its interval sets apart from all published clusters, and plain facts. A figure of few jobs says nothing, and
that is said.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from assistant.reports import cluster_groups
from assistant.reports.calendar import calendar_of
from assistant.reports.figures import SMALL_N, Cell, FigureGroup, IntervalValue, ReportFrame, UsageRemark, UsageReport
from assistant.reports.job_arrays import NO_NAME, JobArrays, largest
from assistant.reports.references import (
    Compared,
    References,
    compare,
    outcome_share,
    outcome_time_share,
    reference_tables,
    time_share,
)
from assistant.reports.statistics import median, share_of_count
from assistant.reports.wording import between, cell_text, moment, quantity, share


def cluster_report(jobs: JobArrays, references: References, frame: ReportFrame) -> UsageReport:
    """Return the report of all counted jobs."""
    compared = compare(jobs, references)
    groups: list[FigureGroup] = []
    facts: list[tuple[str, str]] = []
    if jobs.count:
        begin, end = float(np.nanmin(np.fmin(jobs.submit_s, jobs.start_s))), float(jobs.end_s.max())
        calendar = calendar_of(float(jobs.start_s.min()), end, frame.zone)
        begin_text, end_text = moment(begin, frame.zone), moment(end, frame.zone)
        word = "began" if np.isnan(jobs.submit_s).all() else "submitted"
        facts.append(("jobs", f"{jobs.count:,} that ran and ended; {word} from {begin_text}, ended until {end_text}"))
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
    return frame.report(
        "cluster",
        groups,
        facts=facts,
        headline=_headline(jobs),
        remarks=remarks(jobs, compared),
        sources=(f"Published clusters: {references.summary}; kinds of work: {references.types}.",),
    )


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


LEAST_CLUSTERS = 2
"""So many published values make a range; with fewer nothing is called unusual."""
LARGE_USER = 0.5
EARLY_S = 60.0
EARLY_SHARE = 0.5


def remarks(jobs: JobArrays, compared: list[Compared]) -> list[UsageRemark]:
    """Return the sentences, most telling first; never an empty list."""
    if not jobs.count:
        return [UsageRemark("empty", "No job that ran and ended was counted: the table of what was left out says why.", "note")]
    if not jobs.on_gpus.any():
        return [
            UsageRemark(
                "no_gpus", f"None of the {jobs.count:,} jobs is known to have had a GPU, so there is nothing to compare.", "note"
            )
        ]
    sentences = [*_beside_others(compared), *_largest_user(jobs), *_early_failures(jobs), *_unknown_states(jobs)]
    if not any(remark.level == "unusual" for remark in sentences):
        sentences.insert(
            0, UsageRemark("usual", "No figure with enough jobs behind it lies outside what the published clusters had.", "note")
        )
    return sentences


def _beside_others(compared: list[Compared]) -> Iterator[UsageRemark]:
    small = []
    for entry in compared:
        site = entry.site
        if not isinstance(site, IntervalValue) or len(entry.published) < LEAST_CLUSTERS:
            continue
        if site.small:
            small.append(entry.title)
            continue
        low_name, low = min(entry.published.items(), key=lambda item: item[1])
        high_name, high = max(entry.published.items(), key=lambda item: item[1])
        above, below = site.low > high, site.high < low
        if above or below:
            ends = f"{quantity(low, entry.unit)} ({low_name}) to {quantity(high, entry.unit)} ({high_name})"
            yield UsageRemark(
                entry.key,
                f"{entry.title[0].upper()}{entry.title[1:]}: {quantity(site.value, entry.unit)} (95 % interval "
                f"{between(site, entry.unit)}, n = {site.n:,}), {'above' if above else 'below'} all {len(entry.published)} "
                f"clusters that published it, {ends}.",
            )
    if small:
        yield UsageRemark(
            "small", f"Too few jobs to compare (fewer than {SMALL_N}, or as good as fewer): {', '.join(small)}.", "note"
        )


def _largest_user(jobs: JobArrays) -> Iterator[UsageRemark]:
    users = jobs.by["user"]
    for code in largest(users, jobs.gpu_s, 1):
        part = time_share(jobs.gpu_s, users.codes == code)
        if (
            part is not None
            and not part.small
            and part.value > LARGE_USER
            and users.names[code] != NO_NAME
            and len(users.names) > 1
        ):
            yield UsageRemark(
                "largest_user", f"One user of {len(users.names):,}, {users.names[code]}, took {share(part.value)} of all GPU time."
            )


def _early_failures(jobs: JobArrays) -> Iterator[UsageRemark]:
    outcome = jobs.by["outcome"]
    failed = jobs.on_gpus & (outcome.codes == outcome.names.index("failed"))
    early = share_of_count(int((failed & (jobs.run_s < EARLY_S)).sum()), int(failed.sum()))
    if early is not None and not early.small and early.low > EARLY_SHARE:
        early_share = time_share(jobs.gpu_s, failed & (jobs.run_s < EARLY_S))
        cost = f"; together they took {share(early_share.value)} of GPU time" if early_share is not None else ""
        yield UsageRemark(
            "early_failures",
            f"Of the failed jobs with GPUs, {cell_text(early, 'share')} failed within a minute of their start "
            f"(n = {early.n:,}){cost}.",
        )


def _unknown_states(jobs: JobArrays) -> Iterator[UsageRemark]:
    unknown = int(np.count_nonzero(jobs.by["outcome"].codes == jobs.by["outcome"].names.index("unknown")))
    if unknown:
        part = share(unknown / jobs.count)
        yield UsageRemark("unknown_states", f"The final state of {unknown:,} jobs ({part}) is not known.", "note")
