"""Find out what came of calls that nobody comes back to: the incident they were made for is over, or they belong to none."""

from __future__ import annotations

import logging
from datetime import timedelta

from assistant.engine.leases import STEP
from assistant.errors import Denied, Parked, StoreBusy, Unavailable, UsageError
from assistant.gate import Gate
from assistant.records import Call, CallStatus, Risk
from assistant.store import Store
from assistant.tooling import find_tool

logger = logging.getLogger(__name__)

AGE = timedelta(minutes=10)
"""Longer than any one call takes: before that the process that makes it may still be at it."""


def settle_left_open(store: Store, gate: Gate) -> list[Call]:
    """Look up the changing calls that were begun, have no outcome, and are nobody's any more; return those that were settled."""
    settled = []
    for call in store.calls(status=CallStatus.INTENT):
        if call.step == STEP or find_tool(call.tool).risk is Risk.READ or not _left(store, call):
            continue
        try:
            if call.step is None:
                gate.go_on(call.id)
            elif gate.resolve(call) is None:
                gate.give_up(call)
        except (Denied, Parked, Unavailable, UsageError, StoreBusy) as error:
            logger.warning("call=%s was begun and what came of it is not known: %s", call.id, error)
            continue
        settled.append(store.call(call.id))
    return settled


def _left(store: Store, call: Call) -> bool:
    if call.incident is not None and not store.incident(call.incident).state.ended:
        return False
    decided = store.decisions(call.id)
    return store.clock.now() - (decided[-1].at if decided else call.at) >= AGE
