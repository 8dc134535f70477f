"""Read the loss off lines in forms that no framework is known for, so that its end in NaN, or above its level, is seen there too.

Lines that differ in their numbers alone are rows of one series; `nan` and `inf` count as numbers, since a loss that is lost changes
no more than that. A column is a loss where the words before it say so; where no words stand before it, where it fell while another
one counted up. A step is what rises from row to row. Whether a loss rose for good is asked only of rows that show their step and
of a plain training loss: what is maximised, played against or paid out may rise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from assistant.diagnose.facts import Facts
from assistant.diagnose.runs import KEY_LENGTH
from assistant.logs.lines import Line
from assistant.logs.spikes import MIN_POINTS, Spike, find_spike
from assistant.records import MetricPoint

READ_LENGTH, KEYED = 400, 160
FEWEST_ROWS, FEWEST_FINITE, FEWEST_LOST = 6, 3, 2
FEWEST_UNNAMED, FEWEST_LOST_UNNAMED = 8, 4
"""Rows with a number and then without, of a column that nothing names."""
MOST_ROWS = 100_000
FALLEN = 0.9
"""Of the first level, what the last one is at most where an unnamed column fell."""
RISEN = 1.5
"""Times its level that a loss of an unknown form must reach; learning-rate restarts and new data raise it by less."""
STEADY = 0.9
"""Share of the pairs of rows between which a step must not fall: it may start again with each fold of a run."""
_LOST = re.compile(r"(?<![\w.])[-+]?(?:nan|inf(?:inity)?)(?![\w.]*\w)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,15}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|(?i:nan|inf(?:inity)?))(?![\w.]*\w|%)")
_STAMP = re.compile(r"\d{1,4}[-/]\d{1,2}[-/]\d{1,4}(?:[T ]+\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?|\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?")
_BLANKS = re.compile(r"\s+")
_NAME = re.compile(r"([A-Za-z][\w./@ -]{0,40}?)[\s\"'()]{0,6}(?:[:=|]|->)?\s{0,10}[\"'\[(]?(?:tensor\()?$")
_LOSS = re.compile(r"loss|\bnll\b|\bcost\b|objective|\belbo\b|cross.?entropy|perplexity|\bppl\b", re.IGNORECASE)
_PLAIN_LOSS = re.compile(r"^(?:.*[ ._/-])?(?:(?:train|training|trn|total|lm|mean|avg|average|running|epoch|batch) ?[ _/-]?)?loss$", re.IGNORECASE)
_HELD_OUT = re.compile(r"val|eval|test|dev\b|held|best|min\b|lowest|previous|last", re.IGNORECASE)
_MAY_RISE = re.compile(
    r"reward|return|episode|policy|critic|actor|discrim|generator|\b[dg]_?(?:loss|fake|real)|adversar|\bgan\b|elbo|entropy|likelihood",
    re.IGNORECASE,
)


def spike_in_series(facts: Facts, first: int) -> Spike | None:
    """Return the spike of a loss of no known form that lasts to the end of its series, None where there is none.

    Args:
        facts: Of the case.
        first: Line from which on the last leg runs.
    """
    lines = [line for line in facts.lines[-MOST_ROWS:] if line.number >= first]
    spikes = [spike for rows in _series(lines) if (spike := _spike(rows, facts)) is not None]
    return min(spikes, key=lambda spike: spike.line, default=None)


def _series(lines: Sequence[Line]) -> list[list[Line]]:
    """Return the rows of every form that names a loss, or in which a number was lost."""
    lost = {line.number for line in lines if _may_be_lost(line.text) and _LOST.search(line.text[:READ_LENGTH])}
    named = {line.number for line in lines if "oss" in line.text or "OSS" in line.text}
    if not lost and len(named) < MIN_POINTS:
        return []
    forms: dict[str, list[Line]] = {}
    wanted = [line for line in lines if lost or line.number in named]
    for line in wanted:
        form = _BLANKS.sub(" ", _NUMBER.sub("#", line.text[:KEYED]))[:KEY_LENGTH]
        if "#" in form:
            forms.setdefault(form, []).append(line)
    told = lost | named
    return [group for group in forms.values() if len(group) >= FEWEST_ROWS and any(line.number in told for line in group)]


def _may_be_lost(text: str) -> bool:
    return any(word in text for word in ("nan", "NaN", "inf", "NAN", "Inf"))


def _spike(rows: Sequence[Line], facts: Facts) -> Spike | None:
    texts = [_STAMP.sub(" ", row.text[:READ_LENGTH]) for row in rows]
    found = [list(_NUMBER.finditer(text)) for text in texts]
    width = max(set(map(len, found)), key=list(map(len, found)).count)
    kept = [(row, text, numbers) for row, text, numbers in zip(rows, texts, found, strict=True) if len(numbers) == width]
    if len(kept) < FEWEST_ROWS or facts.progress.after(kept[-1][0].number) > FEWEST_LOST or not width:
        return None
    columns = [[float(numbers[at][0]) for _, _, numbers in kept] for at in range(width)]
    names = [_name(kept[0][1], kept[0][2][at]) for at in range(width)]
    steps = next((column for column in columns if _steady(column)), None)
    for name, column in zip(names, columns, strict=True):
        if column is steps or _HELD_OUT.search(name):
            continue
        points = [
            # what counts may be epochs: nothing that could be compared with the step of a checkpoint
            MetricPoint(int(steps[at]) if steps else at + 1, value, None, kept[at][0].number, counted=True)
            for at, value in enumerate(column)
        ]
        spike = _lost(name, column, points, counts=steps is not None)
        spike = spike or (_risen(name, kept[0][1], points) if steps else None)
        if spike is not None:
            return spike
    return None


def _name(text: str, number: re.Match[str]) -> str:
    """Return the words right before a number; empty where there are none."""
    begin = number.start()
    match = _NAME.search(text[max(0, begin - 60) : begin])
    return match[1].strip() if match else ""


def _steady(column: Sequence[float]) -> bool:
    """Tell whether a column of whole numbers counts up, with a few restarts at most."""
    if any(not math.isfinite(value) or value != int(value) or value < 0 for value in column):
        return False
    falls = sum(later < earlier for earlier, later in pairwise(column))
    return len(set(column)) >= FEWEST_FINITE and falls <= (1 - STEADY) * (len(column) - 1) and column[-1] != column[0]


def _lost(name: str, column: Sequence[float], points: Sequence[MetricPoint], *, counts: bool) -> Spike | None:
    """Return where a loss stopped to be a number for good."""
    finite = [value for value in column if math.isfinite(value)]
    bad = len(column) - len(finite)
    if math.isfinite(column[-1]) or len(finite) < FEWEST_FINITE or bad < FEWEST_LOST:
        return None
    unnamed = not name and counts and len(finite) >= FEWEST_UNNAMED and bad >= FEWEST_LOST_UNNAMED and _fell(finite)
    return find_spike(points) if _LOSS.search(name) or unnamed else None


def _fell(values: Sequence[float]) -> bool:
    part = max(1, len(values) // 4)
    first, last = median(values[:part]), median(values[-part:])
    return first > 0 and last <= FALLEN * first


def _risen(name: str, text: str, points: Sequence[MetricPoint]) -> Spike | None:
    """Return where a plain training loss left its level for good."""
    if not _PLAIN_LOSS.match(name) or _MAY_RISE.search(text):
        return None
    spike = find_spike(points)
    risen = spike is not None and spike.level > 0 and not spike.height <= RISEN * spike.level
    return spike if risen else None
