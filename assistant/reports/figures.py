"""What a report is made of: tables, plots and remarks, neutral of where they are shown. Pure.

Texts in them may be names that users wrote; whoever shows them escapes them for its destination.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

SMALL_N = 30
"""Below so many jobs a figure is called small: its interval is wide, and nothing is concluded from it."""


class IntervalValue(NamedTuple):
    """A number with its 95 % interval and the count that it rests on; NaN ends where so few values have none."""

    value: float
    low: float
    high: float
    n: int
    """Jobs behind it."""
    weight_n: float
    """Of a share of GPU time: how many equal jobs would say as much; else the same as `n`."""

    @property
    def small(self) -> bool:
        """Whether too few jobs stand behind it."""
        return self.weight_n < SMALL_N


Cell = str | int | float | IntervalValue | None
"""What stands in a table; None where nothing is known."""


class TableColumn(NamedTuple):
    """A column of a table."""

    key: str
    """As JSON and CSV have it."""
    title: str
    unit: str = ""
    """`s`, `share`, `count`, `GPU h`, `GPUs`, `number`; empty for text."""


@dataclass(frozen=True, slots=True)
class FigureTable:
    """A table."""

    key: str
    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    marked: str = ""
    """Text of the first column of the row that is this cluster's own, among those of others."""


class PlotCurve(NamedTuple):
    """One line of a plot."""

    name: str
    n: int
    xs: tuple[float, ...]
    ys: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CurvePlot:
    """Lines over one axis."""

    key: str
    title: str
    x_title: str
    x_unit: str
    """`s` (logarithmic), `GPUs` (logarithmic), `time` (seconds since 1970)."""
    y_title: str
    y_unit: str
    curves: tuple[PlotCurve, ...]
    about: str
    """What it shows, for whoever does not see it."""


class ShareRow(NamedTuple):
    """One bar of shares."""

    name: str
    parts: Mapping[str, float]
    about: str = ""
    """Count or year, behind the name."""
    is_site: bool = False
    """Whether it is the row of this site, which is set apart."""


@dataclass(frozen=True, slots=True)
class SharePlot:
    """Bars, each of 100 %, divided alike."""

    key: str
    title: str
    names: tuple[str, ...]
    """Of the parts, in order."""
    rows: tuple[ShareRow, ...]
    about: str


@dataclass(frozen=True, slots=True)
class StackPlot:
    """Bars over time, stacked."""

    key: str
    title: str
    y_title: str
    starts: tuple[float, ...]
    """Where each bar begins, seconds since 1970."""
    labels: tuple[str, ...]
    """Of each bar: a date."""
    names: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    """By name, then by bar."""
    about: str


@dataclass(frozen=True, slots=True)
class HeatPlot:
    """A grid of days and hours."""

    key: str
    title: str
    unit: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    about: str


class BarPart(NamedTuple):
    """One bar of a waterfall."""

    name: str
    value: float
    kind: str
    """`ok`, `mid`, `bad`, `none` (not known) or `own` (the whole): its colour."""


@dataclass(frozen=True, slots=True)
class WaterfallPlot:
    """Parts of a whole, each beginning where the one before ended."""

    key: str
    title: str
    unit: str
    bars: tuple[BarPart, ...]
    total: float
    falling: bool
    """Whether the parts are taken off the whole from its end, until the last one is what is left; else they add up from 0."""
    about: str


class RangePoint(NamedTuple):
    """A measured number with its interval."""

    name: str
    x: float
    y: float
    """Infinite where only its lower end is known."""
    low: float
    high: float
    n: int


class ModelPoint(NamedTuple):
    """A number of a model with its interval."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RangePlot:
    """Measured numbers with their intervals, beside a model's line with its band; both axes are logarithmic."""

    key: str
    title: str
    x_title: str
    x_unit: str
    y_title: str
    y_unit: str
    points: tuple[RangePoint, ...]
    model: tuple[ModelPoint, ...]
    about: str


Plot = CurvePlot | SharePlot | StackPlot | HeatPlot | WaterfallPlot | RangePlot
Figure = FigureTable | Plot


@dataclass(frozen=True, slots=True)
class FigureGroup:
    """Figures on one question."""

    key: str
    title: str
    lead: str
    """One sentence: what it is, of which jobs."""
    figures: tuple[Figure, ...]


class UsageRemark(NamedTuple):
    """A sentence on what is unusual."""

    key: str
    text: str
    level: str = "unusual"
    """`unusual`, or `note` where too little is known to say."""


@dataclass(frozen=True, slots=True)
class UsageReport:
    """A whole report."""

    kind: str
    """`cluster`, `failures`, `reliability`, `cost`, `job`, `user`, `node` or `week`."""
    title: str
    facts: tuple[tuple[str, str], ...]
    """Source, period, zone, version, as names and values."""
    headline: tuple[tuple[str, Cell, str], ...]
    """The few numbers that stand first: name, value, unit."""
    remarks: tuple[UsageRemark, ...]
    groups: tuple[FigureGroup, ...]
    left_out: FigureTable
    sources: tuple[str, ...] = field(default=())
    """Where the figures of others come from."""

    def figures(self) -> list[tuple[FigureGroup, Figure]]:
        """Return all figures with their groups, in order."""
        return [(group, figure) for group in self.groups for figure in group.figures]


@dataclass(frozen=True, slots=True)
class ReportFrame:
    """What a report says of itself."""

    title: str
    zone: str
    """By which hours and days are counted."""
    facts: Sequence[tuple[str, str]]
    left_out: FigureTable

    def report(
        self,
        kind: str,
        groups: Iterable[FigureGroup],
        *,
        facts: Iterable[tuple[str, str]],
        headline: Iterable[tuple[str, Cell, str]],
        remarks: Iterable[UsageRemark],
        sources: tuple[str, ...] = (),
    ) -> UsageReport:
        """Return the report of some groups of figures; the zone is the last of its facts.

        Args:
            kind: As in `UsageReport`.
            groups: In their order.
            facts: Of the counted jobs, behind those of the source.
            headline: The few numbers that stand first: name, value, unit.
            remarks: Most telling first.
            sources: Where the figures of others come from.
        """
        return UsageReport(
            kind=kind,
            title=self.title,
            facts=(*self.facts, *facts, ("hours and days", f"of the zone {self.zone}")),
            headline=tuple(headline),
            remarks=tuple(remarks),
            groups=tuple(groups),
            left_out=self.left_out,
            sources=sources,
        )
