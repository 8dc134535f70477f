"""Exclusion: while a change of a node, job or run has begun and is undecided, no other change of it begins."""

from __future__ import annotations

from assistant.errors import TargetBusy
from assistant.gate.targets import Reach
from assistant.records import Call
from assistant.store import Store
from assistant.store.calls import PastCall

__all__ = ["must_be_alone"]

STARTING = frozenset({"resubmit", "requeue"})
"""Action classes that bring a run back: two of them on one run would write over the same checkpoints."""


def must_be_alone(store: Store, call: Call, kind: str, reach: Reach) -> None:
    """Make sure that no other call is changing what a call would change; ask inside the transaction that writes its intent.

    A person's approved call is refused, too: its approval stands, and it can be asked for again.

    Raises:
        TargetBusy: Another call has begun and has no outcome.
    """
    for other in store.undecided():
        if other.call == call.id:
            continue
        shared = _shared(other, kind, reach)
        if shared:
            age_s = max(0.0, (store.clock.now() - other.at).total_seconds())
            begun = store.call(other.call)
            raise TargetBusy(
                f"call {call.id} ({call.preview or call.tool}) must wait: {other.by} is making call {other.call} on {shared}, "
                f"{_ago(age_s)} ago ({begun.preview or begun.tool}), and what came of it is not known yet. Nothing was changed and "
                "an approval is kept: ask again. If that process is gone, `nightshift resume` finds out what it did"
            )


def _shared(other: PastCall, kind: str, reach: Reach) -> str:
    """Return what two calls would both change, for people; empty where nothing is."""
    nodes = sorted({*reach.targets.nodes} & {*other.targets.get("nodes", ())})
    jobs = sorted({*reach.job_ids} & {*other.targets.get("jobs", ())})
    if nodes or jobs:
        return ", ".join([*nodes, *(f"job {job}" for job in jobs)])
    same_run = {*reach.runs} & {*other.targets.get("runs", ())}
    if same_run and STARTING & {kind, other.kind}:
        return f"the run of job {', '.join(other.targets.get('jobs', ()))}"
    return ""


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
