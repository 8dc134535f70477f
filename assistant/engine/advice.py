"""Incidents that need no diagnosis: what was noticed says all, nothing is done about it, and a person is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assistant.records import Event, EventKind, Incident, IncidentState
from assistant.store import Store


def hand_over(store: Store, incident: Incident, event: Event) -> bool:
    """Hand an incident to a person that was opened for mere advice; False for one that is to be diagnosed."""
    said = note_of(event)
    if not said:
        return False
    store.mark_stage(incident.id, "escalated")
    store.set_state(incident.id, IncidentState.ESCALATED, note=said)
    return True


def note_of(event: Event) -> str:
    """Return what a person is told about an event; empty where it has to be diagnosed first."""
    detail = event.detail
    if event.kind is EventKind.CHECKPOINTS_LATE:
        since, last, every = (_number(detail.get(key)) for key in ("steps_since", "last_step", "every_steps"))
        made = f"job {event.job} made {since} steps since its last checkpoint at step {last}, and saved every {every} before"
        return f"{made}. A failure now costs all of them: look at its log and at the storage that it saves to"
    return _nodes_down(event.node, detail) if event.kind is EventKind.NODE_DOWN and event.job is None else ""


def _nodes_down(node: str | None, detail: Mapping[str, Any]) -> str:
    nodes, jobs = list(detail.get("nodes", ())) or [node], list(detail.get("jobs", ()))
    many = len(nodes) > 1
    reason = f" ({detail['reason']})" if detail.get("reason") else ""
    return (
        f"{len(nodes)} nodes are down: {', '.join(map(str, nodes))}{reason}" if many else f"node {nodes[0]} is down{reason}"
    ) + f"; job {', '.join(map(str, jobs))} is still shown as running there"


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
