"""The figures of `report cluster`, one function a question: what work, how it ended, how large, how long, whose, when.

Each is defined in docs/reports.md. Durations and queueing are those of jobs with GPUs, as in the published figures.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assistant.reports.calendar import Calendar
from assistant.reports.figures import (
    Cell,
    CurvePlot,
    FigureGroup,
    FigureTable,
    HeatPlot,
    PlotCurve,
    SharePlot,
    ShareRow,
    StackPlot,
    TableColumn,
)
from assistant.reports.job_arrays import OUTCOME_NAMES, Dimension, JobArrays, largest
from assistant.reports.references import References, outcome_share, outcome_time_share, time_share
from assistant.reports.statistics import Grouped, Mask, Values, distribution, log_points, median, quantile, share_of_count, spread
from assistant.reports.wording import cell_text, quantity, share

OWN_NAME = "here"
MOST_GROUPS = 15
"""Users, accounts or partitions in a table; what is beyond is one row."""
MOST_CURVES = 6
LEAST_OF_CURVE = 10
"""Jobs below which a distribution is no curve."""
QUANTILES = (0.1, 0.25, 0.75, 0.9, 0.99)
LEAST_HOURS = 1.0
"""Of an hour of the clock between the first and the last submission, below which it has no rate."""
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _table(jobs: JobArrays, key: str, title: str, codes: Sequence[int], heading: str) -> FigureTable:
    """Return counts, GPU time, failures, durations and queueing of groups of jobs, and of all others together."""
    dimension = jobs.by[key]
    columns = (
        TableColumn(key, heading),
        TableColumn("jobs", "jobs", "count"),
        TableColumn("share_of_jobs", "of all jobs", "share"),
        TableColumn("gpu_hours", "GPU hours", "GPU h"),
        TableColumn("share_of_gpu_time", "of all GPU time", "share"),
        TableColumn("mean_gpus", "mean GPUs", "number"),
        TableColumn("failed", "failed", "share"),
        TableColumn("median_run_s", "median duration", "s"),
        TableColumn("median_queue_s", "median queueing", "s"),
    )
    rows = [_group_row(jobs, dimension.names[code], dimension.codes == code) for code in codes]
    remainder = ~np.isin(dimension.codes, np.array(codes, dtype=np.int32))
    if remainder.any():
        group_count = len({int(code) for code in np.unique(dimension.codes[remainder])})
        rows.append(_group_row(jobs, f"{group_count:,} others" if len(codes) >= MOST_GROUPS else "(not known)", remainder))
    return FigureTable(f"by_{key}", title, columns, tuple(rows))


def _group_row(jobs: JobArrays, name: str, mask: Mask) -> tuple[Cell, ...]:
    count = int(mask.sum())
    hours = float(np.nansum(jobs.gpu_s[mask])) / 3600
    gpus = jobs.gpus[mask & ~np.isnan(jobs.gpus)]
    return (
        name,
        count,
        share_of_count(count, jobs.count),
        hours,
        time_share(jobs.gpu_s, mask),
        float(gpus.mean()) if len(gpus) else None,
        outcome_share(jobs, "failed", mask),
        median(np.sort(jobs.run_s[mask])),
        median(_sorted(jobs.queue_s[mask])),
    )


def _sorted(values: Values) -> Values:
    ordered: Values = np.sort(values[~np.isnan(values)])
    return ordered


def work(jobs: JobArrays, references: References) -> FigureGroup:
    """Return what kinds of work there were."""
    types = jobs.by["type"]
    codes = largest(types, jobs.gpu_s, MOST_GROUPS)
    names = tuple(types.names[code] for code in codes[:MOST_CURVES])
    site_shares = {
        "jobs": [int((types.codes == code).sum()) / max(jobs.count, 1) for code in codes[:MOST_CURVES]],
        "GPU time": [_value(time_share(jobs.gpu_s, types.codes == code)) for code in codes[:MOST_CURVES]],
    }
    rows = [
        ShareRow(f"{OWN_NAME}, {measure}", dict(zip(names, shares, strict=True)), is_site=True)
        for measure, shares in site_shares.items()
    ]
    for published in references.cluster:
        for measure, shares, about in (
            ("jobs", published.type_jobs, f"n = {published.jobs:,}"),
            ("GPU time", published.type_time, ""),
        ):
            if parts := {name: value for name, value in shares.items() if name in names}:
                rows.append(ShareRow(f"{published.name}, {measure}", parts, about))
    listed = ", ".join(f"{name} {share(part)}" for name, part in zip(names, site_shares["GPU time"], strict=True))
    plot = SharePlot(
        "types", "Kinds of work, by jobs and by GPU time", (*names, "not shown"), _filled(rows), f"Of GPU time here: {listed}."
    )
    lead = f"Kinds of work of {jobs.count:,} jobs, by the site's rules or the type that the source gives."
    if len(names) == 1:
        lead += " Neither tells them apart here: write rules for the names of this site (docs/reports.md)."
    table = _table(jobs, "type", "Kinds of work", codes, "type")
    return FigureGroup("work", "What work", lead, (plot, table) if len(names) > 1 else (table,))


def _filled(rows: Sequence[ShareRow]) -> tuple[ShareRow, ...]:
    """Give what is left of each bar to `not shown`."""
    return tuple(row._replace(parts={**row.parts, "not shown": max(0.0, 1 - sum(row.parts.values()))}) for row in rows)


def _value(measured: object) -> float:
    return float(getattr(measured, "value", 0.0))


def states(jobs: JobArrays, references: References) -> FigureGroup:
    """Return how jobs ended, by count and by GPU time."""
    mask = jobs.on_gpus
    plots = []
    for key, title, suffix in (("states_by_jobs", "jobs", ""), ("states_by_gpu_time", "GPU time", "_time")):
        site_shares = {
            name: _value(outcome_time_share(jobs, name) if suffix else outcome_share(jobs, name, mask)) for name in OUTCOME_NAMES
        }
        names = OUTCOME_NAMES if site_shares["unknown"] else OUTCOME_NAMES[:3]
        rows = [ShareRow(OWN_NAME, {name: site_shares[name] for name in names}, f"n = {int(mask.sum()):,}", is_site=True)]
        for published in references.cluster:
            parts = {name: getattr(published, f"{name}{suffix}") for name in OUTCOME_NAMES[:3]}
            if None not in parts.values():
                rows.append(ShareRow(published.name, parts, f"n = {published.gpu_jobs:,}"))
        listed = ", ".join(f"{name} {share(site_shares[name])}" for name in names)
        plots.append(SharePlot(key, f"Final states, share of {title}", names, tuple(rows), f"Here: {listed}, of jobs with GPUs."))
    state = jobs.by["state"]
    codes = largest(state, jobs.gpu_s, MOST_GROUPS)
    columns = (
        TableColumn("state", "state"),
        TableColumn("jobs", "jobs with GPUs", "count"),
        TableColumn("share_of_jobs", "of them", "share"),
        TableColumn("gpu_hours", "GPU hours", "GPU h"),
        TableColumn("share_of_gpu_time", "of GPU time", "share"),
        TableColumn("cpu_jobs", "jobs without GPUs", "count"),
    )
    rows_of_states: list[tuple[Cell, ...]] = []
    for code in codes:
        part = state.codes == code
        on_gpus = int((part & mask).sum())
        rows_of_states.append(
            (
                state.names[code],
                on_gpus,
                share_of_count(on_gpus, int(mask.sum())),
                float(np.nansum(jobs.gpu_s[part])) / 3600,
                time_share(jobs.gpu_s, part),
                int((part & (jobs.gpus == 0)).sum()),
            )
        )
    table = FigureTable("by_state", "Final states", columns, tuple(rows_of_states))
    lead = (
        "Of jobs with GPUs. As in the paper, timeouts, lost nodes and kills for memory are failures; preempted jobs are cancelled."
    )
    return FigureGroup("states", "How it ended", lead, (*plots, table))


def sizes(jobs: JobArrays) -> FigureGroup:
    """Return how many GPUs jobs had."""
    size = jobs.by["size"]
    present = [code for code in range(len(size.names)) if (size.codes == code).any()]
    names = tuple(size.names[code] for code in present if code > 0)
    mask = jobs.on_gpus
    by_jobs = {size.names[code]: int((size.codes == code).sum()) / max(int(mask.sum()), 1) for code in present if code > 0}
    by_time = {size.names[code]: _value(time_share(jobs.gpu_s, size.codes == code)) for code in present if code > 0}
    rows = (
        ShareRow("jobs", by_jobs, f"n = {int(mask.sum()):,}", is_site=True),
        ShareRow("GPU time", by_time, f"{np.nansum(jobs.gpu_s) / 3600:,.0f} GPU h", is_site=True),
    )
    listed = ", ".join(f"{name}: {share(by_jobs[name])} of jobs, {share(by_time[name])} of GPU time" for name in names)
    figures: list[SharePlot | FigureTable] = []
    if names:
        figures.append(SharePlot("sizes", "GPUs a job, share of jobs and of GPU time", names, rows, f"By GPUs: {listed}."))
    figures.append(_table(jobs, "size", "Classes of sizes", present, "GPUs"))
    return FigureGroup(
        "sizes", "How large", "By GPUs; a class such as 2–7 is of jobs with at least 2 and fewer than 8.", tuple(figures)
    )


def lengths(jobs: JobArrays, measure: str) -> FigureGroup:
    """Return how long jobs ran (`run`) or waited (`queue`): distributions and quantiles by type, size class and partition."""
    values = jobs.run_s if measure == "run" else jobs.queue_s
    title, word = ("How long it ran", "duration") if measure == "run" else ("How long it waited", "queueing")
    figures: list[CurvePlot | FigureTable] = []
    mask = jobs.on_gpus
    for key, heading in (("type", "type"), ("size", "GPUs"), ("partition", "partition"), ("user", "user")):
        dimension = jobs.by[key]
        codes = largest(dimension, jobs.gpu_s, MOST_GROUPS)
        codes = sorted(code for code in codes if dimension.names[code] != "CPU only") if key == "size" else codes
        grouped = Grouped(np.where(mask, values, np.nan), dimension.codes, len(dimension.names))
        if key in ("type", "size"):
            figures.append(
                _curves(grouped, dimension, codes[:MOST_CURVES], f"{measure}_by_{key}", f"{word.capitalize()} by {heading}", word)
            )
        figures.append(
            _quantiles(grouped, dimension, codes, f"{measure}_quantiles_by_{key}", f"{word.capitalize()} by {heading}", heading)
        )
    lead = {
        "run": "From start to end, of jobs with GPUs.",
        "queue": "From submission to start, of jobs with GPUs; what a user holds back or lets wait for another job is in it.",
    }[measure]
    return FigureGroup(f"{measure}_lengths", title, lead, tuple(figures))


def _curves(grouped: Grouped, dimension: Dimension, codes: Sequence[int], key: str, title: str, word: str) -> CurvePlot:
    values = grouped.sorted_values
    points = log_points(1.0, max(float(values[-1]) if len(values) else 1.0, 10.0), each_decade=16)
    curves = []
    for code in codes:
        ordered = grouped.of(code)
        if len(ordered) >= LEAST_OF_CURVE:
            curves.append(PlotCurve(dimension.names[code], len(ordered), points, distribution(ordered, points)))
    middle = "; ".join(
        f"{dimension.names[code]}: median {quantity(quantile(grouped.of(code), 0.5), 's')}, n = {len(grouped.of(code)):,}"
        for code in codes
        if len(grouped.of(code)) >= LEAST_OF_CURVE
    )
    return CurvePlot(
        key, title, word, "s", "share of jobs at most so long", "share", tuple(curves), middle or "Too few jobs for a curve."
    )


def _quantiles(grouped: Grouped, dimension: Dimension, codes: Sequence[int], key: str, title: str, heading: str) -> FigureTable:
    parts_of = [TableColumn(f"p{100 * part:.0f}", f"{100 * part:.0f} %", "s") for part in QUANTILES]
    columns = [TableColumn(heading, heading), TableColumn("n", "n", "count"), *parts_of[:2], TableColumn("p50", "median", "s")]
    columns += parts_of[2:]
    columns += [TableColumn("mean", "mean", "s"), TableColumn("longest", "longest", "s")]
    rows: list[tuple[Cell, ...]] = []
    for name, ordered in [("all", grouped.sorted_values), *((dimension.names[code], grouped.of(code)) for code in codes)]:
        if len(ordered):
            parts = [quantile(ordered, part) for part in QUANTILES]
            rows.append((name, len(ordered), *parts[:2], median(ordered), *parts[2:], float(ordered.mean()), float(ordered[-1])))
    return FigureTable(key, title, tuple(columns), tuple(rows))


def owners(jobs: JobArrays) -> FigureGroup:
    """Return whose jobs they were."""
    tables = []
    for key, title in (("user", "Users"), ("account", "Accounts"), ("partition", "Partitions")):
        if len(jobs.by[key].names) > 1 or key == "user":
            codes = largest(jobs.by[key], jobs.gpu_s, MOST_GROUPS)
            tables.append(_table(jobs, key, f"{title}, by GPU time", codes, key))
    return FigureGroup(
        "owners", "Whose", f"{len(jobs.by['user'].names):,} users; those with the most GPU time first.", tuple(tables)
    )


def over_time(jobs: JobArrays, calendar: Calendar) -> FigureGroup:
    """Return how work and waiting changed from week to week."""
    types = jobs.by["type"]
    codes = largest(types, jobs.gpu_s, MOST_CURVES)
    edges = calendar.edges
    has_gpu_time = jobs.gpu_s > 0
    hours = []
    for code in codes:
        part = has_gpu_time & (types.codes == code)
        hours.append(tuple((spread(jobs.start_s[part], jobs.end_s[part], jobs.gpu_s[part], edges) / 3600).tolist()))
    names = tuple(types.names[code] for code in codes)
    total = spread(jobs.start_s[has_gpu_time], jobs.end_s[has_gpu_time], jobs.gpu_s[has_gpu_time], edges) / 3600
    at_most = int(np.argmax(total)) if len(total) else 0
    about = (
        f"{total.sum():,.0f} GPU hours in all; most, {total[at_most]:,.0f}, in the {calendar.step} of {calendar.labels[at_most]}."
    )
    plot = StackPlot(
        "gpu_hours_over_time",
        f"GPU hours by {calendar.step}",
        "GPU h",
        tuple(edges[:-1].tolist()),
        calendar.labels,
        names,
        tuple(hours),
        about,
    )
    places = (np.clip(np.searchsorted(edges, jobs.end_s, side="right"), 1, len(edges) - 1) - 1).astype(np.int32)
    waits = Grouped(np.where(jobs.on_gpus, jobs.queue_s, np.nan), places, len(edges) - 1)
    runs = Grouped(np.where(jobs.on_gpus, jobs.run_s, np.nan), places, len(edges) - 1)
    columns = (
        TableColumn(calendar.step, calendar.step),
        TableColumn("gpu_hours", "GPU hours", "GPU h"),
        TableColumn("jobs", "jobs ended", "count"),
        TableColumn("failed", "failed, with GPUs", "share"),
        TableColumn("median_run_s", "median duration", "s"),
        TableColumn("median_queue_s", "median queueing", "s"),
        TableColumn("p90_queue_s", "queueing, 90 %", "s"),
    )
    rows: list[tuple[Cell, ...]] = []
    for place, label in enumerate(calendar.labels):
        in_step = places == place
        ordered = waits.of(place)
        rows.append(
            (
                label,
                float(total[place]),
                int(in_step.sum()),
                outcome_share(jobs, "failed", in_step & jobs.on_gpus),
                median(runs.of(place)),
                median(ordered),
                quantile(ordered, 0.9) if len(ordered) else None,
            )
        )
    table = FigureTable("over_time", f"By {calendar.step}", columns, tuple(rows))
    lead = f"GPU hours are spread over the time in which a job ran; a job is counted in the {calendar.step} in which it ended."
    return FigureGroup("over_time", "When", lead, (plot, table))


def arrivals(jobs: JobArrays, calendar: Calendar) -> FigureGroup:
    """Return how many jobs were submitted an hour, by weekday and hour of the site's clock."""
    slots = calendar.arrivals(jobs.submit_s[~np.isnan(jobs.submit_s)])
    values = tuple(
        tuple(
            float(slots.counts[day, hour] / slots.hours[day, hour]) if slots.hours[day, hour] >= LEAST_HOURS else None
            for hour in range(24)
        )
        for day in range(7)
    )
    by_hour = slots.counts.sum(axis=0)
    hours = slots.hours.sum(axis=0)
    rates = {hour: float(by_hour[hour] / hours[hour]) for hour in range(24) if hours[hour] >= LEAST_HOURS}
    about = f"{int(slots.counts.sum()):,} submissions, in less than an hour of the clock: no rate."
    if rates:
        most, least = max(rates, key=rates.__getitem__), min(rates, key=rates.__getitem__)
        about = (
            f"{int(slots.counts.sum()):,} submissions. Most come between {most}:00 and {most + 1}:00, "
            f"{cell_text(rates[most], 'number')} an hour; fewest between {least}:00 "
            f"and {least + 1}:00, {cell_text(rates[least], 'number')}."
        )
    heat = HeatPlot(
        "arrivals", "Submissions an hour", "jobs an hour", WEEKDAYS, tuple(f"{hour}" for hour in range(24)), values, about
    )
    columns = (
        TableColumn("hour", "hour of the day"),
        TableColumn("jobs", "submitted", "count"),
        TableColumn("hours", "such hours", "number"),
        TableColumn("rate", "submitted an hour", "number"),
    )
    rows: list[tuple[Cell, ...]] = [
        (f"{hour:02}:00", int(by_hour[hour]), float(hours[hour]), rates.get(hour)) for hour in range(24)
    ]
    table = FigureTable("arrivals_by_hour", "Submissions by hour of the day", columns, tuple(rows))
    lead = f"All jobs by the time of their submission, by the clock of {calendar.zone}; an hour that it skips or repeats counts so."
    return FigureGroup("arrivals", "When it came", lead, (heat, table))
