"""Draw plots as SVG: a few kilobytes each, whose colours and fonts come from the page, so that they follow light, dark and print.

A plot is 360 units wide, as a phone is, and its texts 10 units high; wider screens show several beside one another. Lines and bars
are labelled where they are, each plot says in words what it shows (`<title>`, `<desc>`), and no script or font is loaded. Why no
library draws them: docs/decisions/0026.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from assistant.display import html_text, shorten
from assistant.reports.figures import (
    CurvePlot,
    HeatPlot,
    ModelPoint,
    Plot,
    PlotCurve,
    RangePlot,
    SharePlot,
    StackPlot,
    WaterfallPlot,
)
from assistant.reports.wording import amount, quantity, share, with_unit

WIDTH = 360.0
LETTER = 5.3
"""Mean width of a letter of 10 units, of the fonts that the page names."""
LINE = 13.0
COLOURS = 6
_PART_CLASSES = {"completed": "ok", "cancelled": "mid", "failed": "bad", "unknown": "none", "not shown": "none"}
TIME_TICKS = ((1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"), (36000.0, "10 h"))
LONG_TICKS = ((86400.0, "1 d"), (864000.0, "10 d"), (8640000.0, "100 d"))


def svg(plot: Plot) -> str:
    """Return a plot as an SVG element."""
    if isinstance(plot, SharePlot):
        body = _shares(plot)
    elif isinstance(plot, CurvePlot):
        body = _curve_plot(plot)
    elif isinstance(plot, StackPlot):
        body = _stacks(plot)
    elif isinstance(plot, WaterfallPlot):
        body = _waterfall(plot)
    elif isinstance(plot, RangePlot):
        body = _ranges(plot)
    else:
        body = _heat(plot)
    name = html_text(plot.key)
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {body.height:g}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{html_text(plot.title)}</title><desc id="{name}-d">{html_text(plot.about)}</desc>'
        f"{''.join(body.marks)}</svg>"
    )


class _Drawing(NamedTuple):
    marks: list[str]
    height: float


def _text(x: float, y: float, text: object, *, kind: str = "", anchor: str = "") -> str:
    classes = f' class="{kind}"' if kind else ""
    end = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{classes}{end}>{html_text(text, 60)}</text>'


def _rect(x: float, y: float, width: float, height: float, kind: str, *, opacity: float | None = None, about: str = "") -> str:
    title = f"<title>{html_text(about)}</title>" if about else ""
    shade = f' fill-opacity="{opacity:.2f}"' if opacity is not None else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.2f}" height="{height:.1f}" class="{kind}"{shade}>{title}</rect>'


def _wide(text: str) -> float:
    return len(text) * LETTER


def _legend(names: Sequence[str], kind_of: Callable[[int], tuple[str, float | None]], top: float) -> _Drawing:
    """Return swatches with names, in as many lines as they need."""
    marks, x, y = [], 0.0, top + 9
    for place, full_name in enumerate(names):
        name = shorten(full_name, 24)
        width = 14 + _wide(name) + 10
        if x and x + width > WIDTH:
            x, y = 0.0, y + LINE
        kind, opacity = kind_of(place)
        marks += [_rect(x, y - 8, 9, 9, kind, opacity=opacity), _text(x + 13, y, name)]
        x += width
    return _Drawing(marks, y + 6)


def _shares(plot: SharePlot) -> _Drawing:
    def kind_of(place: int) -> tuple[str, float | None]:
        name = plot.names[place]
        if name in _PART_CLASSES:
            return f"f-{_PART_CLASSES[name]}", None
        if plot.key == "sizes":  # an order: one colour, ever darker
            return "f0", 0.15 + 0.85 * place / max(len(plot.names) - 1, 1)
        return f"f{place % COLOURS}", None

    legend = _legend(plot.names, kind_of, 0)
    marks, y = legend.marks, legend.height
    for row in plot.rows:
        marks.append(_text(0, y + 10, f"{row.name}, {row.about}" if row.about else row.name, kind="own" if row.is_site else ""))
        x = 0.0
        for place, name in enumerate(plot.names):
            part = min(row.parts.get(name, 0.0), 1.0)
            width = part * WIDTH
            kind, opacity = kind_of(place)
            if width > 0:
                marks.append(_rect(x, y + 14, max(width - 0.6, 0.4), 15, kind, opacity=opacity, about=f"{name}: {share(part)}"))
            label = share(part)
            if width > _wide(label) + 6 and name != "not shown":
                dark = kind != "f-none" and (opacity is None or opacity > 0.55)
                over = "on-fill" if dark else "on-pale"
                marks.append(_text(x + width / 2, y + 25, label, kind=over, anchor="middle"))
            x += width
        y += 36
    return _Drawing(marks, y)


class _Frame(NamedTuple):
    """Where lines are drawn."""

    margin: float
    top: float
    width: float
    height: float


class _Axis(NamedTuple):
    low: float
    high: float

    def place(self, value: float, begin: float, length: float) -> float:
        value = min(max(value, self.low), self.high)
        return begin + length * math.log(value / self.low) / math.log(self.high / self.low)


def _curve_plot(plot: CurvePlot) -> _Drawing:
    margin, top, width, height = 34.0, 10.0, WIDTH - 44.0, 180.0
    bottom = top + height
    curves = [curve for curve in plot.curves if curve.xs]
    if not curves:
        return _Drawing([_text(0, 14, plot.about)], 24)
    axis = _Axis(min(curve.xs[0] for curve in curves), max(curve.xs[-1] for curve in curves))
    marks = []
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - part * height
        marks.append(f'<path d="M{margin:g} {y:.1f}h{width:g}" class="grid"/>')
        marks.append(_text(margin - 4, y + 3.5, f"{100 * part:.0f} %", kind="tick", anchor="end"))
    for value, label in _ticks(axis, plot.x_unit):
        x = axis.place(value, margin, width)
        marks.append(f'<path d="M{x:.1f} {top:g}V{bottom:g}" class="grid"/>')
        marks.append(_text(x, bottom + 12, label, kind="tick", anchor="middle"))
    lines = []
    for place, curve in enumerate(curves):
        points = [(axis.place(x, margin, width), bottom - y * height) for x, y in zip(curve.xs, curve.ys, strict=True)]
        lines.append(points)
        marks.append(f'<path d="{_line_path(points)}" class="line s{place % COLOURS}"/>')
    marks += _labels(curves, lines, _Frame(margin, top, width, height))
    marks.append(_text(margin, bottom + 26, f"{plot.x_title}; y: {plot.y_title}", kind="tick"))
    return _Drawing(marks, bottom + 32)


def _line_path(points: Sequence[tuple[float, float]]) -> str:
    """Return a path through points, those left out that lie on a level with both neighbours."""
    needed = [
        point
        for place, point in enumerate(points)
        if not 0 < place < len(points) - 1 or not abs(points[place - 1][1] - point[1]) + abs(points[place + 1][1] - point[1]) < 0.05
    ]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in needed)


def _ticks(axis: _Axis, unit: str) -> list[tuple[float, str]]:
    if unit == "s":
        listed = [tick for tick in (*TIME_TICKS, *LONG_TICKS) if axis.low <= tick[0] <= axis.high]
        return listed if len(listed) <= 7 else listed[::2]
    first, last = math.ceil(math.log10(axis.low)), math.floor(math.log10(axis.high))
    return [(10.0**power, f"{10**power:g}") for power in range(first, last + 1)]


class _Box(NamedTuple):
    x: float
    y: float
    width: float

    def overlaps(self, box: _Box) -> bool:
        return self.x < box.x + box.width and box.x < self.x + self.width and abs(self.y - box.y) < 12


def _labels(curves: Sequence[PlotCurve], lines: Sequence[Sequence[tuple[float, float]]], frame: _Frame) -> list[str]:
    """Name each curve where it runs, at the place that the fewest lines cross."""
    boxes: list[_Box] = []
    marks = []
    for number, (curve, points) in enumerate(zip(curves, lines, strict=True)):
        text = f"{shorten(curve.name, 20)} ({curve.n:,})"
        size = _wide(text) * 1.08 + 6  # bold
        best: tuple[float, _Box] | None = None
        for level in range(1, 18):
            y = frame.top + frame.height * level / 18
            if not points[-1][1] <= y <= points[0][1]:
                continue  # the line does not come so far
            x = next((px for px, py in points if py <= y), points[-1][0])
            for box in (_Box(x + 5, y, size), _Box(x - 5 - size, y, size)):
                outside = box.x < frame.margin or box.x + size > frame.margin + frame.width
                cost = 1000.0 * outside + 300.0 * sum(box.overlaps(placed) for placed in boxes)
                cost += (
                    sum(4.0 for line in lines for px, py in line if box.x - 2 < px < box.x + size and abs(py - (y - 3)) < 8)
                    + abs(level - 9) * 0.2
                )
                if best is None or cost < best[0]:
                    best = (cost, box)
        if best is not None:
            boxes.append(best[1])
            marks.append(_text(best[1].x + 2, best[1].y, text, kind=f"label t{number % COLOURS}"))
    return marks


def _stacks(plot: StackPlot) -> _Drawing:
    legend = _legend(plot.names, lambda place: (f"f{place % COLOURS}", None), 0)
    margin, top, width, height = 40.0, legend.height + 12, WIDTH - 42.0, 150.0
    bottom = top + height
    totals = [sum(values) for values in zip(*plot.values, strict=True)] if plot.values else []
    high = _nice(max(totals, default=0.0))
    marks = legend.marks
    for part in (0.0, 0.5, 1.0):
        y = bottom - part * height
        marks.append(f'<path d="M{margin:g} {y:.1f}h{width:g}" class="grid"/>')
        marks.append(_text(margin - 4, y + 3.5, amount(part * high), kind="tick", anchor="end"))
    step = width / max(len(plot.starts), 1)
    for place, label in enumerate(plot.labels):
        y = bottom
        for number, values in enumerate(plot.values):
            part = values[place] / high * height
            y -= part
            if part > 0.05:
                about = f"{label}, {plot.names[number]}: {quantity(values[place], plot.y_title)} {plot.y_title}"
                marks.append(_rect(margin + place * step, y, step * 0.86, part, f"f{number % COLOURS}", about=about))
    labelled = sorted({0, len(plot.labels) // 2, len(plot.labels) - 1})
    for place in labelled if plot.labels else ():
        anchor = "start" if place == 0 else "end" if place == len(plot.labels) - 1 else "middle"
        x = margin + (place + {"start": 0.0, "middle": 0.43, "end": 0.86}[anchor]) * step
        marks.append(_text(x, bottom + 12, plot.labels[place], kind="tick", anchor=anchor))
    marks.append(_text(margin, top - 3, plot.y_title, kind="tick"))
    return _Drawing(marks, bottom + 18)


def _nice(value: float) -> float:
    """Return a round number at or above a value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value)


