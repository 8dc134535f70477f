"""The gate: every door, playbook and agent acts through `Gate.call`, and nothing else acts."""

from __future__ import annotations

from assistant.gate.approvers import AnswersFrom, Park
from assistant.gate.asking import Preview
from assistant.gate.gate import Gate

__all__ = ["AnswersFrom", "Gate", "Park", "Preview"]
