"""Who holds the port that a job could not take; a restart elsewhere where that is another job or a process left behind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.engine.gather import ask
from assistant.errors import Unavailable
from assistant.records import Action, Diagnosis, Incident, Job, JobState, NodeState, Whereabouts
from assistant.recover.situation import AVOIDED, HELD
from assistant.watch.attempts import Remark
from assistant.watch.outages import ENDED_BY_ITSELF, MOST_CHARACTERS

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["Holder", "PortHolder", "holder_of", "port_in_use", "with_port_holder"]

MOST_OTHERS = 3
_IN_USE = re.compile(
    r"address already in use|EADDRINUSE|\bport \d{2,5} is (?:already )?(?:in use|used|taken|occupied)", re.IGNORECASE
)
_PORT = (
    re.compile(r"\bport[ '\":=]{1,3}(\d{2,5})\b", re.IGNORECASE),
    re.compile(r"\]:(\d{2,5})\b|:::(\d{2,5})\b|\b(?:\d{1,3}\.){3}\d{1,3}:(\d{2,5})\b|[*]:(\d{2,5})\b"),
    re.compile(r"\('[^']{0,64}', (\d{2,5})\b"),
    re.compile(r"\b(?:localhost|[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}):(\d{2,5})\b(?!:)"),
)
"""Forms in which a line that says that an address is in use names its port, the surest first."""
_UNIX_SOCKET = re.compile(r"\.sock(?:et)?\b|unix:|/run/|AF_UNIX", re.IGNORECASE)
_OPTION = re.compile(r"(?:--(?:master[_-]?port|rdzv[_-]?endpoint|port)[= ]|MASTER_PORT=)[\"']?(?:[^\s\"']{0,80}:)?(\d{2,5})\b")


class PortHolder(StrEnum):
    """Who holds a port."""

    OTHER_JOB = "another job"
    LEFT_BEHIND = "a process left behind"
    """Of a job that has ended, and that no running job accounts for."""
    OWN = "a process of its own"
    NO_JOB = "a process of no job"
    NOBODY = "nobody"


class Holder(NamedTuple):
    """Who holds a port of a node now."""

    kind: PortHolder
    text: str = ""
    """Process, job and user, for people."""


def port_in_use(texts: Iterable[str], script: str = "") -> int | None:
    """Return the port that lines say is in use; None where they say that of none, or name none.

    Args:
        texts: Lines that prove a failure.
        script: Where no line names the port: the one that this batch script fixes, if it fixes one.
    """
    lines = [text[:MOST_CHARACTERS] for text in texts]
    complaints = [text for text in lines if _IN_USE.search(text) and not _UNIX_SOCKET.search(text)]
    for text in complaints:
        for form in _PORT:
            if match := form.search(text):
                return _number(next(word for word in match.groups() if word))
    fixed = {_number(word) for word in _OPTION.findall(script)} if complaints else set()
    return fixed.pop() if len(fixed) == 1 else None


def holder_of(rows: Sequence[Mapping[str, Any]], node: str, job: Job, jobs: Sequence[Job]) -> Holder:
    """Return who holds a port of a node, by what `port_holders` says of it.

    What a process says of its job counts only where the scheduler shows that job of that user on that node.

    Args:
        rows: Holders on the node.
        node: Its name.
        job: The one that could not take the port.
        jobs: All that the scheduler shows.
    """
    listening = [row for row in rows if row.get("listens")] or list(rows)
    if not listening:
        return Holder(PortHolder.NOBODY)
    jobs_by_id = {entry.raw_id or entry.id: entry for entry in jobs}
    first = listening[0]
    program = f"process {first['pid']} ({first['program'] or 'its command is not known'})" if first["pid"] else "a process"
    holding_job = jobs_by_id.get(str(first["job"]))
    if str(first["job"]) == (job.raw_id or job.id):
        return Holder(PortHolder.OWN, f"{program} of job {job.id} itself")
    if holding_job is not None and holding_job.user == first["user"] and not holding_job.state.ended and node in holding_job.nodes:
        return Holder(PortHolder.OTHER_JOB, f"job {holding_job.id} ({holding_job.name}) of {holding_job.user}, {program}")
    of = f" of {first['user']}" if first["user"] else ""
    runs_there = any(entry.user == first["user"] and entry.state is JobState.RUNNING and node in entry.nodes for entry in jobs)
    # of another's job that the scheduler does not show nobody can tell whether it has ended: it may show us some users' jobs only
    over = holding_job.state.ended if holding_job is not None else first["user"] == job.user
    if first["job"] and not runs_there and over:
        return Holder(
            PortHolder.LEFT_BEHIND,
            f"{program}{of}, left behind by job {holding_job.id if holding_job is not None else first['job']}",
        )
    return Holder(PortHolder.NO_JOB, f"{program}{of}")


def with_port_holder(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that names who holds the port which a job could not take; as it is where it failed of no port.

    Where another job holds it, or a process that was left behind, a restart on another node is right; where nobody does now, or the
    job itself took it twice, its owner has to look.
    """
    if job is None or not job.nodes or not job.state.ended or diagnosis.reason in ENDED_BY_ITSELF:
        return diagnosis
    port = port_in_use((cited.text for cited in diagnosis.root_cause), job.spec.script if job.spec is not None else "")
    if port is None:
        return diagnosis
    node = next((place.node for place in diagnosis.where if place.node in job.nodes), job.nodes[0])
    answer = ask(engine.store, engine.gate, incident, "port_holders", {"nodes": [node], "port": port}) or {}
    if node in (answer.get("unknown") or {}) or not answer:
        return diagnosis
    try:
        jobs = engine.scheduler.jobs()
    except Unavailable:
        return diagnosis
    holder = holder_of((answer.get("holders") or {}).get(node, ()), node, job, jobs)
    if holder.kind is PortHolder.NOBODY:
        return replace(diagnosis, summary=f"{diagnosis.summary} Nobody holds port {port} of {node} now.")
    sentence = f"Port {port} of {node} is held by {holder.text}."
    diagnosis = replace(diagnosis, summary=f"{diagnosis.summary} {sentence}")
    if holder.kind is PortHolder.OTHER_JOB:
        own = "Jobs that share a node need ports of their own, such as $((20000 + SLURM_JOB_ID % 20000)): "
        own += f"{job.user or 'the owner'} may set one."
        advice = f"Restart on another node, or when that job has ended: {sentence} {own}"
        places = (*diagnosis.where, Whereabouts(f"{HELD} port {port}, by {holder.text}", node))
        return replace(
            diagnosis, action=Action.RESTART_SAME_NODES, advice=advice, where=places, summary=f"{diagnosis.summary} {own}"
        )
    if holder.kind is PortHolder.LEFT_BEHIND or (
        holder.kind is PortHolder.NO_JOB and _free_elsewhere(engine, incident, job, node, port)
    ):
        places = (*diagnosis.where, Whereabouts(f"{AVOIDED} port {port} is held there by {holder.text}", node))
        engine.good_runs.remarks.append(
            Remark(f"port {port} of {node}", f"{sentence} Job {job.id} failed by that: end it, or say what it is")
        )
        advice = f"Restart on another node: {sentence} Somebody has to see whether that process is wanted there."
        return replace(diagnosis, action=Action.RESTART_SAME_NODES, advice=advice, where=places)
    return replace(diagnosis, advice=f"{diagnosis.advice} {sentence}")


def nodes_elsewhere(engine: Engine, job: Job, node: str) -> list[str]:
    """Return the first nodes in service of a job's partition without one node; none where the scheduler does not answer."""
    try:
        all_nodes = engine.scheduler.nodes()
    except Unavailable:
        return []
    in_service = (
        candidate.name
        for candidate in all_nodes
        if candidate.state in (NodeState.IDLE, NodeState.ALLOCATED) and job.partition in candidate.partitions
    )
    return [name for name in in_service if name != node][:MOST_OTHERS]


def _free_elsewhere(engine: Engine, incident: Incident, job: Job, node: str, port: int) -> bool:
    """Tell whether the port is free on other nodes of the partition, all of those that are asked: then it is no service of each."""
    elsewhere = nodes_elsewhere(engine, job, node)
    answer = ask(engine.store, engine.gate, incident, "port_holders", {"nodes": elsewhere, "port": port}) if elsewhere else None
    return bool(answer and answer.get("free") and not answer.get("holders"))


def _number(word: str) -> int | None:
    return int(word) if 1 <= int(word) <= 65_535 else None
