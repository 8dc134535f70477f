"""Times between failures by size of job, the model that carries them to other sizes, and effective training time ratios.

The model is that of Meta's study: each GPU fails at the same rate, so a job's mean time to failure is the inverse of rate × GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from assistant.reports.figures import Cell, FigureTable, IntervalValue, ModelPoint, RangePlot, RangePoint, TableColumn
from assistant.reports.job_arrays import SIZES
from assistant.reports.reliability.goodput import divisions
from assistant.reports.reliability.intervals import mean_between, rate, ratio_of_sums
from assistant.reports.reliability.runs import JoinedRuns, Places
from assistant.reports.statistics import Mask, Values
from assistant.reports.wording import quantity

GPUS_OF_NODE = 8
DAY_S = 86400.0
MODEL_SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
SHOWN_SIZES = (8, 64, 256, 1024, 4096, 16384, 131072)
LEAST_RUN_S = 8 * 3600.0
"""Runs that trained for less, all attempts together, have no ratio: it would be one of their queueing."""
PUBLISHED = "published: 6.50 failures of machines in 1,000 node days of 8 A100 (RSC-1), 2.34 (RSC-2)"


@dataclass(frozen=True, slots=True)
class RestartCost:
    """What a failure is taken to cost where nobody measured it."""

    start_s: float = 300.0
    """From the start of a run to its first new step."""
    checkpoint_s: float = 3600.0
    """Between two checkpoints: half of it is lost."""

    @property
    def lost_s(self) -> float:
        """Time that a failure takes from a run, on average."""
        return self.start_s + self.checkpoint_s / 2


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Failures for each GPU second, over jobs that use whole nodes."""

    failures: int
    gpu_s: float
    least_gpus: int
    """Jobs with fewer are not in it."""

    @property
    def per_gpu_s(self) -> IntervalValue | None:
        """Failures for each GPU second with the exact interval."""
        return rate(self.failures, self.gpu_s)

    @property
    def per_1000_node_days(self) -> IntervalValue | None:
        """Failures in a thousand days of a node of eight GPUs."""
        return rate(self.failures, self.gpu_s / (DAY_S * GPUS_OF_NODE * 1000))

    def between(self, gpus: float) -> IntervalValue | None:
        """Return the mean time to failure of a job of so many GPUs by the model, in seconds."""
        return mean_between(self.failures, self.gpu_s / gpus)

    def ratio(self, gpus: float, cost: RestartCost, wait_s: float) -> IntervalValue | None:
        """Return the expected effective training time ratio of a long run.

        Args:
            gpus: Of the run.
            cost: Of a failure.
            wait_s: From a failure to the start of the next attempt.

        Source:
            arXiv 2410.21680, section on the analytical estimator, for a run that is long against its first queueing.
        """
        measured = self.per_gpu_s
        if measured is None:
            return None
        value, high, low = (effective_ratio(failures_per_s * gpus, cost, wait_s) for failures_per_s in measured[:3])
        return IntervalValue(value, low, high, self.failures, float(self.failures))


def effective_ratio(failures_per_s: float, cost: RestartCost, wait_s: float) -> float:
    """Return productive time ÷ all time of a run that fails at a rate while it runs; 0 where it makes no way."""
    return max(0.0, 1 - failures_per_s * cost.lost_s) / (1 + failures_per_s * wait_s)


def failure_rate(runs: JoinedRuns, failures: Mask) -> FailureRate:
    """Return the rate of failures: of jobs of whole nodes where they had any, else of all with GPUs."""
    gpu_s = np.where(runs.jobs.on_gpus, runs.jobs.gpus * runs.jobs.run_s, 0.0)
    whole_nodes = runs.jobs.gpus >= GPUS_OF_NODE
    if (failures & whole_nodes).any():
        return FailureRate(int((failures & whole_nodes).sum()), float(gpu_s[whole_nodes].sum()), GPUS_OF_NODE)
    return FailureRate(int((failures & runs.jobs.on_gpus).sum()), float(gpu_s.sum()), 1)


def sizes_present(runs: JoinedRuns) -> list[int]:
    """Return the classes of sizes with GPUs that some job has."""
    codes = runs.jobs.by["size"].codes
    return [code for code in range(1, len(SIZES)) if (codes == code).any()]


