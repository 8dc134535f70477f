"""Published figures of five clusters, and those of a site beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from assistant.content.reading import build, knowledge_file, read_toml
from assistant.reports.figures import Cell, FigureTable, IntervalValue, TableColumn
from assistant.reports.job_arrays import OUTCOME_NAMES, JobArrays
from assistant.reports.statistics import Mask, Values, median, share_of_count, share_of_weight

FILE = "reference_clusters.toml"


@dataclass(frozen=True, slots=True)
class ReferenceCluster:
    """One published cluster; times are seconds, figures are of jobs with GPUs but for `jobs`."""

    name: str
    about: str
    jobs: int
    gpu_jobs: int
    mean_run_s: float
    median_run_s: float
    mean_queue_s: float
    median_queue_s: float
    mean_gpus: float
    median_gpus: float
    completed: float | None = None
    cancelled: float | None = None
    failed: float | None = None
    completed_time: float | None = None
    cancelled_time: float | None = None
    failed_time: float | None = None
    type_jobs: Mapping[str, float] = field(default_factory=dict)
    """Share of jobs by type; whether jobs without GPUs are among them was not published."""
    type_time: Mapping[str, float] = field(default_factory=dict)
    """Share of GPU time by type."""


@dataclass(frozen=True, slots=True)
class References:
    """All of them, and where they come from."""

    summary: str
    types: str
    cluster: tuple[ReferenceCluster, ...]


def reference_clusters(site: Path | None) -> References:
    """Return the published clusters: the site's file where it has one, else the shipped one.

    Raises:
        ContentError: The file is wrong.
    """
    path = knowledge_file(FILE, site)
    return build(References, read_toml(path), path)


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of this cluster and of the others."""

    key: str
    title: str
    unit: str
    site: IntervalValue | float | None
    published: Mapping[str, float]
    """By the name of a cluster; who did not publish it is not in it."""


COMPARED: tuple[tuple[str, str, str], ...] = (
    ("mean_run_s", "mean duration", "s"),
    ("median_run_s", "median duration", "s"),
    ("mean_queue_s", "mean queueing", "s"),
    ("median_queue_s", "median queueing", "s"),
    ("mean_gpus", "mean demand", "GPUs"),
    ("median_gpus", "median demand", "GPUs"),
    ("completed", "completed, share of jobs", "share"),
    ("cancelled", "cancelled, share of jobs", "share"),
    ("failed", "failed, share of jobs", "share"),
    ("completed_time", "completed, share of GPU time", "share"),
    ("cancelled_time", "cancelled, share of GPU time", "share"),
    ("failed_time", "failed, share of GPU time", "share"),
)
TYPES = ("pretraining", "evaluation")
"""Types of which shares were published."""


def compare(jobs: JobArrays, references: References) -> list[Compared]:
    """Return the figures of a site's jobs with GPUs beside the published ones."""
    site_figures = _own_figures(jobs)
    compared = [
        Compared(
            key,
            title,
            unit,
            site_figures[key],
            {cluster.name: value for cluster in references.cluster if (value := getattr(cluster, key)) is not None},
        )
        for key, title, unit in COMPARED
    ]
    names = jobs.by["type"].names
    for kind in TYPES:
        # of a type that no job was given nothing is known: the rules may not fit the names of this site
        mask = jobs.by["type"].codes == names.index(kind) if kind in names else None
        own_jobs = None if mask is None else share_of_count(int((mask & jobs.on_gpus).sum()), int(jobs.on_gpus.sum()))
        published = {cluster.name: cluster.type_jobs[kind] for cluster in references.cluster if kind in cluster.type_jobs}
        compared.append(Compared(f"{kind}_jobs", f"{kind}, share of jobs", "share", own_jobs, published))
        published = {cluster.name: cluster.type_time[kind] for cluster in references.cluster if kind in cluster.type_time}
        own_time = None if mask is None else time_share(jobs.gpu_s, mask)
        compared.append(Compared(f"{kind}_time", f"{kind}, share of GPU time", "share", own_time, published))
    return compared


def _own_figures(jobs: JobArrays) -> dict[str, IntervalValue | float | None]:
    mask = jobs.on_gpus
    figures: dict[str, IntervalValue | float | None] = {}
    for key, values in (("run_s", jobs.run_s), ("queue_s", jobs.queue_s), ("gpus", jobs.gpus)):
        finite = np.sort(values[mask & ~np.isnan(values)])
        figures[f"mean_{key}"] = float(finite.mean()) if len(finite) else None
        figures[f"median_{key}"] = median(finite)
    for name in OUTCOME_NAMES:
        figures[name] = outcome_share(jobs, name, mask)
        figures[f"{name}_time"] = outcome_time_share(jobs, name)
    return figures


def outcome_share(jobs: JobArrays, name: str, among: Mask) -> IntervalValue | None:
    """Return which share of some jobs ended so; where the final state of others is not known, the interval reaches up to them."""
    part, unknown = (int((among & outcome_mask(jobs, outcome)).sum()) for outcome in (name, "unknown"))
    return share_of_count(part, int(among.sum()), 0 if name == "unknown" else unknown)


def outcome_time_share(jobs: JobArrays, name: str) -> IntervalValue | None:
    """Return which share of all GPU time jobs took that ended so, with the interval as in `outcome_share`."""
    return time_share(jobs.gpu_s, outcome_mask(jobs, name), None if name == "unknown" else outcome_mask(jobs, "unknown"))


def outcome_mask(jobs: JobArrays, name: str) -> Mask:
    """Return which jobs ended so."""
    mask: Mask = jobs.by["outcome"].codes == OUTCOME_NAMES.index(name)
    return mask


def time_share(gpu_s: Values, part: Mask, unknown: Mask | None = None) -> IntervalValue | None:
    """Return which share of all GPU time some jobs took.

    Args:
        gpu_s: GPU seconds by job; NaN where not known, which counts nowhere.
        part: Which jobs.
        unknown: Of which jobs it is not known whether they are among them.
    """
    finite = gpu_s > 0
    weights = gpu_s[finite]
    total, squares = float(weights.sum()), float(np.square(weights).sum())
    open_s = 0.0 if unknown is None else float(gpu_s[finite & unknown].sum())
    return share_of_weight(float(gpu_s[finite & part].sum()), total, squares, len(weights), open_s)


_TITLES = {"s": ("times", "Times"), "GPUs": ("demand", "GPUs a job"), "share": ("shares", "Shares")}


def reference_tables(compared: list[Compared], references: References) -> tuple[FigureTable, ...]:
    """Return the figures side by side, a table for each unit; what the clusters are stands below the last."""
    tables = []
    for unit, (key, title) in _TITLES.items():
        columns = [TableColumn("figure", "of jobs with GPUs"), TableColumn("here", "here", unit)]
        columns += [TableColumn(cluster.name.lower(), cluster.name, unit) for cluster in references.cluster]
        rows: list[tuple[Cell, ...]] = []
        for entry in compared:
            if entry.unit == unit:
                rows.append((entry.title, entry.site, *(entry.published.get(cluster.name) for cluster in references.cluster)))
        tables.append(FigureTable(f"beside_{key}", f"{title} beside five published clusters", tuple(columns), tuple(rows)))
    about = "; ".join(
        f"{cluster.name}: {cluster.about}, {cluster.jobs:,} jobs, {cluster.gpu_jobs:,} with GPUs" for cluster in references.cluster
    )
    return (*tables[:-1], replace(tables[-1], note=about))
