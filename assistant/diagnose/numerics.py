"""Tell a job that ended over its own numbers: a loss or gradient that is no number, a loss scale with nowhere to go.

Frameworks raise whatever class is at hand for it (`FloatingPointError`, `ValueError`, `Exception`), or print a line and exit. After
healthy steps that is a divergence, to be answered with an earlier checkpoint; before them it is a fault of the set-up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.content.reasons import Role
from assistant.diagnose.facts import Facts
from assistant.diagnose.weighing.findings import Finding

HEALTHY_STEPS = 5
"""Steps before the end that show a set-up which could train."""
_ENDS = re.compile(r"stopp|abort|exit|terminat|quit|halt|raise", re.IGNORECASE)


def died_of_numbers(told: Sequence[Finding], causes: Sequence[Finding], facts: Facts) -> Finding | None:
    """Return the finding that says so, None where there is none or another cause is stronger.

    Args:
        told: Weighed findings of endings.
        causes: Weighed findings of errors that could be the cause.
        facts: For the steps before.
    """
    said = [f for f in told if f.reason == "loss_spike" and f.role is Role.ROOT and f.strength >= 0.5 and _final(f)]
    if not said:
        return None
    first = min(said, key=lambda f: (f.line, -f.strength))
    lines = {f.line for f in said} | {number for f in said for number, _ in f.more}
    others = [c for c in causes if c.line not in lines or c.file != first.file]
    if any(c.strength > first.strength or (c.strength >= 0.5 and c.line < first.line) for c in others):
        return None
    contested = any(c.line in lines for c in causes)
    return None if contested and facts.progress.before(first.line) < HEALTHY_STEPS else first


def _final(finding: Finding) -> bool:
    """Tell whether a process ended with it: an exception, or a line that announces the end."""
    return finding.episode is not None or finding.orphan or _ENDS.search(finding.text) is not None
