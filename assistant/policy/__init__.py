"""What may be done: the terms are data (knowledge/policy.toml), the decision is a pure function of them and the situation."""

from __future__ import annotations

from assistant.policy.decision import Past, Request, Situation, decide, sits_at_a_door
from assistant.policy.terms import (
    Breaker,
    KindTerms,
    Limits,
    Mode,
    PlaceLimits,
    Policy,
    Protected,
    Targets,
    Window,
    load_policy,
    policy_file,
)

__all__ = [
    "Breaker",
    "KindTerms",
    "Limits",
    "Mode",
    "Past",
    "PlaceLimits",
    "Policy",
    "Protected",
    "Request",
    "Situation",
    "Targets",
    "Window",
    "decide",
    "load_policy",
    "policy_file",
    "sits_at_a_door",
]
