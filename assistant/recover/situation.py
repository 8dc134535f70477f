"""What a playbook's paths find before its first step: the incident, the diagnosis, the job, the run and its directives."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from assistant.records import Action, Category, Diagnosis, EventKind, Incident, Job
from assistant.recover.directives import directives_of
from assistant.recover.restart import attempt_of
from assistant.recover.signals import accused, cause_words, proven, witnesses
from assistant.watch.outages import AwaitedService, awaited_by

AVOIDED = "a restart stays away from it:"
"""How a place of a diagnosis begins whose node a restart is to stay away from, though nobody is sure that it is broken."""
HELD = "what it needs there is held:"
"""The same where nothing is wrong with the node: somebody else has what the job needs of it."""
PASSED = "somebody else had taken what it lacked:"
"""How a place of a diagnosis begins where what a job lacked is there again, and it may start on the same node once more."""
AWAY = "a file system is away:"
"""How a place of a diagnosis begins that names the mount point which has to be there again before a restart."""
NOWHERE = "a name resolves nowhere:"
"""How a place of a diagnosis begins that names a host which has to be resolved again before a restart."""
WRITTEN = "somebody writes what it reads:"
"""How a place of a diagnosis begins that names a file which has to be written no more before a restart."""
WRITER = "it is written by job"
"""The same of the job that writes it."""
LONG_STEPS = 500
"""A run that trained for so many steps has shown its data, memory and checkpoints to work: what ended it may be the machine."""
LONG_MIN = 30.0


def situation(
    incident: Incident,
    diagnosis: Diagnosis,
    job: Job | None,
    *,
    now: datetime,
    refuted: bool = False,
) -> dict[str, Any]:
    """Return the values that every playbook may refer to, as plain JSON values.

    Args:
        incident: The case.
        diagnosis: Its latest diagnosis.
        job: As the scheduler shows it; None for an incident about a node.
        now: The time, for the length of a run that has not ended.
        refuted: Whether the restart before rested on the same theory and did not hold.
    """
    directives, about_job = directives_of(job), _job(incident, job)
    hangs = incident.kind is EventKind.HANG
    may_work = "" if hangs and _stands_on_a_fault(diagnosis, job) else about_job["running"]
    return {
        "incident": {
            "id": incident.id,
            "job": incident.job,
            "node": incident.node,
            "attempt": incident.attempt,
            "kind": str(incident.kind),
            "nodes": list(job.nodes) if job is not None else [incident.node] if incident.node else [],
        },
        "diagnosis": _about(diagnosis),
        "job": {
            **about_job,
            "may_work": may_work,
            "silent": may_work if hangs else "",
            "trouble": "stands still" if hangs and about_job["running"] else "failed",
        },
        "run": {
            **_run(diagnosis, job, now),
            "began": _began(incident, job),
            "refuted_on": list(job.nodes) if refuted and job is not None else [],
        },
        "directives": {
            "owner": directives.owner or (job.user if job is not None else ""),
            "act": directives.act,
            "auto": "yes" if directives.act == "auto" else "",
            "restarts": directives.restarts,
        },
    }


def _about(diagnosis: Diagnosis) -> Mapping[str, Any]:
    first = diagnosis.root_cause[0] if diagnosis.root_cause else None
    awaited = _awaited(diagnosis)
    return {
        "reason": diagnosis.reason,
        "cause": cause_words(diagnosis),
        "category": str(diagnosis.category),
        "action": str(diagnosis.action),
        "cordon": "yes" if diagnosis.action is Action.CORDON_AND_RESTART else "",
        "confidence": diagnosis.confidence,
        "faulty_nodes": list(diagnosis.faulty_nodes),
        "proven_nodes": proven(diagnosis),
        "accused_nodes": accused(diagnosis),
        "full_nodes": avoided(diagnosis),
        "hardware": "yes" if diagnosis.category is Category.INFRASTRUCTURE and avoided(diagnosis, AVOIDED) else "",
        "awaited": awaited.cause,
        "awaited_paths": list(awaited.paths),
        "awaited_answered": "yes" if awaited.answered else "",
        "written_files": _named_behind(diagnosis, WRITTEN),
        "writers": _named_behind(diagnosis, WRITER),
        "summary": diagnosis.summary,
        "advice": diagnosis.advice,
        "step": diagnosis.step,
        "spike_step": diagnosis.spike_step,
        "root_line": f"{first.file}:{first.line}: {first.text}" if first else "no line proves it",
    }


def avoided(diagnosis: Diagnosis, *causes: str) -> list[str]:
    """Return the nodes that a restart stays away from, though nobody is sure that they are broken.

    Args:
        diagnosis: Of the job.
        causes: `AVOIDED` for those that somebody has to see to, `HELD`; both when not given.
    """
    return [place.node for place in diagnosis.where if place.node is not None and place.why.startswith(causes or (AVOIDED, HELD))]


def _named_behind(diagnosis: Diagnosis, words: str) -> list[str]:
    return [place.why.removeprefix(words).strip() for place in diagnosis.where if place.why.startswith(words)]


def _awaited(diagnosis: Diagnosis) -> AwaitedService:
    """Return what has to be there again before a restart: what nodes showed to be away, else what lines name.

    A host that only single nodes do not reach is there, and so is a path on a disk of one node: the restart stays away from them.
    """
    away = next((name for words in (AWAY, NOWHERE) for name in _named_behind(diagnosis, words)), "")
    awaited = AwaitedService(away) if away else awaited_by(diagnosis.reason, [cited.text for cited in diagnosis.root_cause])
    host = awaited.cause.partition(":")[0]
    there = bool(host) and any(
        place.why.startswith(f"{AVOIDED} {host} ") or place.why.startswith(f"{AVOIDED} {host}:") for place in diagnosis.where
    )
    lies_there = awaited.cause.startswith("/") and any(
        PurePosixPath(awaited.cause).is_relative_to(words.partition(" ")[0])
        for words in _named_behind(diagnosis, AVOIDED)
        if words.startswith("/")
    )
    return AwaitedService() if there or lies_there else awaited


def _stands_on_a_fault(diagnosis: Diagnosis, job: Job | None) -> bool:
    """Tell whether something else than the own log of a job that stands still says that one of its nodes is at fault.

    It is ended then as any hang is, also where processes of it live: a rank that has met an error of its GPU may stay.
    """
    if job is None:
        return False
    return any(witnesses(diagnosis, node) - {"job"} for node in diagnosis.faulty_nodes if node in job.nodes)


def _job(incident: Incident, job: Job | None) -> Mapping[str, Any]:
    if job is None:
        return {"id": None, "name": "", "user": "", "state": "", "running": "", "nodes": [], "partition": "", "comment": ""}
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "state": str(job.state),
        # a later attempt under the same id is a restart, which no step may take for the attempt that failed
        "running": "" if job.state.ended or job.attempt > incident.attempt else "yes",
        "nodes": list(job.nodes),
        "partition": job.partition,
        "comment": job.comment,
    }


def _run(diagnosis: Diagnosis, job: Job | None, now: datetime) -> Mapping[str, Any]:
    end = (job.ended or now) if job is not None else now
    minutes = (end - job.started).total_seconds() / 60 if job is not None and job.started is not None else 0.0
    restarts = attempt_of(job.spec) if job is not None and job.spec is not None else 0
    long = (diagnosis.step or 0) >= LONG_STEPS or (diagnosis.step is None and minutes >= LONG_MIN)
    # it lasted with these settings, or what was missing is there elsewhere or again
    once_more = long or bool(avoided(diagnosis, AVOIDED, HELD, PASSED))
    return {
        "step": diagnosis.step,
        "minutes": round(minutes, 1),
        "long": "yes" if long else "",
        "again": "yes" if once_more else "",
        "restarts": restarts,
    }


def _began(incident: Incident, job: Job | None) -> str | None:
    """Return when the attempt began; None where the job as shown is a later one, requeued under the same id."""
    started = job.started if job is not None else None
    if started is None or started > (incident.failed_at or incident.opened):
        return None
    return started.isoformat()
