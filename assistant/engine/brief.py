"""An incident in a few lines: how its report begins, and the numbered lines from which a language model may sum it up."""

from __future__ import annotations

from collections.abc import Iterator

from assistant.display import line
from assistant.engine.times import times_of
from assistant.records import Diagnosis, Risk
from assistant.recover.page_facts import advice_left, facts_of_page
from assistant.redact import redact
from assistant.store import Store
from assistant.tooling import found

MOST_LINES, MOST_NODES, MOST_CHANGES = 6, 8, 12
LONGEST = 300


def opening(summary: str, state: str, note: str) -> str:
    """Return how a report begins without a language model: the diagnosis' summary, and how things stand."""
    return f"{summary}\n\n**{state.capitalize()}:** {note}" if note else summary


def told_lines(store: Store, incident_id: int) -> list[str]:
    """Return what is known of an incident, a fact a line, without secrets; empty before there is a diagnosis.

    Raises:
        UsageError: There is no such incident.
    """
    store.incident(incident_id)
    diagnosis = store.diagnosis(incident_id)
    if diagnosis is None:
        return []
    return [_short(fact) for fact in _facts(store, incident_id, diagnosis)]


def _facts(store: Store, incident_id: int, diagnosis: Diagnosis) -> Iterator[str]:
    incident = store.incident(incident_id)
    yield f"incident {incident.id}: {incident.kind} of {incident.subject}, opened {incident.opened:%Y-%m-%d %H:%M}"
    yield f"reason: {diagnosis.reason}, {diagnosis.category}, confidence {diagnosis.confidence:.2f}"
    yield f"diagnosis: {diagnosis.summary}"
    for cited in diagnosis.root_cause[:MOST_LINES]:
        yield f"{cited.file}:{cited.line}: {cited.text}"
    for finding in diagnosis.nodes[:MOST_NODES]:
        yield f"node to blame: {finding.node}, {finding.why}"
    for call in store.calls(incident_id)[-MOST_CHANGES:]:
        if call.tool not in found() or found()[call.tool].risk is not Risk.READ:
            yield f"change, {call.status}: {call.preview or call.tool}"
    times = times_of(store, incident_id)
    if times.steps_lost is not None:
        yield f"restart from step {times.restart_step}, {times.steps_lost} steps lost"
    yield f"state: {incident.state}" + (f", {incident.note}" if incident.note else "")
    facts = facts_of_page(store, incident_id)
    yield from facts.undrained
    if advice := advice_left(diagnosis.advice, facts, incident, store):
        yield f"advice: {advice}"


def _short(text: str) -> str:
    return line(redact(text), LONGEST)
