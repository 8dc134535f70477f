"""Name the job whose service another job lost: it listened on the address that nobody answers any more, and it has ended.

A client that gives up says only whom it asked. Who was there stands elsewhere: in the queue a job that ran on that host and has
ended, or whose node is down, and in that job's log the line with which it began to listen. Both are needed, so that no job is named
for having been on the same node. Only looked at, never connected to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from assistant.errors import InputError, NightshiftError
from assistant.records import Diagnosis, Incident, Job, JobState, Node, NodeState
from assistant.untrusted import LOOK_S, read_end, read_start, reading_as, within
from assistant.watch.hang import tells_of_service
from assistant.watch.outages import ENDED_BY_ITSELF, awaited_by

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

__all__ = ["end_of_server", "log_of_server", "served_address", "server_of", "short_host", "with_ended_server"]

GIVEN_UP_AFTER = timedelta(minutes=30)
"""Between the end of a server and the end of its client: clients retry before they give up."""
MOST_CANDIDATES = 32
LOG_BYTES = 1 << 16
"""Of a log, from its begin and from its end: where a server says on what it listens."""


def with_ended_server(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that names the job which served the address that a job lost; as it is where none is proven.

    The restart waits for the service as for any other, so nothing else of the diagnosis changes.
    """
    if job is None or job.ended is None or diagnosis.reason in ENDED_BY_ITSELF or diagnosis.faulty_nodes:
        return diagnosis
    address = awaited_by(diagnosis.reason, [cited.text for cited in diagnosis.root_cause]).cause
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        return diagnosis
    try:
        nodes = {node.name: node for node in engine.scheduler.nodes()}
    except NightshiftError:
        nodes = {}
    server = server_of(engine.watcher.jobs, job, host, port, nodes, until=job.ended)
    if server is None:
        return diagnosis
    sentence = f"{address} was served by job {server.id} ({server.name}) of {server.user}{end_of_server(server, job.ended, nodes)}."
    todo = (
        f"Start that service again first: job {server.id} of {server.user} has to come back, or its address has to be given anew."
    )
    return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}", advice=f"{sentence} {todo} {diagnosis.advice}".strip())


def server_of(jobs: Sequence[Job], client: Job, host: str, port: str, nodes: dict[str, Node], *, until: datetime) -> Job | None:
    """Return the job that ended, or is on a node that is down, whose log proves that it served an address; None for several.

    Args:
        jobs: Of the cluster.
        client: Which asks the address; one that lives may have asked in vain since it began.
        host: Of the address.
        port: Of the address.
        nodes: By name.
        until: The end of the client, or the time.
    """
    candidates = _candidates(jobs, client, host, nodes, until)
    servers = [server for server in candidates[:MOST_CANDIDATES] if served_address(log_of_server(server), host, port, server.nodes)]
    newest = [server for server in servers if not any(_replaces(later, server) for later in servers)]
    return newest[0] if len(newest) == 1 else None


def _replaces(later: Job, server: Job) -> bool:
    """Tell whether a job began when another one had ended: of several that served an address the last one is meant."""
    return server.ended is not None and later.started is not None and later.started >= server.ended


def served_address(lines: Iterable[str], host: str, port: str, nodes: Sequence[str]) -> bool:
    """Tell whether a log says that its program listens on an address. Pure.

    Args:
        lines: Of the log.
        host: Of the address, a name or a number.
        port: Of the address.
        nodes: Where the program ran: one that listens on all addresses is reached by the names of its nodes.
    """
    own = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", re.IGNORECASE)
    port_number = re.compile(rf"(?<!\d){re.escape(port)}(?!\d)")
    on_its_node = any(short_host(host) == short_host(node) for node in nodes)
    return any(port_number.search(line) and (on_its_node or own.search(line)) for line in lines if tells_of_service(line))


def _candidates(jobs: Sequence[Job], client: Job, host: str, nodes: dict[str, Node], until: datetime) -> list[Job]:
    """Return the jobs that may have served a client until a while ago: those that ran on the host first, the last ended of them."""
    since = min(until - GIVEN_UP_AFTER, client.started or until) if client.ended is None else until - GIVEN_UP_AFTER
    ended_jobs = [
        job
        for job in jobs
        if job.id != client.id
        and job.started is not None
        and job.started < until
        and (
            (job.ended is not None and since <= job.ended <= until)
            or (not job.state.ended and job.state is JobState.RUNNING and any(_is_down(nodes.get(node)) for node in job.nodes))
        )
    ]
    ended_jobs.sort(key=lambda job: job.ended or until, reverse=True)  # a busy host had more jobs than are read
    return sorted(ended_jobs, key=lambda job: not any(short_host(host) == short_host(node) for node in job.nodes))


def log_of_server(server: Job) -> list[str]:
    """Return the lines from the begin and the end of a job's log; none where it cannot be read now."""
    path = server.log
    if path is None:
        return []

    def lines() -> list[str]:
        with reading_as(server.account):
            raw = read_start(path, LOG_BYTES) + b"\n" + read_end(path, LOG_BYTES).raw
        return raw.decode("utf-8", "replace").splitlines()

    try:
        return within(LOOK_S, lines, f"the log of job {server.id}")
    except (NightshiftError, InputError, OSError):
        return []


def end_of_server(server: Job, until: datetime, nodes: dict[str, Node]) -> str:
    """Return where a server ran and how it ended, and how long before a time, behind its name."""
    down = [node for node in server.nodes if _is_down(nodes.get(node))]
    place = f" on {', '.join(server.nodes[:4])}" if server.nodes else ""
    away = f"; {', '.join(down)} is down" if down else ""
    if server.ended is None:
        return f"{place}{away}"
    seconds = max(0, round((until - server.ended).total_seconds()))
    return f"{place}, which ended ({server.state}) at {server.ended:%H:%M:%S} UTC, {seconds} s before{away}"


def _is_down(node: Node | None) -> bool:
    return node is not None and node.state is NodeState.DOWN


def short_host(host: str) -> str:
    """Return the name of a host without its domain, as it is compared."""
    return host.lower() if host[:1].isdigit() else host.partition(".")[0].lower()
