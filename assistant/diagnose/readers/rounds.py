"""How far a job came in what it counts itself: rounds, shards, points, files, whatever stands for a step.

A count is a word with a number that rises from line to line (`round 45`, `sweep 40/90`, `part-007 done`), or a number of a total
that stays the same (`(19/50)`, `48 of 80`), also in a bar. It says how far the work came and nothing else: it is compared with no
step of a training, and no loss belongs to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from assistant.logs.lines import Line

MOST_OF_LINE, MOST_LINES, MOST_OF_DRAWN = 300, 50_000, 4_000
FEWEST = 2
"""Numbers that rise, from which on a word counts."""
_COUNT = re.compile(
    r"(?<![\w./-])(?P<word>[A-Za-z][A-Za-z_]{0,20})(?P<joint>[ =:#_-]{1,3})(?P<number>\d{1,9})(?:\s?(?P<of>/"
    r"|of)\s?(?P<total>\d{1,9}))?"
    r"(?![\w%]|\.\d|[:/-]\d)"
)
_OF_TOTAL = re.compile(
    r"(?<![\w.:+/-])(?P<number>\d{1,9})(?:\s?/\s?| of )(?P<total>\d{1,9})(?![\w%/]|\.\d|[:-]\d)(?: (?P<things>[A-Za-z]{2,20})s\b)?"
)
"""So many of all, with or without a word for them."""
FEWEST_OF_TOTAL, LEAST_TOTAL = 3, 4
"""Numbers that rise, from which on a number of a total counts without a word; totals below the least are dates and versions."""
_BEFORE_NUMBER = re.compile(r"([A-Za-z]{2,20})s?[\s=:#(\[]{0,3}$")
_PREPARES = re.compile(
    r"\b(?:download\w*|fetch\w*|pull\w*|extract\w*|unpack\w*|compil\w*|build\w*|install\w*|import\w*|initiali\w*|init|warm\w*"
    r"|captur\w*|map\b|tokeni\w*|filter\w*|pack\w*|scann\w*|resolv\w*|check\w*|connect\w*|wait\w*|ready|join\w*|discover\w*|spawn\w*|launch\w*|start\w*|register\w*)\b",
    re.IGNORECASE,
)
"""What comes before the work, also where that is counted."""
_ERROR_BEHIND = re.compile(r"Traceback \(most recent call last\)")
"""Behind a line that was redrawn in place, and so never ended."""
_DRAWN = re.compile(
    r"(?:\d{1,3}%\|[^|]{0,400}\||\[[=#>.\u2501\u2588* -]{3,200}\]) {0,8}(?P<number>\d{1,9})/(?P<total>\d{1,9})(?![\w/])"
    r"|(?<![\w.:/-])(?P<at>\d{1,9})/(?P<of>\d{1,9}) (?:\[[=#>. -]{3,200}\]|[\u2501\u2588]{3,200})"
)
"""A bar: of one that was redrawn in place its last state is left."""
LEAST_DRAWN = 2
_BARE = re.compile(r"^\s{0,4}\[\s{0,8}(?P<number>\d{1,9})(?:\s?/\s?(?P<total>\d{1,9}))?\] \S")
"""A number in brackets in front of a line, as loops of people's own print it."""
BARE, FEWEST_BARE = "count", 5
_VALUES = re.compile(r"[\d.,+%#=>█▏▎▍▌▋▊▉|/ -]+")
"""Numbers and drawn bars, which differ from line to line."""
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
        of = f"{self.number} of {self.total}" if self.total is not None else str(self.number)
        return f"{self.word} {of}".strip()


class _Sighting(NamedTuple):
    """A count as one line shows it."""

    work: WorkCount
    head: str
    """What stands before it, without numbers: counts of one word may mean several things (`trial 19 …, best is trial 3`)."""


def last_count(lines: Iterable[Line]) -> WorkCount | None:
    """Return the count that rises most often, as its last line has it; None where nothing rises.

    Args:
        lines: Of one attempt of a job, in order.
    """
    by_word: dict[tuple[str, int | None], list[_Sighting]] = {}
    bars: list[WorkCount] = []
    for index, line in enumerate(lines):
        if index > MOST_LINES:
            break
        bars += _drawn(line)
        error = _ERROR_BEHIND.search(line.text, 0, 4 * MOST_OF_LINE)
        text = line.text[: min(MOST_OF_LINE, error.start() if error is not None else MOST_OF_LINE)]
        for sighting in _sightings(text, line.number):
            by_word.setdefault((sighting.work.word, sighting.work.total), []).append(sighting)
    rising: list[tuple[int, bool, int, WorkCount]] = []
    for sightings in by_word.values():
        series = [sighting.work for sighting in sightings]
        alternatives = [series] if _rises(series) else _by_head(sightings)
        rising += [
            (_rises(alternative), alternative[-1].total is not None, alternative[-1].line, alternative[-1])
            for alternative in alternatives
        ]
    counts = [entry for entry in rising if entry[0] >= _fewest(entry[-1])]
    best = max(counts, key=lambda entry: entry[:3])[-1] if counts else None
    return best or (bars[-1] if bars else None)


