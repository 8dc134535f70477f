"""Prove of a filter that it hides no error, before it is used.

Shipped filters are proven by the contract tests, those of a site when they are loaded. While a log is scanned the same is enforced
once more: a line that a signature matches is never covered, and a line with an alarm word only by a filter that describes
all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from assistant.content.reading import Filter
from assistant.errors import ContentError
from assistant.rules.matching import Patterns, describes_whole_lines, matches


class Flaw(NamedTuple):
    """Why a filter must not be used."""

    filter: str
    """Its id."""
    line: str
    """The line that shows it."""
    what: str


def hidden_errors(entry: Filter, lines: Iterable[str], patterns: Patterns) -> list[Flaw]:
    """Return the protected lines that the filter would hide; there must be none."""
    return [Flaw(entry.id, line, "it would hide this line") for line in lines if matches(entry, line) and patterns.hides(line)]


def swallowed_errors(entry: Filter, lines: Sequence[str]) -> list[Flaw]:
    """Return the protected lines that a filter of whole lines takes for part of its own when they are printed right behind.

    That happens: processes share a terminal, and progress bars end without a newline. Filters of another kind are held back by the
    alarm words.
    """
    if not describes_whole_lines(entry):
        return []
    glued = [example + line for example in entry.examples for line in lines]
    return [Flaw(entry.id, line, "it would hide an error behind it") for line in glued if matches(entry, line)]


def own_mistakes(entry: Filter, patterns: Patterns) -> list[Flaw]:
    """Return what is wrong with the filter's own examples: one that it does not match once, or only with certain digits."""
    found_flaws: list[Flaw] = []
    for example in entry.examples:
        if not matches(entry, example):
            found_flaws.append(Flaw(entry.id, example, "it does not match its own example"))
        elif not patterns.hides(example):
            found_flaws.append(Flaw(entry.id, example, "its example is not hidden: a signature or an alarm word matches it"))
        for digit in "0379":
            changed = re.sub(r"\d", digit, example)
            if matches(entry, example) and not matches(entry, changed):
                found_flaws.append(Flaw(entry.id, changed, "it cares which digits stand in a line"))
    return found_flaws


def prove(entries: Sequence[Filter], lines: Sequence[str], patterns: Patterns) -> None:
    """Check filters against the protected corpus.

    Raises:
        ContentError: A filter could hide an error, or does not do what its examples say.
    """
    for entry in entries:
        flaws = [*own_mistakes(entry, patterns), *hidden_errors(entry, lines, patterns), *swallowed_errors(entry, lines)]
        if flaws:
            raise ContentError(f"filter {entry.id!r} cannot be used: {flaws[0].what}: {flaws[0].line!r} ({len(flaws)} such lines)")
