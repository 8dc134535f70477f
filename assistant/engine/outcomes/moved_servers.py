"""Where a server is that a job asks at an old address: which job had it, what became of that, and at what address it serves now.

The old server is proven by its own log, as in `ended_servers`. What took its place is the job by which Nightshift started it again,
or the only later job of the same user, name and folder. Its address is the host on which the scheduler has it and the port on
which its log says that it listens. Nothing is connected to here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from assistant.display import shorten
from assistant.engine.evidence.ended_servers import end_of_server, log_of_server, served_address, server_of, short_host
from assistant.engine.evidence.remote_hosts import Address
from assistant.engine.outcomes.job_processes import RAN_ON
from assistant.engine.outcomes.requeues import REQUEUE
from assistant.errors import NightshiftError
from assistant.records import Incident, IncidentState, Job, JobState
from assistant.recover.identity import RESTARTS
from assistant.watch.hang import tells_of_service

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

__all__ = ["MovedServer", "ServerState", "listening_address", "moved_server", "server_behind"]

NOTE_SHOWN = 200
MOST_RESTARTS = 4
"""Of one server, one after the other, that are followed."""
_PORT = re.compile(
    r"(?P<scheme>\w{2,8}://)?(?P<host>\[[\da-fA-F:]{2,40}\]|[\w.-]{1,100}|\*):(?P<port>\d{2,5})\b(?!:)"
    r"|\bport:? (?P<alone>\d{2,5})\b"
)
_ANY_HOST = frozenset(("0.0.0.0", "*", "[::]", "::"))
_NO_HOST = re.compile(r"localhost|127\.\d|\[::1\]")


class ServerState(StrEnum):
    """What became of a server."""

    COMES_BACK = "comes back"
    """It is being started again, or was, and does not say yet that it serves."""
    SERVES = "serves"
    ABANDONED = "abandoned"
    """Nobody starts it again but a person."""


@dataclass(frozen=True, slots=True)
class MovedServer:
    """A server that ended, and what took its place."""

    old_address: Address
    """Where its client looks for it."""
    server: Job
    end: str
    """Where the old one ran and how it ended, behind its name."""
    state: ServerState
    action: str
    """What was done about it, for people."""
    successor: Job | None = None
    address: Address | None = None
    """Where the successor serves; set where `state` says that it does."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether it serves at another address than the one that is asked."""
        return self.address is not None and not self.address.is_same(self.old_address)

    @property
    def sentence(self) -> str:
        """Which job was asked, how it ended, and what was done, for people."""
        server = self.server
        place = f"{self.old_address.host}:{self.old_address.port}"
        return f"{place} was served by job {server.id} ({server.name}) of {server.user}{self.end}; {self.action}"


def moved_server(engine: EnginePort, client: Job, old_address: Address) -> MovedServer | None:
    """Return the server that a job asks at an address where it has ended; None where none, or more than one, is proven.

    Args:
        engine: Which knows all jobs.
        client: Living or ended.
        old_address: From its log.
    """
    try:
        nodes = {node.name: node for node in engine.scheduler.nodes()}
    except NightshiftError:
        nodes = {}
    now = engine.clock.now()
    server = server_of(engine.watcher.jobs, client, old_address.host, old_address.port, nodes, until=client.ended or now)
    requeued = _requeued_server(engine, client, old_address)
    if server is None or (requeued is not None and server.ended is not None and requeued.ended > server.ended):
        return requeued.moved if requeued is not None else None
    end = end_of_server(server, client.ended or now, nodes)
    incidents = engine.store.incidents(job=server.id)
    incident = max(incidents, key=lambda entry: entry.id, default=None)
    cause = engine.store.diagnosis(incident.id) if incident is not None else None
    end += f" of {cause.reason}" if cause is not None and server.ended is not None else ""
    successor, how = _successor(engine, server, incidents)
    if successor is None:
        state, action = _without_successor(server, incident)
        return MovedServer(old_address, server, end, state, action)
    label = f"{how} job {successor.id}"
    for _ in range(MOST_RESTARTS):
        if not successor.state.ended:
            break
        incidents = engine.store.incidents(job=successor.id)
        last = max(incidents, key=lambda entry: entry.id, default=None)
        following, how = _successor(engine, successor, incidents)
        label = f"{label}, which {successor.state} as well"
        if following is None:
            state, action = _without_successor(successor, last)
            return MovedServer(old_address, server, end, state, f"{label}; {action}", successor)
        successor, label = following, f"{label}; {how} job {following.id}"
    return _standing(MovedServer(old_address, server, end, ServerState.ABANDONED, label, successor))


def _standing(moved: MovedServer) -> MovedServer:
    """Return a server whose successor is known with where that is and whether it serves."""
    successor, label = moved.successor, moved.action
    if successor is None or successor.state.ended:
        return moved
    if successor.state is not JobState.RUNNING:
        reason = f" ({successor.reason})" if successor.reason else ""
        return replace(moved, state=ServerState.COMES_BACK, action=f"{label}, which waits in the queue{reason}")
    place = f"{label} on {', '.join(successor.nodes[:4])}"
    address = listening_address(log_of_server(successor), successor.nodes)
    if address is None:
        return replace(moved, state=ServerState.COMES_BACK, action=f"{place}, which does not say yet where it listens")
    action = f"{place}, which listens on {address.host}:{address.port}"
    return replace(moved, state=ServerState.SERVES, action=action, address=address)


class RequeuedServer(NamedTuple):
    """A server that the scheduler queued again under its own id."""

    moved: MovedServer
    ended: datetime
    """When its earlier attempt did."""


