"""Who holds what a job lacked: a port, GPU memory or the memory of a node; a restart elsewhere where that is another's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.accounts import name_of, uid_of
from assistant.diagnose.readers.kernel import MemoryUser, memory_hogs, memory_users
from assistant.engine.gather import ask, caused_outside
from assistant.errors import Unavailable
from assistant.records import Action, Category, Diagnosis, Incident, Job, JobState, NodeState, Whereabouts
from assistant.recover.situation import AVOIDED, HELD, PASSED
from assistant.watch.attempts import Remark
from assistant.watch.outages import ENDED_BY_ITSELF, MOST_CHARACTERS

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

MOST_OTHER_NODES = 3
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


def with_port_holder(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
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
        holder.kind is PortHolder.NO_JOB and _port_free_elsewhere(engine, incident, job, node, port)
    ):
        places = (*diagnosis.where, Whereabouts(f"{AVOIDED} port {port} is held there by {holder.text}", node))
        engine.good_runs.remarks.append(
            Remark(f"port {port} of {node}", f"{sentence} Job {job.id} failed by that: end it, or say what it is")
        )
        advice = f"Restart on another node: {sentence} Somebody has to see whether that process is wanted there."
        return replace(diagnosis, action=Action.RESTART_SAME_NODES, advice=advice, where=places)
    return replace(diagnosis, advice=f"{diagnosis.advice} {sentence}")


def nodes_elsewhere(engine: EnginePort, job: Job, node: str) -> list[str]:
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
    return [name for name in in_service if name != node][:MOST_OTHER_NODES]


def _port_free_elsewhere(engine: EnginePort, incident: Incident, job: Job, node: str, port: int) -> bool:
    """Tell whether the port is free on other nodes of the partition, all of those that are asked: then it is no service of each."""
    elsewhere = nodes_elsewhere(engine, job, node)
    answer = ask(engine.store, engine.gate, incident, "port_holders", {"nodes": elsewhere, "port": port}) if elsewhere else None
    return bool(answer and answer.get("free") and not answer.get("holders"))


def _number(word: str) -> int | None:
    return int(word) if 1 <= int(word) <= 65_535 else None


SYSTEM_PROGRAMS = re.compile(r"Xorg|gnome-shell|nvidia-persistenced|nv-hostengine|\bdcgm|nvidia-cuda-mps")
LEAST_GPU_SHARE = 0.1
"""Of a GPU's memory that a process must hold to be what a job lacked."""
ALIKE_SHARE = 0.15
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


def with_gpu_holder(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
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
    if holder.kind is PortHolder.NO_JOB and not _gpu_free_elsewhere(engine, incident, job, node):
        return replace(diagnosis, advice=f"{sentence} {diagnosis.advice}")
    return _restart_off_gpu(engine, diagnosis, job, node, holder, f"GPU {largest['gpu']}", sentence)


def _restart_off_gpu(
    engine: EnginePort, diagnosis: Diagnosis, job: Job, node: str, holder: Holder, gpu: str, sentence: str
) -> Diagnosis:
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
    if used < LEAST_GPU_SHARE * total or SYSTEM_PROGRAMS.search(str(row["program"])):
        return False
    return any(pid in (0, row["pid"]) or abs(used - size) <= ALIKE_SHARE * size for pid, size in in_error)


def _gpu_free_elsewhere(engine: EnginePort, incident: Incident, job: Job, node: str) -> bool:
    """Tell whether another node of the partition has a GPU without any process: then it is no service of each node."""
    elsewhere = nodes_elsewhere(engine, job, node)
    answer = ask(engine.store, engine.gate, incident, "gpu_holders", {"nodes": elsewhere}) if elsewhere else None
    return bool(answer and answer.get("free"))


KERNEL_LOG = "dmesg.log"
LEAST_MEMORY_SHARE = 0.5
"""Of a node's memory that a process must have held to be what used it up."""
FREE_MEMORY_SHARE = 0.1
SPARE_FACTOR = 2.0
"""Of a node's memory, and times what the job's processes held there, that have to be free for another start."""


def with_memory_hog(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis by which a job that was killed for a stranger's memory starts again; as it is where that is not proven.

    On the same nodes where that process is gone and memory is free again, else on others.
    """
    cited = [line.text for line in diagnosis.root_cause if line.file == KERNEL_LOG]
    uid = uid_of(job.account or job.user) if job is not None else None
    if diagnosis.reason != "out_of_memory_error" or job is None or not job.state.ended or not cited or uid is None:
        return diagnosis
    texts = [evidence.text for evidence in engine.store.evidence(incident.id) if evidence.source == KERNEL_LOG]
    users = memory_users(texts[-1], cited, job.nodes) if texts else []
    for node in job.nodes:
        hog = memory_hogs([user for user in users if user.host == node], uid, job.raw_id or job.id)
        if hog is not None:
            return _with_holder(engine, incident, diagnosis, job, node, *hog)
    return diagnosis


def room_again(row: Mapping[str, Any], hog: MemoryUser, own: Sequence[MemoryUser]) -> bool:
    """Tell whether a process that had used up a node's memory is gone and the node has room for the job. Pure.

    Args:
        row: Of `host_memory`, about that node now.
        hog: The process.
        own: The processes of the job that the kernel named.
    """
    lives = any(process["pid"] == hog.pid and process["uid"] == hog.uid for process in row["processes"])
    needed_bytes = max(FREE_MEMORY_SHARE * row["total_bytes"], SPARE_FACTOR * 1024 * sum(user.resident_kib for user in own))
    return not lives and row["available_bytes"] >= needed_bytes


def _with_holder(
    engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job, node: str, hog: MemoryUser, own: Sequence[MemoryUser]
) -> Diagnosis:
    """Return a diagnosis that names whose process had used up a node, and what comes of the job."""
    answer = ask(engine.store, engine.gate, incident, "host_memory", {"nodes": [node], "pids": [hog.pid]}) or {}
    row = next((row for row in answer.get("rows") or () if row["node"] == node), None)
    if row is None or hog.resident_kib * 1024 < LEAST_MEMORY_SHARE * row["total_bytes"]:
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
    advice += " The job itself has nothing to change; such programs need a limit of memory there."
    return caused_outside(diagnosis, sentence, Action.RESTART_SAME_NODES, advice, place)
