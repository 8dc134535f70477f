"""Make `report week`: a week of the site's clock, and in words what changed against the week before.

A job belongs to the week in which it ended. Changed is only what its interval sets apart; of all else it is said that it is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from assistant.reports.figures import (
    Cell,
    FigureGroup,
    FigureTable,
    IntervalValue,
    ReportFrame,
    TableColumn,
    UsageRemark,
    UsageReport,
)
from assistant.reports.intake import TimeRange
from assistant.reports.job_arrays import NO_NAME
from assistant.reports.reliability.goodput import without_store
from assistant.reports.reliability.reading import ReadRuns
from assistant.reports.reliability.reliability import share_alone
from assistant.reports.reliability.runs import JoinedRuns
from assistant.reports.statistics import Mask, difference_interval, weighted_sums
from assistant.reports.subjects.run_totals import (
    TOTAL_COLUMNS,
    RunTotals,
    failure_group,
    lost_group,
    queueing_table,
    run_totals,
    state_table,
)
from assistant.reports.wording import cell_text, quantity, share

MOST_CHANGES = 5
"""Reasons and users named in a sentence or a table of what changed."""
WEEK = timedelta(days=7)


class Week(NamedTuple):
    """A week from Monday, 00:00 of a zone; 167 or 169 hours where the clock is set."""

    monday: date
    zone: str

    @property
    def begin(self) -> datetime:
        """Its first moment, UTC."""
        place = ZoneInfo(self.zone)
        return datetime(self.monday.year, self.monday.month, self.monday.day, tzinfo=place).astimezone(UTC)

    @property
    def end(self) -> datetime:
        """The first moment of the next one, UTC."""
        return self.next.begin

    @property
    def next(self) -> Week:
        """The week behind it."""
        return Week(self.monday + WEEK, self.zone)

    @property
    def former(self) -> Week:
        """The week before it."""
        return Week(self.monday - WEEK, self.zone)

    @property
    def name(self) -> str:
        """Number of ISO 8601: `2026-W23`."""
        year, number, _ = self.monday.isocalendar()
        return f"{year}-W{number:02}"

    @property
    def with_former(self) -> TimeRange:
        """When a job has to have ended to be in this week or the one before."""
        return TimeRange(self.former.begin, self.end)

    def mask(self, runs: JoinedRuns) -> Mask:
        """Return which runs ended in it."""
        inside: Mask = (runs.jobs.end_s >= self.begin.timestamp()) & (runs.jobs.end_s < self.end.timestamp())
        return inside


def week_of(moment: datetime, zone: str) -> Week:
    """Return the week of a zone in which a moment lies."""
    day = moment.astimezone(ZoneInfo(zone)).date()
    return Week(day - timedelta(days=day.weekday()), zone)


@dataclass(frozen=True, slots=True)
class _Pair:
    """What is set beside one another."""

    runs: JoinedRuns
    former: Mask
    latter: Mask

    @property
    def totals(self) -> tuple[RunTotals, RunTotals]:
        return run_totals(self.runs, self.former), run_totals(self.runs, self.latter)


def week_report(read: ReadRuns, frame: ReportFrame, week: Week) -> UsageReport:
    """Return the report of a week.

    Args:
        read: Runs, those of the week and of the week before among them.
        frame: What the report says of itself.
        week: Which.
    """
    runs = read.runs
    pair = _Pair(runs, week.former.mask(runs), week.mask(runs))
    former, latter = pair.totals
    groups = []
    if pair.latter.any() or pair.former.any():
        lead = f"{week.name} is from {week.monday:%Y-%m-%d} to the Sunday after, by the clock of {week.zone}."
        groups = [
            FigureGroup("change", "Beside the week before", lead, (weeks_table(runs, [week.former, week]), *_movers(pair))),
            FigureGroup(
                "work",
                "How it ended and waited",
                "Of the jobs that ended in the week.",
                (
                    state_table(runs, pair.latter),
                    queueing_table(runs, {week.former.name: pair.former, week.name: pair.latter}),
                ),
            ),
            failure_group(runs, pair.latter, frame.zone),
            lost_group(runs, pair.latter),
        ]
    headline: list[tuple[str, Cell, str]] = [
        ("jobs", latter.jobs, "count"),
        ("GPU hours", latter.gpu_hours, "GPU h"),
        ("failed, of jobs with GPUs", latter.failed, "share"),
        ("failures", latter.failures, "count"),
        ("GPU hours of failures", latter.failure_hours, "GPU h"),
        ("known to be lost", latter.lost_hours, "GPU h"),
        ("median queueing, with GPUs", latter.queueing, "s"),
    ]
    facts = [
        ("week", f"{week.name}, from Monday {week.monday:%Y-%m-%d}; beside it {week.former.name}"),
        ("jobs", f"{latter.jobs:,} ended in the week, {former.jobs:,} in the one before"),
    ]
    return frame.report("week", groups, facts=facts, headline=headline, remarks=_remarks(pair, week))


def weeks_table(runs: JoinedRuns, weeks: list[Week]) -> FigureTable:
    """Return the totals of weeks, a row for each."""
    columns = (TableColumn("week", "week"), TableColumn("begins", "from Monday"), *TOTAL_COLUMNS)
    rows = tuple((week.name, f"{week.monday:%Y-%m-%d}", *run_totals(runs, week.mask(runs))) for week in weeks)
    return FigureTable("weeks", "Weeks", columns, rows)


def _movers(pair: _Pair) -> Iterator[FigureTable]:
    """Yield the users and reasons whose GPU hours changed most."""
    runs = pair.runs
    for key, title, dimension, among in (
        ("user", "Users whose GPU hours changed most", runs.jobs.by["user"], np.ones(runs.jobs.count, dtype=np.bool_)),
        ("reason", "Reasons whose GPU hours of failures changed most", runs.reason, runs.failed),
    ):
        gpu_s = np.nan_to_num(runs.jobs.gpu_s)
        sums, counts = [], []
        for mask in (pair.former & among, pair.latter & among):
            codes = np.where(mask, dimension.codes, -1)
            sums.append(weighted_sums(codes, len(dimension.names), gpu_s) / 3600)
            counts.append(weighted_sums(codes, len(dimension.names)))
        change = sums[1] - sums[0]
        order = sorted(
            np.flatnonzero((counts[0] + counts[1]) > 0).tolist(), key=lambda code: (-abs(change[code]), dimension.names[code])
        )
        columns = (
            TableColumn(key, key),
            TableColumn("jobs_before", "jobs, week before", "count"),
            TableColumn("jobs", "jobs", "count"),
            TableColumn("gpu_hours_before", "GPU hours, week before", "GPU h"),
            TableColumn("gpu_hours", "GPU hours", "GPU h"),
            TableColumn("change", "change", "number"),
        )
        rows = tuple(
            (
                dimension.names[code],
                int(counts[0][code]),
                int(counts[1][code]),
                float(sums[0][code]),
                float(sums[1][code]),
                float(change[code]),
            )
            for code in order[:MOST_CHANGES]
        )
        if rows:
            yield FigureTable(f"changes_by_{key}", title, columns, rows)


def _remarks(pair: _Pair, week: Week) -> list[UsageRemark]:
    former, latter = pair.totals
    if not latter.jobs and not former.jobs:
        text = f"No job ended in {week.name} or the week before; the table of what was left out says what the source has."
        return [UsageRemark("empty", text, "note")]
    if not former.jobs:
        text = f"No job of the week before, {week.former.name}, is in the source: nothing can be set beside {week.name}."
        return [*_store(pair), UsageRemark("no_former", text, "note")]
    sentences = [
        *_store(pair),
        UsageRemark("jobs", f"Jobs: {_from_to(former.jobs, latter.jobs, 'count')}.", "note"),
        UsageRemark("gpu_hours", f"GPU hours: {_from_to(former.gpu_hours, latter.gpu_hours, 'GPU h')}.", "note"),
        UsageRemark("failures", f"Failures: {_from_to(former.failures, latter.failures, 'count')}.", "note"),
    ]
    if former.failed is not None and latter.failed is not None:
        sentences.append(_share_change(former.failed, latter.failed))
    if former.queueing is not None and latter.queueing is not None:
        sentences.append(_median_change(former.queueing, latter.queueing))
    sentences += _new_reasons(pair)
    sentences += _people(pair.runs, week)
    return sorted(sentences, key=lambda remark: remark.level != "unusual")


def _store(pair: _Pair) -> list[UsageRemark]:
    return [] if pair.runs.has_store else [without_store()]


def _from_to(before: float, after: float, unit: str) -> str:
    words = f"{quantity(before, unit)} the week before, {quantity(after, unit)} now"
    if not before:
        return words
    change = after / before - 1
    return f"{words} ({'+' if change >= 0 else '-'}{share(abs(change))})"


def _share_change(before: IntervalValue, after: IntervalValue) -> UsageRemark:
    low, high = difference_interval(before, after)
    small = before.small or after.small
    changed = not small and (low > 0 or high < 0)
    verb = "rose" if after.value > before.value else "fell"
    points = f"difference {100 * low:+.1f} to {100 * high:+.1f} points"
    text = (
        f"Failed, of jobs with GPUs: {cell_text(before, 'share')} of {before.n:,} the week before, {cell_text(after, 'share')} of "
        f"{after.n:,} now; {points}: {f'it {verb}' if changed else 'not to be told from chance'}."
    )
    caution = " Few jobs stand behind this." if small else ""
    return UsageRemark("failed", f"{text}{caution}", "unusual" if changed else "note")


def _median_change(before: IntervalValue, after: IntervalValue) -> UsageRemark:
    small = before.small or after.small
    changed = not small and (before.high < after.low or after.high < before.low)
    verb = "rose" if after.value > before.value else "fell"
    text = (
        f"Queueing, median: {cell_text(before, 's')}, n = {before.n:,}, the week before, {cell_text(after, 's')}, n = {after.n:,}, "
        f"now: {f'it {verb}' if changed else 'the intervals do not set them apart'}."
    )
    return UsageRemark("queueing", f"{text}{' Few jobs stand behind this.' if small else ''}", "unusual" if changed else "note")


def _new_reasons(pair: _Pair) -> list[UsageRemark]:
    """Return what failed in the week for a reason that the week before had not."""
    runs = pair.runs
    before = set(runs.reason.codes[pair.former & runs.failed].tolist())
    codes, counts = np.unique(runs.reason.codes[pair.latter & runs.failed], return_counts=True)
    new = [(runs.reason.names[code], int(count)) for code, count in zip(codes, counts, strict=True) if code not in before]
    if not new:
        return []
    new.sort(key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{name or NO_NAME} (n = {count:,})" for name, count in new[:MOST_CHANGES])
    more = f", and {len(new) - MOST_CHANGES:,} more" if len(new) > MOST_CHANGES else ""
    return [UsageRemark("new_reasons", f"Reasons of failures that the week before did not have: {listed}{more}.", "note")]


def _people(runs: JoinedRuns, week: Week) -> list[UsageRemark]:
    if not runs.has_store:
        return []
    parts = []
    for entry in (week.former, week):
        first_s, last_s = entry.begin.timestamp(), entry.end.timestamp()
        alone = share_alone([fact for fact in runs.facts if first_s <= fact.opened_s < last_s])
        parts.append("none" if alone is None else f"{cell_text(alone, 'share')} of {alone.n:,}")
    text = f"Incidents that needed something done and no person: {parts[0]} the week before, {parts[1]} now."
    return [UsageRemark("alone", text, "note")]
