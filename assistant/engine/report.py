"""An incident for people, read from the store: its figures, its page in Markdown, and the lines that a language model may sum up.

Text for a language model at an endpoint has the site's names masked: nodes, users with jobs, this host, who runs Nightshift.
"""

from __future__ import annotations

import getpass
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from assistant.config import Settings
from assistant.display import line, markdown, markdown_code, shorten
from assistant.errors import Unavailable
from assistant.ports import Scheduler
from assistant.records import Call, CallStatus, Diagnosis, Event, Job, Outcome, Risk
from assistant.recover.directives import gpus_of
from assistant.recover.identity import RESTARTS
from assistant.recover.joblog import LogPlaces, log_paths
from assistant.recover.situation import advice_left, facts_of_page
from assistant.redact import Mask, redact
from assistant.store import Store
from assistant.tooling import found

logger = logging.getLogger(__name__)

COUNTED_OTHERWISE = "counted_otherwise"
"""Stage of an incident whose job numbers no step: what its log counts and the step of a checkpoint are not compared."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds between the stages of an incident; None while a stage has not been reached."""

    detect_s: float | None
    """From the failure to the opening of the incident."""
    diagnose_s: float | None
    """From the opening to the diagnosis."""
    resubmit_s: float | None
    """From the diagnosis to the new job."""
    recover_s: float | None
    """From the failure until training was seen to move on."""
    steps_lost: int | None
    """Training steps that have to be done again: last step seen minus step of the checkpoint."""
    restart_step: int | None
    """Step of the checkpoint that was chosen."""


def times_of(store: Store, incident_id: int) -> Times:
    """Return the figures of an incident as far as it has come."""
    incident, stages, diagnosis = store.incident(incident_id), store.stages(incident_id), store.diagnosis(incident_id)
    restart_step = restart_step_of(store, incident_id)
    failed = incident.failed_at or incident.opened
    lost = None
    if diagnosis is not None and diagnosis.step is not None and restart_step is not None:
        lost = max(0, diagnosis.step - restart_step) if COUNTED_OTHERWISE not in stages else None
    return Times(
        detect_s=_seconds(failed, incident.opened),
        diagnose_s=_seconds(incident.opened, stages.get("diagnosed")),
        resubmit_s=_seconds(stages["diagnosed"], _resubmitted_at(store, incident_id)) if "diagnosed" in stages else None,
        recover_s=_seconds(failed, stages.get("recovered")),
        steps_lost=lost,
        restart_step=restart_step,
    )


def restart_step_of(store: Store, incident_id: int) -> int | None:
    """Return the step from which the job was started again, None when it was not."""
    for call in reversed(store.calls(incident_id, status=CallStatus.DONE)):
        outcome = store.outcome(call.id)
        if call.tool in RESTARTS and outcome is not None:
            value: Any = outcome.value
            step = value.get("step") if isinstance(value, Mapping) else None
            return int(step) if step is not None else None
    return None


def _resubmitted_at(store: Store, incident_id: int) -> datetime | None:
    calls = [call for call in store.calls(incident_id, status=CallStatus.DONE) if call.tool in RESTARTS]
    outcome = store.outcome(calls[-1].id) if calls else None
    return outcome.at if outcome is not None else None


def _seconds(start: datetime, end: datetime | None) -> float | None:
    return None if end is None else max(0.0, (end - start).total_seconds())


def cost_in_words(job: Job, steps: int | None, minutes: float) -> str:
    """Return what a failure cost: `23 steps, 4.2 min, 8.4 GPU hours`, node hours where a job's GPUs are not known.

    Args:
        job: Whose GPUs stood still.
        steps: That were made twice; None where that is not known, and left out then.
        minutes: Until the job was where it had been.
    """
    gpus = gpus_of(job)
    words = [*([f"{steps} steps"] if steps is not None else []), f"{minutes:.1f} min"]
    words.append(f"{minutes / 60 * gpus:.1f} GPU hours" if gpus else f"{minutes / 60 * len(job.nodes):.1f} node hours")
    return ", ".join(words)


MOST_LINES, MOST_NODES, MOST_CHANGES = 6, 8, 12
LONGEST_LINE = 300


def opening(summary: str, state: str, note: str) -> str:
    """Return how a report begins without a language model: the diagnosis' summary, and how things stand."""
    return f"{summary}\n\n**{state.capitalize()}:** {note}" if note else summary


def summary_lines(store: Store, incident_id: int) -> list[str]:
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
    return line(redact(text), LONGEST_LINE)


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
    acknowledgement = store.acknowledgement(incident_id)
    for call in store.calls(incident_id):
        if call.tool in found() and found()[call.tool].risk is Risk.READ:
            continue
        outcome = store.outcome(call.id)
        at = outcome.at if outcome is not None else call.at
        moments.append(Moment(at, str(call.status), f"{call.preview or call.tool}{_raw_error(outcome)}"))
    if acknowledgement is not None:
        moments.append(
            Moment(
                acknowledgement.at,
                "acknowledged",
                f"by {acknowledgement.by}" + (f": {acknowledgement.note}" if acknowledgement.note else ""),
            )
        )
    moments += [Moment(at, stage, "") for stage, at in stages.items() if stage not in ("diagnosed", "opened", "acknowledged")]
    return sorted(moments, key=lambda moment: moment.at)


