"""What the tasks of an array prove about a node on whose disk several of them failed, while others do the same work elsewhere.

Each of them runs the same script in the same way. Where the disk of one node fails several, fails none on another node, and others
are done there or have lasted longer than the ones that failed, the node is what differs: a restart stays away from it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from assistant.engine.evidence.file_systems import DiskFault, crowded_disk, paths_used, unnamed_disk
from assistant.engine.evidence.storage import MOST_OTHERS, all_states, fault_of, restart_elsewhere, sources_of
from assistant.records import Action, Category, Diagnosis, Incident, Job, JobState, Whereabouts
from assistant.recover.situation import AVOIDED, avoided

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

FEWEST_FAILED = 2
"""Tasks that failed on one node of its disk, before that counts as more than the task's own."""
MOST_INCIDENTS = 500
MOST_NAMED = 4


class SiblingComparison(NamedTuple):
    """A node on which tasks of an array failed of its disk, and those that did not elsewhere."""

    node: str
    failed: tuple[str, ...]
    sound: tuple[str, ...]
    sound_nodes: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """For people."""
        sibling_words = ", ".join(self.sound[:MOST_NAMED]) + (
            f" and {len(self.sound) - MOST_NAMED} more" if len(self.sound) > 4 else ""
        )
        nodes = ", ".join(self.sound_nodes[:MOST_NAMED])
        return f"Tasks {', '.join(self.failed)} of the array failed so on {self.node}; {sibling_words} ran on {nodes} without it."


def sibling_comparison(
    job: Job, jobs: Sequence[Job], faults: Mapping[str, DiskFault | None], now: datetime
) -> SiblingComparison | None:
    """Return what the tasks of an array prove about the node of one that failed of a disk; None where they prove nothing. Pure.

    Args:
        job: The task, which has failed of a disk.
        jobs: Of the scheduler.
        faults: Of which fault of a disk each failed task is known to have failed, itself among them; of one that is missing nothing
            is known yet.
        now: The time.
    """
    array, _, task = job.id.partition("_")
    fault = faults.get(job.id)
    if not task.isdecimal() or len(job.nodes) != 1 or fault is None or job.started is None or job.ended is None:
        return None
    node, lasted = job.nodes[0], job.ended - job.started
    tasks = [item for item in jobs if item.id.partition("_")[0] == array and item.user == job.user and item.id != job.id]
    failed, sound, sound_nodes = [job.id], list[str](), dict[str, None]()
    for item in tasks:
        is_bad = item.state.ended and item.state is not JobState.COMPLETED
        if is_bad and faults.get(item.id) is fault:
            if item.nodes != (node,):
                return None
            failed.append(item.id)
        elif is_bad and item.id not in faults and node not in item.nodes:
            return None  # perhaps it failed of the same: its diagnosis comes
        elif node not in item.nodes and _is_sound(item, lasted_s=lasted.total_seconds(), now=now):
            sound.append(item.id)
            sound_nodes |= dict.fromkeys(item.nodes)
    if len(failed) < FEWEST_FAILED or not sound:
        return None
    return SiblingComparison(node, tuple(sorted(failed, key=_number)), tuple(sorted(sound, key=_number)), tuple(sound_nodes))


def _is_sound(task: Job, *, lasted_s: float, now: datetime) -> bool:
    """Tell whether a task is done, or runs for longer than the one that failed had."""
    if task.state is JobState.COMPLETED:
        return not task.exit_code and bool(task.nodes)
    return task.state is JobState.RUNNING and task.started is not None and (now - task.started).total_seconds() > lasted_s


def _number(job_id: str) -> tuple[int, str]:
    task = job_id.partition("_")[2]
    return (int(task) if task.isdecimal() else 0), job_id


def with_sound_siblings(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis by which a task of an array goes on away from the node whose disk failed several; as it is elsewhere.

    Asked anew at each turn of the incident: a task fails alone at first, and what its siblings show comes later.
    """
    fault = fault_of(" ".join(cited.text for cited in diagnosis.root_cause))
    if engine.replays or job is None or "_" not in job.id or fault is None or diagnosis.faulty_nodes or avoided(diagnosis):
        return diagnosis
    if diagnosis.action not in (Action.FIX_AND_RESUBMIT, Action.RESTART_SAME_NODES):
        return diagnosis
    faults = {job.id: fault, **_faults(engine, incident, job)}
    comparison = sibling_comparison(job, engine.watcher.jobs, faults, engine.clock.now())
    if comparison is None:
        return diagnosis
    node, words = comparison.node, comparison.sentence
    states = all_states(engine, incident, [node, *comparison.sound_nodes[:MOST_OTHERS]])
    used = paths_used(job, (), sources_of(job))
    own = [state for state in states if state["node"] == node]
    disk = unnamed_disk(fault, own, used) or (crowded_disk(states, [node], used) if fault is DiskFault.FULL else None)
    diagnosis = replace(diagnosis, summary=f"{diagnosis.summary} {words}")
    if disk is not None:
        is_crowded = fault is DiskFault.FULL and disk.fine != () and unnamed_disk(fault, own, used) is None
        disk_fault = DiskFault.CROWDED if is_crowded else fault
        return restart_elsewhere(engine, incident, diagnosis, (disk.place, node, disk_fault), job, words)
    places = (*diagnosis.where, Whereabouts(f"{AVOIDED} a disk that its tasks use {fault} there", node))
    advice = f"Restart on other nodes than {node}: {words} Somebody has to see to its disks (df -h)."
    return replace(diagnosis, category=Category.INFRASTRUCTURE, action=Action.RESTART_SAME_NODES, advice=advice, where=places)


def _faults(engine: EnginePort, incident: Incident, job: Job) -> dict[str, DiskFault | None]:
    """Return of which fault of a disk the other tasks of an array failed, of those that have a diagnosis."""
    array, faults = job.id.partition("_")[0], dict[str, DiskFault | None]()
    for candidate in engine.store.incidents(limit=MOST_INCIDENTS):
        if candidate.id == incident.id or candidate.job is None or not candidate.job.startswith(f"{array}_"):
            continue
        sibling_diagnosis = engine.store.diagnosis(candidate.id)
        if sibling_diagnosis is not None:
            faults[candidate.job] = fault_of(" ".join(cited.text for cited in sibling_diagnosis.root_cause))
    return faults


def reconsidered(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of an incident with what the tasks beside its own have shown since it was made, and keep it."""
    fresh = with_sound_siblings(engine, incident, diagnosis, job)
    if fresh is not diagnosis:
        engine.store.add_diagnosis(incident.id, fresh)
        engine.outages.forget(incident.id)
        logger.info("incident=%s judged anew by the other tasks of its array: %s", incident.id, fresh.summary)
    return fresh
