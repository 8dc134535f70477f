"""A report for the terminal: tables and bars of characters, as wide as the terminal is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assistant.display import line
from assistant.reports.figures import (
    Cell,
    CurvePlot,
    FigureTable,
    HeatPlot,
    IntervalValue,
    Plot,
    RangePlot,
    SharePlot,
    StackPlot,
    UsageReport,
    WaterfallPlot,
)
from assistant.reports.wording import amount, between, cell_text, quantity, share, with_unit

WITHOUT_TERMINAL = 132
BAR = 40
EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = " ▁▂▃▄▅▆▇█"
PART_SIGNS = "█▓▒░▞▚▤▥▦"
WIDE_COLUMNS = 7
"""Columns of a table beyond which it is narrowed."""
MOST_LETTERS = 60
MOST_ROWS = 12
"""Of a table; the pages and files have all."""


def console() -> Console:
    """Return where a report is written: no markup, no highlighting, colours as everywhere else."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WITHOUT_TERMINAL
    return Console(file=sys.stdout, width=max(width, 60), markup=False, highlight=False, emoji=False, soft_wrap=False)


def show_report(report: UsageReport) -> None:
    """Print a report."""
    out = console()
    out.print(Text(line(report.title), style="bold"))
    for name, value in report.facts:
        out.print(Text(line(f"{name}: {value}")))
    out.print()
    for name, cell, unit in report.headline:
        interval = f"  ({between(cell, unit)})" if isinstance(cell, IntervalValue) else ""
        out.print(Text(line(f"{name:28} {cell_text(cell, unit, interval=False)}{interval}")))
    out.print()
    out.print(Text("What is unusual", style="bold"))
    for remark in report.remarks:
        out.print(Text(line(f"- {remark.text}")))
    for group in report.groups:
        out.print()
        out.print(Text(line(group.title), style="bold"))
        out.print(Text(line(group.lead), style="dim"))
        for figure in group.figures:
            out.print()
            if isinstance(figure, FigureTable):
                out.print(_table(figure))
                if len(figure.rows) > MOST_ROWS:
                    out.print(Text(line(f"and {len(figure.rows) - MOST_ROWS:,} rows more: --html, --csv, --json"), style="dim"))
            else:
                for text in _plot(figure):
                    out.print(Text(line(text)))
    out.print()
    out.print(_table(_without_zeros(report.left_out)))
    out.print(
        Text("In brackets: 95 % intervals, or n where the values are too few. * few jobs stand behind the number.", style="dim")
    )


def _without_zeros(table: FigureTable) -> FigureTable:
    """Return the kinds that occurred; all of them are in pages and files."""
    rows = tuple(row for row in table.rows if row[1])
    none = ("nothing", 0, None, "every row was counted", "")
    return FigureTable(table.key, table.title, table.columns, rows or (none,), table.note)


def _table(table: FigureTable) -> Table:
    drawn = Table(title=Text(line(table.title)), title_justify="left", box=None, pad_edge=False, padding=(0, 1))
    for place, column in enumerate(table.columns):
        side: Literal["left", "right"] = "right" if column.unit else "left"
        drawn.add_column(Text(line(column.title), style="bold"), justify=side, overflow="fold", no_wrap=place == 0)
    narrow = len(table.columns) > WIDE_COLUMNS
    for row in table.rows[:MOST_ROWS]:
        drawn.add_row(*(_cell(cell, column.unit, narrow=narrow) for cell, column in zip(row, table.columns, strict=True)))
    return drawn


def _cell(cell: Cell, unit: str, *, narrow: bool) -> Text:
    """Return a cell; in a table of many columns an interval has a line of its own."""
    if narrow and isinstance(cell, IntervalValue):
        value, interval = cell_text(cell, unit, interval=False), between(cell, unit)
        return Text("\n").join([Text(line(value)), Text(line(interval), style="dim")])
    return Text(line(cell_text(cell, unit), MOST_LETTERS))