def _requeued_server(engine: EnginePort, client: Job, old_address: Address) -> RequeuedServer | None:
    """Return the server that the scheduler queued again under its own id since a client began, when its node went away.

    Where it ran before stands in the record of the requeue. That it is a server says its log: of the old attempt where that is
    still there, else of the new one. None where more than one may be it.
    """
    candidates = []
    for job in engine.watcher.jobs:
        if not job.attempt or job.state.ended or job.id == client.id:
            continue
        facts = [
            evidence.facts
            for incident in engine.store.incidents(job=job.id)
            for evidence in engine.store.evidence(incident.id)
            if evidence.source == REQUEUE and evidence.facts.get("ended")
        ]
        ended = datetime.fromisoformat(str(facts[-1]["ended"])) if facts else None
        if ended is None or (client.started is not None and ended < client.started):
            continue
        ran_on, cause = tuple(map(str, facts[-1].get(RAN_ON, ()))), facts[-1].get("cause")
        if not any(short_host(node) == short_host(old_address.host) for node in ran_on):
            continue
        lines = log_of_server(job)
        if served_address(lines, old_address.host, old_address.port, ran_on) or listening_address(lines, job.nodes) is not None:
            end = f" on {', '.join(ran_on[:4])}, which was queued again under its own id by {cause}"
            moved = MovedServer(old_address, job, end, ServerState.ABANDONED, f"it is still job {job.id}", job)
            candidates.append(RequeuedServer(moved, ended))
    return RequeuedServer(_standing(candidates[0].moved), candidates[0].ended) if len(candidates) == 1 else None


def server_behind(engine: EnginePort, client: Job, service: str) -> MovedServer | None:
    """Return the server of `HOST:PORT` that a job lost; None where none is proven, and for any other name of a service."""
    host, colon, port = service.rpartition(":")
    return moved_server(engine, client, Address(host, port, service)) if colon and port.isdecimal() else None


def listening_address(lines: Iterable[str], nodes: Sequence[str]) -> Address | None:
    """Return where a log says that its program listens; None where it names no port, several, or a host that is none of its own.

    Args:
        lines: Of the log.
        nodes: Where the program runs: the host of one that listens on all addresses is its only node.
    """
    addresses: dict[tuple[str, str], Address] = {}
    for line in lines:
        if not tells_of_service(line):
            continue
        for match in _PORT.finditer(line[:2_000]):
            host, port = match["host"] or "*", match["port"] or match["alone"]
            if _NO_HOST.match(host):
                continue
            if host in _ANY_HOST:
                host = nodes[0] if len(nodes) == 1 else ""
            elif not any(short_host(host) == short_host(node) for node in nodes):
                host = host if match["scheme"] and host[0].isdigit() and len(nodes) == 1 else ""
            if host:
                addresses.setdefault((short_host(host), port), Address(host, port, f"{match['scheme'] or ''}{host}:{port}"))
    return _only(list(addresses.values()), nodes)


def _only(addresses: Sequence[Address], nodes: Sequence[str]) -> Address | None:
    """Return the one place that all of the addresses name; a number counts as the name beside it if they share the port."""
    if len({address.port for address in addresses}) != 1:
        return None
    by_name = [address for address in addresses if not address.host[0].isdigit()]
    hosts = {short_host(address.host) for address in by_name} or {address.host for address in addresses}
    if len(hosts) != 1 or not nodes:
        return None
    return (by_name or list(addresses))[0]


def _successor(engine: EnginePort, server: Job, incidents: Sequence[Incident]) -> tuple[Job | None, str]:
    """Return the job that took the place of a server, and how; None where there is none, or more than one may be it."""
    calls = [call for incident in incidents for call in engine.store.calls(incident.id) if call.tool in RESTARTS]
    for call in sorted(calls, key=lambda entry: entry.id, reverse=True):
        outcome = engine.store.outcome(call.id)
        value = outcome.value if outcome is not None and outcome.ok and isinstance(outcome.value, Mapping) else {}
        if value.get("job"):
            return _job(engine, str(value["job"])), "it was started again as"
    since = server.ended
    later = [
        job
        for job in engine.watcher.jobs
        if since is not None
        and job.id != server.id
        and (job.user, job.name, job.work_dir) == (server.user, server.name, server.work_dir)
        and (job.submitted or datetime.min.replace(tzinfo=since.tzinfo)) >= since
        and not job.state.ended
    ]
    return (later[0], "its owner has started") if len(later) == 1 else (None, "")


def _job(engine: EnginePort, number: str) -> Job | None:
    try:
        return engine.scheduler.job(number)
    except NightshiftError:
        return next((job for job in engine.watcher.jobs if job.id == number), None)


def _without_successor(server: Job, incident: Incident | None) -> tuple[ServerState, str]:
    if server.state is JobState.CANCELLED:
        return (
            ServerState.ABANDONED,
            f"it was cancelled{f' by {server.ended_by}' if server.ended_by else ''}, so it is not started again",
        )
    if incident is None:
        return ServerState.ABANDONED, "nothing was done about it"
    if not incident.state.ended:
        return (
            ServerState.COMES_BACK,
            f"incident {incident.id} is about it ({incident.state}: {shorten(incident.note, NOTE_SHOWN)})",
        )
    person = "was handed to a person" if incident.state is IncidentState.ESCALATED else f"is {incident.state}"
    return ServerState.ABANDONED, f"incident {incident.id} {person}: {shorten(incident.note, NOTE_SHOWN)}"
