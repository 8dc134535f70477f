"""Learn from a log itself which of its lines count: lines of one form that hold a number which rises.

Any program that works on something prints how far it is. What it calls that is its own affair: `iteration 12`, `12/400 [00:03<`,
`Processed 1200 rows`, `=== Step 3 ===`. Of lines that differ in their digits alone, one column rises from line to line and the
others (loss, rate, times) do not. Ranks and process ids that are told off one after another rise as well, so a counter proves that
something was outlived only where it ran before it, too.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from assistant.diagnose.runs import Keyed, keyed_lines
from assistant.logs.lines import Line

FEWEST = 4
"""Lines of one form that make a counter."""
MOST = 4000
"""Lines of one form that are looked at; of more, an even choice."""
RISING = 0.9
"""Share of the pairs of neighbours that must not fall; what starts again each epoch falls seldom."""
_NUMBER = re.compile(r"(?<![\w.])-?(\d{1,15}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?)(?![\d.])")
_STAMP = re.compile(
    r"\d{1,4}[-/]\d{1,2}[-/]\d{1,4}(?:[T ]+\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?|\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?|\[\w*\d+\]:?"
)
_NO_WORK = re.compile(
    r"\b(?:pid|pids|process(?:es)?|subprocess|port|rank|ranks|thread|gpu|cuda|device|attempt|retry|retries|retrying|try|trial|line|seed"
    r"|error|errors|warning|warn|failed|exception|traceback|kill|killing|killed|signal|exit|exited|sleep|wait|waiting|route|shard|shards|NCCL)\b"
    r"|File \"|Loading|Error|\b0x[0-9a-f]{5}",
    re.IGNORECASE,
)
"""Lines that count something else than work."""
_WORK = re.compile(
    r"step|iter|batch|epoch|sample|token|update|rows?\b|record|example|\btick|kimg|frame|episode|processed|trained|sequence|train",
    re.IGNORECASE,
)
"""Words of what training counts; a form has no blanks."""


@dataclass(frozen=True, slots=True)
class Rising:
    """A counter: where its lines stand and what they count."""

    form: str
    lines: tuple[int, ...]
    values: tuple[float, ...]

    def before(self, line: int) -> int:
        """Return how many of its lines stand up to a line."""
        return bisect_right(self.lines, line)

    def after(self, line: int) -> int:
        """Return how many values it takes beyond a line."""
        return len(set(self.values[bisect_right(self.lines, line) :]))


def find_counters(keyed: Sequence[Keyed]) -> tuple[Rising, ...]:
    """Return the counters of a log, the one with the most lines first.

    Args:
        keyed: The log, from `runs.keyed_lines`.
    """
    forms: dict[str, list[tuple[int, str]]] = {}
    for number, key, text in keyed:
        forms.setdefault(key, []).append((number, text))
    counters: list[Rising] = []
    for form, lines in forms.items():
        if len(lines) < FEWEST or _NO_WORK.search(lines[0][1][:300]):
            continue
        rising = _rising(form, lines[:: -(-len(lines) // MOST)])
        if rising is not None:
            counters.append(rising)
    return tuple(sorted(counters, key=lambda counter: (-len(counter.lines), counter.lines[0])))


def same_counter(before: Sequence[Line], after: Sequence[Line]) -> tuple[Rising, Rising] | None:
    """Return what counts a program's work in two logs of it, in lines of one form; None where nothing does in both.

    Only lines that say what they count are taken: a beat that goes on while nothing is trained proves no work.

    Args:
        before: Of the attempt that ended.
        after: Of the next one.
    """
    later = {counter.form: counter for counter in find_counters(keyed_lines(after)) if _WORK.search(counter.form)}
    return next(((one, later[one.form]) for one in find_counters(keyed_lines(before)) if one.form in later), None)


def _rising(form: str, lines: Sequence[tuple[int, str]]) -> Rising | None:
    rows = [(number, _NUMBER.findall(_STAMP.sub(" ", text[:400]))) for number, text in lines]
    width = min((len(row) for _, row in rows if row), default=0)
    rows = [(number, row) for number, row in rows if len(row) >= width]
    if len(rows) < FEWEST:
        return None
    for column in range(min(width, 8)):
        values = [float(row[column]) for _, row in rows]
        pairs = len(values) - 1
        up = sum(later > earlier for earlier, later in pairwise(values))
        level = sum(later == earlier for earlier, later in pairwise(values))
        # the lines of several ranks repeat a number; a clock in seconds since 1970 is no counter
        if up >= FEWEST - 1 and up + level >= RISING * pairs and len(set(values)) >= FEWEST and values[0] < 1e9:
            return Rising(form, tuple(number for number, _ in rows), tuple(values))
    return None
