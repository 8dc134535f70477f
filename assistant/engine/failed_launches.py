"""Tell whether a job that never began met its own mistake or its node's: what a start needs is compared on that node and on others.

A file system that is not mounted there and is on the others takes the node out of service. Where nothing is proven on the node, but
jobs of the same owner with the same folders began elsewhere in those minutes, the restart stays away from it, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from assistant.engine.gather import ask
from assistant.engine.lost_folders import shown_jobs, wrote_log
from assistant.engine.node_paths import node_fault
from assistant.engine.storage import MOST_OTHERS, comparable_nodes, nodes_of_cluster, without_node
from assistant.records import Action, Category, Diagnosis, Incident, Job, Whereabouts
from assistant.recover.launches import launch_paths, never_began
from assistant.recover.situation import AVOIDED
from assistant.watch.attempts import Remark

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["starts_elsewhere", "with_failed_launch"]

AT_ONCE = timedelta(minutes=1)
"""Between failed launches that count as of one cause."""
NEAR = timedelta(minutes=10)
"""Between a failed launch and a start elsewhere that shows the folders to be usable."""
FEWEST = 2
"""Jobs that never began on a node, before a start elsewhere speaks against the node."""
ABSENT = "No such file or directory"
"""What a launch meets whose folder is not there."""


def with_failed_launch(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis of a job that never began by which its node is at fault, where that is seen; else as it is."""
    if job is None or not never_began(job) or not job.nodes or diagnosis.faulty_nodes:
        return diagnosis
    node = job.nodes[0]  # the batch script is launched on the first
    peers = comparable_nodes(nodes_of_cluster(engine), replace(job, nodes=(node,)), node, most=MOST_OTHERS)
    for path in launch_paths(job) if peers else ():
        arguments = {"nodes": [node, *peers], "paths": [str(path)]}
        states: Sequence[Mapping[str, Any]] = (ask(engine.store, engine.gate, incident, "storage_state", arguments) or {}).get(
            "states"
        ) or ()
        fault = node_fault(ABSENT, [row for row in states if row["path"] == str(path)], job.user)
        if fault is not None and fault.node == node:
            return without_node(engine, incident, diagnosis, job, fault)
    candidates = starts_elsewhere(job, shown_jobs(engine, job, [entry for entry in engine.watcher.jobs if entry.user == job.user]))
    return _without_launches(engine, diagnosis, job, node, candidates) if candidates else diagnosis


def starts_elsewhere(job: Job, jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Return jobs that began on other nodes when a job never did on its own, with the same folders; none where that shows nothing.

    Args:
        job: That never began.
        jobs: Of its owner. All of those that never began about that time have to be of its node, two at least.
    """
    failed = [entry for entry in jobs if never_began(entry) and entry.nodes and _apart(entry.ended, job.ended) <= AT_ONCE]
    first = job.nodes[0]
    if len({entry.id for entry in (*failed, job)}) < FEWEST or any(entry.nodes[0] != first for entry in failed):
        return ()
    folders = launch_paths(job)
    return tuple(
        entry
        for entry in jobs
        if entry.started is not None
        and entry.nodes
        and entry.nodes[0] != first
        and not never_began(entry)
        and launch_paths(entry) == folders
        and _apart(entry.started, job.ended) <= NEAR
        and wrote_log(entry)
    )


def _without_launches(engine: Engine, diagnosis: Diagnosis, job: Job, node: str, candidates: Sequence[Job]) -> Diagnosis:
    names = ", ".join(f"{entry.id} on {entry.nodes[0]}" for entry in candidates[:3])
    owner = job.user or "its owner"
    words = f"Several jobs of {owner} never began on {node} in one minute, while others with the same folders began: {names}."
    text = (
        f"Slurm opens no output of jobs on {node}, and jobs of {job.user} failed by that: see to it there, other jobs will meet it"
    )
    engine.good_runs.remarks.append(Remark(f"launches on {node}", text))
    advice = f"Start it on other nodes than {node}. {words} Somebody has to see to it there."
    places = (*diagnosis.where, Whereabouts(f"{AVOIDED} jobs never begin there, and others do elsewhere", node))
    return replace(
        diagnosis,
        category=Category.INFRASTRUCTURE,
        action=Action.RESTART_SAME_NODES,
        summary=f"{diagnosis.summary} {words}",
        advice=advice,
        where=places,
    )


def _apart(entry: datetime | None, candidate: datetime | None) -> timedelta:
    return abs(entry - candidate) if entry is not None and candidate is not None else timedelta.max
