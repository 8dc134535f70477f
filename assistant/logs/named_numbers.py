"""Patterns for a number, or a name of data, behind its name, as programs print them in the lines of steps. Pure."""

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


DATA_NAME = re.compile(
    r"(?<![\w./-])[\"']?(?i:data_?(?:set|source)?|domain|corpus|subset|phase|stage|curriculum(?:_stage)?|mixture|task|lang(?:uage)?)[\"']?"
    r"\s{0,4}[:=]\s{0,4}[\"']?([A-Za-z][\w-]{0,60}|\d{1,3}(?![\w.]))"
)
"""What a line of a step says that it is trained on; numbers with a point are times and shares."""
_DATA_LETTERS = ("ata", "ATA", "omain", "orpus", "ubset", "hase", "tage", "urric", "ixture", "ask", "ang")


def data_name(text: str) -> re.Match[str] | None:
    """Return where a line names its data or stage in its first group; None where it names none."""
    return DATA_NAME.search(text) if any(letters in text for letters in _DATA_LETTERS) else None
