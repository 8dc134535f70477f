"""Numbers as people read them: with their unit, as many digits as they are worth, and their interval. Pure."""

from __future__ import annotations

import math
from datetime import datetime
from zoneinfo import ZoneInfo

from assistant.reports.figures import Cell, IntervalValue

NOT_KNOWN = "not known"
"""Stands among the first figures of a report for a number that its sources do not tell; JSON has null for it."""

_SPANS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_LARGE = ((9.995e8, 1e9, "G"), (9.995e5, 1e6, "M"), (1e4, 1e3, "k"))
"""From where on a number is shortened, by what it is divided, and the letter: what rounds to 1,000 k is 1 M."""


def duration(seconds: float) -> str:
    """Return a length of time in one unit: `42 s`, `3.5 min`, `12 h`, `4.1 d`."""
    for size, unit in _SPANS:
        if abs(seconds) >= 1.5 * size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds)} s"


def amount(value: float) -> str:
    """Return a number of things: all digits of small ones, `1.23 M` of large ones."""
    for least, size, letter in _LARGE:
        if abs(value) >= least:
            digits = f"{value / size:.3g}" if abs(value) / size < 999.5 else f"{value / size:,.0f}"
            return f"{digits} {letter}"
    return _digits(value)


def share(value: float) -> str:
    """Return a share in percent; a small one with more digits, and never 0 or 100 for what is neither."""
    percent = 100 * value
    if 0 < percent < 0.05:
        return "< 0.1 %"
    if 99.95 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.1f} %"


def quantity(value: float, unit: str) -> str:
    """Return a number with its unit; counts and GPU hours stand alone, for their heading names them."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if unit == "s":
        return duration(value)
    if unit == "share":
        return share(value)
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "GPU h":
        return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.2g}"
    text = amount(value)
    return f"{text} {unit}" if unit and unit != "number" else text


def moment(seconds: float, zone: str) -> str:
    """Return a time in seconds since 1970 as day and minute of a zone: `2026-06-01 12:30`; a dash for NaN."""
    return "–" if math.isnan(seconds) else f"{datetime.fromtimestamp(seconds, ZoneInfo(zone)):%Y-%m-%d %H:%M}"


def with_unit(value: float, unit: str) -> str:
    """Return a number with its unit, also where no heading names it: `12 GPU h`."""
    text = quantity(value, unit)
    return f"{text} {unit}" if unit == "GPU h" else text


def cell_text(cell: Cell, unit: str, *, interval: bool = True) -> str:
    """Return what stands in a table for a value: `12.4 % (11.9–12.9)`, with a mark where few jobs stand behind it."""
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return cell
    if not isinstance(cell, IntervalValue):
        return quantity(float(cell), unit)
    text = quantity(cell.value, unit)
    if interval:
        text += f" ({between(cell, unit)})"
    return f"{text} *" if cell.small else text


def between(measured: IntervalValue, unit: str) -> str:
    """Return an interval, the unit once where both ends have the same."""
    if math.isnan(measured.low):
        return f"n = {measured.n}"
    low, high = quantity(measured.low, unit), quantity(measured.high, unit)
    if low.startswith(("<", ">")) or high.startswith(("<", ">")):
        return low if low == high else f"{low} to {high}"
    number, _, word = low.rpartition(" ")
    return f"{number}–{high}" if number and word == high.rpartition(" ")[2] else f"{low}–{high}"


def _digits(value: float) -> str:
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"
