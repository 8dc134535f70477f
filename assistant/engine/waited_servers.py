"""Find the server at fault of which a waiting job is only the client, and open an incident for it: that one has to be seen to.

A server whose GPU is lost may live on, answer its health check and print that it does nothing: by itself nobody calls it hung.
Three things together speak for it: a job of the same user waits and tries again; a living job of that user is the only one with
GPUs on its node; the kernel of that node has reported, about when the wait began, a device error that blames the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from assistant.diagnose.case import numbered
from assistant.diagnose.facts import foreign_lines
from assistant.diagnose.readers.kernel import KernelLine, meaning_of, read_kernel
from assistant.engine.gather import ask
from assistant.errors import NightshiftError
from assistant.records import Event, EventKind, Incident, Job, JobState
from assistant.recover.gpus import gpus_of

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["ServerAtFault", "event_of_server", "server_at_fault"]

MOST_ASKED, MOST_PEERS, MOST_NODES, KERNEL_LINES = 16, 4, 8, 200
JUST_BEFORE = timedelta(minutes=5)
"""Before the last word of the client that was no wait: a request that hangs is noticed after its time limit."""


class ServerAtFault(NamedTuple):
    """A living job for which another one of its user waits."""

    job: Job
    node: str
    line: str
    """Of the kernel of its node."""

    @property
    def sentence(self) -> str:
        """What speaks against it, for people."""
        return (
            f"Job {self.job.id} ({self.job.name}) of the same user is the one at fault, as far as can be told: it runs on "
            f"{self.node} as the only job with GPUs, and the kernel there says since then: {self.line.strip()[:200]}"
        )


def server_at_fault(engine: Engine, incident: Incident, client: Job, wait: Event) -> ServerAtFault | None:
    """Return the living job whose lost GPU a waiting job waits for; None where none or several may be that.

    Args:
        engine: Which knows all jobs, and asks their nodes.
        incident: Of the waiting job.
        client: That job.
        wait: The event by which it was seen to wait.
    """
    living = [job for job in engine.watcher.jobs if job.state is JobState.RUNNING and job.id != client.id]
    own = [
        job
        for job in living
        if job.user == client.user and 0 < len(job.nodes) <= MOST_NODES and job.started is not None and job.started <= wait.at
    ]
    if len(own) > MOST_ASKED:
        return None
    peers = [
        job
        for listed in own
        if gpus_of(job := _with_script(engine, listed))
        and not _shares_gpus(job, [client, *(_with_script(engine, server) for server in living if {*server.nodes} & {*job.nodes})])
    ]
    servers = [server for job in peers[:MOST_PEERS] if (server := _with_fault(engine, incident, job, wait)) is not None]
    return servers[0] if len(servers) == 1 and len(peers) <= MOST_PEERS else None


def _with_script(engine: Engine, job: Job) -> Job:
    """Return a job as the scheduler shows it by itself: a list leaves its script out; as it is where that cannot be asked now."""
    try:
        return engine.scheduler.job(job.id) if job.spec is None else job
    except NightshiftError:
        return job


def event_of_server(server: ServerAtFault, client: Job, wait: Event) -> Event:
    """Return the event of a server that stands still: its client and the kernel of its node say so."""
    proofs = [f"job {client.id} of the same user waits for it", f"the kernel of {server.node} reports a device error"]
    detail = {
        "how": "client",
        "step": None,
        "proofs": proofs,
        "witness": f"{proofs[0]}; {server.line.strip()[:200]}",
        "client": client.id,
    }
    return Event(EventKind.HANG, server.job.id, None, wait.at, detail, server.job.attempt)


def _shares_gpus(job: Job, jobs: Sequence[Job]) -> bool:
    """Tell whether another job may have GPUs on a node of a job: its device errors may be of either."""
    neighbours = [neighbour for neighbour in jobs if neighbour.id != job.id and {*neighbour.nodes} & {*job.nodes}]
    return any(gpus_of(neighbour) or neighbour.spec is None for neighbour in neighbours)


def _with_fault(engine: Engine, incident: Incident, job: Job, wait: Event) -> ServerAtFault | None:
    answer = ask(engine.store, engine.gate, incident, "kernel_log", {"nodes": list(job.nodes), "lines": KERNEL_LINES})
    texts = (answer or {}).get("text")
    sections = [f"# {node}\n{text}" for node, text in texts.items() if text] if isinstance(texts, Mapping) else []
    lines = read_kernel(numbered("\n".join(sections)), job.nodes, wait.at.year)
    began = max(job.started or wait.at, wait.at - JUST_BEFORE)
    foreign = foreign_lines(lines, replace(job, started=began))
    blamed = [line for line in lines if line.number not in foreign and line.host in job.nodes and _blames(line)]
    hosts = {line.host for line in blamed}
    return ServerAtFault(job, str(blamed[0].host), blamed[0].text) if len(hosts) == 1 else None


def _blames(line: KernelLine) -> bool:
    meaning = meaning_of(line.event) if line.event is not None else None
    return meaning is not None and meaning.blames
