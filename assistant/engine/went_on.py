"""Close the incident of a job that stood still or was slow once the job goes on by itself; nothing planned for it is done then.

What it does is looked up in its own logs at each pass, right before each stage, and by `cancel_job` right before its command. One
that says that it waits for something outside of it is left running, and a person is told what it waits for.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from assistant.engine.again import UNPROVEN
from assistant.engine.slow_jobs import completed_meanwhile, sudden_slowdown
from assistant.engine.stale_addresses import awaited_address
from assistant.engine.waited_servers import event_of_server, server_at_fault
from assistant.errors import NightshiftError, ToolError
from assistant.records import (
    Action,
    CallStatus,
    Diagnosis,
    Event,
    EventKind,
    Incident,
    IncidentState,
    Job,
    JobState,
    Risk,
    Verdict,
)
from assistant.store import WENT_ON
from assistant.tooling import find_tool
from assistant.untrusted import LOOK_S, reading_as, within
from assistant.watch.hang import WAITS
from assistant.watch.witness import Motion, motion_since

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

logger = logging.getLogger(__name__)

KINDS = (EventKind.HANG, EventKind.SLOW_JOB)
MOST = 1_000
"""Newest incidents among which those are that still stand."""
CHANGED = (CallStatus.DONE, CallStatus.INTENT)
"""Of a change that was made, or may have been."""
MOST_NAMED = 2
"""Ended jobs that are named as what a job may wait for."""


def close_what_went_on(engine: Engine) -> list[Incident]:
    """Close the incidents that were handed to a person and whose jobs go on by themselves; return them."""
    closed = []
    for incident in engine.store.incidents(limit=MOST, state=IncidentState.ESCALATED):
        if close_if_it_goes_on(engine, incident):
            closed.append(engine.store.incident(incident.id))
    return closed


def close_if_it_goes_on(engine: Engine, incident: Incident) -> bool:
    """Close an incident whose job goes on by itself, and withdraw what is asked about it; tell whether it was closed.

    An incident for which the job was ended or started again, or may have been, is about what came of that and stays.
    """
    try:
        note = _how_it_goes_on(engine, incident) if incident.kind in KINDS else ""
    except (NightshiftError, OSError) as error:
        logger.info("incident=%s whether its job goes on is not known: %s", incident.id, error)
        return False
    if not note:
        return False
    store = engine.store
    mine = {call.id for call in store.calls(incident.id)}
    for waiting in store.approvals():
        if waiting.call in mine:
            store.answer(waiting.id, Verdict.DENY, "watch", why=note)
    store.mark_stage(incident.id, WENT_ON)
    store.set_state(incident.id, IncidentState.CLOSED, note=note)
    logger.warning("incident=%s %s", incident.id, note)
    return True


def _how_it_goes_on(engine: Engine, incident: Incident) -> str:
    """Return that the job of an incident goes on by itself, and what shows it; empty where that is not so."""
    if engine.replays or incident.job is None or _was_changed(engine, incident):
        return ""
    try:
        job = engine.scheduler.job(incident.job)
    except ToolError:
        return ""
    if completed := completed_meanwhile(engine, incident, job):
        return completed
    if job.state is not JobState.RUNNING or job.attempt != incident.attempt:
        return ""
    if incident.kind is EventKind.SLOW_JOB:
        return _paced_again(engine, incident, job)
    moved = motion_of(engine, incident, job)
    if not moved.goes_on:
        return _waits_no_more(engine, incident, job)
    where = f": it is at step {moved.step}" if moved.step is not None else ": it makes steps again"
    stood = _stood_at(engine, incident)
    return f"went on by itself{where}{stood}; it was left alone"


def _waits_no_more(engine: Engine, incident: Incident, job: Job) -> str:
    """Return that a job without steps that waited has gone on with other words; empty for any other."""
    event, view = _wait_of(engine, incident), engine.watcher.view(job.id, job.attempt)
    if event is None or event.detail.get("step") is not None or view is None or view.output_at is None or view.wait.last_at is None:
        return ""
    over = view.wait.waiting(engine.clock.now()) is None and view.output_at > view.wait.last_at
    return f"went on by itself: it waits no more, and had since {event.at:%H:%M} UTC; it was left alone" if over else ""


def motion_of(engine: Engine, incident: Incident, job: Job) -> Motion:
    """Return what the job of a hang has done since.

    Raises:
        Unavailable: Its storage does not answer.
        OSError: A log cannot be read.
    """
    events = engine.store.events(incident.id)
    with reading_as(job.account):
        return within(LOOK_S, lambda: motion_since(job, events), f"the logs of job {job.id}")


def _stood_at(engine: Engine, incident: Incident) -> str:
    hang = next((event for event in engine.store.events(incident.id) if event.kind is EventKind.HANG), None)
    step, since = (hang.detail.get("step"), hang.at) if hang is not None else (None, incident.opened)
    at = f"had stood at step {step}" if isinstance(step, int) else "had stood still"
    return f", and {at} since {since:%H:%M} UTC"


def _paced_again(engine: Engine, incident: Incident, job: Job) -> str:
    view = engine.watcher.view(job.id, job.attempt)
    slow = next((event for event in reversed(engine.store.events(incident.id)) if event.kind is EventKind.SLOW_JOB), None)
    usual_s = slow.detail.get("usual_s") if slow is not None else None
    if view is None or not isinstance(usual_s, int | float):
        return ""
    sudden = sudden_slowdown(engine, incident) is not None
    if not (view.slowdown.is_usual_again(usual_s) if sudden else view.pace.is_usual_again(usual_s, since=incident.opened)):
        return ""
    at = f" at step {view.last_step}" if view.last_step is not None else ""
    return f"went on by itself: it makes its steps as fast as usual again{at}; it was left alone"


def _was_changed(engine: Engine, incident: Incident) -> bool:
    """Tell whether a change was made for an incident, or may have been, that its job does not outlive."""
    calls = [call for call in engine.store.calls(incident.id) if call.status in CHANGED]
    return any(find_tool(call.tool).risk is Risk.DISRUPT or find_tool(call.tool).kind == "resubmit" for call in calls)


def waiting_job(engine: Engine, incident: Incident, job: Job | None) -> str:
    """Return that a living job waits, and for what, so that a person hears of it and nothing is ended; empty for any other.

    A person who asked for the recovery has looked. That no hang was proven is noted: the watch goes on looking.
    """
    event = _wait_of(engine, incident)
    if event is None or job is None or job.state.ended or job.attempt != incident.attempt:
        return ""
    engine.store.mark_stage(incident.id, UNPROVEN)
    step = event.detail.get("step")
    at = f" behind step {step}" if isinstance(step, int) else ""
    times = f"{event.detail.get('waits_count')} times since {event.at:%H:%M} UTC"
    ended = f" {words}" if (words := _ended_there(engine, job, str(event.detail[WAITS]))) else ""
    server = server_at_fault(engine, incident, job, event)
    if server is not None:
        opened = engine.open(event_of_server(server, job, event))
        return (
            f"job {job.id} makes no steps{at}: it waits, and says so {times}: {event.detail[WAITS]!r}. {server.sentence}. That is "
            f"incident {opened.id}; job {job.id} was left running and goes on by itself once it is answered again"
        )
    wait_words = f"job {job.id} makes no steps{at}: it waits, and says so {times}: {event.detail[WAITS]!r}."
    awaited = awaited_address(engine, incident, job, event)
    if awaited is not None and awaited.never_ends:
        way = f"scontrol requeue {job.id}, or scancel {job.id} and submit it again"
        return f"{wait_words} {awaited.sentence(job)}: {way}. It was left running"
    if awaited is not None and awaited.host_state:
        end = f"If nothing brings that back, end it: scancel {job.id}"
        return f"{wait_words} {awaited.sentence(job)} It was left running.{ended} {end}"
    return (
        f"{wait_words} It was left running and goes on by itself once that is there.{ended} If nothing brings that back, end it: "
        f"scancel {job.id}"
    )


def with_wait(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a living job that waits as just that, with nothing to be done to it; any other as it is."""
    event = _wait_of(engine, incident)
    if event is None or job is None or job.state.ended:
        return diagnosis
    words = f"No step since {event.at:%H:%M} UTC: the job waits and tries again, by its own words: {event.detail[WAITS]!r}."
    advice = (
        "Bring back what it waits for; the job goes on by itself then. Do not restart it: that loses its steps and mends nothing."
    )
    awaited = awaited_address(engine, incident, job, event)
    if awaited is not None and (sentence := awaited.sentence(job)):
        words = f"{words} {sentence}{'.' * awaited.never_ends}"
        advice = (
            f"Start job {job.id} again (scontrol requeue {job.id}, or scancel {job.id} and submit it again): it then reads "
            f"{awaited.now_named} from {awaited.path}. Leave what runs at {awaited.now_named} alone."
            if awaited.never_ends
            else f"Bring {awaited.address.host} back, or start job {job.id} again with the address of what took its place."
        )
    server = server_at_fault(engine, incident, job, event)
    if server is not None:
        # what the kernel says there is no fault of the client
        diagnosis = replace(diagnosis, reason="connection_error", rivals=(), where=())
        words, advice = f"{words} {server.sentence}.", f"{server.sentence}. {advice}"
    return replace(diagnosis, action=Action.NONE, nodes=(), summary=words, advice=advice)