def _heat(plot: HeatPlot) -> _Drawing:
    margin, top = 30.0, 14.0
    cell_width, cell_height = (WIDTH - margin) / max(len(plot.columns), 1), 15.0
    values_shown = [value for row in plot.values for value in row if value is not None]
    high = max(values_shown, default=0.0)
    marks = [_text(margin + hour * cell_width, 9, f"{hour}", kind="tick") for hour in range(0, len(plot.columns), 3)]
    for row_place, (name, values) in enumerate(zip(plot.rows, plot.values, strict=True)):
        y = top + row_place * cell_height
        marks.append(_text(0, y + 11, name, kind="tick"))
        for place, value in enumerate(values):
            if value is not None:
                about = f"{name} {plot.columns[place]}:00: {quantity(value, '')} {plot.unit}"
                opacity = 0.06 + 0.94 * value / high if high else 0.06
                marks.append(
                    _rect(margin + place * cell_width, y, cell_width - 1, cell_height - 1, "f0", opacity=opacity, about=about)
                )
    bottom = top + len(plot.rows) * cell_height
    scale = [0.0, high / 2, high]
    for place, value in enumerate(scale):
        x = margin + place * 90
        marks.append(_rect(x, bottom + 7, 9, 9, "f0", opacity=0.06 + 0.94 * (value / high if high else 0)))
        marks.append(_text(x + 13, bottom + 15, f"{amount(value)}{' ' + plot.unit if place == 2 else ''}", kind="tick"))
    return _Drawing(marks, bottom + 22)


