"""What a person types into the search: a regular expression where it is one, else the text itself."""

from __future__ import annotations

import re
from collections.abc import Callable

from assistant.errors import ContentError
from assistant.rules.matching import search_in


def caseless(pattern: str) -> bool:
    """Return whether case does not matter: as long as no capital is typed."""
    return pattern == pattern.lower()


def highlighter(pattern: str) -> re.Pattern[str]:
    """Return the pattern for the text of lines."""
    flags = re.IGNORECASE if caseless(pattern) else re.NOFLAG
    try:
        return re.compile(pattern, flags)
    except re.error:
        return re.compile(re.escape(pattern), flags)


def finder(pattern: str) -> Callable[[bytes], list[int]]:
    """Return a function that gives the end offset of every match in a block."""
    wanted = highlighter(pattern)
    try:
        return search_in(wanted.pattern, caseless=caseless(pattern))
    except ContentError:  # a look-ahead, for instance: slower, but it can be searched for
        slow = re.compile(wanted.pattern.encode(), re.MULTILINE | (wanted.flags & re.IGNORECASE))
        return lambda block: [match.end() for match in slow.finditer(block)]