def report(store: Store, incident_id: int, *, summed_up: str = "", by: str = "") -> str:
    """Return the incident as Markdown.

    Args:
        store: Where it stands.
        incident_id: Its id.
        summed_up: What a language model made of `summary_lines`, checked; it stands before the rest and replaces nothing.
        by: The model's name.

    Raises:
        UsageError: There is no such incident.
    """
    head, *body = _lines(store, incident_id)
    added = _summed_up(store, incident_id, summed_up, by) if summed_up else ()
    return redact("\n".join([head, *added, *body])) + "\n"


def _summed_up(store: Store, incident_id: int, text: str, by: str) -> Iterator[str]:
    yield f"\n{_plain(text)}"
    yield f"\n*Summed up by {_plain(by)} from these lines, checked against them:*\n"
    for number, text_line in enumerate(summary_lines(store, incident_id), 1):
        yield f"- [{number}] {_plain(text_line)}"


def _lines(store: Store, incident_id: int) -> Iterator[str]:
    incident, diagnosis = store.incident(incident_id), store.diagnosis(incident_id)
    reason = diagnosis.reason if diagnosis else incident.kind
    yield f"# Incident {incident.id}: {reason}, {_plain(incident.subject)}: {incident.state}"
    yield ""
    if diagnosis is None:
        yield f"No diagnosis yet. {_plain(incident.note)}"
        return
    places = LogPlaces(log_paths(store.evidence(incident_id)))
    diagnosis = places.diagnosis(diagnosis)
    yield opening(_prose(diagnosis.summary), str(incident.state), _prose(places.written(incident.note)))
    yield from _why(diagnosis)
    yield from _changes(store, incident_id)
    yield from _figures(store, incident_id)
    facts = facts_of_page(store, incident_id)
    remainders = [*facts.undrained, *filter(None, [advice_left(diagnosis.advice, facts, incident, store), facts.saved])]
    if remainders:
        yield "\n## What to do\n"
        yield from (f"{_prose(remainder)}\n" for remainder in remainders)


def _why(diagnosis: Diagnosis) -> Iterator[str]:
    sure = f"confidence {diagnosis.confidence:.2f}, by {diagnosis.by}"
    yield f"\n## Why\n\n{diagnosis.category}, {sure}; action: `{diagnosis.action}`\n"
    citations: Counter[tuple[str, str]] = Counter()
    for cited in diagnosis.root_cause[:SHOWN_LINES]:
        citations[cited.file, cited.rule] += 1
        if citations[cited.file, cited.rule] == 1:
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
        recall_words = _plain(f"{recall.reason}, similarity {recall.similarity:.2f}{shared}{cured}")
        yield f"- seen before in incident {recall.incident}: {recall_words}"
    for rival in diagnosis.rivals:
        yield (
            f"- weighed and not chosen: {rival.reason} ({rival.confidence:.2f}). For: {_plain(rival.speaks_for)} "
            f"Against: {_plain(rival.speaks_against)} Would decide: {_plain(rival.test)}"
        )


def _changes(store: Store, incident_id: int) -> Iterator[str]:
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
    figures = [
        ("detect", times.detect_s),
        ("diagnose", times.diagnose_s),
        ("resubmit", times.resubmit_s),
        ("recover", times.recover_s),
    ]
    parts = [f"time to {name} {seconds:.1f} s" for name, seconds in figures if seconds is not None]
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


MASK_SERVES = timedelta(minutes=5)
"""How long a mask serves before the scheduler is asked for new names; hosts numbered like known ones are hidden anyway."""


def mask_for(settings: Settings, store: Store, scheduler: Scheduler | None = None) -> Callable[[], Mask] | None:
    """Return what gives the mask for the configured model; None where nothing leaves this machine, or the site wants none.

    Args:
        settings: Name the model.
        store: Keeps the key of stand-ins, and names of earlier incidents.
        scheduler: Knows the nodes and users; None: only what the store knows.
    """
    from assistant.llm.sse import is_here

    if not settings.model.url or not settings.model.mask or is_here(settings.model.url):
        return None
    masks: list[tuple[datetime, Mask]] = []

    def mask() -> Mask:
        now = store.clock.now()
        if not masks or now - masks[-1][0] >= MASK_SERVES:
            hosts, users = _names(store, scheduler)
            if masks:
                masks[-1][1].learn(hosts, users)
            masks[:] = [(now, masks[-1][1] if masks else Mask(hosts, users, key=store.mask_key()))]
        return masks[-1][1]

    return mask


def _names(store: Store, scheduler: Scheduler | None) -> tuple[list[str], list[str]]:
    hosts, users = store.known_names()
    hosts.append(socket.gethostname())
    try:
        users.append(getpass.getuser())
    except (KeyError, OSError):
        logger.debug("this user has no name")
    if scheduler is not None:
        try:
            hosts += [node.name for node in scheduler.nodes()]
            users += [job.user for job in scheduler.jobs() if job.user]
        except Unavailable as error:
            logger.warning("names of nodes and users that incidents did not name are not masked: %s", error)
    return hosts, users
