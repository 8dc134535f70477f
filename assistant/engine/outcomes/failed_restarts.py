"""Restarts of our own that failed: one that is proven to be at a wrong start, or to train without numbers, is stopped.

Why without notice stands in docs/decisions/0016. What is not proven yet is awaited; a restart that hangs where the attempt before
had hung is awaited no longer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from assistant.engine.retry_policy import LOST_AGAIN, STANDS_AGAIN
from assistant.errors import Denied, NightshiftError, Parked, ToolError, Unavailable
from assistant.logs.spikes import is_no_number
from assistant.records import (
    Call,
    CallStatus,
    Event,
    EventKind,
    Incident,
    IncidentState,
    Job,
    JobState,
    Outcome,
)
from assistant.recover.checkpoints.own_folders import new_checkpoints
from assistant.recover.checkpoints.place import says_saved
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.recover.directives import SPIKE_SLACK
from assistant.recover.identity import restart_of
from assistant.recover.joblog import log_lines, log_points, marks_before
from assistant.recover.playbook import Ended
from assistant.recover.verify import Verdict
from assistant.recover.wrong_start import saves_since, unwritten_words
from assistant.store import Store
from assistant.untrusted import reading_as

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

WRONG_START = "wrong start"
"""Stage of an incident whose restart did not go on from the checkpoint that was chosen."""
STOP = "stop_restart"
"""The tool, and the first part of its step's key."""
MOST_TRIES = 3
"""A step that begins between decision and command makes it another command, which is not given."""


def stop_wrong_start(
    engine: EnginePort, incident: Incident, ended: Ended, restart: Call, job: Job, verdict: Verdict, by: str
) -> Ended:
    """Stop a restart through the gate and return where its incident stands: until the job is over it is being verified.

    Args:
        engine: Everything.
        incident: Whose restart it is.
        ended: As the playbook has it.
        restart: The call that started the job.
        job: The restart, at a wrong start by proof, or stopped before.
        verdict: Of the restart; without proof where the stop was decided before.
        by: Who asks.

    Raises:
        Parked: A person is asked.
        Unavailable: The scheduler did not answer.
    """
    first = next((call for call in engine.store.calls(incident.id) if call.tool == STOP), None)
    fault = "is at a wrong start" if verdict.lost_numbers is None else "trains on without numbers"
    why = first.why if first is not None else f"job {job.id}, our own restart, {fault}: {verdict.proof}"
    attempt = int(first.arguments["attempt"]) if first is not None else job.attempt
    needs_person = replace(ended, state=IncidentState.ESCALATED, failed_job=None)
    if first is None and not _is_own(engine, incident, restart, job):
        note = f"not recovered: {why}; but it is not proven to be the attempt that was started here, and is left alone"
        return replace(needs_person, note=f"{note}. STOP IT BY HAND if it is yours: scancel {job.id}")
    urgent = f"STOP job {job.id} NOW, it saves over the checkpoints of its run ({_command(engine, job)}): {why}"
    try:
        outcome = _stopped(engine, incident, job.id, attempt, why=why, by=by)
    except Denied as refusal:
        preview = [call.preview for call in engine.store.calls(incident.id) if call.tool == STOP][-1]
        return replace(needs_person, note=f"{urgent}. Not done: {str(refusal).removeprefix(f'{preview}: ')}")
    now = engine.scheduler.job(job.id)
    running = not now.state.ended and now.attempt == attempt
    if not outcome.ok and running:
        return replace(needs_person, note=f"{urgent}. It failed: {outcome.error}")
    if running:
        return replace(ended, state=IncidentState.VERIFYING, note=f"{why}; it is being stopped", failed_job=None)
    engine.store.mark_stage(incident.id, WRONG_START)
    value = outcome.value if isinstance(outcome.value, Mapping) else {}
    stop_words = "it was stopped" if value.get("stopped") else "it ended before it could be stopped"
    note = f"not recovered: {why}; {stop_words}; {_report(engine, restart, now)}{_lost_again(engine, incident, verdict)}"
    _tell_remains(engine, incident, now, by)
    return replace(needs_person, note=f"{note}; it is not started again before a person has looked")


