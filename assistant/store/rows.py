"""Rows of tables into records and back. Every text that goes in loses its secrets here."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from assistant.records import (
    Action,
    Call,
    CallStatus,
    Category,
    Citation,
    DecidedBy,
    Decision,
    Diagnosis,
    Event,
    EventKind,
    Evidence,
    Incident,
    IncidentState,
    NodeFinding,
    NodePattern,
    Outcome,
    PatternKind,
    Recall,
    Rival,
    Verdict,
    Whereabouts,
)
from assistant.redact import redact, redact_value

__all__ = [
    "call_of",
    "clean",
    "decision_of",
    "diagnosis_of",
    "event_of",
    "evidence_of",
    "incident_of",
    "outcome_of",
    "packed",
    "time_of",
    "time_text",
    "unpacked",
]


def time_text(at: datetime) -> str:
    """Return a time as the store keeps it: RFC 3339, UTC, microseconds, so that the order of texts is the order of times.

    Raises:
        ValueError: The time carries no offset.
    """
    if at.tzinfo is None:
        raise ValueError(f"a time must be aware, not {at!r}")
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def time_of(text: str | None) -> datetime | None:
    """Return the time of a column; None stays None."""
    return None if text is None else datetime.fromisoformat(text)


def clean(text: str) -> str:
    """Return a text as it may go to disk: no secrets, valid UTF-8."""
    return redact(text.encode("utf-8", "replace").decode("utf-8"))


def packed(value: Any) -> str:
    """Return a value as JSON text without secrets, keys in order.

    Raises:
        TypeError: It holds something that JSON cannot say.
    """
    text = json.dumps(redact_value(plain(value)), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode("utf-8")


def plain(value: Any) -> Any:
    """Return dataclasses as objects, enums as their value, paths and times as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return time_text(value)
    return str(value) if isinstance(value, Path) else value


def unpacked(text: str) -> Any:
    """Return the value of a JSON column."""
    return json.loads(text)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def place_of(event: Event) -> str | None:
    """Return what the column `node` holds of an event: of an outage the service, since it is about no node."""
    return event.service if event.kind is EventKind.OUTAGE else event.node


def _node_and_service(row: sqlite3.Row) -> tuple[str | None, str | None]:
    return (None, row["node"]) if row["kind"] == EventKind.OUTAGE else (row["node"], None)


def incident_of(row: sqlite3.Row) -> Incident:
    """Return the incident of a row."""
    node, service = _node_and_service(row)
    return Incident(
        id=row["id"],
        state=IncidentState(row["state"]),
        job=row["job"],
        attempt=row["attempt"],
        node=node,
        kind=EventKind(row["kind"]),
        opened=_time(row["opened"]),
        failed_at=time_of(row["failed_at"]),
        closed=time_of(row["closed"]),
        owner=row["owner"],
        lease_until=time_of(row["lease_until"]),
        playbook=row["playbook"],
        playbook_digest=row["playbook_digest"],
        note=row["note"],
        parent=row["parent"],
        service=service,
    )


def event_of(row: sqlite3.Row) -> Event:
    """Return the event of a row."""
    node, service = _node_and_service(row)
    detail = unpacked(row["detail"])
    return Event(EventKind(row["kind"]), row["job"], node, _time(row["at"]), detail, row["attempt"], service)


def evidence_of(row: sqlite3.Row) -> Evidence:
    """Return the evidence of a row."""
    return Evidence(row["id"], row["incident"], row["source"], row["text"], unpacked(row["facts"]), _time(row["at"]))


def diagnosis_of(row: sqlite3.Row) -> Diagnosis:
    """Return the diagnosis of a row."""
    body = unpacked(row["body"])
    return Diagnosis(
        reason=row["reason"],
        category=Category(row["category"]),
        action=Action(row["action"]),
        confidence=row["confidence"],
        by=DecidedBy(row["by"]),
        root_cause=_citations(body["root_cause"]),
        nodes=tuple(NodeFinding(n["node"], n["why"], _citations(n["citations"])) for n in body["nodes"]),
        rivals=tuple(Rival(**rival) for rival in body["rivals"]),
        summary=body["summary"],
        advice=body["advice"],
        step=body["step"],
        spike_step=body["spike_step"],
        seen_before=tuple(_recall(item) for item in body.get("seen_before", ())),
        phase=body.get("phase", ""),
        tail=body.get("tail", ""),
        patterns=tuple(_pattern(item) for item in body.get("patterns", ())),
        where=tuple(Whereabouts(**{**item, "citations": _citations(item["citations"])}) for item in body.get("where", ())),
    )


def _recall(item: dict[str, Any]) -> Recall:
    return Recall(**{**item, "shared": tuple(item["shared"]), "at": datetime.fromisoformat(item["at"])})


def _pattern(item: dict[str, Any]) -> NodePattern:
    nodes, incidents = tuple(item["nodes"]), tuple(item["incidents"])
    return NodePattern(PatternKind(item["kind"]), nodes, item["text"], item["chance"], incidents)


def _citations(items: list[dict[str, Any]]) -> tuple[Citation, ...]:
    return tuple(Citation(**item) for item in items)


def call_of(row: sqlite3.Row) -> Call:
    """Return the call of a row."""
    return Call(
        id=row["id"],
        incident=row["incident"],
        tool=row["tool"],
        arguments=unpacked(row["arguments"]),
        why=row["why"],
        by=row["by"],
        at=_time(row["at"]),
        status=CallStatus(row["status"]),
        step=row["step"],
        preview=row["preview"],
        digest=row["digest"],
    )


def decision_of(row: sqlite3.Row) -> Decision:
    """Return the decision of a row."""
    return Decision(Verdict(row["verdict"]), row["rule"], row["by"], _time(row["at"]), row["why"], row["policy"])


def outcome_of(row: sqlite3.Row) -> Outcome:
    """Return the outcome of a row."""
    return Outcome(row["call"], bool(row["ok"]), unpacked(row["value"]), row["error"], _time(row["at"]))
