"""Notice a program of an earlier attempt that lives on while its job is queued again: once that runs, two save into one folder.

The scheduler queues a job again when the daemon of its node is silent; the program may not have noticed. The nodes that the job has
left are asked for it. Neither of the two is Nightshift's own, so nothing is ended: a person is told at once, with the commands, and
the incident is settled once one of them has gone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from assistant.errors import Fenced, NightshiftError
from assistant.records import Evidence, Incident, IncidentState, Job, JobState
from assistant.recover.second_writer import TEAR_DOWN

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["RAN_ON", "FormerProcesses"]

logger = logging.getLogger(__name__)

RAN_ON = "ran_on"
"""Fact of the evidence of a requeue: all nodes of the attempt that ended."""
OUTLIVED = "former_program"
"""Stage of an incident that was handed to a person since a program of its attempt lives beside the next one."""
PAUSE, LONG_PAUSE = timedelta(seconds=30), timedelta(minutes=5)
"""Between two looks: until each node has answered or a person was told, and for `LOOKED_FOR`; and afterwards."""
LOOKED_FOR = timedelta(minutes=10)


@dataclass
class FormerProcesses:
    """Jobs that were queued again, and when the nodes that they have left are asked next."""

    next_looks: dict[tuple[str, int], datetime | None] = field(default_factory=dict)
    """By job and number of the present attempt; None where nothing lives any more."""

    def look(self, engine: Engine, jobs: Sequence[Job], source: str) -> None:
        """Ask the nodes that requeued jobs have left; one that fails is only logged.

        Args:
            engine: Its store holds the incidents of the attempts before.
            jobs: Of the scheduler's last answer.
            source: Of the evidence about a requeue.

        Raises:
            Fenced: Another watch leads.
        """
        requeued_jobs = {(job.id, job.attempt): job for job in jobs if job.attempt and job.state is not JobState.UNKNOWN}
        self.next_looks = {key: at for key, at in self.next_looks.items() if key in requeued_jobs}
        for key, job in requeued_jobs.items():
            due = self.next_looks.get(key, engine.clock.now())
            if engine.replays or due is None or due > engine.clock.now():
                continue
            try:
                self.next_looks[key] = _ask_nodes(engine, job, source)
            except Fenced:
                raise
            except NightshiftError as error:
                self.next_looks[key] = engine.clock.now() + PAUSE
                logger.info("job=%s whether a program of its former attempt lives is not known: %s", job.id, error)


def _ask_nodes(engine: Engine, job: Job, source: str) -> datetime | None:
    """Ask about one job, write down what came of it, and return when to ask again; None where that is over."""
    own = [incident for incident in engine.store.incidents(job=job.id) if incident.attempt == job.attempt - 1]
    records = [(incident, _requeue(engine, incident, source)) for incident in own]
    incident, evidence = next(((attempt, evidence) for attempt, evidence in records if evidence is not None), (None, None))
    if incident is None or evidence is None:
        return None
    now = engine.clock.now()
    is_told = OUTLIVED in engine.store.stages(incident.id)
    if job.state.ended:
        _settle(engine, incident, f"job {job.id} {job.state}") if is_told else None
        return None
    nodes = _left_nodes(evidence, job)
    if not nodes:
        return now + PAUSE if job.state is JobState.PENDING else None
    why = "does a program of the attempt before live beside this one?"
    arguments = {"job": job.id, "nodes": nodes}
    outcome = engine.gate.call("former_program", arguments, why=why, by="watch", incident=incident.id)
    program: Mapping[str, Any] = outcome.value if outcome.ok and isinstance(outcome.value, Mapping) else {}
    ended = datetime.fromisoformat(str(evidence.facts["ended"]))
    if program.get("gone"):
        _settle(engine, incident, f"it lives no more on {', '.join(nodes)}") if is_told else None
        return None
    ending = now - ended <= TEAR_DOWN and not evidence.facts.get("nodes")
    if program.get("lives") and not ending and incident.state is IncidentState.CLOSED and not is_told:
        _tell(engine, incident, job, str(program["note"]))
    return now + (PAUSE if now - ended <= LOOKED_FOR else LONG_PAUSE)


def _requeue(engine: Engine, incident: Incident, source: str) -> Evidence | None:
    evidence = [entry for entry in engine.store.evidence(incident.id) if entry.source == source and entry.facts.get(RAN_ON)]
    return evidence[-1] if evidence else None


def _left_nodes(evidence: Evidence, job: Job) -> list[str]:
    """Return the nodes on which a job ran and runs no more, those that failed first."""
    failed = [str(node) for node in evidence.facts.get("nodes", ())]
    ran_on = [str(node) for node in evidence.facts.get(RAN_ON, ())]
    nodes = dict.fromkeys((*failed, *ran_on))
    return [node for node in nodes if job.state is JobState.PENDING or node not in job.nodes]


def _tell(engine: Engine, incident: Incident, job: Job, processes: str) -> None:
    """Hand the incident of a requeue to a person: what lives, and which commands keep it from becoming a second writer."""
    node = processes.partition(" ")[0]
    if job.state is JobState.PENDING:
        advice = f"HOLD job {job.id} before it begins (scontrol hold {job.id}), or end what lives there"
        then = f"then scontrol release {job.id}"
    else:
        advice = f"two write over each other's checkpoints: END one of them, what lives on {node}, or scancel {job.id}"
        then = "look which of the saves since are whole"
    was = incident.note.removeprefix("settled elsewhere: ")
    note = (
        f"a program of the attempt before still runs on {processes}, beside job {job.id} ({job.state}), which was queued again: "
        f"{advice}; {then}. Nothing was ended: neither is a restart of ours. {was}"
    )
    engine.store.mark_stage(incident.id, OUTLIVED)
    engine.store.mark_stage(incident.id, "escalated")
    engine.store.set_state(incident.id, IncidentState.ESCALATED, note=note)
    logger.error("incident=%s needs a person: a program of job %s lives beside its next attempt", incident.id, job.id)


def _settle(engine: Engine, incident: Incident, words: str) -> None:
    if incident.state is IncidentState.ESCALATED and incident.id in engine.store.unacknowledged():
        note = f"settled elsewhere: of the program of the attempt before and the job that was queued again one is left: {words}"
        engine.store.set_state(incident.id, IncidentState.CLOSED, note=f"{note}; told before: {incident.note}")
