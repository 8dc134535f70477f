"""What must hold when a node is taken out, or stayed away from, by itself."""

from __future__ import annotations

from collections.abc import Mapping

from assistant.records import Action, CallStatus, Diagnosis, Job
from assistant.recover.situation import ENOUGH, witnesses
from assistant.store import Store

FOUND_BY = {"check_nodes": ("faulty", "seconded"), "two_round_test": ("faulty",)}
"""Where reading tools list nodes that may be taken out."""


def one_sided(store: Store, incident: int, node: str) -> str:
    """Return what is wrong with taking a node out in an incident; empty when two witnesses spoke against it."""
    diagnosis = store.diagnosis(incident)
    said = witnesses(diagnosis, node) if diagnosis is not None else frozenset()
    if len(said) >= ENOUGH or _found(store, incident, node):
        return ""
    return f"{node} was taken out in incident {incident} although only {', '.join(said) or 'nobody'} spoke against it"


def same_nodes(diagnosis: Diagnosis | None, old: Job, new: Job, out: set[str]) -> str:
    """Return what is wrong with where a restart may run after a node verdict; empty when it cannot be the same set of nodes.

    Args:
        diagnosis: That it rests on.
        old: The attempt that failed.
        new: The restart.
        out: Nodes that take no jobs now.
    """
    if diagnosis is None or diagnosis.action is not Action.CORDON_AND_RESTART or new.spec is None or not old.nodes:
        return ""
    left = [node for node in old.nodes if node not in out and node not in new.spec.exclude]
    if len(left) < len(old.nodes):
        return ""
    return f"job {new.id} may run on the very nodes of job {old.id} after a node verdict: {', '.join(old.nodes)}"


def _found(store: Store, incident: int, node: str) -> bool:
    for call in store.calls(incident, status=CallStatus.DONE):
        outcome = store.outcome(call.id) if call.tool in FOUND_BY else None
        value = outcome.value if outcome is not None and isinstance(outcome.value, Mapping) else {}
        if any(node in value.get(key, ()) for key in FOUND_BY.get(call.tool, ())):
            return True
    return False
