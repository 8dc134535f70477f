r"""Match patterns of content, of sites, of learned rules and of people in time linear in the text: RE2 instead of `re`.

Hyperscan tells which pattern matches which line, but reads no groups. `re` reads them by trying every way in which a pattern can
match: `ranks? (?:\d+[, ]*)+are missing` takes years on a line of forty digits, and whoever runs a job writes the line. RE2 follows
all ways at once, so it has no look-around and no back-references, as Hyperscan has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol, cast

from assistant.errors import ContentError, UsageError

MOST_REPEATS = 1_000
"""RE2's limit on the numbers of `{least,most}`; a larger `most` counts as no end, for a line is cut to 4 KiB anyway."""
_PIECE = re.compile(r"\\.|\[(?:\^?\]|\^)?(?:\\.|[^\]\\])*+(?:\]|\Z)|\{(?P<least>\d{0,9}),(?P<most>\d{1,9})\}", re.DOTALL)


class LinearPattern(Protocol):
    """A compiled pattern of RE2, which works on bytes of UTF-8."""

    @property
    def groupindex(self) -> Mapping[bytes, int]:
        """Names of groups, and their numbers."""

    def search(self, text: bytes, pos: int = 0) -> Any:
        """Return the leftmost match from an offset on, as `re` does; None where there is none."""

    def fullmatch(self, text: bytes) -> Any:
        """Return the match of the whole text; None where there is none."""

    def finditer(self, text: bytes) -> Iterator[Any]:
        """Yield the matches that do not overlap, from the left."""


@lru_cache(maxsize=8192)
def linear_pattern(pattern: str, *, caseless: bool = False, multiline: bool = True) -> LinearPattern:
    r"""Return a pattern compiled by RE2; classes such as `\w` are of ASCII.

    Args:
        pattern: As Hyperscan takes it.
        caseless: Capital and small letters are the same.
        multiline: Whether `^` and `$` also mean the ends of lines.

    Raises:
        ContentError: RE2 refuses it: look-around, a back-reference, an atomic group, a repeat of more than 1,000.
    """
    return _compiled(f"(?m){pattern}" if multiline else pattern, pattern, case_sensitive=not caseless)


@lru_cache(maxsize=64)
def typed_pattern(pattern: str, *, caseless: bool) -> LinearPattern:
    r"""Return a pattern that somebody typed, for blocks of lines: no match reaches beyond its line, and groups are not kept.

    Args:
        pattern: Of one line; `^` and `$` are its ends, classes such as `\w` are of ASCII.
        caseless: Capital and small letters are the same.

    Raises:
        UsageError: RE2 refuses it; the message says what it cannot do and what to type instead.
    """
    try:
        return _compiled(f"(?m){pattern}", pattern, case_sensitive=not caseless, never_nl=True, never_capture=True)
    except ContentError as error:
        reason = str(error.__cause__.args[0] if error.__cause__ is not None and error.__cause__.args else error)
        reason = reason[2:-1] if reason.startswith("b'") else reason
        reason = reason.replace("(?m)", "")  # ours, not the writer's
        raise UsageError(
            f"pattern {pattern[:200]!r}: {reason}. Searches are run by RE2, so that none can take for ever: it has no look-around, "
            "back-references or possessive repeats, and repeats at most 1,000 times; write it without"
        ) from error


def _compiled(source: str, pattern: str, **options: bool) -> LinearPattern:
    import re2

    re2_options = re2.Options()
    re2_options.log_errors = False
    for name, value in options.items():
        setattr(re2_options, name, value)
    try:
        return cast(LinearPattern, re2.compile(_PIECE.sub(_repeat, source).encode("utf-8", "replace"), re2_options))
    except re2.error as error:
        message = error.args[0] if error.args else ""
        text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        text = text.replace("(?m)", "")  # ours, not the writer's
        raise ContentError(f"pattern {pattern[:200]!r}: {text}; write it as RE2 takes it, without look-around") from error


def _repeat(match: re.Match[str]) -> str:
    if match["most"] is None or int(match["most"]) <= MOST_REPEATS:
        return match.group()
    return f"{{{match['least'] or 0},}}"


def holds(pattern: LinearPattern, text: str) -> bool:
    """Tell whether a pattern matches anywhere in a text."""
    return pattern.search(text.encode("utf-8", "replace")) is not None


def group_names(pattern: LinearPattern) -> frozenset[str]:
    """Return the names of a pattern's groups."""
    return frozenset(name.decode() for name in pattern.groupindex)


def named_groups(pattern: LinearPattern, text: str) -> dict[str, str]:
    """Return the named groups of the leftmost match, without those that took no part; empty when nothing matches."""
    match = pattern.search(text.encode("utf-8", "replace"))
    if match is None:
        return {}
    groups: dict[bytes, bytes | None] = match.groupdict()
    return {name.decode(): value.decode("utf-8", "replace") for name, value in groups.items() if value is not None}
