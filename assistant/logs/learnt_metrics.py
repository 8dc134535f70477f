"""Learn from a log which of its lines carry a step and a loss, where they are of no known form: `[100] loss=0.0628`, `tick 40`.

Lines that differ in their numbers alone are rows of one form. The step is a column of whole numbers that rises from row to row and
is called like one (step, iteration, tick, batch, epoch), or stands without a name beside a loss. The loss is a column of that name,
or, where no words stand before any of its numbers, one that fell while the other rose. What an attempt has taught is looked for
in the next one by the same form, from its first row on. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from assistant.logs.lines import Line
from assistant.records import MetricPoint

__all__ = ["LearntForm", "LearntSeries", "learn_series", "read_series"]

FEWEST_ROWS = 3
"""Rows of one form from which a counter is learnt."""
FEWEST_UNNAMED = 8
"""Rows from which a loss without a name is learnt."""
FALLEN = 0.9
"""Of the first quarter's median, what the last one's is at most where an unnamed column fell."""
RISING = 0.9
"""Share of the pairs of rows between which a counter must not fall."""
LONGEST = 400
MOST_COLUMNS = 12
LARGEST = 10**9
"""Whole numbers from here on are clocks and sizes."""
_NO_NUMBER = r"(?i:nan|inf(?:inity)?)"
_NUMBER = re.compile(rf"(?<![\w.])[-+]?(?:\d{{1,15}}(?:\.\d{{0,20}})?(?:[eE][-+]?\d{{1,3}})?|{_NO_NUMBER})(?![\w]|\.\d|\s?%)")
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
_STAMP = re.compile(rf"\d{{1,4}}[-/]\d{{1,2}}[-/]\d{{1,4}}(?:[T ]+{_CLOCK})?Z?|{_CLOCK}")
_DIGITS = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_STEPS = re.compile(
    r"\b(?:global|train|training|opt\w*)?[ _]?(?:steps?|it|iters?|iterations?|updates?|batch(?:es)?)$", re.IGNORECASE
)
_ROUNDS = re.compile(r"\b(?:ticks?|rounds?|frames?|generations?|gen|sweeps?|cycles?)$", re.IGNORECASE)
_EPOCHS = re.compile(r"\bepochs?$", re.IGNORECASE)
_LOSS = re.compile(
    r"^(?:.*[ ._/-])?(?:(?:train|training|trn|total|lm|mean|avg|average|running|batch)[ _/-]?)?"
    r"(?:loss|xent|ce|nll|cross.?entropy)$",
    re.IGNORECASE,
)
_OTHER_MATTER = re.compile(
    r"\b(?:eval\w*|valid\w*|val|test\w*|sav(?:e|ed|ing)|load\w*|restor\w*|resum\w*|checkpoint\w*|error\w*|warn\w*|exception|traceback"
    r"|retry\w*|retries|attempts?|kill\w*|signal|exit\w*|download\w*|upload\w*)\b",
    re.IGNORECASE,
)
"""Words of lines that count something else than training."""
_SEPARATOR = re.compile(r"[,;|\t(\[{]|\s{2,}")
_WORD = re.compile(r"[A-Za-z]")


class LearntForm(NamedTuple):
    """Which lines carry a step, and in which of their numbers."""

    key: str
    """The line with its numbers taken out."""
    step_at: int
    loss_at: int | None
    unit: str
    """What it counts, in the words of the log; `step` where no words stand before it."""


class LearntSeries(NamedTuple):
    """The rows of one form."""

    form: LearntForm
    points: tuple[MetricPoint, ...]
    """In the order of the lines; a step that several ranks print counts once."""
    total: int | None
    """What the last row counts up to (`epoch 90/100`); None where it does not say."""

    @property
    def is_over(self) -> bool:
        """Whether its last row is the last of all."""
        return self.total is not None and self.points[-1].step >= self.total


class _Row(NamedTuple):
    line: int
    text: str
    numbers: tuple[re.Match[str], ...]


def learn_series(lines: Iterable[Line]) -> LearntSeries | None:
    """Return the series of a log that counts its work best, one with a loss before one without; None where nothing does."""
    forms: dict[str, list[_Row]] = {}
    for key, row in _rows(lines):
        forms.setdefault(key, []).append(row)
    candidates = [
        candidate for key, rows in forms.items() if len(rows) >= FEWEST_ROWS and (candidate := _learn(key, rows)) is not None
    ]
    best = min(candidates, key=_preference, default=None)
    return best.series if best is not None else None


def read_series(lines: Iterable[Line], form: LearntForm) -> LearntSeries | None:
    """Return the rows of a form that another log has taught; None where there is none."""
    return _series(form, [row for key, row in _rows(lines) if key == form.key])


def _rows(lines: Iterable[Line]) -> Iterable[tuple[str, _Row]]:
    for line in lines:
        text = line.text
        if len(text) > LONGEST or not any(character.isdigit() for character in text):
            continue
        text = _STAMP.sub(" ", text)
        numbers = tuple(_NUMBER.finditer(text))
        if numbers and len(numbers) <= MOST_COLUMNS and not _OTHER_MATTER.search(text):
            yield _key(text, numbers), _Row(line.number, text, numbers)


def _key(text: str, numbers: Sequence[re.Match[str]]) -> str:
    parts, end = [], 0
    for number in numbers:
        parts += [text[end : number.start()], "#"]
        end = number.end()
    return " ".join(_DIGITS.sub("#", "".join([*parts, text[end:]])).split())


class _Candidate(NamedTuple):
    series: LearntSeries
    rank: int
    """How much its name is that of a step, from `_rank`."""


def _preference(candidate: _Candidate) -> tuple[bool, int, int]:
    series = candidate.series
    return series.form.loss_at is None, candidate.rank, -len(series.points)


def _learn(key: str, rows: Sequence[_Row]) -> _Candidate | None:
    width = len(rows[0].numbers)
    rows = [row for row in rows if len(row.numbers) == width]
    names = [_name(rows[0], column) for column in range(width)]
    loss_at = next((column for column, name in enumerate(names) if _LOSS.match(name)), None)
    ranked = []
    for column, name in enumerate(names):
        rank = _rank(name)
        if column == loss_at or rank is None or not _rises(rows, column):
            continue
        ranked.append((rank, column))
    if not ranked:
        return None
    rank, step_at = min(ranked)
    if loss_at is None and not any(names) and width == 2:
        loss_at = _fallen(rows, 1 - step_at)
    if not names[step_at] and loss_at is None:
        return None  # a number that rises and nothing that says of what
    unit = (names[step_at].split() or ["step"])[-1].lower()
    series = _series(LearntForm(key, step_at, loss_at, unit), rows)
    return _Candidate(series, rank) if series is not None and len(series.points) >= FEWEST_ROWS else None


def _rank(name: str) -> int | None:
    """Return how much a name is that of a step, 0 for most; None for a name of something else."""
    if not name:
        return 2
    return next((rank for rank, pattern in ((0, _STEPS), (1, _ROUNDS), (3, _EPOCHS)) if pattern.search(name)), None)


def _name(row: _Row, column: int) -> str:
    """Return the words right before a number; empty where there are none."""
    begin = row.numbers[column - 1].end() if column else 0
    before = row.text[begin : row.numbers[column].start()]
    if re.search(r"[\])}]\s{0,8}[\[(]?\s{0,8}$", before):
        return ""  # what stands in brackets before it is a name of the line
    parts = [part for part in _SEPARATOR.split(before) if _WORD.search(part)]
    return parts[-1].strip(" :=|>-#\"'[](){}") if parts else ""


def _rises(rows: Sequence[_Row], column: int) -> bool:
    texts = [row.numbers[column][0] for row in rows]
    if not all(text.isdecimal() for text in texts):
        return False
    values = [int(text) for text in texts]
    rising_pairs = sum(later >= earlier for earlier, later in pairwise(values))
    return len(set(values)) >= FEWEST_ROWS and values[0] < LARGEST and rising_pairs >= RISING * (len(values) - 1)


def _fallen(rows: Sequence[_Row], column: int) -> int | None:
    values = [float(row.numbers[column][0]) for row in rows]
    part = max(1, len(values) // 4)
    first, last = median(values[:part]), median(values[-part:])
    return column if len(values) >= FEWEST_UNNAMED and first > 0 and last <= FALLEN * first else None


def _series(form: LearntForm, rows: Sequence[_Row]) -> LearntSeries | None:
    points: list[MetricPoint] = []
    total: int | None = None
    for row in rows:
        texts = [number[0] for number in row.numbers]
        if max(form.step_at, form.loss_at or 0) >= len(texts) or not texts[form.step_at].isdecimal():
            continue
        step = int(texts[form.step_at])
        if step >= LARGEST or (points and step == points[-1].step):
            continue
        loss = float(texts[form.loss_at]) if form.loss_at is not None else None
        points.append(MetricPoint(step, loss, None, row.line))
        total = _total(row, form.step_at)
    return LearntSeries(form, tuple(points), total) if points else None


def _total(row: _Row, column: int) -> int | None:
    """Return the number behind the step where it says of how many: `90/100`, `90 of 100`."""
    if column + 1 >= len(row.numbers):
        return None
    between = row.text[row.numbers[column].end() : row.numbers[column + 1].start()]
    text = row.numbers[column + 1][0]
    return int(text) if text.isdecimal() and re.fullmatch(r"\s{0,8}(?:/|of)\s{0,8}", between) else None
