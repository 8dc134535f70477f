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
    for undecided_call in store.undecided():
        if undecided_call.call == call.id:
            continue
        shared = _shared(undecided_call, kind, reach)
        if shared:
            age_s = max(0.0, (store.clock.now() - undecided_call.at).total_seconds())
            begun_call = store.call(undecided_call.call)
            raise TargetBusy(
                f"call {call.id} ({call.preview or call.tool}) must wait: "
                f"{undecided_call.by} is making call {undecided_call.call} on {shared}, "
                f"{_ago(age_s)} ago ({begun_call.preview or begun_call.tool}), "
                f"and what came of it is not known yet. Nothing was changed and "
                "an approval is kept: ask again. If that process is gone, `nightshift resume` finds out what it did"
            )


def _shared(undecided_call: PastCall, kind: str, reach: Reach) -> str:
    """Return what two calls would both change, for people; empty where nothing is."""
    nodes = sorted({*reach.targets.nodes} & {*undecided_call.targets.get("nodes", ())})
    jobs = sorted({*reach.job_ids} & {*undecided_call.targets.get("jobs", ())})
    if nodes or jobs:
        return ", ".join([*nodes, *(f"job {job}" for job in jobs)])
    same_run = {*reach.runs} & {*undecided_call.targets.get("runs", ())}
    if same_run and STARTING & {kind, undecided_call.kind}:
        return f"the run of job {', '.join(undecided_call.targets.get('jobs', ()))}"
    return ""


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
