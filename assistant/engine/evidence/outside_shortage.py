"""A host whose memory was used up while a job's own processes there held next to nothing: the job is no culprit, whoever is.

The kernel ends the process that holds most of those it may end. Where it ended a small one of the job, it had met no larger one of
it; where the accounting also shows that the job never held more than a small share of the host, another program had used the memory
up, named or not. The job then starts again as it was, once. What is not proven so is told with what the kernel shows, and asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.accounts import uid_of
from assistant.diagnose.answer import NO_HELP
from assistant.diagnose.readers.kernel import MemoryUser, memory_requesters, memory_users
from assistant.engine.evidence.memory_requests import is_of_host_alone, peak_mib
from assistant.engine.evidence.resource_holders import FREE_MEMORY_SHARE, KERNEL_LOG, SPARE_FACTOR
from assistant.engine.gather import ask, caused_outside
from assistant.records import Action, Diagnosis, Incident, Job, Whereabouts
from assistant.recover.situation import AVOIDED, PASSED

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

SMALL_SHARE = 0.05
"""Of a host's memory: what held less has not used it up."""
MOST_SHOWN = 4
NOT_KNOWN = "Whether the job itself or another program had used the memory up is not known: see what else ran there."


class Shortage(NamedTuple):
    """What the kernel shows of a host's shortage that ended processes of a job."""

    node: str
    killed: tuple[MemoryUser, ...]
    """Processes of the job that it ended; all that it ended there."""
    requesters: tuple[str, ...]
    """Programs that are none of the job's and whose requests the kernel could not meet."""

    @property
    def sentence(self) -> str:
        """For people."""
        processes = ", ".join(f"{user.name} ({user.pid}, {_amount(user.resident_kib)})" for user in self.killed[:MOST_SHOWN])
        by = f"; it had no room left for {' and '.join(self.requesters[:MOST_SHOWN])}" if self.requesters else ""
        return f"The kernel of {self.node} ended {processes} of the job{by}."


def _amount(kib: int) -> str:
    return f"{kib / 2**20:,.1f} GiB" if kib >= 2**20 else f"{kib / 1024:,.0f} MiB"


def shortage_of(text: str, cited: Sequence[str], job: Job, uid: int) -> Shortage | None:
    """Return the shortage of a host in which only processes of a job were ended; None where there is none, or others were named.

    Args:
        text: The kernel logs of the job's nodes.
        cited: Lines of them that the diagnosis cites.
        job: That failed.
        uid: Account of its owner.
    """
    users = memory_users(text, cited, job.nodes)
    number = job.raw_id or job.id
    for node in job.nodes:
        on_node = [user for user in users if user.host == node]
        own = [user for user in on_node if (user.job == number if user.job else user.uid == uid)]
        if not own or len(own) < len(on_node) or not all(user.killed for user in own):
            continue
        names = {user.name for user in own}
        requesters = [requester.name for requester in memory_requesters(text, cited, job.nodes) if requester.host == node]
        foreign = tuple(name for name in requesters if name not in names and not _is_named(name, job))
        return Shortage(node, tuple(own), foreign)
    return None


def _is_named(program: str, job: Job) -> bool:
    """Tell whether a job's script or command names a program."""
    text = f"{job.spec.script} {' '.join(job.spec.arguments)}" if job.spec is not None else ""
    return not text or re.search(rf"(?<![\w-]){re.escape(program)}(?![\w-])", text) is not None


def with_outside_shortage(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis by which a job that held next to nothing of a host whose memory ran out starts again, as it was.

    Where that is not proven it is told what the kernel shows, and that nobody knows yet who used the memory up. As it is where no
    host as a whole ran out, or the cause has been found.
    """
    cited = [line.text for line in diagnosis.root_cause if line.file == KERNEL_LOG]
    uid = uid_of(job.account or job.user) if job is not None else None
    if diagnosis.reason != "out_of_memory_error" or job is None or not job.state.ended or uid is None:
        return diagnosis
    if diagnosis.action is not Action.FIX_AND_RESUBMIT or not is_of_host_alone([line.text for line in diagnosis.root_cause]):
        return diagnosis
    texts = [evidence.text for evidence in engine.store.evidence(incident.id) if evidence.source == KERNEL_LOG]
    shortage = shortage_of(texts[-1], cited, job, uid) if texts else None
    if shortage is None:
        return diagnosis
    answer = ask(engine.store, engine.gate, incident, "host_memory", {"nodes": [shortage.node]}) or {}
    row = next((row for row in answer.get("rows") or () if row["node"] == shortage.node), None)
    peak = peak_mib(engine, job)
    if row is None or peak is None or not held_little(row, shortage, peak):
        remedy = diagnosis.advice.removesuffix(NO_HELP).strip()
        return replace(diagnosis, advice=f"{shortage.sentence} {NOT_KNOWN} {remedy}".strip())
    free = f"{row['available_bytes'] / 2**30:,.1f} of {row['total_bytes'] / 2**30:,.1f} GiB are free there now"
    share = f"All of the job held {_amount(round(peak * 1024))} at most"
    sentence = f"{shortage.sentence} {share}: a program outside of it had used the memory of the host up."
    needed_bytes = max(FREE_MEMORY_SHARE * row["total_bytes"], SPARE_FACTOR * 2**20 * peak)
    if row["available_bytes"] >= needed_bytes:
        place = Whereabouts(f"{PASSED} memory of the whole host", shortage.node)
        advice = f"Start it again as it was: {sentence} Of its memory {free}."
    else:
        place = Whereabouts(
            f"{AVOIDED} its memory was used up, by none of the job's processes, and is not free again", shortage.node
        )
        advice = f"Start it again as it was, on other nodes than {shortage.node}: {sentence} Of its memory {free}."
    advice += " The job itself has nothing to change; such programs need a limit of memory there."
    return caused_outside(diagnosis, sentence, Action.RESTART_SAME_NODES, advice, place)


def held_little(row: dict[str, Any], shortage: Shortage, peak: float) -> bool:
    """Tell whether a job is proven to have held a small share of a host whose memory ran out. Pure.

    Args:
        row: Of `host_memory`, about the host.
        shortage: What the kernel shows.
        peak: MiB that a step of the job held at most, by the accounting.
    """
    killed_bytes = 1024 * sum(user.resident_kib for user in shortage.killed)
    return bool(shortage.requesters) and max(killed_bytes, peak * 2**20) <= SMALL_SHARE * float(row["total_bytes"])