def _plot(plot: Plot) -> Iterator[str]:
    yield plot.title
    if isinstance(plot, SharePlot):
        yield from _shares(plot)
    elif isinstance(plot, HeatPlot):
        yield from _heat(plot)
    elif isinstance(plot, StackPlot):
        yield from _stacks(plot)
    elif isinstance(plot, WaterfallPlot):
        yield from _waterfall(plot)
    elif isinstance(plot, RangePlot):
        yield plot.about
    else:
        yield from _curves(plot)


def _shares(plot: SharePlot) -> Iterator[str]:
    wide = max(len(row.name) for row in plot.rows)
    yield "  ".join(f"{PART_SIGNS[place % len(PART_SIGNS)]} {name}" for place, name in enumerate(plot.names))
    for row in plot.rows:
        bar, before = "", 0.0
        for place, name in enumerate(plot.names):
            after = min(before + row.parts.get(name, 0.0), 1.0)
            bar += PART_SIGNS[place % len(PART_SIGNS)] * (round(after * BAR) - round(before * BAR))
            before = after
        listed = ", ".join(share(row.parts[name]) for name in plot.names if row.parts.get(name) and name != "not shown")
        yield f"{row.name:{wide}} {bar:{BAR}} {listed}"


def _curves(plot: CurvePlot) -> Iterator[str]:
    """Show each distribution as levels over the logarithm of its axis."""
    if not plot.curves:
        yield plot.about
        return
    wide = max(len(curve.name) for curve in plot.curves)
    first, last = plot.curves[0].xs[0], plot.curves[0].xs[-1]
    yield f"{'':{wide}} {quantity(first, plot.x_unit)}{'':{BAR - 12}}{quantity(last, plot.x_unit)}   (height: {plot.y_title})"
    for curve in plot.curves:
        yield f"{curve.name:{wide}} {_levels(_sampled(curve.ys, BAR), 1.0)} n = {curve.n:,}"


def _sampled(values: Sequence[float], most: int) -> list[float]:
    return [values[int(place * (len(values) - 1) / max(most - 1, 1))] for place in range(most)]


def _levels(values: Sequence[float], high: float) -> str:
    return "".join(LEVELS[max(0, min(8, round(8 * value / high)))] if high > 0 else LEVELS[0] for value in values)


def _stacks(plot: StackPlot) -> Iterator[str]:
    totals = [sum(values) for values in zip(*plot.values, strict=True)]
    high = max(totals, default=0.0)
    for label, total in list(zip(plot.labels, totals, strict=True))[-MOST_ROWS:]:
        eighths = round(8 * BAR * total / high) if high else 0
        bar = EIGHTHS[8] * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
        yield f"{label} {bar} {amount(total)} {plot.y_title}"
    if len(totals) > MOST_ROWS:
        yield f"(the last {MOST_ROWS} of {len(totals)})"


def _heat(plot: HeatPlot) -> Iterator[str]:
    high = max((value for row in plot.values for value in row if value is not None), default=0.0)
    yield f"    {''.join(f'{hour:<6}' for hour in range(0, 24, 3))} (highest: {amount(high)} {plot.unit})"
    for name, values in zip(plot.rows, plot.values, strict=True):
        yield f"{name} {''.join(2 * _levels([value or 0.0], high) for value in values)}"


def _waterfall(plot: WaterfallPlot) -> Iterator[str]:
    """Show each part as a bar that begins where the one before ended."""
    wide = max((len(bar.name) for bar in plot.bars), default=0)
    begin = 0.0
    for bar in plot.bars:
        part = bar.value / plot.total if plot.total > 0 else 0.0
        is_whole = bar.kind == "own"
        from_left = 0.0 if is_whole else 1 - begin - part if plot.falling else begin
        first, last = round(max(from_left, 0.0) * BAR), round(min(from_left + part, 1.0) * BAR)
        drawn = f"{' ' * first}{'█' * (last - first)}"
        begin += 0.0 if is_whole else part
        label = "" if is_whole else f", {share(part)}"
        yield f"{bar.name:{wide}} {drawn:{BAR}} {with_unit(bar.value, plot.unit)}{label}"
