"""An incident as a page for people: what happened, why, what was done, what is left to do. Pure reading of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from assistant.display import markdown, markdown_code, shorten
from assistant.engine.brief import opening, told_lines
from assistant.engine.times import times_of
from assistant.records import Call, CallStatus, Diagnosis, Event, Outcome, Risk
from assistant.recover.page_facts import advice_left, facts_of_page
from assistant.redact import redact
from assistant.store import Store
from assistant.tooling import found

SHOWN_LINES = 8
SHOWN_CHARACTERS = 400
PROSE_CHARACTERS = 3_000
"""Of what the tool says itself: the part that says what to do often stands behind a long quotation."""


class Moment(NamedTuple):
    """One line of the timeline."""

    at: datetime
    stage: str
    text: str


def timeline(store: Store, incident_id: int) -> list[Moment]:
    """Return what happened in an incident, oldest first."""
    moments = [Moment(event.at, str(event.kind), _event_text(event)) for event in store.events(incident_id)]
    stages = store.stages(incident_id)
    diagnosis = store.diagnosis(incident_id)
    if diagnosis is not None and "diagnosed" in stages:
        moments.append(
            Moment(stages["diagnosed"], "diagnosed", f"{diagnosis.reason} ({diagnosis.confidence:.2f}): {diagnosis.summary}")
        )
    known = store.acknowledgement(incident_id)
    for call in store.calls(incident_id):
        if call.tool in found() and found()[call.tool].risk is Risk.READ:
            continue
        outcome = store.outcome(call.id)
        at = outcome.at if outcome is not None else call.at
        moments.append(Moment(at, str(call.status), f"{call.preview or call.tool}{_raw_error(outcome)}"))
    if known is not None:
        moments.append(Moment(known.at, "acknowledged", f"by {known.by}" + (f": {known.note}" if known.note else "")))
    moments += [Moment(at, stage, "") for stage, at in stages.items() if stage not in ("diagnosed", "opened", "acknowledged")]
    return sorted(moments, key=lambda moment: moment.at)


def report(store: Store, incident_id: int, *, summed_up: str = "", by: str = "") -> str:
    """Return the incident as Markdown.

    Args:
        store: Where it stands.
        incident_id: Its id.
        summed_up: What a language model made of `brief.told_lines`, checked; it stands before the rest and replaces nothing.
        by: The model's name.

    Raises:
        UsageError: There is no such incident.
    """
    head, *rest = _lines(store, incident_id)
    added = _summed_up(store, incident_id, summed_up, by) if summed_up else ()
    return redact("\n".join([head, *added, *rest])) + "\n"


def _summed_up(store: Store, incident_id: int, text: str, by: str) -> Iterator[str]:
    yield f"\n{_plain(text)}"
    yield f"\n*Summed up by {_plain(by)} from these lines, checked against them:*\n"
    for number, line in enumerate(told_lines(store, incident_id), 1):
        yield f"- [{number}] {_plain(line)}"


def _lines(store: Store, incident_id: int) -> Iterator[str]:
    incident, diagnosis = store.incident(incident_id), store.diagnosis(incident_id)
    reason = diagnosis.reason if diagnosis else incident.kind
    yield f"# Incident {incident.id}: {reason}, {_plain(incident.subject)}: {incident.state}"
    yield ""
    if diagnosis is None:
        yield f"No diagnosis yet. {_plain(incident.note)}"
        return
    yield opening(_prose(diagnosis.summary), str(incident.state), _prose(incident.note))
    yield from _why(diagnosis)
    yield from _done(store, incident_id)
    yield from _figures(store, incident_id)
    facts = facts_of_page(store, incident_id)
    left = [*facts.undrained, *filter(None, [advice_left(diagnosis.advice, facts, incident, store), facts.saved])]
    if left:
        yield "\n## What to do\n"
        yield from (f"{_prose(one)}\n" for one in left)


def _why(diagnosis: Diagnosis) -> Iterator[str]:
    sure = f"confidence {diagnosis.confidence:.2f}, by {diagnosis.by}"
    yield f"\n## Why\n\n{diagnosis.category}, {sure}; action: `{diagnosis.action}`\n"
    seen: Counter[tuple[str, str]] = Counter()
    for cited in diagnosis.root_cause[:SHOWN_LINES]:
        seen[cited.file, cited.rule] += 1
        if seen[cited.file, cited.rule] == 1:
            yield f"- {_code(f'{cited.file}:{cited.line}')} ({cited.role}, {_plain(cited.rule)})\n  {_code(cited.text)}"
        else:
            yield f"- {_code(f'{cited.file}:{cited.line}')} says the same of {_plain(cited.rule)}"
    for finding in diagnosis.nodes:
        yield f"- node **{_plain(finding.node)}**: {_plain(finding.why)}"
    for place in diagnosis.where:
        yield f"- where: {_plain(place.sentence)}"
    for pattern in diagnosis.patterns:
        odds = f" (by chance {pattern.chance:.1g})" if pattern.chance is not None else ""
        yield f"- across nodes: {_plain(pattern.text)}{odds}"
    for recall in diagnosis.seen_before:
        shared = f"; shares {', '.join(recall.shared)}" if recall.shared else ""
        cured = f"; cured by {recall.cure}" if recall.cure else ""
        told = _plain(f"{recall.reason}, similarity {recall.similarity:.2f}{shared}{cured}")
        yield f"- seen before in incident {recall.incident}: {told}"
    for rival in diagnosis.rivals:
        yield (
            f"- weighed and not chosen: {rival.reason} ({rival.confidence:.2f}). For: {_plain(rival.speaks_for)} "
            f"Against: {_plain(rival.speaks_against)} Would decide: {_plain(rival.test)}"
        )


def _done(store: Store, incident_id: int) -> Iterator[str]:
    changes = [call for call in store.calls(incident_id) if call.tool not in found() or found()[call.tool].risk is not Risk.READ]
    if not changes:
        yield "\n## What was done\n\nNothing was changed."
        return
    yield "\n## What was done\n"
    for call in changes:
        yield from _change(store, call)
    yield from (f"- {_plain(sentence)}" for sentence in facts_of_page(store, incident_id).moved)


def _change(store: Store, call: Call) -> Iterator[str]:
    decisions, outcome = store.decisions(call.id), store.outcome(call.id)
    decided = f"{decisions[-1].verdict} by {decisions[-1].by} ({decisions[-1].rule})" if decisions else "not decided"
    error = _error(outcome.error if outcome else "")
    yield f"- call {call.id}, {call.status}: {_code(call.preview or call.tool)}\n  {_plain(call.why)}; {_plain(decided)}{error}"
    undo = found()[call.tool].undo if call.tool in found() else None
    if undo and call.status is CallStatus.DONE:
        yield f"  undo: `nightshift undo {call.id}` ({undo})"


def _figures(store: Store, incident_id: int) -> Iterator[str]:
    times = times_of(store, incident_id)
    named = [
        ("detect", times.detect_s),
        ("diagnose", times.diagnose_s),
        ("resubmit", times.resubmit_s),
        ("recover", times.recover_s),
    ]
    parts = [f"time to {name} {seconds:.1f} s" for name, seconds in named if seconds is not None]
    if times.steps_lost is not None:
        parts.append(f"steps lost {times.steps_lost} (restart from step {times.restart_step})")
    if parts:
        yield f"\n## Figures\n\n{', '.join(parts)}"


def _event_text(event: Event) -> str:
    if event.job:
        return f"job {event.job}"
    return f"service {event.service}" if event.service is not None else f"node {event.node}"


def _raw_error(outcome: Outcome | None) -> str:
    return f": {shorten(outcome.error, SHOWN_CHARACTERS)}" if outcome is not None and outcome.error else ""


def _error(text: str) -> str:
    return f": {_plain(text)}" if text else ""


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is: logs are full of angle brackets, stars and backticks."""
    return markdown(" ".join(filter(None, text.split(" "))), SHOWN_CHARACTERS)


def _prose(text: str) -> str:
    return markdown(" ".join(filter(None, text.split(" "))), PROSE_CHARACTERS)


def _code(text: str) -> str:
    return markdown_code(text, SHOWN_CHARACTERS)
