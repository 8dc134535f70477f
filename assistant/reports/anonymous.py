"""Take names out: users, accounts and partitions become numbers in order of their GPU time, the same within one report."""

from __future__ import annotations

from dataclasses import replace

from assistant.reports.job_arrays import NO_NAME, Dimension, JobArrays

HIDDEN = ("user", "account", "partition")


def without_names(jobs: JobArrays) -> JobArrays:
    """Return the jobs with numbers in place of names."""
    return replace(jobs, by={key: _numbered(key, group) if key in HIDDEN else group for key, group in jobs.by.items()})


def _numbered(key: str, dimension: Dimension) -> Dimension:
    names = (NO_NAME if name == NO_NAME else f"{key} {place}" for place, name in enumerate(dimension.names, 1))
    return Dimension(tuple(names), dimension.codes)
