"""Tell whether a process of somebody else had used up the memory of a node, and whether it is gone; then the job is a victim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assistant.accounts import name_of, uid_of
from assistant.diagnose.readers.kernel import MemoryUser, memory_hogs, memory_users
from assistant.engine.gather import ask
from assistant.records import Action, Category, Diagnosis, Incident, Job, Whereabouts
from assistant.recover.situation import AVOIDED, PASSED
from assistant.watch.attempts import Remark

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["room_again", "with_memory_hog"]

KERNEL = "dmesg.log"
LEAST_SHARE = 0.5
"""Of a node's memory that a process must have held to be what used it up."""
FREE_SHARE = 0.1
SPARE = 2.0
"""Of a node's memory, and times what the job's processes held there, that have to be free for another start."""


def with_memory_hog(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis by which a job that was killed for a stranger's memory starts again; as it is where that is not proven.

    On the same nodes where that process is gone and memory is free again, else on others.
    """
    cited = [line.text for line in diagnosis.root_cause if line.file == KERNEL]
    uid = uid_of(job.account or job.user) if job is not None else None
    if diagnosis.reason != "out_of_memory_error" or job is None or not job.state.ended or not cited or uid is None:
        return diagnosis
    texts = [evidence.text for evidence in engine.store.evidence(incident.id) if evidence.source == KERNEL]
    users = memory_users(texts[-1], cited, job.nodes) if texts else []
    for node in job.nodes:
        hog = memory_hogs([user for user in users if user.host == node], uid, job.raw_id or job.id)
        if hog is not None:
            return _judged(engine, incident, diagnosis, job, node, *hog)
    return diagnosis


def room_again(row: Mapping[str, Any], hog: MemoryUser, own: Sequence[MemoryUser]) -> bool:
    """Tell whether a process that had used up a node's memory is gone and the node has room for the job. Pure.

    Args:
        row: Of `host_memory`, about that node now.
        hog: The process.
        own: The processes of the job that the kernel named.
    """
    lives = any(process["pid"] == hog.pid and process["uid"] == hog.uid for process in row["processes"])
    needed_bytes = max(FREE_SHARE * row["total_bytes"], SPARE * 1024 * sum(user.resident_kib for user in own))
    return not lives and row["available_bytes"] >= needed_bytes


def _judged(
    engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job, node: str, hog: MemoryUser, own: Sequence[MemoryUser]
) -> Diagnosis:
    """Return a diagnosis that names whose process had used up a node, and what comes of the job."""
    answer = ask(engine.store, engine.gate, incident, "host_memory", {"nodes": [node], "pids": [hog.pid]}) or {}
    row = next((row for row in answer.get("rows") or () if row["node"] == node), None)
    if row is None or hog.resident_kib * 1024 < LEAST_SHARE * row["total_bytes"]:
        return diagnosis
    account = f"UID {hog.uid}"
    if hog.uid is not None and str(hog.uid) not in (name := name_of(hog.uid)):
        account += f" ({name})"
    shares = f"held {hog.gib:,.1f} GiB of {node}, the processes of job {job.id} {sum(user.gib for user in own):,.1f} GiB"
    sentence = f"{hog.name} (process {hog.pid}, {account}{f', job {hog.job}' if hog.job else ''}) {shares}."
    free = f"{row['available_bytes'] / 2**30:,.1f} of {row['total_bytes'] / 2**30:,.1f} GiB are free there now"
    remark = f"{sentence} Job {job.id}{f' of {job.user}' if job.user else ''} was killed for that: give such programs a limit"
    engine.good_runs.remarks.append(Remark(f"memory of {node}", remark))
    if room_again(row, hog, own):
        place = Whereabouts(f"{PASSED} memory, by {hog.name} of {account}", node)
        advice = f"Restart from the last healthy checkpoint: {sentence} That process is gone, and {free}."
    else:
        place = Whereabouts(f"{AVOIDED} its memory was used up by {hog.name} of {account}, and is not known to be free again", node)
        advice = f"Restart from the last healthy checkpoint on other nodes than {node}: {sentence} Of its memory {free}."
    return replace(
        diagnosis,
        category=Category.INFRASTRUCTURE,
        action=Action.RESTART_SAME_NODES,
        summary=f"{diagnosis.summary} {sentence}",
        advice=f"{advice} The job itself has nothing to change; such programs need a limit of memory there.",
        where=(*diagnosis.where, place),
    )
