"""What may be done: the terms are data, read whole from their files; the decision is a pure function of them and the situation.

Read `terms` and `names` (which jobs, accounts and nodes a name in them stands for), then `loading` (files to terms, and which terms
hold now), `brakes` (without which nothing acts) and `decision`.
"""

from __future__ import annotations

from assistant.policy.decision import PriorChange, Request, Situation, decide, hourly_hard_limit, sits_at_a_door
from assistant.policy.loading import (
    LoadedPolicy,
    PolicyInForce,
    PolicyRecord,
    PolicyStanding,
    load_policy,
    load_policy_files,
    short_digest,
    site_policy_file,
)
from assistant.policy.terms import (
    Breaker,
    ChangeLimits,
    KindTerms,
    Mode,
    PlaceLimits,
    Policy,
    Protected,
    Targets,
    Window,
)

__all__ = [
    "Breaker",
    "ChangeLimits",
    "KindTerms",
    "LoadedPolicy",
    "Mode",
    "PlaceLimits",
    "Policy",
    "PolicyInForce",
    "PolicyRecord",
    "PolicyStanding",
    "PriorChange",
    "Protected",
    "Request",
    "Situation",
    "Targets",
    "Window",
    "decide",
    "hourly_hard_limit",
    "load_policy",
    "load_policy_files",
    "short_digest",
    "site_policy_file",
    "sits_at_a_door",
]
