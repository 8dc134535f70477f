"""Whether and where a training loss went wrong: a spike, a loss that never fell, one that rose until it was no number.

A spike is measured in the metrics of a case, or was seen by a watch while the job still ran. Where no framework's form of a line
is known, lines that differ in their numbers alone are rows of one series; `nan` and `inf` count as numbers, since a loss that is
lost changes no more than that. A column is a loss where the words before it say so; where no words stand before it, where it fell
while another one counted up. A step is what rises from row to row. Whether a loss rose for good is asked only of rows that show
their step and of a plain training loss: what is maximised, played against or paid out may rise.

A job may end over its own numbers: frameworks raise whatever class is at hand for it (`FloatingPointError`, `ValueError`,
`Exception`), or print a line and exit. After healthy steps that is a divergence, to be answered with an earlier checkpoint; before
them it is a fault of the set-up.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from assistant.content.reasons import Role
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.runs import KEY_LENGTH, Rising
from assistant.diagnose.weighing.findings import Finding
from assistant.logs.lines import Line
from assistant.logs.spikes import MIN_POINTS, Rise, Spike, find_spike
from assistant.records import EventKind, MetricPoint

READ_LENGTH, KEYED, MOST_NAME = 400, 160, 80
FEWEST_ROWS, FEWEST_FINITE, FEWEST_LOST = 6, 3, 2
FEWEST_UNNAMED, FEWEST_LOST_UNNAMED = 8, 4
"""Rows with a number and then without, of a column that nothing names."""
AT_END = 2000
"""Rows at the end of a series that are all read, and about so many of those before."""
MOST_ROWS = 250_000
FALLEN_SHARE = 0.9
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
    loss_lines = without_number | with_loss
    return [rows for rows in forms.values() if len(rows) >= FEWEST_ROWS and any(row.number in loss_lines for row in rows)]


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
    return first > 0 and last <= FALLEN_SHARE * first


def _risen(name: str, text: str, points: Sequence[MetricPoint]) -> Spike | None:
    """Return where a plain training loss left its level for good."""
    if not _PLAIN_LOSS.match(name) or _MAY_RISE.search(text):
        return None
    spike = find_spike(points)
    if spike is None or spike.level <= 0 or spike.height <= RISEN * spike.level:
        return None
    losses = [point.loss for point in points if point.loss is not None]
    fell = spike.level <= FALLEN_SHARE * median(losses[:FEWEST_ROWS])
    return spike if fell and sum(point.line >= spike.line for point in points) >= FEWEST_RISEN else None


SHOWN_OF_LOSS = 3
"""Steps after the onset that are cited."""
FEWEST_NOT_FINITE = 4
"""Lines with a loss that is no number, where none is one."""
MOST_OF_LINE = 2000
FIRST_STEPS = 3
"""Losses whose median is one level."""
FEWEST_LOST_GRADIENTS = 2
"""Logged steps at the end without a gradient norm that is a number, which a loss scaler does not skip one after the other."""
FEWEST_STEPS = 8
RISEN_ABOVE_FIRST = 1.2
"""Times the first loss that the last one is where it rose, and did not only stay."""
BEGIN = 10
"""Step up to which a log shows the begin of a run."""
_ANY_LOSS = re.compile(
    r"[lL]oss\w{0,20}['\"]?\s{0,30}[:=]\s{0,8}['\"]?([-+]?(?:\d{1,15}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?|nan|inf(?:inity)?))\b",
    re.IGNORECASE,
)


def spike_of(facts: Facts) -> Spike | None:
    """Return the spike of the last leg, None when the loss is where it was.

    A watch may have seen one whose loss has wandered since; its onset then counts, and the earlier of both where both have one: a
    checkpoint from inside a spike must not be taken for healthy.
    """
    points = [point for point in facts.points if facts.metric_file != "job.log" or point.line >= facts.progress.leg]
    measured, watched = find_spike(points), _seen_by_watch(facts, points)
    if measured is None or watched is None:
        return measured or watched or _never_a_number(facts) or _gradients_lost(points) or _of_unknown_form(facts, points)
    return (
        measured
        if measured.step <= watched.step
        else dataclasses.replace(measured, step=watched.step, line=watched.line, lines=watched.lines)
    )


def _gradients_lost(points: Sequence[MetricPoint]) -> Spike | None:
    """Return a spike where the gradient norm was a number and is none any more up to the last step; None for any other series.

    A loss scaler skips single steps; a loss that is still a number is of weights before the step.
    """
    logged = [point for point in points if point.grad_norm is not None]
    lost = next(
        (at for at, point in enumerate(logged) if all(not math.isfinite(p.grad_norm or 0.0) for p in logged[at:])), len(logged)
    )
    before = [point for point in logged[:lost] if point.grad_norm is not None and math.isfinite(point.grad_norm)]
    if (
        len(logged) - lost < FEWEST_LOST_GRADIENTS
        or len(before) < FIRST_STEPS
        or any(not math.isnan(p.grad_norm or 0.0) for p in logged[lost:])
    ):
        return None
    first = logged[lost]
    lines = tuple(point.line for point in logged[lost:][:SHOWN_OF_LOSS])
    return Spike(
        step=first.step, line=first.line, lines=lines, level=before[-1].loss or math.nan, height=math.nan, grad_norm_rose=True
    )


def _of_unknown_form(facts: Facts, points: Sequence[MetricPoint]) -> Spike | None:
    """Return the spike of a loss that no known format reads; None where one that is known shows how training went."""
    count = sum(point.loss is not None for point in points)
    return spike_in_series(facts, max(facts.progress.leg, 1)) if count < MIN_POINTS else None


def _never_a_number(facts: Facts) -> Spike | None:
    """Return a spike where every loss that the last leg shows, of whatever data, is NaN or infinite; None where one is a number.

    Some programs log no loss of the steps, only of evaluations; an average of no losses is 0.
    """
    lost: list[int] = []
    for line in facts.lines:
        if line.number < facts.progress.leg or "oss" not in line.text:
            continue
        values = [float(value) for value in _ANY_LOSS.findall(line.text[:MOST_OF_LINE])]
        if any(math.isfinite(value) and value for value in values):
            return None
        lost += [line.number] if any(not math.isfinite(value) for value in values) else []
    if len(lost) < FEWEST_NOT_FINITE:
        return None
    lines = tuple(lost[:SHOWN_OF_LOSS])
    return Spike(step=0, line=lost[0], lines=lines, level=math.nan, height=math.nan, grad_norm_rose=False)


def never_learned(facts: Facts, spike: Spike) -> tuple[float, float] | None:
    """Return the loss of the first steps and the lowest later on, where a run that began anew never came below its begin.

    A run whose loss rose from its first steps on was not thrown off by data.
    """
    points = [point for point in facts.points if facts.metric_file != "job.log" or point.line >= facts.progress.leg]
    losses = [point.loss for point in points if point.loss is not None and math.isfinite(point.loss) and point.line < spike.line]
    begun_anew = bool(points) and points[0].step <= BEGIN and not facts.progress.leg
    if not begun_anew or len(losses) < FEWEST_STEPS:
        return None
    first = median(losses[:FIRST_STEPS])
    lowest = min(median(losses[at : at + FIRST_STEPS]) for at in range(FIRST_STEPS, len(losses) - FIRST_STEPS + 1))
    return (first, lowest) if lowest > first and median(losses[-FIRST_STEPS:]) > RISEN_ABOVE_FIRST * first else None


def _seen_by_watch(facts: Facts, points: Sequence[MetricPoint]) -> Spike | None:
    event = facts.case.event
    step = event.detail.get("step") if event is not None and event.kind is EventKind.LOSS_SPIKE else None
    after = [point for point in points if isinstance(step, int) and point.step >= step]
    if event is None or not isinstance(step, int) or not after:
        return None
    level = event.detail.get("level")
    height = after[-1].loss if after[-1].loss is not None else math.nan
    return Spike(
        step=step,
        line=after[0].line,
        lines=tuple(point.line for point in after[:SHOWN_OF_LOSS]),
        level=float(level) if isinstance(level, int | float) else math.nan,
        height=height,
        grad_norm_rose=False,
    )


MOST_OF_RATE_LINE = 400
WARMS = "the learning rate was still warming up meanwhile"
UNUSUAL_RATE = 0.1
"""From which on a learning rate that still warms up explains a loss that grows: that of SGD with 256 images a step, and no less.