def _waterfall(plot: WaterfallPlot) -> _Drawing:
    """Return a bar for each part, its name and number above it; each begins where the one before ended."""
    marks, y, begin = [], 0.0, 0.0
    for bar in plot.bars:
        part = bar.value / plot.total if plot.total > 0 else 0.0
        is_whole = bar.kind == "own"
        from_left = 0.0 if is_whole else 1 - begin - part if plot.falling else begin
        number = with_unit(bar.value, plot.unit)
        label = number if is_whole else f"{number}, {share(part)}"
        name = shorten(bar.name, int((WIDTH - _wide(label) - 8) / LETTER))
        marks += [_text(0, y + 10, name, kind="own" if is_whole else ""), _text(WIDTH, y + 10, label, kind="tick", anchor="end")]
        marks.append(f'<path d="M0 {y + 22:.1f}h{WIDTH:g}" class="grid"/>')
        kind = "f0" if is_whole else f"f-{bar.kind}"
        width = max(part * WIDTH, 0.6 if bar.value > 0 else 0.0)
        x = min(max(from_left, 0.0) * WIDTH, WIDTH - width)
        marks.append(_rect(x, y + 15, width, 13, kind, about=f"{bar.name}: {label}"))
        begin += 0.0 if is_whole else part
        y += 34
    return _Drawing(marks or [_text(0, 14, plot.about)], max(y, 24.0))


