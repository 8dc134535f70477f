"""Read the lines of steps by the places of their numbers, once a line of the same shape was read by all patterns.

The lines of one program differ in their digits. Two lines have one shape when they are equal but for which digits stand in them, so
the patterns, which ask for digits and never for certain ones, match both at the same places. Where the value of a digit counts (a
date that no calendar has, the name of a GPU) the line is read by the patterns again, or its shape is not kept.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from assistant.logs.lines import Line
from assistant.logs.prefix import DEFAULT_YEAR, PrefixMarks, time_in
from assistant.records import MetricPoint

LONGEST = 600
"""Characters of a line whose shape is kept."""
MOST = 4096
"""Shapes that are kept; a program has a few for each length of its numbers."""
_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_NAMED_BY_DIGITS = (b"H000", b"A000")
"""Names of GPUs, which are no hosts: the one place where the patterns of a prefix ask for certain digits."""
_LENGTH = len("2026-01-05 02:00:00")


class StepPlaces(NamedTuple):
    """Where the numbers of a step stand in the lines of one shape."""

    step: slice
    loss: slice
    norm: slice | None
    seconds: slice | None
    unit_s: float
    """Seconds of one unit of `seconds`."""
    rank: slice | None
    batch: slice | None
    data: slice | None
    """Of the name of what it is trained on: a digit in it may differ."""
    clock: slice | None
    """Of a time in UTC that is written as in ISO 8601, to the second."""
    fraction: slice | None
    """What stands behind the second of `clock`."""
    time: tuple[re.Pattern[str], int] | None
    """The pattern of another time and where it begins."""

    def read(self, line: Line) -> tuple[MetricPoint, int | None] | None:
        """Return what a line of this shape says, and of which rank; None where its time is none: it must be read anew."""
        text = line.text
        at: datetime | None = None
        if self.clock is not None:
            stamp = text[self.clock]
            fraction = f".{text[self.fraction].ljust(6, '0')[:6]}" if self.fraction is not None else ""
            try:
                at = datetime.fromisoformat(f"{stamp}{fraction}+00:00")
            except ValueError:
                return None
            if stamp[11:13] == "24":
                return None  # later versions of Python take it for the next midnight
        elif self.time is not None:
            pattern, begin = self.time
            at = time_in(match) if (match := pattern.match(text, begin)) is not None else None
            if at is None:
                return None
        point = MetricPoint(
            int(text[self.step]),
            float(text[self.loss]),
            float(text[self.norm]) if self.norm is not None else None,
            line.number,
            at if at is not None and at.year != DEFAULT_YEAR else None,
            float(text[self.seconds]) * self.unit_s if self.seconds is not None else None,
            int(text[self.batch]) if self.batch is not None else None,
            data=text[self.data] if self.data is not None else "",
        )
        return point, int(text[self.rank]) if self.rank is not None else None


class KnownShapes:
    """The places of the shapes that were met last."""

    def __init__(self) -> None:
        """Begin with none."""
        self._places: dict[bytes, StepPlaces] = {}

    def read(self, line: Line) -> tuple[MetricPoint, int | None] | None:
        """Return the step and the rank of a line by the places of its shape; None where it must be read by all patterns."""
        text = line.text
        if len(text) > LONGEST:
            return None
        places = self._places.get(text.encode("utf-8", "surrogatepass").translate(_ALIKE))
        return places.read(line) if places is not None else None

    def keep(self, text: str, places: StepPlaces | None) -> None:
        """Keep the places of a line for those of its shape."""
        if places is None or len(text) > LONGEST:
            return
        shape = text.encode("utf-8", "surrogatepass").translate(_ALIKE)
        if any(name in shape for name in _NAMED_BY_DIGITS):
            return
        if len(self._places) >= MOST:
            self._places.clear()
        self._places[shape] = places


def places_of(
    step: re.Match[str],
    loss: re.Match[str],
    norm: re.Match[str] | None,
    seconds: re.Match[str] | None,
    unit_s: float,
    *,
    rank: re.Match[str] | None,
    batch: re.Match[str] | None,
    data: re.Match[str] | None,
    marks: PrefixMarks,
) -> StepPlaces | None:
    """Return the places of a line that was read by its patterns, each of which has its number in its first group.

    Args:
        step: Of the step, and so on for each number; None where the line has none.
        loss: As `step`.
        norm: As `step`.
        seconds: As `step`.
        unit_s: Seconds of one unit of `seconds`.
        rank: As `step`; where it is None the rank of `marks` counts.
        batch: As `step`.
        data: Of the name of what it is trained on.
        marks: What stands before the line.

    Returns:
        None where a line of the same shape may have other places.
    """
    if marks.time is not None and marks.at is None:
        return None  # with a time that is one the marks behind it count, too
    clock, fraction = _iso(marks.time)
    return StepPlaces(
        slice(*step.span(1)),
        slice(*loss.span(1)),
        slice(*norm.span(1)) if norm is not None else None,
        slice(*seconds.span(1)) if seconds is not None else None,
        unit_s,
        slice(*rank.span(1)) if rank is not None else slice(*marks.rank) if marks.rank is not None else None,
        slice(*batch.span(1)) if batch is not None else None,
        slice(*data.span(1)) if data is not None else None,
        clock,
        fraction,
        (marks.time.re, marks.time.start()) if marks.time is not None and clock is None else None,
    )


def _iso(time: re.Match[str] | None) -> tuple[slice | None, slice | None]:
    """Return where a time stands that is written as in ISO 8601 and in UTC, and where its fraction does."""
    if time is None or time.re.groupindex.get("z") is None or time["z"] not in (None, "Z", " UTC"):
        return None, None
    begin, end = time.start("y"), time.end("s")
    text = time.string
    if end - begin != _LENGTH or text[begin + 4] != "-" or text[begin + 7] != "-":
        return None, None
    return slice(begin, end), slice(*time.span("f")) if time["f"] is not None else None
