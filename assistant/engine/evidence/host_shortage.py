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


class EndedProcess(NamedTuple):
    """A process that the kernel ended."""

    user: MemoryUser
    owner: str
    """For people: whose it was, as far as that is known."""

    @property
    def words(self) -> str:
        """For people."""
        return f"{_plain(self.user.name)} ({self.user.pid}, {_amount(self.user.resident_kib)}, {self.owner})"


class Shortage(NamedTuple):
    """What the kernel shows of a host's shortage."""

    node: str
    killed: tuple[EndedProcess, ...]
    requesters: tuple[str, ...]
    """Names of the programs or threads whose requests it could not meet, the job's own too."""

    @property
    def sentence(self) -> str:
        """For people."""
        processes = ", ".join(process.words for process in self.killed[:MOST_SHOWN])
        more = f" and {len(self.killed) - MOST_SHOWN} more" if len(self.killed) > MOST_SHOWN else ""
        names = ", ".join(map(_plain, self.requesters[:MOST_SHOWN]))
        requests = f" Memory was asked for by {names}, as the kernel names it." if names else ""
        return f"The kernel of {self.node} ended {processes}{more}.{requests}"


def _amount(kib: int) -> str:
    return f"{kib / 2**20:,.1f} GiB" if kib >= 2**20 else f"{kib / 1024:,.0f} MiB"


def _plain(name: str) -> str:
    """Return a name as a process gave it to itself; not where it reads like a command."""
    return "a name that is not shown" if gives_orders(name) or not name.isprintable() else name


def shortage_of(text: str, cited: Sequence[str], job: Job, uid: int | None) -> Shortage | None:
    """Return what the kernel of a job's first node that ended processes shows of that; None where none did.

    Args:
        text: The kernel logs of the job's nodes.
        cited: Lines of them that the diagnosis cites.
        job: That failed.
        uid: Account of its owner; None where that is not known.
    """
    users = memory_users(text, cited, job.nodes)
    for node in job.nodes:
        killed = tuple(EndedProcess(user, _owner(user, job, uid)) for user in users if user.host == node and user.killed)
        if killed:
            requesters = [requester.name for requester in memory_requesters(text, cited, job.nodes) if requester.host == node]
            return Shortage(node, killed, tuple(requesters))
    return None


def _owner(user: MemoryUser, job: Job, uid: int | None) -> str:
    if user.job:
        return "of this job" if user.job == (job.raw_id or job.id) else f"of job {user.job}"
    if user.uid is None:
        return "whose is not known"
    return "of this job's account" if user.uid == uid else f"of UID {user.uid}"


def with_host_shortage(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis of a host whose memory ran out with what is known of that, and without a word on restarts.

    Only its advice changes. As it is where a limit of the job was met, or the cause has been found.
    """
    if diagnosis.reason != "out_of_memory_error" or job is None or not job.state.ended:
        return diagnosis
    if diagnosis.action is not Action.FIX_AND_RESUBMIT or not is_of_host_alone([line.text for line in diagnosis.root_cause]):
        return diagnosis
    cited = [line.text for line in diagnosis.root_cause if line.file == KERNEL_LOG]
    texts = [evidence.text for evidence in engine.store.evidence(incident.id) if evidence.source == KERNEL_LOG]
    shortage = shortage_of(texts[-1], cited, job, uid_of(job.account or job.user)) if texts else None
    peak = peak_mib(engine, job)
    facts = [
        *([shortage.sentence] if shortage is not None else []),
        *([f"The job's accounting shows {_amount(round(peak * 1024))} (largest task, sampled)."] if peak is not None else []),
        NOT_KNOWN,
    ]
    return replace(diagnosis, advice=" ".join((diagnosis.advice.removesuffix(NO_HELP).strip(), *facts)).strip())
