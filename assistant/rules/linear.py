r"""Match patterns of content, of sites and of learned rules in time linear in the text: RE2 instead of `re`.

Hyperscan tells which pattern matches which line, but reads no groups. `re` reads them by trying every way in which a pattern can
match: `ranks? (?:\d+[, ]*)+are missing` takes years on a line of forty digits, and whoever runs a job writes the line. RE2 follows
all ways at once, so it has no look-around and no back-references, as Hyperscan has none.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Protocol, cast

from assistant.errors import ContentError

MOST_REPEATS = 1_000
"""RE2's limit on the numbers of `{least,most}`; a larger `most` counts as no end, for a line is cut to 4 KiB anyway."""
_PIECE = re.compile(r"\\.|\[(?:\^?\]|\^)?(?:\\.|[^\]\\])*+(?:\]|\Z)|\{(?P<least>\d{0,9}),(?P<most>\d{1,9})\}", re.DOTALL)


class LinearPattern(Protocol):
    """A compiled pattern of RE2, which works on bytes of UTF-8."""

    def search(self, text: bytes) -> Any:
        """Return the leftmost match, as `re` does; None where there is none."""


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
    import re2

    options = re2.Options()
    options.case_sensitive, options.log_errors = not caseless, False
    written = _PIECE.sub(_repeat, pattern).encode("utf-8", "replace")
    try:
        return cast(LinearPattern, re2.compile(b"(?m)" + written if multiline else written, options))
    except re2.error as error:
        message = error.args[0] if error.args else ""
        text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        raise ContentError(f"pattern {pattern[:200]!r}: {text}; write it as RE2 takes it, without look-around") from error


def _repeat(match: re.Match[str]) -> str:
    if match["most"] is None or int(match["most"]) <= MOST_REPEATS:
        return match.group()
    return f"{{{match['least'] or 0},}}"


def holds(pattern: LinearPattern, text: str) -> bool:
    """Tell whether a pattern matches anywhere in a text."""
    return pattern.search(text.encode("utf-8", "replace")) is not None


def named_groups(pattern: LinearPattern, text: str) -> dict[str, str]:
    """Return the named groups of the leftmost match, without those that took no part; empty when nothing matches."""
    match = pattern.search(text.encode("utf-8", "replace"))
    if match is None:
        return {}
    named: dict[bytes, bytes | None] = match.groupdict()
    return {name.decode(): value.decode("utf-8", "replace") for name, value in named.items() if value is not None}
