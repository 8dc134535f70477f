"""Leave the jobs of a driver to it while it lives, and start the driver itself again once it has given up because of one of them.

A driver (snakemake in a batch job, a script that submits and polls) starts what failed again by itself or gives up, as it was told.
A restart of its job beside it would be a second one, and once it has given up the work of that job would not count. So the driver
is started again, once, where it goes on with what is left and no job of it can land on the node at fault; else its owner is told
the line that does. Never both.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from assistant.content.playbooks import DRIVER
from assistant.engine.faulty_nodes import OUT_OF_SERVICE, make_cordons, with_left_files
from assistant.errors import NightshiftError, ToolError, Unavailable
from assistant.records import Action, Category, Diagnosis, EventKind, Incident, Job, JobState
from assistant.recover.directives import start_line
from assistant.recover.drivers import (
    LOG_BYTES,
    goes_on_words,
    is_worker_of,
    jobs_named_by,
    mentioned_jobs,
    parents_first,
    submits_jobs,
    submitted_by,
    watches_over_jobs,
    workflow_of,
)
from assistant.recover.identity import restart_of
from assistant.recover.job_program import programs_of
from assistant.recover.joblog import log_lines
from assistant.recover.situation import AVOIDED, avoided
from assistant.untrusted import reading_as

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

__all__ = ["GOES_ON", "DriverTurn", "driver_turn"]

ACTS_WITHIN = timedelta(minutes=15)
"""So long a driver that lives is waited for: those that poll do so every few minutes at the rarest."""
FAILS_WITHIN = timedelta(minutes=15)
"""From the end of a job to that of a driver that gave up because of it."""
OPENED_WITHIN = timedelta(minutes=3)
"""From the end of a driver to the incident about it."""
GOES_ON = "driver_goes_on"
"""Stage of the incident of a driver that is to be started again, because of what its jobs failed of."""
RESTARTED = (Action.CORDON_AND_RESTART, Action.RESTART_SAME_NODES, Action.WAIT_AND_RETRY)
MOST_LOGS = 6
MOST_CHILDREN = 32
MOST_NAMED = 4


class DriverTurn(NamedTuple):
    """How a job of a driver, or the driver itself, is treated in this pass."""

    waits: str = ""
    """Why nothing is done yet."""
    over: str = ""
    """Why a person has to go on, with the line that does."""
    settled: str = ""
    """Why nothing is left to do: the driver goes on with it."""
    restarts: bool = False
    """Whether it is a driver that is started again now."""


def driver_turn(engine: EnginePort, incident: Incident, diagnosis: Diagnosis) -> DriverTurn:
    """Return how a job is treated that a driver submitted, or that is a driver; empty where neither is known."""
    if engine.replays or incident.kind is not EventKind.JOB_ENDED or incident.job is None:
        return DriverTurn()
    try:
        job = engine.scheduler.job(incident.job)
    except ToolError:
        return DriverTurn()
    own = [entry for entry in engine.watcher.jobs if entry.user == job.user and entry.id != job.id]
    is_restart = restart_of(engine.store, job) is not None
    if not is_restart:
        parent = _parent(engine, job, own)
        if parent is not None and parent.state is JobState.RUNNING:
            return _left_to(engine, job, parent)
        if parent is not None and _gave_up_after(parent, job):
            return _with_its_driver(engine, job, parent)
        if workflow := workflow_of(job) if parent is None else None:
            words = (
                f"job {job.id} is a task of {workflow.name}, which starts it again by itself or gives up: it is left to that, and "
                f"was not started again. Where that has ended, its owner goes on with: {workflow.command}. {diagnosis.summary}"
            )
            return DriverTurn(over=words)
    goes_on = GOES_ON in engine.store.stages(incident.id)
    if diagnosis.category is Category.INFRASTRUCTURE and diagnosis.faulty_nodes and not goes_on:
        return DriverTurn()
    children = _failed_children(engine, job, own)
    if not children:
        return DriverTurn()
    if goes_on:
        return _set_aside_first(engine, incident, diagnosis, job)
    return _given_up(engine, incident, diagnosis, job, children, is_restart=is_restart)


def _left_to(engine: EnginePort, job: Job, parent: Job) -> DriverTurn:
    words = (
        f"job {job.id} was submitted by job {parent.id} ({parent.name}), which still runs and starts it again by itself, or gives "
        "up: it is left to that"
    )
    if job.ended is not None and engine.clock.now() - job.ended < ACTS_WITHIN:
        return DriverTurn(waits=f"{words}; it is looked at again")
    return DriverTurn(over=f"{words}, and has not begun again since. If nothing comes of it: {start_line(job)}")


def _gave_up_after(parent: Job, job: Job) -> bool:
    """Tell whether a driver ended badly behind a job of its own."""
    if not parent.state.ended or parent.state is JobState.COMPLETED or parent.ended is None or job.ended is None:
        return False
    return job.ended <= parent.ended and parent.ended - job.ended <= FAILS_WITHIN


def _with_its_driver(engine: EnginePort, job: Job, parent: Job) -> DriverTurn:
    """Return the turn of a job whose driver has given up: its work counts only where that starts it."""
    words = f"job {job.id} was submitted by job {parent.id} ({parent.name}), which gave up"
    incidents = engine.store.incidents(job=parent.id)
    restart = next((entry for entry in engine.scheduler.user_jobs(job.user) if _restarts(engine, entry, parent)), None)
    if restart is not None:
        return DriverTurn(settled=f"settled elsewhere: {words} and goes on as job {restart.id}: that starts it again")
    if any(not entry.state.ended for entry in incidents):
        return DriverTurn(waits=f"{words}; waits for incident {incidents[0].id} about that")
    if not incidents and parent.ended is not None and engine.clock.now() - parent.ended < OPENED_WITHIN:
        return DriverTurn(waits=f"{words}; waits for the incident about that")
    return DriverTurn(
        over=f"{words}: job {job.id} was not started again by itself, for its work would not count. {_line_words(parent)}"
    )


def _line_words(driver: Job) -> str:
    return f"Its owner starts the driver again: {start_line(driver)}"


def _given_up(
    engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job, children: Sequence[Job], *, is_restart: bool
) -> DriverTurn:
    names = ", ".join(f"{child.id} ({child.name})" for child in children[:MOST_NAMED])
    words = f"job {job.id} ({job.name}) submitted job {names} and ended because that failed"
    for child in children:
        successor = next((entry for entry in engine.scheduler.user_jobs(job.user) if _restarts(engine, entry, child)), None)
        if successor is not None:
            reason = (
                f"Job {job.id} was not started again beside it: two would do the same work. Once job {successor.id} has ended well"
            )
            return DriverTurn(
                over=f"{words}; it goes on as job {successor.id}. {reason}, its owner starts it again: {start_line(job)}"
            )
    incident_by_child = {child.id: next(iter(engine.store.incidents(job=child.id)), None) for child in children}
    undecided = [entry for entry in incident_by_child.values() if entry is not None and engine.store.diagnosis(entry.id) is None]
    if undecided:
        return DriverTurn(waits=f"{words}; waits for the diagnosis of incident {undecided[0].id}")
    causes = [
        cause
        for entry in incident_by_child.values()
        if entry is not None and (cause := engine.store.diagnosis(entry.id)) is not None
    ]
    if sibling := _at_work(engine, job):
        return DriverTurn(waits=f"{words}; waits for job {sibling.id} ({sibling.name}), which it submitted as well")
    if problem := _restart_problem(job, causes, len(children), is_restart=is_restart):
        return DriverTurn(over=f"{words}. Nothing was started again: {problem}. {_line_words(job)}. {_cause_words(causes)}")
    cause = _joint_cause(engine, incident, job, causes)
    if unsafe := [node for node in avoided(cause, AVOIDED) if node not in cause.faulty_nodes]:
        why = f"a job of it could land on {', '.join(unsafe)} again, and nothing proves that node to be at fault"
        return DriverTurn(over=f"{words}. Nothing was started again: {why}. {_line_words(job)}. {cause.summary}")
    summary = f"{words[0].upper()}{words[1:]}: {cause.summary}"
    advice = f"{_line_words(job)}. {cause.advice}"
    engine.store.add_diagnosis(incident.id, replace(cause, summary=summary, advice=advice))
    engine.store.mark_stage(incident.id, GOES_ON)
    return DriverTurn(
        waits=f"{words}; {goes_on_words(job)}, so it is started again once no job of it can land on the node at fault"
    )


def _restart_problem(job: Job, causes: Sequence[Diagnosis], many: int, *, is_restart: bool) -> str:
    """Return why a driver that gave up is not started again; empty where it may be."""
    if is_restart:
        return "it was started again once before"
    if job.state is not JobState.FAILED:
        return f"it {job.state}"
    if len(causes) < many or any(
        cause.category is not Category.INFRASTRUCTURE or cause.action not in RESTARTED for cause in causes
    ):
        return "what failed is nothing that a restart cures, or is not known"
    if not goes_on_words(job):
        return "that it passes over what is finished is not known"
    return ""


def _joint_cause(engine: EnginePort, incident: Incident, job: Job, causes: Sequence[Diagnosis]) -> Diagnosis:
    """Return the diagnosis that the failed jobs of a driver share, with nodes whose disks other users have filled."""
    first = next((cause for cause in causes if cause.faulty_nodes), causes[0])
    nodes = {finding.node: finding for cause in causes for finding in cause.nodes}
    places = tuple(dict.fromkeys(place for cause in causes for place in cause.where))
    return with_left_files(engine, incident, replace(first, nodes=tuple(nodes.values()), where=places), job.user)


def _cause_words(causes: Sequence[Diagnosis]) -> str:
    return causes[0].summary if causes else ""


def _set_aside_first(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job) -> DriverTurn:
    """Return the turn of a driver that goes on once the nodes at fault are out of service: its jobs know of no exclusion."""
    playbook = engine.playbooks.get(DRIVER)
    if playbook is None:
        return DriverTurn(over=f"there is no playbook {DRIVER}. {_line_words(job)}")
    if not engine.budget(playbook, diagnosis, job).allowed:
        return DriverTurn(over=f"{engine.budget(playbook, diagnosis, job).why}. {_line_words(job)}")
    inside = _in_service(engine, diagnosis.faulty_nodes)
    if inside:
        make_cordons(engine, incident, diagnosis, playbook, inside)
        inside = _in_service(engine, diagnosis.faulty_nodes)
    if not inside:
        return DriverTurn(restarts=True)
    words = f"a job of it could land on {', '.join(inside)} again, which still takes jobs"
    if job.ended is not None and engine.clock.now() - job.ended < ACTS_WITHIN:
        return DriverTurn(waits=f"job {job.id} ({job.name}) is not started again yet: {words}")
    return DriverTurn(over=f"job {job.id} ({job.name}) was not started again: {words}. {_line_words(job)}. {diagnosis.summary}")


def _in_service(engine: EnginePort, nodes: Collection[str]) -> list[str]:
    return [node.name for node in engine.scheduler.nodes() if node.name in nodes and node.state not in OUT_OF_SERVICE]


def _at_work(engine: EnginePort, job: Job) -> Job | None:
    """Return a job that a driver submitted and that has not ended; None where there is none."""
    job_ids = jobs_named_by(job)
    return next(
        (
            entry
            for entry in engine.scheduler.user_jobs(job.user)
            if not entry.state.ended and entry.id.partition("_")[0] in job_ids and submitted_by(entry, job, job_ids)
        ),
        None,
    )


def _restarts(engine: EnginePort, job: Job, child: Job) -> bool:
    call = restart_of(engine.store, job)
    return call is not None and call.arguments.get("job") == child.id


def _parent(engine: EnginePort, job: Job, own: Sequence[Job]) -> Job | None:
    """Return the job that submitted another one; None where that is not known."""
    for candidate in parents_first(own, job)[:MOST_LOGS]:
        listing = _listing(engine, candidate)
        texts = _texts(listing) if listing is not None else []
        if listing is None or not watches_over_jobs(texts):
            continue
        if submitted_by(job, listing, jobs_named_by(listing)):
            return listing
        if submits_jobs(texts) and is_worker_of(job, listing, mentioned_jobs(_log_texts(listing))):
            return listing
    return None


def _failed_children(engine: EnginePort, job: Job, own: Sequence[Job]) -> list[Job]:
    """Return the jobs that a failed one had submitted and that failed shortly before it."""
    if job.ended is None or not job.ended_badly:
        return []
    near = [
        entry
        for entry in own
        if entry.ended_badly and entry.ended is not None and entry.ended <= job.ended and job.ended - entry.ended <= FAILS_WITHIN
    ]
    job_ids = jobs_named_by(job) if near and _is_driver(job) else frozenset()
    listings = [_listing(engine, entry) for entry in near if entry.id.partition("_")[0] in job_ids][-MOST_CHILDREN:]
    return [listing for listing in listings if listing is not None and submitted_by(listing, job, job_ids)]


def _listing(engine: EnginePort, job: Job) -> Job | None:
    try:
        return engine.scheduler.job(job.id)
    except (ToolError, Unavailable):
        return None


def _is_driver(job: Job) -> bool:
    """Tell whether a job watches over what it submits; one whose programs cannot be read is taken by its script alone."""
    return watches_over_jobs(_texts(job))


def _texts(job: Job) -> list[str]:
    """Return the script of a job and the sources of its programs, as far as they can be read."""
    texts = [job.spec.script] if job.spec is not None else []
    try:
        with reading_as(job.account):
            texts += [source.text for program in programs_of(job) for source in program.sources]
    except (NightshiftError, OSError):
        pass
    return texts


def _log_texts(job: Job) -> list[str]:
    try:
        with reading_as(job.account):
            return [line.text for line in log_lines(job, most_bytes=LOG_BYTES)]
    except (NightshiftError, OSError):
        return []