def rates_table(runs: JoinedRuns, model: FailureRate, machine_model: FailureRate) -> FigureTable:
    """Return times between failures by size, each beside the model's."""
    columns = (
        TableColumn("size", "GPUs"),
        TableColumn("jobs", "jobs", "count"),
        TableColumn("run_hours", "hours they ran", "number"),
        TableColumn("failures", "broken off", "count"),
        TableColumn("between_s", "time to failure", "s"),
        TableColumn("model_s", "by the model", "s"),
        TableColumn("machine_failures", "by machines", "count"),
        TableColumn("machine_between_s", "time to such a failure", "s"),
        TableColumn("machine_model_s", "by the model", "s"),
    )
    rows: list[tuple[Cell, ...]] = []
    broken, machine = runs.broken, runs.infrastructure
    for code in sizes_present(runs):
        mask = runs.jobs.by["size"].codes == code
        run_s, gpus = float(runs.jobs.run_s[mask].sum()), mean_gpus(runs, mask)
        count, machine_count = int((mask & broken).sum()), int((mask & machine).sum())
        rows.append(
            (
                SIZES[code][0],
                int(mask.sum()),
                run_s / 3600,
                count,
                mean_between(count, run_s),
                model.between(gpus),
                machine_count,
                mean_between(machine_count, run_s),
                machine_model.between(gpus),
            )
        )
    note = (
        "Time to failure: hours that all jobs of a class ran ÷ failures, with the exact interval of Poisson counts. A "
        "completion, a cancel, a preemption and a time limit end the watching of a job and are no failure of it. By machines: "
        "lost nodes, and what incidents say is infrastructure."
    )
    return FigureTable("failure_rates", "Time to failure by size of job", columns, tuple(rows), note)


def mean_gpus(runs: JoinedRuns, mask: Mask) -> float:
    """Return the mean GPUs of some jobs, each weighed by how long it ran: at which size their hours were at risk."""
    run_s, gpus = runs.jobs.run_s[mask], runs.jobs.gpus[mask]
    total = float(run_s.sum())
    return float((run_s * gpus).sum()) / total if total > 0 else float(gpus.mean())


def rates_plot(runs: JoinedRuns, failures: Mask, model: FailureRate, key: str, title: str) -> RangePlot:
    """Return measured times to failure beside the model's line."""
    points = []
    for code in sizes_present(runs):
        mask = runs.jobs.by["size"].codes == code
        count = int((mask & failures).sum())
        measured = mean_between(count, float(runs.jobs.run_s[mask].sum()))
        if measured is not None:
            points.append(RangePoint(f"{SIZES[code][0]} GPUs", mean_gpus(runs, mask), *measured[:3], count))
    line = []
    for gpus in MODEL_SIZES:
        expected = model.between(gpus)
        if expected is not None and math.isfinite(expected.high):
            line.append(ModelPoint(float(gpus), *expected[:3]))
    about = "; ".join(
        f"{point.name}: {quantity(point.y, 's')} ({quantity(point.low, 's')} to {quantity(point.high, 's')}, {point.n:,} failures)"
        for point in points
    )
    return RangePlot(
        key, title, "GPUs of a job", "GPUs", "mean time to failure", "s", tuple(points), tuple(line), about or "No jobs."
    )


def disagreement(runs: JoinedRuns, failures: Mask, model: FailureRate) -> list[tuple[str, IntervalValue, IntervalValue]]:
    """Return the classes of whole nodes whose measured time to failure the model's line does not meet, with both."""
    apart = []
    for code in sizes_present(runs):
        mask = runs.jobs.by["size"].codes == code
        count = int((mask & failures).sum())
        measured = mean_between(count, float(runs.jobs.run_s[mask].sum()))
        expected = model.between(mean_gpus(runs, mask))
        if SIZES[code][1] < GPUS_OF_NODE or measured is None or expected is None:
            continue
        if measured.high < expected.low or measured.low > expected.high:
            apart.append((SIZES[code][0], measured, expected))
    return apart


def model_table(model: FailureRate, machine_model: FailureRate, cost: RestartCost, wait_s: float) -> FigureTable:
    """Return what the model expects of jobs of sizes that may never have run here."""
    columns = (
        TableColumn("gpus", "GPUs", "count"),
        TableColumn("between_s", "time to failure", "s"),
        TableColumn("ratio", "ETTR", "share"),
        TableColumn("machine_between_s", "by machines", "s"),
        TableColumn("machine_ratio", "ETTR, machines alone", "share"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            gpus,
            model.between(gpus),
            model.ratio(gpus, cost, wait_s),
            machine_model.between(gpus),
            machine_model.ratio(gpus, cost, wait_s),
        )
        for gpus in SHOWN_SIZES
    ]
    note = (
        f"Failures in 1,000 node days: {_text(model.per_1000_node_days)} in all, {_text(machine_model.per_1000_node_days)} by "
        f"machines, of jobs with at least {model.least_gpus} and {machine_model.least_gpus} GPUs; {PUBLISHED}. A failure is taken "
        f"to cost {quantity(cost.start_s, 's')} of start, half of {quantity(cost.checkpoint_s, 's')} between checkpoints, and "
        f"{quantity(wait_s, 's')} in the queue, the mean of jobs with GPUs; until somebody submits it again is not in it."
    )
    return FigureTable("model", "What the model expects of other sizes", columns, tuple(rows), note)


