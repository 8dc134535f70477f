"""What lines tell of a job's progress besides the metrics of known frameworks: phases, epochs, and forms learnt from a log.

A line says that a phase (loading, preparing, evaluating, saving) begins, or that it is over; training is told by its metrics.
Keras and many loops of people's own print a loss once an epoch. Such a count is no step: it is compared only with the same count
of another attempt of the run, never with the step of a checkpoint.

Lines that differ in their numbers alone are rows of one form (`[100] loss=0.0628`, `tick 40`). The step is a column of whole
numbers that rises from row to row and is called like one (step, iteration, tick, batch, epoch), or stands without a name beside a
loss. The loss is a column of that name, or, where no words stand before any of its numbers, one that fell while the other rose.
What an attempt has taught is looked for in the next one by the same form, from its first row on. Nothing here reads a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from assistant.logs.lines import Line
from assistant.logs.metrics import LARGEST_STEP
from assistant.logs.plain_metrics import NUMBER
from assistant.records import MetricPoint

__all__ = [
    "BEGINS",
    "ENDS",
    "LONGEST",
    "OVER",
    "PREPARED",
    "PREPARES",
    "Counts",
    "LearntForm",
    "LearntSeries",
    "LogPhase",
    "announced_size",
    "counts_of",
    "learn_series",
    "phase_begun",
    "phase_over",
    "read_series",
    "worth_reading",
]


class LogPhase(StrEnum):
    """The phase that a job is in."""

    START = "start"
    """From its launch to the first step that is logged."""
    LOADING = "loading"
    FIRST_STEP = "first_step"
    """One step was logged: what comes may still compile."""
    TRAINING = "training"
    PREPARATION = "preparation"
    """It compiles, or prepares its data."""
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    END = "end"
    """The last step was made."""


_SAVES = r"sav(?:e|es|ing) (?:a |the |model |training |distributed )*(?:checkpoint|state|model)"
BEGINS = (
    (
        LogPhase.CHECKPOINT,
        re.compile(
            rf"{_SAVES}|save_checkpoint|checkpoint \S{{1,60}} is about to be saved|\[torch\] saving \S{{1,300}}\.pt", re.IGNORECASE
        ),
    ),
    (
        LogPhase.EVALUATION,
        re.compile(
            r"\brunning (?:[\w-]{1,20} ){0,3}(?:evaluations?|validation|eval|predictions?|generation|inference|benchmarks?)\b"
            r"|\b(?:evaluating|validating)\b"
            r"|\bgenerating (?:[\w-]{1,20} ){0,3}(?:samples|predictions|completions|answers|rollouts)\b"
            r"|\b(?:evaluation|validation) (?:step|batch|start|begin|dataloader|loop|on\b)"
            r"|\b(?:start|begin)\w* (?:of )?(?:the )?(?:evaluation|validation)|\bsanity checking\b",
            re.IGNORECASE,
        ),
    ),
    (
        LogPhase.LOADING,
        re.compile(r"(?:load|restor|resum)(?:e|es|ing) (?:a |the |from |model ){0,4}(?:checkpoint|state)", re.IGNORECASE),
    ),
)
OVER = {
    LogPhase.CHECKPOINT: re.compile(
        r"(?:success\w{0,12} sav|(?<!to be )\bsaved\b|sav(?:e|ing) (?:done|complete|finish|took|duration)|finished sav"
        r"|checkpoint (?:done|written))",
        re.IGNORECASE,
    ),
    LogPhase.EVALUATION: re.compile(
        r"(?:validation|eval(?:uat(?:ion|ed|ing))?)[ _](?:loss|ppl|accuracy|result|done|finish|took|complete)"
        r"|(?:'|\")eval_\w{2,40}(?:'|\"):",
        re.IGNORECASE,
    ),
    LogPhase.LOADING: re.compile(r"(?:success\w{0,12} load|loaded|restored|resumed)", re.IGNORECASE),
}
ENDS = re.compile(
    r"training (?:is )?(?:done|finished|completed?)|exiting program (?:at|after)|reached max(?:_| )?(?:steps|epochs)", re.IGNORECASE
)
PREPARES = re.compile(
    r"\bcompiling (?:and loading )?(?:the |a )?(?:model|graph|module|kernel|function|extension|dataset index)"
    r"|\b(?:tokeniz|pre-?process|prepar|shuffl|pack)ing (?:\w{1,20} ){0,2}"
    r"(?:data(?:set)?s?|corpus|documents|samples|examples|shards)\b"
    r"|\bbuilding (?:[\w,]{1,20} ){0,5}(?:data ?sets?|index|indices)\b",
    re.IGNORECASE,
)
PREPARED = re.compile(
    r"(?:finished|done|completed) (?:with )?(?:compil|tokeniz|pre-?process|prepar|shuffl|pack|build)ing"
    r"|(?:compilation|tokenization|preprocessing|preparation) (?:is )?(?:done|finished|took|time|complete)",
    re.IGNORECASE,
)
_HINTS = tuple(
    (
        "sav Sav SAV alid ALID val EVAL oad estor esum raining xiting each heck ompil okeniz rocess repar acking huffl uilding "
        "enerati unning"
    ).split()
)
"""One of these stands in every line that is told apart: looked for first, because that is cheap."""
LONGEST = 2_000
"""Longer lines are dumps of data."""
_UNITS = r"(examples|samples|batches|steps|iterations|sequences|prompts|documents|shards|items|rows|questions|requests)"
_SIZE = re.compile(
    rf"\b(?:num(?:ber)?(?:[_ ]of)?|total)[_ ](?:\w{{1,20}}[_ ])?{_UNITS}\s{{0,4}}[:=]\s{{0,4}}(\d[\d,_]{{0,15}})\b"
    rf"|\b(?:on|over|for|\w{{1,20}}ing) (\d[\d,_]{{0,15}}) (?:\w{{1,20}} )?{_UNITS}\b(?!/)",
    re.IGNORECASE,
)


def worth_reading(text: str) -> bool:
    """Tell whether a line may say anything about a phase."""
    return len(text) <= LONGEST and any(hint in text for hint in _HINTS)


def phase_begun(text: str) -> LogPhase | None:
    """Return the phase that a line says begins; `END` where training is done; None where it says nothing."""
    if not worth_reading(text):
        return None
    if ENDS.search(text):
        return LogPhase.END
    if any(pattern.search(text) for pattern in OVER.values()):
        return None
    begun_phase = next((phase for phase, pattern in BEGINS if pattern.search(text)), None)
    prepares = begun_phase is None and PREPARES.search(text) and not PREPARED.search(text)
    return LogPhase.PREPARATION if prepares else begun_phase


def phase_over(text: str, phase: LogPhase) -> bool:
    """Tell whether a line says that a phase is over."""
    pattern = PREPARED if phase is LogPhase.PREPARATION else OVER.get(phase)
    return pattern is not None and worth_reading(text) and pattern.search(text) is not None


def announced_size(text: str) -> tuple[str, int] | None:
    """Return how much a line says that a phase has before it, as unit and count: `Num examples = 48000`; else None."""
    match = _SIZE.search(text) if len(text) <= LONGEST else None
    if match is None:
        return None
    count = int((match[2] or match[3]).replace(",", "").replace("_", ""))
    return ((match[1] or match[4]).lower(), count) if count else None


_LOSS = re.compile(
    rf"(?<![\w/-])(?:(?:train(?:ing)?|avg|average|mean|total|epoch)[ _/-]{{1,2}})?loss(?:es)?['\"]?\s{{0,4}}(?:is\b|[:=])?"
    rf"\s{{0,8}}({NUMBER})(?![\w.]{{0,64}}\w)",
    re.IGNORECASE,
)
_OTHER_LOSS = re.compile(r"\b(?:val|valid|validation|test|eval)(?:uation)?[ _/-]{0,2}$", re.IGNORECASE)
_EPOCH = re.compile(
    r"(?<![\w.-])epochs?['\"]?\s{0,4}[:=#\[(]{0,2}\s{0,4}(\d{1,7})(?!\d|\.\d|\s?%)(?:\s{0,4}(?:/|of)\s{0,4}(\d{1,7}))?",
    re.IGNORECASE,
)
_INNER_COUNT = re.compile(r"\[\s{0,12}(\d{1,12})\s{0,4}/\s{0,4}(\d{1,12})\b")
"""Behind the number of an epoch: how much of it is done. Source: pytorch/examples, mnist/main.py."""
_AMOUNT = re.compile(
    r"(?<![\w.-])(?:(?:num|consumed|total|seen|trained|train|global)[ _])?(samples|tokens|examples|images|sequences)"
    r"(?:[ _](?:seen|so[ _]far|consumed|trained))?['\"]?\s{0,4}[:=]?\s{0,4}(\d{1,15})(?![\d.]|\s?/\s?s)",
    re.IGNORECASE,
)
_BAR = re.compile(r"^\s{0,8}(\d{1,9})/(\d{1,9})\s")
"""Keras: batches of an epoch, in front of what it says of it."""
_HEAD = re.compile(r"^\s{0,8}Epoch (\d{1,7})(?:/(\d{1,7}))?:?\s{0,8}$")


class Counts(NamedTuple):
    """Progress that a log counts in the place of steps."""

    unit: str
    """`epochs`, `samples of an epoch`, or the word of the log: samples, tokens, examples."""
    points: tuple[MetricPoint, ...]
    """One for each count that was reached, in order, with the last loss that was printed for it."""


def counts_of(lines: Iterable[Line]) -> Counts | None:
    """Return what a log counts with a loss: the finest of its counts; None where it counts nothing.

    A line says it all (`Epoch 3 loss 0.41`), or the epoch stands in a line before it (Keras). Losses of a validation do not count.
    An epoch that is drawn again and again counts once, with its last loss.
    """
    points_by_unit: dict[str, dict[tuple[int, int], MetricPoint]] = {}
    runs: dict[str, int] = {}
    epoch: int | None = None
    for line in lines:
        text = line.text[:LONGEST]
        if (head := _HEAD.match(text)) is not None:
            epoch = int(head[1])
            continue
        if "oss" not in text and "OSS" not in text:
            continue
        loss = next((match[1] for match in _LOSS.finditer(text) if not _OTHER_LOSS.search(text, 0, match.start())), None)
        if loss is None:
            continue
        for unit, count in _counted(text, epoch):
            if count > LARGEST_STEP:
                continue
            of_unit = points_by_unit.setdefault(unit, {})
            last = next(reversed(of_unit), None)
            if last is not None and count < last[1]:
                runs[unit] = runs.get(unit, 0) + 1  # it went back: a run of its own
            of_unit[runs.get(unit, 0), count] = MetricPoint(count, float(loss), None, line.number)
    if not points_by_unit:
        return None
    unit = max(points_by_unit, key=lambda name: (len(points_by_unit[name]), name != "epochs"))
    return Counts(unit, tuple(points_by_unit[unit].values()))


def _counted(text: str, epoch: int | None) -> list[tuple[str, int]]:
    amounts = [(match[1].lower(), int(match[2])) for match in _AMOUNT.finditer(text)]
    if (match := _EPOCH.search(text)) is not None:
        inner_match = _INNER_COUNT.search(text, match.end(), match.end() + 40)
        inner = (
            [("samples of an epoch", int(match[1]) * int(inner_match[2]) + int(inner_match[1]))] if inner_match is not None else []
        )
        return [*amounts, *inner, ("epochs", int(match[1]))]
    if epoch is not None and _BAR.match(text):
        return [*amounts, ("epochs", epoch)]
    return amounts


FEWEST_ROWS = 3
"""Rows of one form from which a counter is learnt."""
FEWEST_UNNAMED = 8
"""Rows from which a loss without a name is learnt."""
FALLEN = 0.9
"""Of the first quarter's median, what the last one's is at most where an unnamed column fell."""
RISING = 0.9
"""Share of the pairs of rows between which a counter must not fall."""
LONGEST_ROW = 400
MOST_COLUMNS = 12
LARGEST = 10**9
"""Whole numbers from here on are clocks and sizes."""
_NO_NUMBER = r"(?i:nan|inf(?:inity)?)"
_NUMBER = re.compile(rf"(?<![\w.])[-+]?(?:\d{{1,15}}(?:\.\d{{0,20}})?(?:[eE][-+]?\d{{1,3}})?|{_NO_NUMBER})(?![\w]|\.\d|\s?%)")
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
_STAMP = re.compile(rf"\d{{1,4}}[-/]\d{{1,2}}[-/]\d{{1,4}}(?:[T ]+{_CLOCK})?Z?|{_CLOCK}")
_DIGEST = re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{6,64}\b")
"""A checksum, which is another one in each row and no number of it."""
_DIGITS = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_STEPS = re.compile(
    r"\b(?:global|train|training|opt\w*)?[ _]?(?:steps?|it|iters?|iterations?|updates?|batch(?:es)?)$", re.IGNORECASE
)
_ROUNDS = re.compile(r"\b(?:ticks?|rounds?|frames?|generations?|gen|sweeps?|cycles?)$", re.IGNORECASE)
_EPOCHS = re.compile(r"\bepochs?$", re.IGNORECASE)
_LOSS_NAME = re.compile(
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
        if len(text) > LONGEST_ROW or not any(character.isdigit() for character in text):
            continue
        text = _DIGEST.sub("@", _STAMP.sub(" ", text))
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
    loss_at = next((column for column, name in enumerate(names) if _LOSS_NAME.match(name)), None)
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
