"""A cordon that this store made long ago: a reason in the scheduler counts as ours only with the call that wrote it."""

from __future__ import annotations

from datetime import timedelta

from assistant.records import Call, CallStatus, tag_of
from assistant.store import Store


def earlier_cordon(store: Store, node: str) -> str:
    """Write the call down and return its tag."""
    at = store.clock.now() - timedelta(days=30)
    call = Call(0, None, "cordon_node", {"node": node, "reason": "ecc_error"}, "earlier", "cli:bob", at, CallStatus.DONE)
    return tag_of(store.store_id, None, store.write_call(call, kind="cordon").id)
