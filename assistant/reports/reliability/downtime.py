"""While nothing ran: the time from the end of a run that failed to the start of the next one, and what it waited for.

These GPU hours (time × the run's GPUs) were not allocated to it; they are what a team waits, and come on top of the waterfall.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from assistant.reports.figures import Cell, FigureTable, TableColumn
from assistant.reports.reliability.goodput import asked_between
from assistant.reports.reliability.intervals import mean
from assistant.reports.reliability.runs import JoinedRuns
from assistant.reports.statistics import Mask, Values, median, share_of_weight

if TYPE_CHECKING:
    from assistant.reports.reliability.incident_facts import IncidentFacts

STAGES: Mapping[str, str] = {
    "detect": "until the failure was noticed",
    "diagnose": "until it was diagnosed",
    "person": "while a person was asked",
    "resubmit": "until it was submitted again, by Nightshift",
    "submitted": "until it was submitted again, by whom is not known",
    "queue": "in the queue",
    "unknown": "between its end and the next start, not known how",
}

BY_INCIDENTS = ("detect", "diagnose", "person", "resubmit")
"""Stages that only incidents tell: without a store they are not known, not zero."""


@dataclass(frozen=True, slots=True)
class Downtime:
    """The gaps behind runs that failed, one place a gap."""

    places: Mask
    """Which runs have one: those that failed, had GPUs, and were gone on with."""
    gap_s: Values
    """Of each run; NaN where there is none."""
    stages: Mapping[str, Values]
    """Seconds of each stage, by gap in the order of the runs; they sum to the gap."""
    without_next: int
    """Runs that failed and that nothing went on with."""
    not_known: int
    """Runs that failed, of which the accounting cannot tell."""


def downtime(runs: JoinedRuns, among: Mask | None = None) -> Downtime:
    """Return what runs that failed waited for until their next one began; of some, or of all."""
    failed = runs.failed & runs.jobs.on_gpus
    failed = failed if among is None else failed & among
    gap_s = np.where(failed, np.maximum(runs.next_start_s - runs.jobs.end_s, 0.0), np.nan)
    places = ~np.isnan(gap_s)
    numbers = np.flatnonzero(places)
    stages = {key: np.zeros(len(numbers)) for key in STAGES}
    end_s, next_s = runs.jobs.end_s[places], np.maximum(runs.next_start_s[places], runs.jobs.end_s[places])
    submit_s = np.clip(runs.next_submit_s[places], end_s, next_s)
    has_submission = ~np.isnan(submit_s)
    stages["submitted"][has_submission] = (submit_s - end_s)[has_submission]
    stages["queue"][has_submission] = (next_s - submit_s)[has_submission]
    stages["unknown"][~has_submission] = (next_s - end_s)[~has_submission]
    for gap, place in enumerate(numbers):
        if runs.incident[place] >= 0:
            by_store = _stages(runs.facts[runs.incident[place]], float(end_s[gap]), float(next_s[gap]))
            if by_store is not None:
                for key, values in stages.items():
                    values[gap] = by_store.get(key, 0.0)
    nothing = failed & ~places
    return Downtime(places, gap_s, stages, int((nothing & ~runs.parallel).sum()), int((nothing & runs.parallel).sum()))


def _stages(fact: IncidentFacts, end_s: float, next_s: float) -> dict[str, float] | None:
    """Return the stages of a gap by the store; None where it did not submit the next run."""
    if fact.resubmitted_s is None or fact.diagnosed_s is None:
        return None
    opened_s, diagnosed_s, submitted_s = (
        min(max(moment, end_s), next_s) for moment in (fact.opened_s, fact.diagnosed_s, fact.resubmitted_s)
    )
    diagnosed_s, submitted_s = max(diagnosed_s, opened_s), max(submitted_s, diagnosed_s, opened_s)
    person_s = asked_between(fact.waits, diagnosed_s, submitted_s)
    return {
        "detect": opened_s - end_s,
        "diagnose": diagnosed_s - opened_s,
        "person": person_s,
        "resubmit": submitted_s - diagnosed_s - person_s,
        "queue": next_s - submitted_s,
    }


def downtime_table(runs: JoinedRuns, down: Downtime) -> FigureTable:
    """Return the stages with their GPU hours; they sum to those of all gaps."""
    gpus = runs.jobs.gpus[down.places]
    columns = (
        TableColumn("stage", "stage"),
        TableColumn("gpu_hours", "GPU hours", "GPU h"),
        TableColumn("share", "of all", "share"),
        TableColumn("runs", "runs", "count"),
        TableColumn("mean_s", "mean", "s"),
        TableColumn("median_s", "median", "s"),
    )
    weights = np.nan_to_num(down.gap_s[down.places]) * gpus
    total, squares = float(weights.sum()), float(np.square(weights).sum())
    rows: list[tuple[Cell, ...]] = []
    for key, title in STAGES.items():
        if not runs.has_store and key in BY_INCIDENTS:
            rows.append((title, None, None, None, None, None))
            continue
        seconds = down.stages[key]
        positive = seconds > 0
        part = float((seconds * gpus).sum())
        rows.append(
            (
                title,
                part / 3600,
                share_of_weight(part, total, squares, len(weights)),
                int(positive.sum()),
                mean(seconds[positive]),
                median(np.sort(seconds[positive])),
            )
        )
    gaps = np.sort(down.gap_s[down.places])
    rows.append(("all", total / 3600, None, len(gaps), mean(gaps), median(gaps)))
    note = (
        f"Of runs that failed, {down.without_next:,} have no next run, and of {down.not_known:,} it cannot be known: others of "
        "the same user, name and GPUs ran beside them, or the source names none. Mean and median are of the runs that have the "
        "stage."
    )
    return FigureTable("downtime", "From a failure to the start of the next run", columns, tuple(rows), note)


def gaps_table(runs: JoinedRuns, down: Downtime) -> FigureTable:
    """Return the stages of the gaps of one run: its own figures, which stand for no others and so have no intervals."""
    gpus = runs.jobs.gpus[down.places]
    columns = (
        TableColumn("stage", "stage"),
        TableColumn("seconds", "time", "s"),
        TableColumn("gpu_hours", "GPU hours", "GPU h"),
        TableColumn("gaps", "gaps", "count"),
    )
    rows: list[tuple[Cell, ...]] = [
        (title, float(seconds.sum()), float((seconds * gpus).sum()) / 3600, int((seconds > 0).sum()))
        for key, title in STAGES.items()
        if (seconds := down.stages[key]).any()
    ]
    gap_s = down.gap_s[down.places]
    rows.append(("all", float(gap_s.sum()), float((gap_s * gpus).sum()) / 3600, len(gap_s)))
    return FigureTable("downtime", "From its failures to the start of the next attempt", columns, tuple(rows))
