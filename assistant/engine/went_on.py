"""Close the incident of a job that stood still or was slow once the job goes on by itself; nothing planned for it is done then.

What it does is looked up in its own logs at each pass, right before each stage, and by `cancel_job` right before its command.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from assistant.errors import NightshiftError, ToolError
from assistant.records import CallStatus, EventKind, Incident, IncidentState, Job, JobState, Risk, Verdict
from assistant.store import WENT_ON
from assistant.tooling import find_tool
from assistant.untrusted import LOOK_S, reading_as, within
from assistant.watch.moved import Motion, motion_since

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

logger = logging.getLogger(__name__)

KINDS = (EventKind.HANG, EventKind.SLOW_JOB)
MOST = 1_000
"""Newest incidents among which those are that still stand."""
CHANGED = (CallStatus.DONE, CallStatus.INTENT)
"""Of a change that was made, or may have been."""


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
    if job.state is not JobState.RUNNING or job.attempt != incident.attempt:
        return ""
    if incident.kind is EventKind.SLOW_JOB:
        return _paced_again(engine, incident, job)
    moved = motion_of(engine, incident, job)
    if not moved.goes_on:
        return ""
    where = f": it is at step {moved.step}" if moved.step is not None else ": it makes steps again"
    stood = _stood_at(engine, incident)
    return f"went on by itself{where}{stood}; it was left alone"


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
    if view is None or not isinstance(usual_s, int | float) or not view.pace.is_usual_again(usual_s, since=incident.opened):
        return ""
    at = f" at step {view.last_step}" if view.last_step is not None else ""
    return f"went on by itself: it makes its steps as fast as usual again{at}; it was left alone"


def _was_changed(engine: Engine, incident: Incident) -> bool:
    """Tell whether a change was made for an incident, or may have been, that its job does not outlive."""
    calls = [call for call in engine.store.calls(incident.id) if call.status in CHANGED]
    return any(find_tool(call.tool).risk is Risk.DISRUPT or find_tool(call.tool).kind == "resubmit" for call in calls)