Source: arXiv 1706.02677, section 2.1 and 2.2 (reference rate 0.1 for 256 images, warmed up for more).
"""
_LEARNING_RATE = re.compile(
    r"(?<![\w-])(?:lr|learning[_ -]?rate)(?:[_/]\w{1,20})?['\"]?\s{0,3}[:=|]?\s{0,3}\[?['\"]?"
    r"(?P<value>(?:\d{1,3}(?:\.\d{0,12})?|\.\d{1,12})(?:[eE]-?\d{1,3})?)(?![\w.])",
    re.IGNORECASE,
)


class WarmUp(NamedTuple):
    """A learning rate that was raised to the end of a run."""

    at_rise: float
    highest: float
    line: int
    """Of the highest that was logged."""


def warm_up(facts: Facts, rise: Rise) -> WarmUp | None:
    """Return the learning rate that lines of a rising loss show to be still raised; None where they show none, or it was not.

    Args:
        facts: Of the case; its lines are read.
        rise: Where the loss grew, by line.
    """
    rates: list[tuple[int, float]] = []
    for line in facts.lines:
        if line.number < facts.progress.leg or line.number > rise.lost_line or not ("lr" in line.text or "rate" in line.text):
            continue
        if (match := _LEARNING_RATE.search(line.text[:MOST_OF_RATE_LINE])) is not None:
            rates.append((line.number, float(match["value"])))
    before = [value for number, value in rates if number < rise.line]
    during = [(number, value) for number, value in rates if rise.line <= number]
    values = [value for _, value in during]
    if len(before) < 2 or len(during) < 2 or not before[0] < values[0] < values[-1] or values != sorted(values):
        return None
    return WarmUp(values[0], values[-1], during[-1][0])


def rise_account(rise: Rise, file: str, level: float, remedy: str, warming: WarmUp | None) -> str:
    """Return how a loss grew and was lost, with its lines, what its learning rate did, and what to do.

    Args:
        rise: By steps and lines.
        file: Of the case, in which the lines stand.
        level: Of the loss before.
        remedy: What to do about the learning rate, in a clause.
        warming: The learning rate that was raised meanwhile; None where none is known.
    """
    words = (
        f"The loss rose from {level:.4g} at step {rise.step} on ({rise.loss:.4g}, {file}:{rise.line}) to {rise.last_loss:.4g} at "
        f"step {rise.last_step} ({file}:{rise.last_line}) and is no number from step {rise.lost_step} on ({file}:{rise.lost_line})"
    )
    since = f"what was saved from step {rise.step} on holds the rise already"
    if warming is None:
        return f"{words}: {remedy}, clip gradients, and go back to before the rise, for {since}."
    raised = f"{warming.at_rise:g} to {warming.highest:g}, job.log:{warming.line}"
    if warming.highest < UNUSUAL_RATE:
        return f"{words}; {WARMS} ({raised}): lower it, or warm up longer, and go back to before the rise, for {since}."
    return (
        f"{words}; {WARMS} ({raised}), which is the likely cause: set it 3 to 10 times lower before it goes on, from "
        f"before the rise, for {since}. "
        "The same again diverges again, whatever data are left out."
    )


FEWEST_LEVEL, RECENT, STILL_LEVEL = 5, 20, 1.5
"""Points that show a level, how many of the last count, and times their median that a value is at most which has not risen."""
DATA_FILE = re.compile(
    r"(?i:\b(?:load|open|read|stream|iterat|switch|tokeni[sz]|process|pars|decod|convert|extract|index|ingest)\w{0,5}\b).{0,80}?"
    r"(?P<path>[\w./@+=-]{1,200}\.(?:bin|idx|jsonl?|parquet|arrow|tar|csv|tsv|npy|npz|h5|hdf5|tfrecords?|mds)(?:\.(?:gz|zst))?)(?![\w.])"
)
"""A file of data that a line says it reads."""


def lost_at_once(before: Sequence[MetricPoint], first: MetricPoint, facts: Facts, file: str) -> str:
    """Return that a loss was lost without any rise before, which speaks for the data of those steps; empty where it had risen.

    Args:
        before: Points before the first that is no number, in order.
        first: That one.
        facts: Of the case, whose lines may name the file of data.
        file: In which the points stand.
    """
    losses = [point.loss for point in before if point.loss is not None and math.isfinite(point.loss)][-RECENT:]
    norms = [point.grad_norm for point in before if point.grad_norm is not None and math.isfinite(point.grad_norm)][-RECENT:]
    series = [values for values in (losses, norms) if len(values) >= FEWEST_LEVEL]
    if len(losses) < FEWEST_LEVEL or any(values[-1] > STILL_LEVEL * abs(median(values)) for values in series):
        return ""
    norm_words = f" nor the gradient norm ({norms[-1]:.4g})" if len(norms) >= FEWEST_LEVEL else ""
    steps = f"steps {before[-1].step + 1} to {first.step}" if before[-1].step + 1 < first.step else f"step {first.step}"
    lines = facts.between(max(1, before[0].line), first.line) if file == "job.log" else []
    data_file = next(
        ((match["path"], line.number) for line in reversed(lines) if (match := DATA_FILE.search(line.text[:600]))), None
    )
    data = (
        f"; the last file of data that the log names before it is {data_file[0]} (job.log:{data_file[1]})"
        if data_file is not None
        else ""
    )
    return (
        f"Neither the loss{norm_words} had risen before, which speaks for the data of {steps} (a NaN or inf in it, an empty or "
        f"wholly masked row) or an overflow of the precision, and less for the learning rate: look at that data first{data}, and "
        "pass over a batch whose loss is not finite before its backward."
    )


HEALTHY_STEPS = 5
"""Steps before the end that show a set-up which could train."""
_ENDS = re.compile(r"stopp|abort|exit|terminat|quit|halt|raise", re.IGNORECASE)


def died_of_numbers(findings: Sequence[Finding], causes: Sequence[Finding], facts: Facts) -> Finding | None:
    """Return the finding that says so, None where there is none or another cause is stronger.

    Args:
        findings: Weighed findings of endings.
        causes: Weighed findings of errors that could be the cause.
        facts: For the steps before.
    """
    divergences = [f for f in findings if f.reason == "loss_spike" and f.role is Role.ROOT and f.strength >= 0.5 and _final(f)]
    if not divergences:
        return None
    first = min(divergences, key=lambda f: (f.line, -f.strength))
    lines = {f.line for f in divergences} | {number for f in divergences for number, _ in f.more}
    other_causes = [c for c in causes if c.line not in lines or c.file != first.file]
    if any(c.strength > first.strength or (c.strength >= 0.5 and c.line < first.line) for c in other_causes):
        return None
    contested = any(c.line in lines for c in causes)
    return None if contested and facts.progress.before(first.line) < HEALTHY_STEPS else first


def _final(finding: Finding) -> bool:
    """Tell whether a process ended with it: an exception, or a line that announces the end."""
    return finding.episode is not None or finding.orphan or _ENDS.search(finding.text) is not None
