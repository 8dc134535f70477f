"""Find the items that a run lists as failed at its own end, and the errors that they printed before.

A driver that works off many items goes on behind each that fails, and says at the end which did. The run is over and the driver is
sound; what has to be mended are those items. Their errors stand far above, each near a line that names the item.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.tracebacks import Episode
from assistant.diagnose.weighing.outcome import tells_failure, verdict_rows
from assistant.display import shorten
from assistant.logs.lines import Line
from assistant.redact import redact

MOST_VERDICTS, MOST_NAMED, SHOWN_OF_ITEM, MOST_OF_LINE = 200, 3, 60, 400
BEFORE, AFTER, LINES_OF_REPORT, MOST_LINES = 12, 6, 40, 20_000
"""Lines before and behind an error that name its item, lines before a traceback in which the program says in words what it met, and
lines before the list in which errors of items are looked for."""
NAMED_BEFORE, NAMED_BEHIND, MOST_EPISODES = 4, 2, 400
"""How much it counts that a line before a traceback names an item, or one behind it; last tracebacks that are looked at."""
_PIECE = re.compile(r"[^\W_]+")
_QUOTED = re.compile(r"\"([^\"]{3,200})\"|'([^']{3,200})'")
_ERROR = re.compile(r"\b(?:ERROR|Error|error|FATAL|CRITICAL)\b")


class ItemError(NamedTuple):
    """What an item that failed printed."""

    item: str
    line: int
    text: str
    report: Line | None
    """A line right before a traceback in which the program says in words what it met; None without one."""


class FailedItems(NamedTuple):
    """Items that failed in a run that came to its end."""

    names: tuple[str, ...]
    total: int
    first: int
    """First line of the list of verdicts."""
    last: int
    errors: tuple[ItemError, ...]
    """At most one an item, in the order of the list."""

    @property
    def error_lines(self) -> frozenset[int]:
        """Lines of the job log in which the errors of those items stand."""
        numbers = {error.line for error in self.errors}
        return frozenset(numbers | {error.report.number for error in self.errors if error.report is not None})

    @property
    def sentence(self) -> str:
        """How many and which items failed, with the lines that list them."""
        listed = ", ".join(shorten(redact(name), SHOWN_OF_ITEM) for name in self.names[:MOST_NAMED])
        more = f" and {len(self.names) - MOST_NAMED} more" if len(self.names) > MOST_NAMED else ""
        return (
            f"Of the {self.total} items that it lists {len(self.names)} failed: {listed}{more} (job.log:{self.first}-{self.last})."
        )


def failed_items(facts: Facts) -> FailedItems | None:
    """Return the items that a run lists as failed at its end; None where all went well or it lists none."""
    if not facts.lines:
        return None
    last = facts.lines[-1].number
    verdicts = verdict_rows(facts.between(last - MOST_VERDICTS, last))
    bad = [text for text, is_good in verdicts.values() if not is_good]
    if not bad:
        return None
    names = tuple(row.partition(":")[0].strip() for row in bad)
    errors = tuple(_errors(dict(zip(names, bad, strict=True)), min(verdicts), facts))
    return FailedItems(names, len(verdicts), min(verdicts), max(verdicts), errors)


def _errors(rows: Mapping[str, str], list_begin: int, facts: Facts) -> Iterator[ItemError]:
    begin = max(list_begin - MOST_LINES, 1)  # each item may look like another start
    episodes = [episode for episode in facts.episodes if begin <= episode.first and episode.last < list_begin][-MOST_EPISODES:]
    surroundings = _surroundings(episodes, facts)
    free = list(range(len(episodes)))
    inside = {number for episode in episodes for number in range(episode.first, episode.last + 1)}
    for item, row in rows.items():
        pieces = {piece.lower() for piece in _PIECE.findall(item) if len(piece) > 1}
        if not pieces:
            continue
        fits = [(_fit(episodes[at], surroundings[at], pieces, row), -at) for at in free]
        best, at = max(fits, default=(0, 0))
        if best >= NAMED_BEHIND:
            free.remove(-at)
            exception = episodes[-at].raised[-1]
            yield ItemError(item, exception.line, exception.text, _report(episodes[-at], inside, facts))
        elif (line := _error_line(pieces, facts.between(begin, list_begin - 1), inside)) is not None:
            yield ItemError(item, line.number, line.text, None)


class _Surroundings(NamedTuple):
    """Words of the lines around a traceback, line by line, none of another traceback's."""

    before: list[set[str]]
    after: list[set[str]]


def _surroundings(episodes: Sequence[Episode], facts: Facts) -> list[_Surroundings]:
    around = []
    for at, episode in enumerate(episodes):
        first = max(episode.first - BEFORE, episodes[at - 1].last + 1 if at else 1)
        last = min(episode.last + AFTER, episodes[at + 1].first - 1 if at + 1 < len(episodes) else episode.last + AFTER)
        lines_before, lines_after = facts.between(first, episode.first), facts.between(episode.last, last)
        around.append(_Surroundings(_words(lines_before), _words(lines_after)))
    return around


def _words(lines: Sequence[Line]) -> list[set[str]]:
    return [{piece.lower() for piece in _PIECE.findall(line.text[:MOST_OF_LINE])} for line in lines]


def _fit(episode: Episode, around: _Surroundings, pieces: set[str], row: str) -> int:
    """Return how surely a traceback is of an item that lines before or behind it name; 1 more where its row quotes the message."""
    exception = episode.raised[-1].text
    quoted = any(any(piece and piece in exception for piece in pair) for pair in _QUOTED.findall(row))
    named_before = any(pieces <= words for words in around.before)
    named_behind = any(pieces <= words for words in around.after)
    return (NAMED_BEFORE if named_before else NAMED_BEHIND if named_behind else 0) + quoted


def _report(episode: Episode, inside: set[int], facts: Facts) -> Line | None:
    """Return the last line before a traceback in which the program says in words what it met."""
    for line in reversed(facts.between(episode.first - LINES_OF_REPORT, episode.first - 1)):
        text = facts.streams.body(line.text[:MOST_OF_LINE]).text.strip()
        if line.number in inside:
            return None
        if _ERROR.search(text) and tells_failure(text) and not text.endswith(":"):
            return line
    return None


def _error_line(pieces: set[str], lines: Sequence[Line], inside: set[int]) -> Line | None:
    """Return the first line that tells of a failure and names an item, itself or in the line before."""
    before: set[str] = set()
    for line in lines:
        words = {piece.lower() for piece in _PIECE.findall(line.text[:MOST_OF_LINE])}
        if line.number not in inside and pieces <= words | before and tells_failure(line.text):
            return line
        before = words
    return None
