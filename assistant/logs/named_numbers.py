"""Patterns for a number behind its name, as programs print them in the lines of steps. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+|(?i:nan|inf(?:inity)?))"
_LONGEST_LEAD = 24
"""Characters of a name in front of its literal, at most: `global gradient_`, `optim/total grad_`."""


class NumberPattern(NamedTuple):
    """A pattern for a number behind its name, which is not tried where the line cannot hold that name."""

    pattern: re.Pattern[str]
    literals: tuple[str, ...]
    """Each match holds one of them, not far behind its begin."""

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Return the first match: what `pattern.search` returns, in a fraction of its time."""
        begins = [at for literal in self.literals if (at := text.find(literal, start)) >= 0]
        return self.pattern.search(text, max(start, min(begins) - _LONGEST_LEAD)) if begins else None


def number_after(words: str, *literals: str) -> NumberPattern:
    """Return a pattern for the number that follows; a longer word or number is none.

    Args:
        words: Pattern of the name.
        literals: Each name holds one of them, behind `_LONGEST_LEAD` characters at most.
    """
    return NumberPattern(re.compile(rf"{words}\s{{0,16}}+({_NUMBER})(?![\w.]{{0,255}}\w)"), literals)