def _drawn(line: Line) -> Iterator[WorkCount]:
    """Yield the state of each bar of a line that stands behind its begin; of an unended line also a number of a total."""
    if "/" not in line.text:
        return
    error = _ERROR_BEHIND.search(line.text, 1)
    text = line.text[: error.start()] if error is not None else line.text
    matches = list(_DRAWN.finditer(text[-MOST_OF_DRAWN:]))
    if not matches and error is not None:
        matches = list(_OF_TOTAL.finditer(text[-MOST_OF_LINE:]))
    for match in matches:
        number, total = (
            int(match[key] or match.groupdict().get(alternative) or 0) for key, alternative in (("number", "at"), ("total", "of"))
        )
        before = match.string[: match.start()][-80:]
        prepares = _PREPARES.search(before) or _OTHER_MATTER.search(before)
        if LEAST_DRAWN <= number <= total and total >= LEAST_TOTAL and not prepares:
            yield WorkCount("", number, total, line.number)


def _by_head(sightings: Iterable[_Sighting]) -> list[list[WorkCount]]:
    """Return the counts of one word apart by what stands before them."""
    series: dict[str, list[WorkCount]] = {}
    for sighting in sightings:
        series.setdefault(sighting.head, []).append(sighting.work)
    return list(series.values())


def _fewest(count: WorkCount) -> int:
    """Return from how many numbers on a count is taken to rise."""
    if count.word == BARE:
        return FEWEST_BARE
    return FEWEST if count.word else FEWEST_OF_TOTAL


def _sightings(text: str, number: int) -> Iterator[_Sighting]:
    if _OTHER_MATTER.search(text):
        return
    if (match := _BARE.match(text)) is not None:
        yield _Sighting(WorkCount(BARE, int(match["number"]), int(match["total"]) if match["total"] else None, number), "")
    worded: list[_Sighting] = []
    places: list[range] = []
    for match in _COUNT.finditer(text):
        word = match["word"].lower().rstrip("_")
        word = word if word in _WORDS else word.removesuffix("s")
        total = int(match["total"]) if match["total"] else None
        at = int(match["number"])
        if (word not in _WORDS and (total is None or _NO_WORK.fullmatch(word) or _PREPARES.fullmatch(word))) or (
            total is not None and at > total
        ):
            continue
        places.append(range(match.start(), match.end()))
        worded.append(_Sighting(WorkCount(word, at, total, number), _head(text, match.start())))
    yield from worded
    if _PREPARES.search(text):
        return
    for match in _OF_TOTAL.finditer(text):
        at, total = int(match["number"]), int(match["total"])
        before = _BEFORE_NUMBER.search(text[: match.start()][-24:])
        is_work = before is None or not _NO_WORK.fullmatch(before[1])
        if total < LEAST_TOTAL or at > total or not is_work or any(match.start() in place for place in places):
            continue
        near_words = (
            sighting.work.word for sighting in worded if sighting.work.total is None and abs(sighting.work.number - at) <= 1
        )
        plural = (match["things"] or "").lower()
        word = next(near_words, plural if plural and not _NO_WORK.fullmatch(plural) else "")
        yield _Sighting(WorkCount(word, at, total, number), _head(text, match.start()))


def _head(text: str, place: int) -> str:
    """Return what stands before a count, without its numbers and drawn bars."""
    return _VALUES.sub("0", text[:place])


def _rises(series: list[WorkCount]) -> int:
    """Return how many different numbers a count came to in a row, where it never falls; 0 where it does.

    A number of a total may begin anew, as with the next epoch: then its longest row counts.
    """
    rows: list[list[int]] = [[]]
    for count in series:
        if rows[-1] and count.number < rows[-1][-1]:
            rows.append([])
        rows[-1].append(count.number)
    if len(rows) > 1 and series[-1].total is None:
        return 0
    return max(len({*row}) for row in rows)
