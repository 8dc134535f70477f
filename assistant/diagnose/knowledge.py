"""What diagnosis knows: reasons, device codes and the compiled patterns, loaded together once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from assistant.content.reasons import Advice, Reason, advices, reasons
from assistant.diagnose.calibration import Curves, curves
from assistant.records import LearnedRule
from assistant.rules.learned import entries_of
from assistant.rules.matching import Patterns, load_patterns


@dataclass(frozen=True)
class Knowledge:
    """The shipped content with the site's over it."""

    reasons: Mapping[str, Reason]
    patterns: Patterns
    advices: tuple[Advice, ...] = ()
    """What to change by what a line says."""
    curves: Curves | None = None
    """What makes confidence honest; None leaves it as computed."""
    site: Path | None = None
    """The site's folder, for the tables of device codes; they are read when a case holds such a code."""
    hidden: frozenset[str] = frozenset()
    """Reasons that no device code may speak for: what a bench leaves out."""

    @classmethod
    def load(cls, site: Path | None = None) -> Knowledge:
        """Read and compile everything.

        Raises:
            ContentError: A file is malformed; the message names file, line and key.
        """
        return cls(reasons(site), load_patterns(site), advices(site), curves(site), site)

    def with_learned(self, rules: Iterable[LearnedRule], task: str = "") -> Knowledge:
        """Return this knowledge with learned rules on top; only those that count, of this task or any."""
        return replace(self, patterns=self.patterns.with_more(entries_of(rules, task)))