def _text(measured: IntervalValue | None) -> str:
    return "not known" if measured is None else f"{measured.value:.3g} ({measured.low:.3g}–{measured.high:.3g})"


def chains(runs: JoinedRuns) -> Places:
    """Return for each job the place of the first attempt of its run; a run is what goes on after failures, limits and cancels."""
    before = np.arange(runs.jobs.count)
    linked = np.flatnonzero(runs.next_place >= 0)
    before[runs.next_place[linked]] = linked
    # each step doubles how far it looks; links only lead forward, so it ends
    while True:
        further = before[before]
        if (further == before).all():
            return before
        before = further


def lost_seconds(runs: JoinedRuns, cost: RestartCost) -> Values:
    """Return how long each run did what was lost: as its incident says; of others that failed what a failure is taken to cost."""
    lost = np.where(runs.broken, np.minimum(runs.jobs.run_s, cost.lost_s), 0.0)
    unit_shares = np.full(runs.jobs.count, 1_000_000, dtype=np.int64)
    for place, parts in divisions(runs, unit_shares).items():
        if "productive" in parts or "beginning" in parts:
            lost[place] = (1 - parts.get("productive", 0) / 1_000_000) * runs.jobs.run_s[place]
    return lost


def ratios_table(runs: JoinedRuns, model: FailureRate, cost: RestartCost, wait_s: float) -> FigureTable:
    """Return effective training time ratios of long runs by size."""
    first = chains(runs)
    roots, inverse = np.unique(first, return_inverse=True)
    submit = np.fmin(np.where(np.isnan(runs.jobs.submit_s), runs.jobs.start_s, runs.jobs.submit_s), runs.jobs.start_s)
    begin = np.full(len(roots), np.inf)
    end = np.full(len(roots), -np.inf)
    np.minimum.at(begin, inverse, submit)
    np.maximum.at(end, inverse, runs.jobs.end_s)
    ran = np.bincount(inverse, weights=runs.jobs.run_s, minlength=len(roots))
    lost = np.bincount(inverse, weights=lost_seconds(runs, cost), minlength=len(roots))
    attempts = np.bincount(inverse, minlength=len(roots))
    size = runs.jobs.by["size"].codes[roots]
    wall = np.maximum(end - begin, ran)
    columns = (
        TableColumn("size", "GPUs"),
        TableColumn("runs", "runs", "count"),
        TableColumn("attempts", "attempts", "count"),
        TableColumn("running", "running ÷ all time", "share"),
        TableColumn("ratio", "ETTR", "share"),
        TableColumn("model", "by the model", "share"),
    )
    rows: list[tuple[Cell, ...]] = []
    for code in sizes_present(runs):
        mask = (size == code) & (ran >= LEAST_RUN_S)
        if mask.any():
            gpus = float(np.mean(runs.jobs.gpus[roots[mask]]))
            rows.append(
                (
                    SIZES[code][0],
                    int(mask.sum()),
                    int(attempts[mask].sum()),
                    ratio_of_sums(ran[mask], wall[mask]),
                    ratio_of_sums(np.maximum(ran - lost, 0.0)[mask], wall[mask]),
                    model.ratio(gpus, cost, wait_s),
                )
            )
    note = (
        f"Of runs with at least {quantity(LEAST_RUN_S, 's')} of running, all attempts together; from the first submission to the "
        "last end. ETTR: time that ran without what was lost. Where incidents do not say what a failure cost, it is taken as for "
        "the model."
    )
    return FigureTable("ratios", "Effective training time ratio (ETTR) by size of run", columns, tuple(rows), note)


def usual_queueing(runs: JoinedRuns) -> float:
    """Return how long jobs with GPUs wait in the queue on average; until somebody submits a job again is not in it."""
    waits = runs.jobs.queue_s[runs.jobs.on_gpus & ~np.isnan(runs.jobs.queue_s)]
    return float(waits.mean()) if len(waits) else 0.0
