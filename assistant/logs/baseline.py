"""What a task's logs look like when all is well, and what in a failing run was never seen there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assistant.logs.grouping import Fitting
from assistant.logs.masks import masked
from assistant.logs.templates import LONGEST, templates_of


@dataclass(frozen=True)
class Baseline:
    """The templates of the last good runs of a task."""

    runs: int
    """How many good runs are known; without one nothing counts as new."""
    seen: Mapping[str, int]
    """In how many of them a template was seen, by its text."""

    @classmethod
    def of(cls, states: Iterable[Mapping[str, Any]]) -> Baseline:
        """Return the baseline of stored states, as `Store.templates` gives them."""
        runs = [{template.text for template in templates_of(state)} for state in states]
        filled_runs = [run for run in runs if run]
        return cls(len(filled_runs), Counter(text for run in filled_runs for text in run))

    @cached_property
    def _fitting(self) -> Fitting:
        return Fitting(self.seen)

    def share(self, key: str) -> float:
        """Return the share of good runs that had the template of a masked line, 0..1."""
        fitting_key = self._fitting.find(key)
        return 0.0 if fitting_key is None else self.seen[fitting_key] / self.runs


def novelty(lines: Sequence[str], baseline: Baseline) -> list[float]:
    """Return for each line how new it is: 1 when no good run had its template, 0 when all had; 0 for blank ones.

    Without a good run nothing is known to be new, and all are 0. Pure.

    Args:
        lines: Cleaned texts.
        baseline: Of the task.
    """
    if not baseline.runs:
        return [0.0] * len(lines)
    novelty_by_key: dict[str, float] = {}
    shares: list[float] = []
    for line in lines:
        key = masked(line[:LONGEST])
        if key not in novelty_by_key:
            novelty_by_key[key] = 1.0 - baseline.share(key) if key.strip() else 0.0
        shares.append(novelty_by_key[key])
    return shares