def _lost_again(engine: EnginePort, incident: Incident, verdict: Verdict) -> str:
    """Return that a restart lost its numbers where the attempt before had lost them, and what follows; empty where it did not."""
    diagnosis, lost = engine.store.diagnosis(incident.id), verdict.lost_numbers
    spike_step = diagnosis.spike_step if diagnosis is not None else None
    if lost is None or spike_step is None or abs(lost.step - spike_step) > SPIKE_SLACK:
        return ""
    engine.store.mark_stage(incident.id, LOST_AGAIN)
    return (
        f"; the attempt before had lost them at step {spike_step}, too, and the checkpoint between was healthy: what the job meets "
        "there comes again at each start, so look at the data of those steps (values that are no numbers, empty or wholly masked "
        "samples) and at the code that they pass; neither the nodes nor a lower learning rate are what it needs"
    )


def _tell_remains(engine: EnginePort, incident: Incident, job: Job, by: str) -> None:
    """Have it kept what a stopped restart left to go on from: people read what has to be moved away before the next start."""
    arguments = {"why": f"job {job.id} was stopped", "job": job.id}
    try:
        engine.gate.call("escalate", arguments, why="what it left", by=by, incident=incident.id, step="remains#1")
    except (Denied, Parked, ToolError, Unavailable) as error:
        logger.info("incident=%s what job %s left is not known: %s", incident.id, job.id, error)


def awaits_other_incident(verdict: Verdict, own_incident: Incident | None) -> str:
    """Return why a restart that trains without numbers is left to the incident about itself; empty where it is to be stopped.

    That incident may end the job and start it elsewhere: it has its turn, unless the numbers were lost from the first steps on.

    Args:
        verdict: Of the restart.
        own_incident: The incident about the restarted job; None while it has none.
    """
    if verdict.lost_numbers is None:
        return ""
    if own_incident is not None:
        return "" if own_incident.state.ended else f"{verdict.note}; incident {own_incident.id} is about that"
    return "" if verdict.lost_numbers.at_once else f"{verdict.note}; awaits whether that becomes an incident of its own"


def is_losing(store: Store, job: Job, own_incident: Incident | None) -> bool:
    """Tell whether a restart that runs logged no number last, and more will show whether that stays so: it may have to be stopped.

    Args:
        store: Says which lines are the restart's.
        job: The restart.
        own_incident: The incident about it; None while it has none.
    """
    if job.state is not JobState.RUNNING or (own_incident is not None and own_incident.state.ended):
        return False
    points = [point for point in log_points(job, marks=marks_before(store, job)) if point.loss is not None]
    return bool(points) and is_no_number(points[-1])


def hung_again(store: Store, incident: Incident, own_incident: Incident | None) -> str:
    """Return that a restart hangs where the attempt before had hung, so that nothing of it is awaited; empty where it does not.

    Args:
        store: Where both incidents stand.
        incident: Whose restart it is.
        own_incident: The incident about it; None while it has none.
    """
    if (
        own_incident is None
        or own_incident.state is not IncidentState.ESCALATED
        or STANDS_AGAIN not in store.stages(own_incident.id)
    ):
        return ""
    place = f"job {own_incident.job} stands still where job {incident.job} did"
    return f"not recovered: {place}; incident {own_incident.id} is about that job"


def is_being_stopped(store: Store, incident: Incident) -> bool:
    """Tell whether the restart of an incident was stopped, or whether a person was asked to stop it."""
    return any(call.tool == STOP for call in store.calls(incident.id))


def stopped_here(store: Store, incident: Incident, event: Event) -> str:
    """Return that a job ended because it was stopped here, so that its end is no failure of its own; empty where it is not so.

    Args:
        store: Where the stop is written down.
        incident: The new one, about the end of a restart.
        event: What was noticed.
    """
    for call in store.calls(incident.parent) if incident.parent is not None else ():
        if call.tool != STOP or call.status not in (CallStatus.INTENT, CallStatus.DONE):
            continue
        if (call.arguments.get("job"), call.arguments.get("attempt")) == (event.job, event.attempt):
            return f"settled: job {event.job} was stopped by call {call.id} of incident {call.incident}, which says why"
    return ""


