"""Write a report as one HTML page: tables, SVG and styles in it, nothing loaded, no script; light, dark, print and phones.

All texts go through `html_text`; the content security policy in its head forbids every connection, should one ever slip through.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from assistant.display import html_text
from assistant.reports.figures import Cell, FigureGroup, FigureTable, IntervalValue, UsageReport
from assistant.reports.plots import svg
from assistant.reports.wording import between, cell_text, quantity

STYLE = Path(__file__).with_name("page.css")


def page(report: UsageReport) -> str:
    """Return a report as a whole HTML page."""
    return "".join(_parts(report))


def _style() -> str:
    """Return the styles without blank lines and indentation."""
    return "\n".join(line.strip() for line in STYLE.read_text(encoding="utf-8").splitlines() if line.strip())


def _parts(report: UsageReport) -> Iterator[str]:
    title = html_text(report.title)
    yield (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline'\">"
        f'<meta name="referrer" content="no-referrer"><title>{title}</title><style>{_style()}</style></head><body><main>\n'
        f"<h1>{title}</h1>\n"
    )
    facts = "".join(f"<dt>{html_text(name)}</dt><dd>{html_text(value)}</dd>" for name, value in report.facts)
    yield f'<dl class="facts">{facts}</dl>\n<ul class="headline">'
    for name, value, unit in report.headline:
        small = "" if not isinstance(value, IntervalValue) else f", {between(value, unit)}"
        text = cell_text(value, unit, interval=False)
        yield f"<li><b>{html_text(text)}</b><span>{html_text(name + small)}</span></li>"
    yield '</ul>\n<h3>What is unusual</h3><ul class="remarks">'
    for remark in report.remarks:
        kind = ' class="note"' if remark.level == "note" else ""
        yield f"<li{kind}>{html_text(remark.text)}</li>"
    yield "</ul>\n<nav>"
    for group in report.groups:
        yield f'<a href="#{html_text(group.key)}">{html_text(group.title)}</a> '
    yield '<a href="#left_out">What was left out</a></nav>\n'
    for group in report.groups:
        yield from _group(group)
    yield f'<section id="left_out"><h2>{html_text(report.left_out.title)}</h2>'
    yield '<p class="soft">Each row of the source is either counted or stands here.</p>'
    yield f"{_table(report.left_out)}</section>\n<footer>"
    yield "<p>In brackets: 95 % intervals (shares: Wilson, of GPU time with Kish's effective number; medians: by ranks, from 6 "
    yield "values on; means: resampled; times to failure: exact). * few jobs stand behind the number. Each figure is defined in "
    yield "docs/reports.md, docs/failure_reports.md and docs/subject_reports.md.</p>"
    for source in report.sources:
        yield f"<p>{html_text(source)}</p>"
    yield "</footer></main></body></html>\n"


def _group(group: FigureGroup) -> Iterator[str]:
    yield f'<section id="{html_text(group.key)}"><h2>{html_text(group.title)}</h2><p class="soft">{html_text(group.lead)}</p>'
    plots = [figure for figure in group.figures if not isinstance(figure, FigureTable)]
    if plots:
        yield '<div class="plots">'
        for plot in plots:
            yield f"<figure><figcaption>{html_text(plot.title)}</figcaption>{svg(plot)}</figure>"
        yield "</div>"
    for figure in group.figures:
        if isinstance(figure, FigureTable):
            yield _table(figure)
    yield "</section>\n"


def _table(table: FigureTable) -> str:
    heads = "".join(f'<th scope="col">{html_text(column.title)}</th>' for column in table.columns)
    rows = "".join(
        f"<tr>{''.join(_cell(cell, column.unit) for cell, column in zip(row, table.columns, strict=True))}</tr>"
        for row in table.rows
    )
    note = f'<p class="soft">{html_text(table.note)}</p>' if table.note else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{html_text(table.title)}"><table>'
        f"<caption>{html_text(table.title)}</caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{note}"
    )


def _cell(cell: Cell, unit: str) -> str:
    if isinstance(cell, IntervalValue):
        mark = " <i>*</i>" if cell.small else ""
        return f"<td>{html_text(quantity(cell.value, unit))}{mark}<small>{html_text(between(cell, unit))}</small></td>"
    kind = ' class="text"' if isinstance(cell, str) and len(cell) > 24 else ""
    return f"<td{kind}>{html_text(cell_text(cell, unit))}</td>"
