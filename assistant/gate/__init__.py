"""The gate: every command, playbook and agent acts through `Gate.call`, and nothing else acts.

Read `gate` first, then `targets` (what a call would change), `approvers` (the question to a person), `running` (the change itself)
and `stops` (kill switch and breaker).
"""

from __future__ import annotations

from assistant.gate.approvers import AnswersFrom, Park, Preview
from assistant.gate.gate import Gate

__all__ = ["AnswersFrom", "Gate", "Park", "Preview"]
