"""A program that outlives its job: the scheduler calls the job ended since its node's daemon is silent, and the program works on.

Before a job is started again whose node went away, that node is asked whether a process of the job lives there. Where one
does, nothing is started beside it; a person is told, and the incident is looked at again: it is settled once the program has
finished by itself, and its restart goes on once the program has died.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from assistant.errors import NightshiftError, Unavailable
from assistant.records import Diagnosis, Incident, IncidentState, Job, JobState, NodeState
from assistant.records.jobs import report_of

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["look_at_living", "still_runs"]

logger = logging.getLogger(__name__)

OUTLIVED = "outlived"
"""Stage of an incident whose job's program was seen alive after the scheduler had called the job ended."""
OVER = "outlived_over"
"""Stage of such an incident whose program says that it is through, and whose last save nobody knows: a person is asked."""
MOST_NODES = 16
OFTEN, OFTEN_FOR, SELDOM = timedelta(seconds=30), timedelta(minutes=10), timedelta(minutes=5)
"""Between two looks at first, for how long, and between two later ones."""
MOST = 1_000
"""Newest incidents among which those are that are looked at again."""


def still_runs(engine: Engine, incident: Incident, job: Job | None, diagnosis: Diagnosis) -> str:
    """Return that the program of a job whose node went away still runs, so that it is not started again; empty for any other.

    Raises:
        Unavailable: The scheduler did not answer.
    """
    if engine.replays or job is None or not job.state.ended or job.attempt != incident.attempt:
        return ""
    if job.state is not JobState.NODE_FAIL and not (diagnosis.reason == "node_failure" and job.ended_badly):
        return ""
    down = {node.name for node in engine.scheduler.nodes() if node.state is NodeState.DOWN} | {*diagnosis.faulty_nodes}
    nodes = [node for node in job.nodes if node in down][:MOST_NODES]
    if not nodes:
        return ""  # the daemons of all its nodes are there: they end what is left of it
    program = _looked(engine, incident, job, nodes)
    if not program.get("lives"):
        return ""
    engine.store.mark_stage(incident.id, OUTLIVED)
    return (
        f"{program['note']}. Do not start it again: that makes a second writer beside it. Only the daemon of the node (slurmd) "
        "seems to have died; once it is back it ends the program. It is looked at again: the incident is closed once the program "
        "has finished by itself, and the job is started again once it has died"
    )


def look_at_living(engine: Engine) -> None:
    """Look again at a program that outlived its job, one a pass: close what finished, take up again what died."""
    waiting = engine.store.unacknowledged() if not engine.replays else frozenset()
    for incident in engine.store.incidents(limit=MOST, state=IncidentState.ESCALATED) if waiting else ():
        stages = engine.store.stages(incident.id) if incident.id in waiting else {}
        if incident.job is not None and OUTLIVED in stages and OVER not in stages:
            try:
                if _look_again(engine, incident, incident.job):
                    return  # a node that does not answer takes its time, and the others come in turn
            except NightshiftError as error:
                logger.info("incident=%s is not looked at again now: %s", incident.id, error)


def _look_again(engine: Engine, incident: Incident, job_id: str) -> bool:
    """Look again where it is due, and write down what came of it; tell whether it was due."""
    calls = [call for call in engine.store.calls(incident.id) if call.tool == "living_program"]
    last = engine.store.outcome(calls[-1].id) if calls else None
    now = engine.clock.now()
    if last is not None and now - last.at < (OFTEN if now - incident.opened < OFTEN_FOR else SELDOM):
        return False
    job = engine.scheduler.job(job_id)
    if job.attempt != incident.attempt or not job.state.ended:
        return False
    nodes = [str(node) for node in calls[-1].arguments.get("nodes") or job.nodes] if calls else list(job.nodes)
    program = _looked(engine, incident, job, nodes)
    if not program.get("gone"):
        return True
    _keep(engine, job, program)  # what it wrote since the look before is its own
    outcome = engine.gate.call("training_finished", {"job": job.id}, why="did it finish?", by="watch", incident=incident.id)
    end = outcome.value if outcome.ok and isinstance(outcome.value, Mapping) else {}
    if incident.id not in engine.store.unacknowledged():
        return True  # somebody has taken it meanwhile
    place, question = f"on {', '.join(nodes)} in spite of {job.state}", f"asked before: {incident.note}"
    if end.get("finished") or program.get("over"):
        words = end["note"] if end.get("finished") else program["note"]
        note = f"settled: the program of job {job.id} finished by itself {place}: {words}; {question}"
        engine.store.set_state(incident.id, IncidentState.CLOSED, note=note)
    elif program.get("says_over"):
        engine.store.mark_stage(incident.id, OVER)
        note = (
            f"the program of job {job.id} that lived on {place} has ended since, and its log says that it is through; whether its "
            f"last step was saved is not known, so it is not started again: {program['note']}"
        )
        engine.store.set_state(incident.id, IncidentState.ESCALATED, note=note)
    else:
        note = f"the program of job {job.id} that lived on {place} has ended since: {program['note']}"
        engine.store.set_state(incident.id, IncidentState.DIAGNOSED, note=note)
    logger.warning("incident=%s %s", incident.id, note)
    return True


def _looked(engine: Engine, incident: Incident, job: Job, nodes: list[str]) -> Mapping[str, Any]:
    """Return what a look at the nodes shows, and keep what its processes write; nothing where it could not be taken."""
    why = "does its program still live, though the scheduler calls the job ended?"
    arguments = {"job": job.id, "nodes": nodes}
    try:
        outcome = engine.gate.call("living_program", arguments, why=why, by="watch", incident=incident.id)
    except Unavailable as error:
        logger.info("incident=%s whether its program lives is not known: %s", incident.id, error)
        return {}
    if not outcome.ok or not isinstance(outcome.value, Mapping):
        logger.info("incident=%s whether its program lives is not known: %s", incident.id, outcome.error)
        return {}
    if outcome.value.get("living"):
        _keep(engine, job, outcome.value)
    return outcome.value


def _keep(engine: Engine, job: Job, value: Mapping[str, Any]) -> None:
    """Keep what a look saw, and when: until then the logs and saves of the job may be its own, see `Job.over`."""
    report, before = report_of(value), engine.store.process_report(job)
    engine.store.keep_process_report(job, before.merged(report) if before is not None else report)