def _ranges(plot: RangePlot) -> _Drawing:
    margin, top, width, height = 44.0, 16.0, WIDTH - 54.0, 190.0
    bottom = top + height
    numbers = [value for point in plot.points for value in (point.y, point.low, point.high)]
    numbers += [value for point in plot.model for value in (point.y, point.low, point.high)]
    ys = [value for value in numbers if 0 < value < math.inf]
    xs = [point.x for point in plot.points] + [point.x for point in plot.model]
    if not ys or not xs:
        return _Drawing([_text(0, 14, plot.about)], 24)
    across, up = _Axis(min(xs) / 1.3, max(xs) * 1.3), _Axis(min(ys) / 1.3, max(ys) * 1.3)

    def at(x: float, y: float) -> tuple[float, float]:
        return across.place(x, margin, width), bottom - up.place(min(y, up.high), 0.0, height)

    marks = []
    for value, label in _ticks(up, plot.y_unit):
        y = at(xs[0], value)[1]
        marks += [
            f'<path d="M{margin:g} {y:.1f}h{width:g}" class="grid"/>',
            _text(margin - 4, y + 3.5, label, kind="tick", anchor="end"),
        ]
    for value, label in _ticks(across, plot.x_unit):
        x = at(value, ys[0])[0]
        marks += [
            f'<path d="M{x:.1f} {top:g}V{bottom:g}" class="grid"/>',
            _text(x, bottom + 12, label, kind="tick", anchor="middle"),
        ]
    if plot.model:
        marks += _model_band(plot.model, at)
    for point in plot.points:
        x, low = at(point.x, point.low)
        high = at(point.x, point.high)[1] if point.high < math.inf else top
        about = html_text(f"{point.name}: {quantity(point.y, plot.y_unit)}, n = {point.n:,}")
        marks.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" class="line s1"><title>{about}</title></path>')
        if point.y < math.inf:
            marks.append(
                f'<circle cx="{x:.1f}" cy="{at(point.x, point.y)[1]:.1f}" r="3" class="f1"><title>{about}</title></circle>'
            )
    marks += [
        _text(margin, top - 5, plot.y_title, kind="tick"),
        _text(margin + width, bottom + 24, plot.x_title, kind="tick", anchor="end"),
        _rect(margin, bottom + 17, 9, 9, "f1"),
        _text(margin + 13, bottom + 25, "measured"),
        _rect(margin + 80, bottom + 17, 9, 9, "f0"),
        _text(margin + 93, bottom + 25, "model"),
    ]
    return _Drawing(marks, bottom + 30)


def _model_band(model: Sequence[ModelPoint], at: Callable[[float, float], tuple[float, float]]) -> list[str]:
    def path(points: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)

    edge = [*(at(point.x, point.high) for point in model), *(at(point.x, point.low) for point in reversed(model))]
    line = path([at(point.x, point.y) for point in model])
    return [f'<path d="{path(edge)}Z" class="f0" fill-opacity="0.16"/>', f'<path d="{line}" class="line s0"/>']
