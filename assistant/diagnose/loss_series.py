"""Read the loss off lines in forms that no framework is known for, so that its end in NaN, or above its level, is seen there too.

Lines that differ in their numbers alone are rows of one series; `nan` and `inf` count as numbers, since a loss that is lost changes
no more than that. A column is a loss where the words before it say so; where no words stand before it, where it fell while another
one counted up. A step is what rises from row to row. Whether a loss rose for good is asked only of rows that show their step and
of a plain training loss: what is maximised, played against or paid out may rise.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.runs import KEY_LENGTH, Rising
from assistant.logs.lines import Line
from assistant.logs.spikes import MIN_POINTS, Spike, find_spike
from assistant.records import MetricPoint

READ_LENGTH, KEYED, MOST_NAME = 400, 160, 80
FEWEST_ROWS, FEWEST_FINITE, FEWEST_LOST = 6, 3, 2
FEWEST_UNNAMED, FEWEST_LOST_UNNAMED = 8, 4
"""Rows with a number and then without, of a column that nothing names."""
AT_END = 2000
"""Rows at the end of a series that are all read, and about so many of those before."""
MOST_ROWS = 250_000
FALLEN = 0.9
"""Of the first level, what the last one is at most where an unnamed column fell."""
RISEN, FEWEST_RISEN = 2.0, 10
"""Times its level that a loss of an unknown form must reach, and rows that stay there: new data raises it by less."""
SWEPT = 10
"""Times its median that a learning rate ends at where it is only tried out."""
STEADY = 0.9
"""Share of the pairs of rows between which a step must not fall: it may start again with each fold of a run."""
_NO_NUMBER = r"(?i:nan|inf(?:inity)?)"
_LOST = re.compile(rf"(?<![\w.])[-+]?{_NO_NUMBER}(?![\w.]*\w)")
_NUMBER = re.compile(rf"(?<![\w.])[-+]?(?:\d{{1,15}}(?:\.\d{{0,20}})?(?:[eE][-+]?\d{{1,3}})?|{_NO_NUMBER})(?![\w.]*\w|%)")
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
_STAMP = re.compile(rf"\d{{1,4}}[-/]\d{{1,2}}[-/]\d{{1,4}}(?:[T ]+{_CLOCK})?|{_CLOCK}")
_NO_WORDS = {ord(character): None for character in "0123456789.+- \t"}
"""What differs between rows of one form."""
_WORD = re.compile(r"[A-Za-z]")
_SEPARATOR = re.compile(r"[,;|\t]|\s{2,}")
_LOSS = re.compile(r"loss|\b(?:nll|cost|xent|ce|elbo|ppl)\b|objective|cross.?entropy|perplexity", re.IGNORECASE)
_IN_FORM = re.compile(r"xent|cost|nll|entropy|objective|perplexity|ppl|(?<![a-z])ce(?![a-z])", re.IGNORECASE)
"""The same in the form of a counter, whose words run together."""
_PLAIN_LOSS = re.compile(
    r"^(?:.*[ ._/-])?(?:(?:train|training|trn|total|lm|mean|avg|average|running|epoch|batch) ?[ _/-]?)?"
    r"(?:loss|xent|ce|nll|cross.?entropy)$",
    re.IGNORECASE,
)
_RATE = re.compile(r"\b(?:lr|rate)\b|learning", re.IGNORECASE)
_STEP, _EPOCH = re.compile(r"(?:^|[^a-z])(?:step|iter(?:ation)?|it|update)s?$", re.IGNORECASE), re.compile(r"epoch", re.IGNORECASE)
_HELD_OUT = re.compile(r"val|eval|test|dev\b|held|best|min\b|lowest|previous|last", re.IGNORECASE)
_MAY_RISE = re.compile(
    r"reward|return|episode|policy|critic|actor|discrim|generator|\b[dg]_?(?:loss|fake|real)|adversar|\bgan\b|elbo|entropy|likelihood",
    re.IGNORECASE,
)


class _Table(NamedTuple):
    """The numbers of rows of one form."""

    lines: list[int]
    text: str
    """Of the first row, without times."""
    names: list[str]
    """What stands before the number of each column."""
    columns: list[list[float]]


def spike_in_series(facts: Facts, first: int) -> Spike | None:
    """Return the spike of a loss of no known form that lasts to the end of its series, None where there is none.

    Args:
        facts: Of the case.
        first: Line from which on the last leg runs.
    """
    lines = [line for line in facts.lines[-MOST_ROWS:] if line.number >= first]
    if not lines:
        return None
    spikes = [spike for rows in _series(lines, facts.progress.counters) if (spike := _spike(rows, facts)) is not None]
    return min(spikes, key=lambda spike: spike.line, default=None)


def _series(lines: Sequence[Line], counters: Sequence[Rising]) -> list[list[Line]]:
    """Return the rows of every form that names a loss, or in which a number was lost."""
    first = lines[0].number
    without_number = {line.number for line in lines if _may_be_lost(line.text) and _LOST.search(line.text[:READ_LENGTH])}
    with_loss = {line.number for line in lines if "oss" in line.text or "OSS" in line.text}
    of_counters = (counter.lines for counter in counters if _IN_FORM.search(counter.form))
    with_loss.update(number for numbers in of_counters for number in numbers if number >= first)
    if not without_number and len(with_loss) < MIN_POINTS:
        return []
    forms: dict[str, list[Line]] = {}
    for line in lines:
        if without_number or line.number in with_loss:
            text = line.text[:KEYED]
            words = (_LOST.sub("", text) if line.number in without_number else text).translate(_NO_WORDS)[:KEY_LENGTH]
            forms.setdefault(words, []).append(line)
    telling = without_number | with_loss
    return [rows for rows in forms.values() if len(rows) >= FEWEST_ROWS and any(row.number in telling for row in rows)]


def _thinned(rows: Sequence[Line]) -> Sequence[Line]:
    """Return the last rows, and of those before as many at equal distances."""
    before = rows[:-AT_END]
    return [*before[:: max(1, len(before) // AT_END)], *rows[-AT_END:]]


def _may_be_lost(text: str) -> bool:
    return any(word in text for word in ("nan", "NaN", "inf", "NAN", "Inf"))


def _spike(rows: Sequence[Line], facts: Facts) -> Spike | None:
    table = _table(_thinned(rows))
    if table is None or facts.progress.after(table.lines[-1]) > FEWEST_LOST:
        return None
    steps = next((column for column in table.columns if _steady(column)), None)
    counted = steps is None or not _names_a_step(table, steps)
    rate_search = any(_RATE.search(name) and _swept(column) for name, column in zip(table.names, table.columns, strict=True))
    for name, column in zip(table.names, table.columns, strict=True):
        if column is steps or _HELD_OUT.search(name):
            continue
        points = [
            # what counts may be epochs: nothing that could be compared with the step of a checkpoint
            MetricPoint(int(steps[at]) if steps else at + 1, value, None, table.lines[at], counted=counted)
            for at, value in enumerate(column)
        ]
        spike = _lost(name, column, points, counts=steps is not None)
        if spike is None and steps is not None and not rate_search:
            spike = _risen(name, table.text, points)
        if spike is not None:
            return spike
    return None


def _table(rows: Sequence[Line]) -> _Table | None:
    """Return the numbers of rows of one form; None where too few have equally many."""
    texts = [_STAMP.sub(" ", row.text[:READ_LENGTH]) for row in rows]
    numbers = [list(_NUMBER.finditer(text)) for text in texts]
    width = Counter(map(len, numbers)).most_common(1)[0][0]
    places = [at for at, matches in enumerate(numbers) if len(matches) == width]
    if len(places) < FEWEST_ROWS or not width:
        return None
    text, matches = texts[places[0]], numbers[places[0]]
    return _Table(
        [rows[at].number for at in places],
        text,
        [_name(text, match) for match in matches],
        [[float(numbers[at][column][0]) for at in places] for column in range(width)],
    )


def _name(text: str, number: re.Match[str]) -> str:
    """Return the words right before a number; empty where there are none."""
    before = _NUMBER.sub("#", text[: number.start()]).rpartition("#")[2]
    parts = [part for part in _SEPARATOR.split(before[-MOST_NAME:]) if _WORD.search(part)]
    return parts[-1].replace("tensor(", "").strip(" :=|>-\"'[](){}") if parts else ""


def _swept(rates: Sequence[float]) -> bool:
    """Tell whether a learning rate is raised to the end by factors, as a search for the best one does; a warm-up adds."""
    return max(rates) == rates[-1] > SWEPT * median(rates)


def _names_a_step(table: _Table, steps: Sequence[float]) -> bool:
    """Tell whether a column that counts is the step of the whole run by its name: it never falls, and no epoch stands beside it."""
    name = next(name for name, column in zip(table.names, table.columns, strict=True) if column is steps)
    if not _STEP.search(name) or any(_EPOCH.search(column) for column in table.names):
        return False
    return all(earlier < later for earlier, later in pairwise(steps))


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
    spike = find_spike(points) if _LOSS.search(name) or unnamed else None
    return spike if spike is not None and math.isnan(spike.height) else None


def _fell(values: Sequence[float]) -> bool:
    part = max(1, len(values) // 4)
    first, last = median(values[:part]), median(values[-part:])
    return first > 0 and last <= FALLEN * first


def _risen(name: str, text: str, points: Sequence[MetricPoint]) -> Spike | None:
    """Return where a plain training loss left its level for good."""
    if not _PLAIN_LOSS.match(name) or _MAY_RISE.search(text):
        return None
    spike = find_spike(points)
    if spike is None or spike.level <= 0 or spike.height <= RISEN * spike.level:
        return None
    losses = [point.loss for point in points if point.loss is not None]
    fell = spike.level <= FALLEN * median(losses[:FEWEST_ROWS])
    return spike if fell and sum(point.line >= spike.line for point in points) >= FEWEST_RISEN else None
