"""Who holds the GPU memory that a job did not get; a restart elsewhere where that is no process of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assistant.engine.gather import ask
from assistant.engine.held_ports import Holder, PortHolder, holder_of, nodes_elsewhere
from assistant.errors import Unavailable
from assistant.records import Action, Category, Diagnosis, Incident, Job, Whereabouts
from assistant.recover.situation import AVOIDED, HELD
from assistant.watch.attempts import Remark
from assistant.watch.outages import MOST_CHARACTERS

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["foreign_memory", "with_gpu_holder"]

SYSTEM = re.compile(r"Xorg|gnome-shell|nvidia-persistenced|nv-hostengine|\bdcgm|nvidia-cuda-mps")
LEAST_SHARE = 0.1
"""Of a GPU's memory that a process must hold to be what a job lacked."""
NEARLY = 0.15
"""By how much what the error says of a holder and what the node shows of it may differ: it may allocate on."""
_HOLDS = re.compile(r"Process (\d{1,10}) has (\d{1,6}(?:\.\d{1,6})?) (MiB|GiB) memory in use", re.IGNORECASE)
_BUSY = re.compile(r"CUDA-capable device\(?s?\)? (?:is/are|is|are) (?:all )?busy or unavailable", re.IGNORECASE)
_MIB = {"mib": 1.0, "gib": 1024.0}


def foreign_memory(texts: Iterable[str]) -> list[tuple[int, float]]:
    """Return process id and MiB of each other process that PyTorch names in an error as a holder of the GPU's memory.

    The id is 0 where a device is only said to be in use. In a container an id is another one than on its node.
    """
    lines = [text[:MOST_CHARACTERS] for text in texts]
    in_error = [(int(pid), float(size) * _MIB[unit.lower()]) for text in lines for pid, size, unit in _HOLDS.findall(text)]
    return in_error or [(0, 0.0) for text in lines if _BUSY.search(text)][:1]


def with_gpu_holder(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that names whose process holds the GPU memory that a job lacked; as it is where that is not proven.

    A process of no job, of an ended job, or of another job on the same GPU leaves the owner nothing to change: the job
    starts again on another node. What ran into its own limits, or into a sibling of its own job, stays for its owner.
    """
    texts = [cited.text for cited in diagnosis.root_cause]
    in_error = foreign_memory(texts) if diagnosis.reason in ("out_of_memory_error", "cuda_error") else []
    if not in_error or job is None or not job.nodes or not job.state.ended:
        return diagnosis
    node = next((place.node for place in diagnosis.where if place.node in job.nodes), None)
    node = node or (job.nodes[0] if len(job.nodes) == 1 else None)
    answer = (ask(engine.store, engine.gate, incident, "gpu_holders", {"nodes": [node]}) or {}) if node is not None else {}
    rows = [row for row in (answer.get("holders") or {}).get(node, ()) if _is_named(row, in_error)]
    if node is None or not rows:
        return diagnosis
    try:
        jobs = engine.scheduler.jobs()
    except Unavailable:
        return diagnosis
    largest = max(rows, key=lambda row: int(row["used_mib"]))
    holder = holder_of([largest], node, job, jobs)
    sentence = f"GPU {largest['gpu']} of {node}: {largest['used_mib'] / 1024:.1f} GiB are held by {holder.text}."
    diagnosis = replace(diagnosis, summary=f"{diagnosis.summary} {sentence}")
    if holder.kind is PortHolder.OWN:
        return diagnosis
    if holder.kind is PortHolder.NO_JOB and not _free_elsewhere(engine, incident, job, node):
        return replace(diagnosis, advice=f"{sentence} {diagnosis.advice}")
    return _elsewhere(engine, diagnosis, job, node, holder, f"GPU {largest['gpu']}", sentence)


def _elsewhere(engine: Engine, diagnosis: Diagnosis, job: Job, node: str, holder: Holder, gpu: str, sentence: str) -> Diagnosis:
    """Return a diagnosis by which a job starts again away from the GPU that others hold."""
    if holder.kind is PortHolder.OTHER_JOB:
        place = Whereabouts(f"{HELD} memory of {gpu}, by {holder.text}", node)
        todo = (
            "Two jobs were given one GPU, or one of them uses GPUs that it was not given: look at the node's gres.conf and cgroups."
        )
    else:
        place = Whereabouts(f"{AVOIDED} memory of {gpu} is held there by {holder.text}", node)
        todo = "Somebody has to see whether that process is wanted there, and to end it if not."
        remark = f"{sentence} Job {job.id} failed by that: end the process, or say what it is"
        engine.good_runs.remarks.append(Remark(f"GPU memory of {node}", remark))
    advice = f"Restart on another node: {sentence} The job itself has nothing to change. {todo}"
    places = (*diagnosis.where, place)
    # the node is left and not blamed: what is wrong with it goes away with the process
    restart = Action.RESTART_SAME_NODES
    return replace(diagnosis, category=Category.INFRASTRUCTURE, action=restart, advice=advice, where=places, nodes=())


def _is_named(row: Mapping[str, Any], in_error: Sequence[tuple[int, float]]) -> bool:
    """Tell whether a process that holds a GPU's memory now is one that the error speaks of."""
    used, total = float(row["used_mib"]), float(row["total_mib"])
    if used < LEAST_SHARE * total or SYSTEM.search(str(row["program"])):
        return False
    return any(pid in (0, row["pid"]) or abs(used - size) <= NEARLY * size for pid, size in in_error)


def _free_elsewhere(engine: Engine, incident: Incident, job: Job, node: str) -> bool:
    """Tell whether another node of the partition has a GPU without any process: then it is no service of each node."""
    elsewhere = nodes_elsewhere(engine, job, node)
    answer = ask(engine.store, engine.gate, incident, "gpu_holders", {"nodes": elsewhere}) if elsewhere else None
    return bool(answer and answer.get("free"))
