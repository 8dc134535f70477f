"""Let several proposals of a model vote on one pattern (self-consistency), before anything is proven.

Two patterns are the same vote when they match the same of the lines at hand, however they are written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from assistant.errors import ContentError
from assistant.linear_patterns import holds, linear_pattern
from assistant.rules.matching import MARKS
from assistant.rules.redos import RefusedPattern, shape_of

TIMES = 5
"""Proposals that are asked for."""


class PatternVote(NamedTuple):
    """What came of the proposals."""

    pattern: str
    """The shortest of the largest group; empty when no group has the majority."""
    votes: int
    """How many proposals mean the same as it."""
    asked: int
    refused: tuple[tuple[str, str], ...]
    """Proposals that were not counted, with why."""


class ScriptedWriter:
    """A `RuleWriter` that proposes what it was told, in turn, and then begins anew."""

    def __init__(self, proposals: Iterable[str], name: str = "scripted") -> None:
        self.name = name
        self.asked: list[tuple[str, ...]] = []
        """The lines of each question."""
        self._proposals = tuple(proposals)

    def propose(self, lines: Sequence[str]) -> str:
        """Return the next proposal."""
        self.asked.append(tuple(lines))
        return self._proposals[(len(self.asked) - 1) % len(self._proposals)]


def voted(
    propose: Callable[[Sequence[str]], str], lines: Sequence[str], other_lines: Sequence[str] = (), *, times: int = TIMES
) -> PatternVote:
    """Ask several times for a pattern of some lines and return the one that more than half of the answers mean.

    A pattern that is unsafe, or does not match one of the lines, has no vote; nothing unsafe is ever run.

    Args:
        propose: Is asked; `propose` of a `RuleWriter`.
        lines: That a pattern is wanted for.
        other_lines: Lines that should not match; they tell proposals apart.
        times: How often.
    """
    groups: Mapping[frozenset[int], list[str]] = defaultdict(list)
    refused: list[tuple[str, str]] = []
    for _ in range(times):
        pattern = ended(propose(lines).strip())
        try:
            shape_of(pattern)
            covered = _covered(pattern, [*lines, *other_lines])
        except (RefusedPattern, ContentError) as error:
            refused.append((pattern, str(error)))
            continue
        if set(range(len(lines))) <= covered:
            groups[covered].append(pattern)
        else:
            refused.append((pattern, "it does not match all lines that it was asked for"))
    best = max(groups.values(), key=lambda group: (len(group), -min(map(len, group))), default=[])
    agreed = 2 * len(best) > times
    return PatternVote(min(best, key=lambda pattern: (len(pattern), pattern)) if agreed else "", len(best), times, tuple(refused))


def ended(pattern: str) -> str:
    """Return a pattern whose bare `$` at the end is `(?:$)`, so that alarm words still count."""
    return f"{pattern[:-1]}(?:$)" if pattern.endswith("$") and not pattern.endswith(r"\$") else pattern


def _covered(pattern: str, lines: Sequence[str]) -> frozenset[int]:
    marked_pattern = linear_pattern(f"^{MARKS}{pattern[1:]}" if pattern.startswith("^") else pattern, multiline=False)
    return frozenset(number for number, line in enumerate(lines) if holds(marked_pattern, line))
