"""Find out how far training came: the lines that prove a step, and the legs of a log that holds several attempts.

An error after which training went on for a while was survived; an error before a restart that trained again is history.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from assistant.diagnose.readers.runs import Rising, Run, find_counters, keyed_lines, split_runs
from assistant.diagnose.readers.starts import Keyed
from assistant.logs.lines import Line
from assistant.logs.metrics import bar_epoch, counts_epochs
from assistant.records import MetricPoint

RECURRING, ROUTINE = 3, 30
"""Lines of one form that make it one that recurs, and one of the daily work."""
RAN_BEFORE = 2
"""Lines of a learnt counter before an error by which it proves, when it goes on, that the error was outlived."""
_BAR = re.compile(
    r"^(?:[^|]{0,80}?(?:epoch|train|step|iter|fitting)[^|]{0,60}?)?\s*\d{1,3}%\|[^|]*\| *(\d{1,18})/(\d{1,18}) \[.*(?:it/s|s/it)",
    re.IGNORECASE,
)


_REDRAWN = re.compile(
    r"(?:(?P<name>[A-Za-z][\w ]{0,40}): {0,8})?(?<!\d)\d{1,3}%\|[^|]{0,400}\| {0,8}(?P<at>\d{1,15})/(?P<of>\d{1,15}) "
    r"\[[^\]]{0,200}(?:it/s|s/it)"
)
_TRAINS = re.compile(r"epoch|poch|train|step|iter|fitting", re.IGNORECASE)
_KERAS = re.compile(r"(?:^|[\s\])])(\d{1,18})/(\d{1,18}) (?:\[[=>.]{3,}|━{3,})")
_STEP = re.compile(r"(?:^|[\s\])])(?:global_?)?step[:= ] ?(\d{1,18}) - [\w/]+[:=]")
_RESTART = re.compile(
    r"\b(?:attempt|restart)(?: no\.?| number)?[ #:=]{1,2}(?:[2-9]|\d\d)\b|SLURM_RESTART_COUNT[=: ]+[1-9]"
    r"|\brestarting (?:the )?(?:job|training|run|trainer|worker group|all (?:workers|processes))"
    r"|\bresum(?:e|es|ing|ed) (?:the )?(?:job|training|run)\b",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"\b(?:epoch|round|fold)s?\b\W{0,4}(\d{1,7})(?![\d.])", re.IGNORECASE)
REGULAR, NEXT_ROUND = 3, 40
"""Falls from the same step to the same step that show rounds, and lines between two steps in which the next round is announced."""
_AGAIN_WORDS = ("ttempt", "TTEMPT", "estart", "ESTART", "esum", "ESUM")
_SMALL_MATTER = re.compile(
    r"upload|download|fetch|request|connect|retry|retries|read|writ|push|pull|send|sync|open|lock|evaluat", re.IGNORECASE
)


@dataclass(frozen=True)
class Progress:
    """The proofs of progress of one log, in the order of lines."""

    lines: tuple[int, ...]
    steps: tuple[float, ...]
    """Step at each line."""
    bars: bool = False
    """Whether they are progress bars, which start again each epoch."""
    restarts: tuple[int, ...] = ()
    """Lines that say that the job starts again."""
    drawn: tuple[tuple[int, float], ...] = ()
    """Line and position of progress bars: one that is redrawn behind `\\r` is one line, however many steps it shows."""
    counters: tuple[Rising, ...] = ()
    """What else rises from line to line, learnt from the log."""
    runs: tuple[Run, ...] = ()
    """The runs that the log holds."""
    forms: Mapping[str, int] = field(default_factory=dict, repr=False)
    """How many lines of each form there are."""
    learnt: bool = False
    """Whether `lines` are of a counter that no known format covers."""
    rounds: frozenset[int] = frozenset()
    """Lines at which the steps begin anew with the next epoch: they count within one, not over the run."""
    routine: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    """By form, the lines at which it had come `RECURRING` and `ROUTINE` times; 0 where it never came so often."""

    def came_before(self, form: str, line: int) -> int:
        """Return how often a form had come up to a line at least: 0, `RECURRING` or `ROUTINE` times."""
        recurring, routine = self.routine.get(form, (0, 0))
        return ROUTINE if 0 < routine <= line else RECURRING if 0 < recurring <= line else 0

    def after(self, line: int) -> int:
        """Return how many later steps are proven beyond a line: training steps, or what counted before the line and goes on."""
        place = bisect_right(self.lines, line)
        later = len(set(self.steps[place:]))
        if not any(number <= line for number, _ in self.drawn):
            later = max(later, int(max((position for _, position in self.drawn), default=0)))
        learnt = (counter.after(line) for counter in self.counters if counter.before(line) >= RAN_BEFORE)
        return max(later, *learnt, 0)

    def before(self, line: int) -> int:
        """Return how many proofs stand up to a line."""
        return bisect_right(self.lines, line)

    @property
    def last_line(self) -> int:
        """Line of the last proof; 0 without any."""
        return self.lines[-1] if self.lines else 0

    @cached_property
    def leg(self) -> int:
        """First line of the last leg: where a restarted job says so, or prints a lower step than before; 0 for a log of one leg."""
        return max(self._fallen_back(), self._said_again(), self.runs[-1].first if len(self.runs) > 1 else 0)

    def _said_again(self) -> int:
        """Return the last line between two steps that tells of a restart; 0 without one."""
        return next((line for line in reversed(self.restarts) if self.before(line) and self.after(line)), 0)

    def _fallen_back(self) -> int:
        if self.learnt:
            return 0  # what an unknown program counts may start again with every item of its work
        for place in range(len(self.steps) - 1, 0, -1):
            back = self.steps[place - 1] - self.steps[place]
            gap = self.lines[place] - self.lines[place - 1]
            # a skipped step is counted again right away; a restart prints its start-up in between
            if not self.bars and back > 0 and (back > 20 or gap > 15) and self.lines[place] not in self.rounds:
                return self.lines[place]
        return 0


_RATE_OF_BAR = re.compile(r"(?<![\w.])(?:(\d{1,9}(?:\.\d{1,4})?)([kMG]?)) ?it/s")
_TIMES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
FASTEST = 10_000.0
"""Steps of training in a second above which a bar counts something else, such as the lines of a data set."""
MOST_OF_TRACEBACK = 10_000
"""Lines of one traceback that are left out of what is counted."""


def read_progress(lines: Sequence[Line], points: Sequence[MetricPoint], tracebacks: Sequence[tuple[int, int]] = ()) -> Progress:
    """Return the lines that prove a training step: metrics, or progress bars where they are more, or what the log itself counts.

    Args:
        lines: Of the job log.
        points: Metrics that stand in the same log.
        tracebacks: First and last line of each.
    """
    metrics = [(point.line, float(point.step)) for point in points]
    drawn_lines = [line for line in lines if "%|" in line.text]
    of_epochs = _count_epochs(drawn_lines)
    bars = [(line.number, step) for line in drawn_lines if (step := _bar(line.text, of_epochs=of_epochs)) is not None]
    # bars and metrics count differently; mixed they would look like a counter that falls back
    bars += [(line.number, step) for line in lines if not bars and (step := _keras(line.text)) is not None]
    plain = [(line.number, float(m[1])) for line in lines if "tep" in line.text and (m := _STEP.search(line.text))]
    drawn = tuple((line.number, at) for line in drawn_lines if (at := _drawn(line.text)) is not None)
    best = max(metrics, bars, plain, key=len)
    restarts = tuple(line.number for line in lines if _restarts(line.text))
    keyed = keyed_lines(lines)
    forms, routine = _forms(keyed)
    messages = _lines_of_messages(lines, tracebacks)
    counters = find_counters([line for line in keyed if line.number not in messages])
    step_lines = tuple(number for number, _ in best)
    runs = split_runs(keyed, tracebacks, step_lines or (counters[0].lines if counters else ()))
    learnt = not step_lines and bool(counters)
    numbers, steps = (counters[0].lines, counters[0].values) if learnt else (step_lines, tuple(step for _, step in best))
    return Progress(
        numbers,
        steps,
        bool(step_lines) and best is bars,
        restarts,
        drawn,
        counters,
        runs,
        forms,
        learnt,
        frozenset(_rounds(numbers, steps, lines)),
        routine,
    )


def _lines_of_messages(lines: Sequence[Line], tracebacks: Sequence[tuple[int, int]]) -> set[int]:
    """Return the numbers of the lines of tracebacks and of what is indented right behind each: a message counts no work."""
    first_of_last = {last: first for first, last in tracebacks}
    numbers: set[int] = set()
    inside = False
    for number, text in lines:
        inside = inside and text[:1].isspace()
        if inside:
            numbers.add(number)
        if number in first_of_last:
            inside = True
    for first, last in tracebacks:
        numbers.update(range(first, min(last, first + MOST_OF_TRACEBACK) + 1))
    return numbers


def _rounds(numbers: Sequence[int], steps: Sequence[float], lines: Sequence[Line]) -> Iterator[int]:
    """Yield the lines at which steps fall back as the next epoch begins: its number has risen by one, or all falls are alike."""
    falls = [place for place in range(1, len(steps)) if steps[place] < steps[place - 1]]
    alike = {(steps[place - 1], steps[place]) for place in falls}
    if len(falls) >= REGULAR and len(alike) == 1:
        yield from (numbers[place] for place in falls)
        return
    for place in falls:
        before, after = numbers[place - 1], numbers[place]
        first = bisect_left(lines, before, key=lambda line: line.number)
        between = lines[first : bisect_right(lines, after, key=lambda line: line.number)]
        if len(between) > NEXT_ROUND or any(_restarts(line.text) for line in between):
            continue
        counts = [int(match[1]) for line in between if (match := _EPOCH.search(line.text[:400])) is not None]
        if len(counts) > 1 and counts[-1] == counts[0] + 1:
            yield after


def _forms(keyed: Sequence[Keyed]) -> tuple[Counter[str], dict[str, tuple[int, int]]]:
    """Return how many lines of each form there are, and where a form had come often."""
    count: Counter[str] = Counter()
    recurring: dict[str, tuple[int, int]] = {}
    for number, form, _ in keyed:
        count[form] += 1
        if count[form] == RECURRING:
            recurring[form] = (number, 0)
        elif count[form] == ROUTINE:
            recurring[form] = (recurring[form][0], number)
    return count, recurring


def _restarts(text: str) -> bool:
    worded = len(text) < 400 and any(word in text for word in _AGAIN_WORDS)
    return worded and _RESTART.search(text) is not None and _SMALL_MATTER.search(text) is None


def _keras(text: str) -> float | None:
    drawn = len(text) < 600 and ("[=" in text or "[>" in text or "━━" in text)
    match = _KERAS.search(text) if drawn else None
    return float(match.group(1)) if match and int(match.group(2)) >= 10 else None


def _drawn(text: str) -> float | None:
    """Return how far the last training bar of a line came; bars of downloads and preparations are named otherwise."""
    if _too_fast(text):
        return None
    matches = [match for match in _REDRAWN.finditer(text) if int(match["of"]) >= 10]
    training = [match for match in matches if match["name"] is None or _TRAINS.search(match["name"])]
    return float(training[-1]["at"]) if training else None


def _count_epochs(lines: Sequence[Line]) -> bool:
    """Tell whether the bars that name an epoch count the epochs themselves: each stands where its epoch is."""
    bars = [(bar_epoch(line.text[: match.start(1)]), int(match[1])) for line in lines if (match := _BAR.search(line.text))]
    return all(epoch is None or counts_epochs(epoch, at) for epoch, at in bars)


def _bar(text: str, *, of_epochs: bool) -> float | None:
    """Return where a training bar stands, with the epochs before its own, as far as it names one: each epoch draws a new bar."""
    match = _BAR.search(text)
    if match is None or int(match.group(2)) < 10 or _too_fast(text):
        return None
    epoch = bar_epoch(text[: match.start(1)])
    epochs_before = 0 if epoch is None or of_epochs else max(epoch.number - (epoch.of is not None), 0)
    return float(int(match.group(1)) + epochs_before * int(match.group(2)))


def _too_fast(text: str) -> bool:
    """Tell whether the last rate of a line of bars is none of steps of training."""
    rates = _RATE_OF_BAR.findall(text)
    return bool(rates) and float(rates[-1][0]) * _TIMES[rates[-1][1]] >= FASTEST
