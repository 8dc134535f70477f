"""Open the breaker by itself when too much happens: where many things go wrong at once, one more action is a guess."""

from __future__ import annotations

import dataclasses
import logging

from assistant.policy import Breaker, Policy
from assistant.store import Store
from assistant.store.breaker import Lately, count_lately, last_period, open_breaker

__all__ = ["BY", "open_if_due", "too_much"]

logger = logging.getLogger(__name__)

BY = "breaker"
"""In whose name it opens."""
_WORDS = {
    "machine_failures": "incidents were the machine's fault",
    "failed_actions": "actions failed or brought nothing back",
    "refused_actions": "actions were refused by a limit",
}


def too_much(lately: Lately, terms: Breaker) -> str:
    """Return why the breaker is to be opened, empty when it is not."""
    for field in dataclasses.fields(Breaker):
        most, count = getattr(terms, field.name), getattr(lately, field.name)
        if most is not None and count >= most:
            return f"{count} {_WORDS[field.name]} within an hour; {most} open the breaker"
    return ""


def open_if_due(store: Store, policy: Policy) -> bool:
    """Open it when the last hour was too much; False when it stays as it is: so where all is only observed."""
    if policy.only_observes or policy.breaker == Breaker():
        return False
    period = last_period(store)
    if period is not None and period.until is None:
        return False
    why = too_much(count_lately(store, period.until if period is not None else None), policy.breaker)
    if not why or not open_breaker(store, why=why, by=BY):
        return False
    logger.error("the breaker stops all changes: %s", why)
    return True
