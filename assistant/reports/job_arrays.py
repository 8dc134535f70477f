"""The counted jobs as arrays of numbers, one place a job, with codes for their types, sizes, users and states.

Jobs stand in order of their ends and ids, so that sums do not depend on the order in which a source lists them. Without names
(`without_names`) users, accounts and partitions are numbers in order of their GPU time, the same within one report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from assistant.reports.statistics import Codes, Mask, Values, weighted_sums

if TYPE_CHECKING:
    import duckdb
from dataclasses import replace

SIZES: tuple[tuple[str, float, float], ...] = (
    ("CPU only", 0.0, 0.0),
    ("< 1 GPU", 0.0, 1.0),
    ("1", 1.0, 2.0),
    ("2–7", 2.0, 8.0),
    ("8", 8.0, 9.0),
    ("9–63", 9.0, 64.0),
    ("64–255", 64.0, 256.0),
    ("256–1023", 256.0, 1024.0),
    ("≥ 1024", 1024.0, float("inf")),
)
"""Classes of sizes: name, from how many GPUs, to below how many. Eight are a usual node."""
OUTCOME_NAMES = ("completed", "cancelled", "failed", "unknown")
NO_NAME = "(none)"
"""Stands for a user, account or partition that the source does not say."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """By what jobs are grouped."""

    names: tuple[str, ...]
    codes: Codes


@dataclass(frozen=True, slots=True)
class JobArrays:
    """All counted jobs; NaN where a number is not known."""

    submit_s: Values
    start_s: Values
    end_s: Values
    run_s: Values
    queue_s: Values
    gpus: Values
    gpu_s: Values
    """GPU seconds; NaN where the GPUs are not known."""
    row: npt.NDArray[np.int64]
    """Number of its row in the source, by which more facts are joined."""
    by: dict[str, Dimension]
    """`type`, `size`, `outcome`, `state`, `user`, `account`, `partition`; each in order of GPU time, but `size` and `outcome`."""

    @property
    def count(self) -> int:
        """How many jobs there are."""
        return len(self.end_s)

    @property
    def on_gpus(self) -> Mask:
        """Which jobs had GPUs."""
        return self.gpus > 0


def job_arrays(connection: duckdb.DuckDBPyConnection) -> JobArrays:
    """Return the table `counted` as arrays."""
    texts = ("type", "state", "user", "account", "partition")
    names: dict[str, tuple[str, ...]] = {}
    for key in texts:
        connection.execute(
            f"CREATE TEMP TABLE by_{key} AS SELECT coalesce(\"{key}\", '{NO_NAME}') AS name, row_number() OVER "
            f"(ORDER BY sum(coalesce(gpu_s, 0)) DESC, count(*) DESC, coalesce(\"{key}\", '{NO_NAME}')) - 1 AS code "
            f"FROM counted GROUP BY coalesce(\"{key}\", '{NO_NAME}')"
        )
        names[key] = tuple(row[0] for row in connection.execute(f"SELECT name FROM by_{key} ORDER BY code").fetchall())
    joins = " ".join(f"JOIN by_{key} ON by_{key}.name = coalesce(c.\"{key}\", '{NO_NAME}')" for key in texts)
    codes = ", ".join(f"by_{key}.code::INTEGER AS {key}_code" for key in texts)
    outcomes = " ".join(f"WHEN '{name}' THEN {code}" for code, name in enumerate(OUTCOME_NAMES))
    numbers = ("submit_s", "start_s", "end_s", "run_s", "queue_s", "gpus", "gpu_s")
    fetched = connection.execute(
        f"SELECT {', '.join(f'c.{name}::DOUBLE AS {name}' for name in numbers)}, {codes}, "
        f"(CASE c.outcome {outcomes} END)::INTEGER AS outcome_code, c.row::BIGINT AS row "
        f"FROM counted c {joins} ORDER BY c.end_s, c.id, c.start_s"
    ).fetchnumpy()
    arrays = {name: np.ma.filled(fetched[name].astype(np.float64), np.nan) for name in numbers}
    by = {key: Dimension(names[key], np.ma.filled(fetched[f"{key}_code"], -1).astype(np.int32)) for key in texts}
    by["outcome"] = Dimension(OUTCOME_NAMES, np.ma.filled(fetched["outcome_code"], -1).astype(np.int32))
    by["size"] = Dimension(tuple(name for name, _, _ in SIZES), size_codes(arrays["gpus"]))
    return JobArrays(**arrays, row=np.ma.filled(fetched["row"], -1).astype(np.int64), by=by)


def size_codes(gpus: Values) -> Codes:
    """Return the class of each number of GPUs; -1 where it is not known."""
    codes = np.searchsorted(np.array([low for _, low, _ in SIZES[2:]]), gpus, side="right").astype(np.int32) + 1
    codes[gpus == 0] = 0
    codes[np.isnan(gpus)] = -1
    return codes


def largest(dimension: Dimension, weights: Values, most: int) -> list[int]:
    """Return the codes of the groups with the largest sums, those first; empty groups are left out."""
    counts = weighted_sums(dimension.codes, len(dimension.names))
    sums = weighted_sums(dimension.codes, len(dimension.names), np.nan_to_num(weights))
    order = sorted(range(len(dimension.names)), key=lambda code: (-sums[code], -counts[code], dimension.names[code]))
    return [code for code in order if counts[code]][:most]


HIDDEN = ("user", "account", "partition")


def without_names(jobs: JobArrays) -> JobArrays:
    """Return the jobs with numbers in place of names."""
    return replace(jobs, by={key: _numbered(key, group) if key in HIDDEN else group for key, group in jobs.by.items()})


def _numbered(key: str, dimension: Dimension) -> Dimension:
    names = (NO_NAME if name == NO_NAME else f"{key} {place}" for place, name in enumerate(dimension.names, 1))
    return Dimension(tuple(names), dimension.codes)
