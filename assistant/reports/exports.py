"""Write a report for programs: JSON of all of it, and a CSV or Parquet file for each figure."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assistant.display import csv_cell, file_stem, line
from assistant.reports.figures import (
    Cell,
    CurvePlot,
    Figure,
    FigureTable,
    HeatPlot,
    IntervalValue,
    RangePlot,
    SharePlot,
    UsageReport,
    WaterfallPlot,
)
from assistant.reports.wording import NOT_KNOWN

Rows = list[list[object]]


def as_object(report: UsageReport) -> dict[str, Any]:
    """Return a report as what JSON can say: seconds, shares of 1, GPU hours; a measured number as value, interval and n."""
    return {
        "report": report.kind,
        "title": report.title,
        "facts": dict(report.facts),
        "headline": {
            name: {"unit": unit, **_plain(None if value == NOT_KNOWN else value)} for name, value, unit in report.headline
        },
        "remarks": [{"key": remark.key, "level": remark.level, "text": remark.text} for remark in report.remarks],
        "figures": {figure.key: {"group": group.key, **_figure(figure)} for group, figure in report.figures()},
        "left_out": _figure(report.left_out),
        "sources": list(report.sources),
    }


def _figure(figure: Figure) -> dict[str, Any]:
    if isinstance(figure, FigureTable):
        units = {column.key: column.unit for column in figure.columns if column.unit}
        listed = [{column.key: _value(cell) for column, cell in zip(figure.columns, row, strict=True)} for row in figure.rows]
        return {"title": figure.title, "units": units, "rows": listed, **({"note": figure.note} if figure.note else {})}
    head, *rows = rows_of(figure)
    return {"title": figure.title, "about": figure.about, "columns": head, "points": rows}


def _plain(cell: Cell) -> dict[str, Any]:
    value = _value(cell)
    return value if isinstance(value, dict) else {"value": value}


def _value(cell: Cell) -> Any:
    if isinstance(cell, IntervalValue):
        value, low, high = (_finite(number) for number in cell[:3])
        return {"value": value, "low": low, "high": high, "n": cell.n, "small": cell.small}
    return _finite(cell)


def _finite(cell: Any) -> Any:
    """Return a number as JSON and spreadsheets have it: nothing in place of what has no end or is not known."""
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def rows_of(figure: Figure) -> Rows:
    """Return a figure as a table of plain values, its headings first."""
    if isinstance(figure, FigureTable):
        return _table_rows(figure)
    if isinstance(figure, CurvePlot):
        body = [[curve.name, curve.n, x, y] for curve in figure.curves for x, y in zip(curve.xs, curve.ys, strict=True)]
        return [["name", "n", figure.x_unit, figure.y_unit], *body]
    if isinstance(figure, WaterfallPlot):
        return [["name", "kind", figure.unit], *([bar.name, bar.kind, bar.value] for bar in figure.bars)]
    if isinstance(figure, RangePlot):
        head: list[object] = ["name", figure.x_unit, figure.y_unit, "low", "high", "n"]
        measured = [[point.name, point.x, *map(_finite, point[2:5]), point.n] for point in figure.points]
        return [head, *measured, *(["model", point.x, *map(_finite, point[1:]), None] for point in figure.model)]
    rows: Rows
    if isinstance(figure, SharePlot):
        rows = [["name", "about", *figure.names]]
        rows += [[row.name, row.about, *(row.parts.get(name) for name in figure.names)] for row in figure.rows]
    elif isinstance(figure, HeatPlot):
        rows = [["day", *figure.columns]]
        rows += [[name, *values] for name, values in zip(figure.rows, figure.values, strict=True)]
    else:
        columns = list(zip(*figure.values, strict=True))
        rows = [["begins", *figure.names], *([label, *values] for label, values in zip(figure.labels, columns, strict=True))]
    return rows


def _table_rows(table: FigureTable) -> Rows:
    measured = [any(isinstance(row[place], IntervalValue) for row in table.rows) for place in range(len(table.columns))]
    head: list[object] = []
    for column, has_interval in zip(table.columns, measured, strict=True):
        head += [column.key, f"{column.key}_low", f"{column.key}_high", f"{column.key}_n"] if has_interval else [column.key]
    rows: Rows = [head]
    for row in table.rows:
        cells: list[object] = []
        for cell, has_interval in zip(row, measured, strict=True):
            if isinstance(cell, IntervalValue):
                cells += [*map(_finite, cell[:3]), cell.n]
            else:
                cells += [_finite(cell), None, None, None] if has_interval else [_finite(cell)]
        rows.append(cells)
    return rows


def parquet_files(report: UsageReport, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of a Parquet file for each figure: the columns of its CSV, numbers as they are.

    A column of whole numbers is BIGINT, of numbers DOUBLE, any other VARCHAR; texts are not quoted for spreadsheets. What is not
    known is null.

    Args:
        report: The report.
        folder: Where a file may lie for a moment; nobody else may write into it.
    """
    import duckdb

    connection = duckdb.connect(":memory:")
    try:
        connection.execute("SET autoinstall_known_extensions = false")
        path = folder / "figure.parquet"
        for figure in [*(figure for _, figure in report.figures()), report.left_out]:
            head, *rows = rows_of(figure)
            columns = list(zip(*rows, strict=True)) if rows else [() for _ in head]
            kinds = [_parquet_kind(column) for column in columns]
            names = _distinct([line(name) for name in head])
            declared = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}" {kind}' for name, kind in zip(names, kinds, strict=True))
            connection.execute(f"CREATE OR REPLACE TABLE figure ({declared})")
            values = [[_parquet_value(cell, kind) for cell, kind in zip(row, kinds, strict=True)] for row in rows]
            if values:
                connection.executemany(f"INSERT INTO figure VALUES ({', '.join('?' * len(kinds))})", values)
            connection.execute(f"COPY figure TO '{str(path).replace(chr(39), chr(39) * 2)}' (FORMAT parquet)")
            yield f"{file_stem(figure.key)}.parquet", path.read_bytes()
    finally:
        connection.close()


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names of columns without twins, which a table cannot have, whatever their case is."""
    counts: Counter[str] = Counter()
    distinct = []
    for name in names:
        counts[name.lower()] += 1
        count = counts[name.lower()]
        distinct.append(name if count == 1 else f"{name} ({count})")
    return distinct


def _parquet_kind(column: Sequence[object]) -> str:
    cells = [cell for cell in column if cell is not None]
    if not cells or not all(isinstance(cell, int | float) for cell in cells):
        return "VARCHAR"
    return "BIGINT" if all(isinstance(cell, int) and abs(cell) < 2**63 for cell in cells) else "DOUBLE"


def _parquet_value(cell: object, kind: str) -> object:
    return cell if cell is None or kind != "VARCHAR" else line(cell)


def csv_files(report: UsageReport) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of a CSV file for each figure."""
    for figure in [*(figure for _, figure in report.figures()), report.left_out]:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([["" if value is None else csv_cell(value) for value in row] for row in rows_of(figure)])
        yield f"{file_stem(figure.key)}.csv", text.getvalue()
