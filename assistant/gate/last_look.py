"""What was true of a call when it was allowed, to be compared right before each of its commands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from assistant.gate.targets import Reach
from assistant.records import Decision

__all__ = ["LastLook"]


@dataclass
class LastLook:
    """The decision that allowed a call, and what it was decided on."""

    decision: Decision
    reach: Reach
    """Nodes and jobs, as the scheduler showed them."""
    at: datetime
    """When the scheduler was asked for them."""
    fresh_for: timedelta = timedelta(seconds=1)
    """How long the scheduler's answer counts as now: policy, switches, breaker and windows are looked at before each command."""
    commands: int = 0
    """How many commands of the call were let through."""
