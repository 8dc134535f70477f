"""How far a job came in what it counts itself: rounds, shards, points, files, whatever stands for a step.

A count is a word with a number that rises from line to line (`round 45`, `sweep 40/90`, `part-007 done`). It says how far the work
came and nothing else: it is compared with no step of a training, and no loss belongs to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from assistant.logs.lines import Line

MOST_OF_LINE, MOST_LINES = 300, 50_000
FEWEST = 2
"""Numbers that rise, from which on a word counts."""
_COUNT = re.compile(
    r"(?<![\w./-])(?P<word>[A-Za-z][A-Za-z_]{0,20})(?P<joint>[ =:#_-]{1,3})(?P<number>\d{1,9})(?:\s?(?P<of>/"
    r"|of)\s?(?P<total>\d{1,9}))?"
    r"(?![\w%]|\.\d|[:/-]\d)"
)
_BARE = re.compile(r"^\s{0,4}\[\s{0,8}(?P<number>\d{1,9})(?:\s?/\s?(?P<total>\d{1,9}))?\] \S")
"""A number in brackets in front of a line, as loops of people's own print it."""
BARE, FEWEST_BARE = "count", 5
_WORDS = frozenset(
    (
        "step global_step iteration iter it round sweep cycle generation gen update batch tick pass turn epoch shard part file "
        "chunk"
        " piece point case item fold tile frame block sample scene sequence record document row day year month week level timestep"
        " time_step replica trial run image page section slice lap"
    ).split()
)
"""What programs count by; any other word counts only where the line says of how many."""
_NO_WORK = re.compile(
    r"line|exit|code|signal|pid|job|task|rank|node|gpu|port|version|seed|attempt|retry|worker|thread|cpu|error|epochs|steps|size"
    r"|dim"
    r"|layer|num|total|max|min|of",
    re.IGNORECASE,
)
_OTHER_MATTER = re.compile(
    r"\b(?:slurm\w*|srun|error|warning|traceback|exception|retry\w*|attempt|restor\w*|load\w*|resum\w*)\b", re.IGNORECASE
)


class WorkCount(NamedTuple):
    """The last number of a count."""

    word: str
    number: int
    total: int | None
    """None where the log does not say of how many."""
    line: int

    def __str__(self) -> str:
        return f"{self.word} {self.number}{f' of {self.total}' if self.total is not None else ''}"


def last_count(lines: Iterable[Line]) -> WorkCount | None:
    """Return the count that rises most often, as its last line has it; None where nothing rises.

    Args:
        lines: Of one attempt of a job, in order.
    """
    counts: dict[tuple[str, int | None], list[WorkCount]] = {}
    for index, line in enumerate(lines):
        if index > MOST_LINES:
            break
        for count in _counts(line):
            counts.setdefault((count.word, count.total), []).append(count)
    rising = [(_rises(series), series[-1]) for series in counts.values()]
    rising = [(rises, count) for rises, count in rising if rises >= (FEWEST_BARE if count.word == BARE else FEWEST)]
    best = max(((rises, count.line, count) for rises, count in rising), default=None, key=lambda item: item[:2])
    return best[2] if best is not None else None


def _counts(line: Line) -> Iterator[WorkCount]:
    text = line.text[:MOST_OF_LINE]
    if _OTHER_MATTER.search(text):
        return
    if (match := _BARE.match(text)) is not None:
        yield WorkCount(BARE, int(match["number"]), int(match["total"]) if match["total"] else None, line.number)
    for match in _COUNT.finditer(text):
        word = match["word"].lower().rstrip("_")
        word = word if word in _WORDS else word.removesuffix("s")
        total = int(match["total"]) if match["total"] else None
        number = int(match["number"])
        if (word not in _WORDS and (total is None or _NO_WORK.fullmatch(word))) or (total is not None and number > total):
            continue
        yield WorkCount(word, number, total, line.number)


def _rises(series: list[WorkCount]) -> int:
    """Return how many different numbers a count came to, where it never falls; 0 where it does."""
    numbers = [count.number for count in series]
    return len(set(numbers)) if all(first <= second for first, second in pairwise(numbers)) else 0
