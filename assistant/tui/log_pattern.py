"""What a person types into the search of the log view: a regular expression where it is one, else the text itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from assistant.errors import UsageError
from assistant.linear_patterns import LinearPattern, typed_pattern
from assistant.logs.search import Ends, typed_search

LONGEST_PATTERN = 1_000
"""Characters; what is longer was pasted, and is searched for as far as that."""


class Highlighter(NamedTuple):
    """Finds what matches in the text of one line."""

    pattern: LinearPattern

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of every match that is not empty, in characters."""
        raw = text.encode("utf-8", "replace")
        wide = len(raw) != len(text)
        for match in self.pattern.finditer(raw):
            start, end = match.span()
            if start < end:
                first_column = len(raw[:start].decode("utf-8", "replace")) if wide else start
                yield first_column, first_column + len(raw[start:end].decode("utf-8", "replace"))


def caseless(pattern: str) -> bool:
    """Return whether case does not matter: as long as no capital is typed."""
    return pattern == pattern.lower()


def highlighter(pattern: str) -> Highlighter:
    """Return what finds the matches in lines that are on the screen."""
    expression, _ = _as_pattern(pattern)
    return Highlighter(typed_pattern(expression, caseless=caseless(pattern)))


def finder(pattern: str) -> tuple[Ends, str]:
    """Return what finds the lines of a block that match, and why the pattern is searched for as text; empty when it is not."""
    expression, refusal = _as_pattern(pattern)
    return typed_search(expression, caseless=caseless(pattern)), refusal


def _as_pattern(pattern: str) -> tuple[str, str]:
    """Return the regular expression to search for, and why it is not the one that was typed."""
    pattern = pattern[:LONGEST_PATTERN]
    try:
        typed_pattern(pattern, caseless=caseless(pattern))
    except UsageError as error:
        return re.escape(pattern), f"searched for as text: {error}"
    return pattern, ""