def wrong_start_before(store: Store, incident: Incident) -> str:
    """Return why a failed restart is not started again: it had not gone on from its checkpoint, nor would the next; else empty.

    Args:
        store: Where the incident of that restart stands.
        incident: The new one, about its end.
    """
    before = store.incident(incident.parent) if incident.parent is not None else None
    if before is None or incident.kind is EventKind.REQUESTED or WRONG_START not in store.stages(before.id):
        return ""
    why = f"job {incident.job} was our restart of incident {before.id} and did not go on from the checkpoint that was chosen"
    return f"{why}; started in the same way it would begin there again, so it was not. That incident says: {before.note}"


def _is_own(engine: EnginePort, incident: Incident, restart: Call, job: Job) -> bool:
    """Tell whether a job is exactly the attempt that a call of this store started."""
    call = restart_of(engine.store, job)
    attempt = incident.attempt + 1 if restart.arguments.get("job") == job.id else 0
    return call is not None and call.id == restart.id and job.attempt == attempt


def _stopped(engine: EnginePort, incident: Incident, job: str, attempt: int, *, why: str, by: str) -> Outcome:
    """Stop a job and return what came of it; a try that failed is followed by another one."""
    for number in range(1, MOST_TRIES + 1):
        arguments = {"job": job, "attempt": attempt}
        outcome = engine.gate.call(STOP, arguments, why=why, by=by, incident=incident.id, step=f"{STOP}#{number}")
        if outcome.ok:
            break
    return outcome


def _command(engine: EnginePort, job: Job) -> str:
    try:
        return engine.gate.preview(STOP, {"job": job.id, "attempt": job.attempt}, by="engine").text.partition("  # ")[0]
    except NightshiftError:
        return f"scancel {job.id}"


def _report(engine: EnginePort, restart: Call, job: Job) -> str:
    """Return what the job saved, over what, and what became of the chosen checkpoint."""
    try:
        lines = [line.text for line in log_lines(job)]
        search = search_checkpoints(job, engine.checkpoint_folders, lines, now=engine.clock.now())
    except (ToolError, Unavailable) as error:
        return f"what it saved is not known: {error}"
    # a start from scratch writes over whatever has the name: whose each is does not matter here
    inventory = search.inventory if search.inventory is not None else search.unsorted[1] if search.unsorted is not None else None
    if inventory is None and not says_saved(lines):
        with reading_as(job.account):
            walk = new_checkpoints(job.work_dir, job.started)
        if words := unwritten_words(_present(engine, restart), walk, job):
            return f"its log tells of no save, and {words}"
    if inventory is None:
        return f"what it saved is not known: {search.note}"
    present, moved = _present(engine, restart), _set_aside(engine, restart)
    own = {name: at for name, at in present.items() if name not in moved} if present is not None else None
    saves = saves_since(own, (*inventory.checkpoints, *inventory.foreign), job.started)
    aside_words = f"; set aside before it began, and still there: {', '.join(sorted(moved.values()))}" if moved else ""
    return f"{saves.sentence} (in {inventory.folder}){aside_words}"


def _set_aside(engine: EnginePort, restart: Call) -> dict[str, str]:
    """Return where the checkpoints lie that were moved away for a restart, by their names."""
    places: dict[str, str] = {}
    for call in engine.store.calls(restart.incident):
        outcome = engine.store.outcome(call.id) if call.tool == "set_aside_checkpoints" and call.id < restart.id else None
        value = outcome.value if outcome is not None and outcome.ok and isinstance(outcome.value, Mapping) else {}
        places |= {PurePosixPath(str(path)).name: str(path) for path in value.get("paths", ())}
    return places


def _present(engine: EnginePort, restart: Call) -> Mapping[str, str] | None:
    """Return names and times of the checkpoints that were there when one was chosen; None where that was not written down."""
    for call in reversed(engine.store.calls(restart.incident)):
        outcome = engine.store.outcome(call.id) if call.tool == "choose_checkpoint" and call.id < restart.id else None
        value = outcome.value if outcome is not None and isinstance(outcome.value, Mapping) else {}
        if isinstance(present := value.get("present"), Mapping):
            return {str(name): str(at) for name, at in present.items()}
    return None