def _wait_of(engine: Engine, incident: Incident) -> Event | None:
    events = engine.store.events(incident.id)
    if incident.kind is not EventKind.HANG or any(event.kind is EventKind.REQUESTED for event in events):
        return None
    last = next((event for event in reversed(events) if event.kind is EventKind.HANG), None)
    return last if last is not None and last.detail.get(WAITS) else None


def _ended_there(engine: Engine, job: Job, line: str) -> str:
    """Return which jobs of the same user ended since a job began, on a node that its line names; empty where none did."""
    hosts = {name.partition(".")[0].lower() for name in re.findall(r"[A-Za-z][\w.-]{0,100}", line)}
    ended = [
        peer
        for peer in engine.watcher.jobs
        if peer.user == job.user
        and peer.id != job.id
        and peer.ended_badly
        and peer.ended is not None
        and (job.started is None or peer.ended >= job.started)
        and any(node.partition(".")[0].lower() in hosts for node in peer.nodes)
    ]
    latest = sorted(ended, key=lambda peer: (peer.ended, peer.id))[-MOST_NAMED:]
    return " ".join(
        f"Job {peer.id} ({peer.name}) ran on {', '.join(peer.nodes[:4])} and {peer.state} at {peer.ended:%H:%M} UTC."
        for peer in latest
    )
