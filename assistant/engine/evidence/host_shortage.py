"""A host whose memory ran out as a whole: what the kernel and the accounting show of it, as facts for a person.

Neither proves whose memory it was. The kernel names a process that it ended and the program whose request it could not meet, which
may be a thread of the job or of the kernel itself; the accounting samples tasks one by one, and leaves out what lies in /dev/shm.
So nothing is concluded and nothing is started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from assistant.accounts import uid_of
from assistant.content.reasons import gives_orders
from assistant.diagnose.answer import NO_HELP
from assistant.diagnose.readers.kernel import MemoryUser, memory_requesters, memory_users
from assistant.engine.evidence.memory_requests import is_of_host_alone, peak_mib
from assistant.engine.evidence.resource_holders import KERNEL_LOG
from assistant.records import Action, Diagnosis, Incident, Job

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

MOST_SHOWN = 4
NOT_KNOWN = "Whether a program outside of this job used the memory up is not known."


class Shortage(NamedTuple):
    """What the kernel shows of a host's shortage that ended processes of a job."""

    node: str
    killed: tuple[MemoryUser, ...]
    """Processes of the job that it ended; all that it ended there."""
    requesters: tuple[str, ...]
    """Names of the programs or threads whose requests it could not meet, the job's own too."""

    @property
    def sentence(self) -> str:
        """For people."""
        processes = ", ".join(
            f"{_plain(user.name)} ({user.pid}, {_amount(user.resident_kib)})" for user in self.killed[:MOST_SHOWN]
        )
        more = f" and {len(self.killed) - MOST_SHOWN} more" if len(self.killed) > MOST_SHOWN else ""
        names = ", ".join(map(_plain, self.requesters[:MOST_SHOWN]))
        asked = f" Memory was asked for by {names}, as the kernel names it." if names else ""
        return f"The kernel of {self.node} ended {processes}{more} of this job.{asked}"


def _amount(kib: int) -> str:
    return f"{kib / 2**20:,.1f} GiB" if kib >= 2**20 else f"{kib / 1024:,.0f} MiB"


def _plain(name: str) -> str:
    """Return a name as a process gave it to itself; not where it reads like a command."""
    return "a name that is not shown" if gives_orders(name) or not name.isprintable() else name


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
        requesters = [requester.name for requester in memory_requesters(text, cited, job.nodes) if requester.host == node]
        return Shortage(node, tuple(own), tuple(requesters))
    return None


def with_host_shortage(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis of a host whose memory ran out with what is known of that, and without a word on restarts.

    Only its advice changes. As it is where a limit of the job was met, or the cause has been found.
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
    peak = peak_mib(engine, job)
    share = f"Its accounting shows {_amount(round(peak * 1024))} (largest task, sampled)" if peak is not None else ""
    facts = " ".join(part for part in (shortage.sentence, f"{share}." if share else "", NOT_KNOWN) if part)
    remedy = diagnosis.advice.removesuffix(NO_HELP).strip()
    return replace(diagnosis, advice=f"{remedy} {facts}".strip())
