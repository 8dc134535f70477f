"""Where a server is that a job asks at an old address: which job had it, what became of that, and at what address it serves now.

The old server is proven by its own log, as in `ended_servers`. What took its place is the job by which Nightshift started it again,
or the only later job of the same user, name and folder. Its address is the host on which the scheduler has it and the port on
which its log says that it listens. Nothing is connected to here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from assistant.display import shorten
from assistant.engine.evidence.ended_servers import end_of_server, log_of_server, server_of, short_host
from assistant.engine.evidence.remote_hosts import Address
from assistant.errors import NightshiftError
from assistant.records import Incident, IncidentState, Job, JobState
from assistant.recover.identity import RESTARTS
from assistant.watch.hang import tells_of_service

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["MovedServer", "ServerState", "listening_address", "moved_server"]

NOTE_SHOWN = 200
_PORT = re.compile(r"(?P<scheme>\w{2,8}://)?(?P<host>\[[\da-fA-F:]{2,40}\]|[\w.-]{1,100}|\*):(?P<port>\d{2,5})\b(?!:)|\bport:? (?P<alone>\d{2,5})\b")
_ANY_HOST = frozenset(("0.0.0.0", "*", "[::]", "::"))  # noqa: S104: compared, never bound
_NO_HOST = re.compile(r"localhost|127\.\d|\[::1\]")


class ServerState(StrEnum):
    """What became of a server."""

    COMES_BACK = "comes back"
    """It is being started again, or was, and does not say yet that it serves."""
    SERVES = "serves"
    LEFT = "left"
    """Nobody starts it again but a person."""


@dataclass(frozen=True, slots=True)
class MovedServer:
    """A server that ended, and what took its place."""

    asked: Address
    """Where its client looks for it."""
    server: Job
    end: str
    """Where the old one ran and how it ended, behind its name."""
    state: ServerState
    done: str
    """What was done about it, for people."""
    successor: Job | None = None
    address: Address | None = None
    """Where the successor serves; set where `state` says that it does."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether it serves at another address than the one that is asked."""
        return self.address is not None and not self.address.is_same(self.asked)

    @property
    def sentence(self) -> str:
        """Which job was asked, how it ended, and what was done, for people."""
        server = self.server
        return f"{self.asked.host}:{self.asked.port} was served by job {server.id} ({server.name}) of {server.user}{self.end}; {self.done}"


def moved_server(engine: Engine, client: Job, asked: Address) -> MovedServer | None:
    """Return the server that a job asks at an address where it has ended; None where none, or more than one, is proven.

    Args:
        engine: Which knows all jobs.
        client: Living or ended.
        asked: From its log.
    """
    try:
        nodes = {node.name: node for node in engine.scheduler.nodes()}
    except NightshiftError:
        nodes = {}
    now = engine.clock.now()
    server = server_of(engine.watcher.jobs, client, asked.host, asked.port, nodes, until=client.ended or now)
    if server is None:
        return None
    end = end_of_server(server, client.ended or now, nodes)
    incidents = engine.store.incidents(job=server.id)
    incident = max(incidents, key=lambda entry: entry.id, default=None)
    cause = engine.store.diagnosis(incident.id) if incident is not None else None
    end += f" of {cause.reason}" if cause is not None and server.ended is not None else ""
    successor, how = _successor(engine, server, incidents)
    if successor is None:
        state, done = _without_successor(server, incident)
        return MovedServer(asked, server, end, state, done)
    named = f"{how} job {successor.id}"
    if successor.state.ended:
        return MovedServer(asked, server, end, ServerState.LEFT, f"{named}, which {successor.state} as well", successor)
    if successor.state is not JobState.RUNNING:
        reason = f" ({successor.reason})" if successor.reason else ""
        return MovedServer(asked, server, end, ServerState.COMES_BACK, f"{named}, which waits in the queue{reason}", successor)
    place = f"{named} on {', '.join(successor.nodes[:4])}"
    address = listening_address(log_of_server(successor), successor.nodes)
    if address is None:
        return MovedServer(asked, server, end, ServerState.COMES_BACK, f"{place}, which does not say yet where it listens", successor)
    done = f"{place}, which listens on {address.host}:{address.port}"
    return MovedServer(asked, server, end, ServerState.SERVES, done, successor, address)


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
    """Return the one place that all of the addresses name: a number and the name of the only node are the same where the port is."""
    if len({address.port for address in addresses}) != 1:
        return None
    by_name = [address for address in addresses if not address.host[0].isdigit()]
    hosts = {short_host(address.host) for address in by_name} or {address.host for address in addresses}
    if len(hosts) != 1 or not nodes:
        return None
    return (by_name or list(addresses))[0]


def _successor(engine: Engine, server: Job, incidents: Sequence[Incident]) -> tuple[Job | None, str]:
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


def _job(engine: Engine, number: str) -> Job | None:
    try:
        return engine.scheduler.job(number)
    except NightshiftError:
        return next((job for job in engine.watcher.jobs if job.id == number), None)


def _without_successor(server: Job, incident: Incident | None) -> tuple[ServerState, str]:
    if server.state is JobState.CANCELLED:
        return ServerState.LEFT, f"it was cancelled{f' by {server.ended_by}' if server.ended_by else ''}, so it is not started again"
    if incident is None:
        return ServerState.LEFT, "nothing was done about it"
    if not incident.state.ended:
        return ServerState.COMES_BACK, f"incident {incident.id} is about it ({incident.state}: {shorten(incident.note, NOTE_SHOWN)})"
    person = "was handed to a person" if incident.state is IncidentState.ESCALATED else f"is {incident.state}"
    return ServerState.LEFT, f"incident {incident.id} {person}: {shorten(incident.note, NOTE_SHOWN)}"
