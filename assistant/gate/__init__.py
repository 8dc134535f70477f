"""The gate: every command, playbook and agent acts through `Gate.call`, and nothing else acts.

Read `gate` first, then `targets` (what a call would change, and the question to a person), `consent` (what makes the answer
deliberate), `running` (the change itself) and `stops` (kill switch and breaker).
"""

from __future__ import annotations

from assistant.gate.gate import Gate
from assistant.gate.targets import AnswersFrom, Park, Preview

__all__ = ["AnswersFrom", "Gate", "Park", "Preview"]
