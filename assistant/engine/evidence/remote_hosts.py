"""Hosts that a job needs over the network: unreachable from its node or from all, at an old address, or a server with a lost GPU.

A host is asked for on the node that raised the error and on others; a node is only left out by the restart, since a name that
does not resolve at one moment drains nothing. An address is stale when the job's log names it, a small file of its folder that
its script or sources name holds another one, and nobody of the same user runs on the old host. A server is at fault when a job
of its user waits, it alone has GPUs on its node, and that node's kernel reported a device error when the wait began. All of it
is looked up, never connected to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, NamedTuple

from assistant.diagnose.case import numbered
from assistant.diagnose.facts import foreign_lines
from assistant.diagnose.readers.kernel import KernelLine, meaning_of, read_kernel
from assistant.engine.evidence.storage import comparable_nodes, nodes_of_cluster
from assistant.engine.gather import ask, caused_outside
from assistant.errors import NightshiftError
from assistant.records import Action, Diagnosis, Event, EventKind, Incident, Job, JobState, Node, NodeState, Whereabouts
from assistant.recover.directives import gpus_of
from assistant.recover.joblog import log_lines, marks_before
from assistant.recover.services import configured_texts
from assistant.recover.situation import AVOIDED, NOWHERE
from assistant.redact import head_of
from assistant.untrusted import LOOK_S, list_folder, read_start, reading_as, status_of, within
from assistant.watch.attempts import Remark
from assistant.watch.hang import WAITS
from assistant.watch.outages import ENDED_BY_ITSELF, MOST_CHARACTERS, awaited_by

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

MOST_HOSTS, MOST_OWN_NODES, MOST_OTHER_NODES = 3, 4, 2
"""Hosts that are asked about; nodes of the job, and others, that are asked."""
UNRESOLVED = re.compile(
    r"Temporary failure in name resolution|Name or service not known|nodename nor servname|No address associated with hostname"
    r"|gai error: -?\d|NameResolutionError|getaddrinfo failed|Could not resolve host|Failed to resolve '|EAI_AGAIN|dns error"
    r"|no such host|NXDOMAIN|SERVFAIL|DNS resolution failed|[Uu]nable to resolve host|errors resolving",
)
UNREACHED = re.compile(r"No route to host|Network is unreachable|Connection refused|Errno 11[013]\b|[Cc]onnect(?:ion)? timed out")
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,8}}"
_IN_LINES = (
    re.compile(rf"Failed to resolve '({_HOST})'"),
    re.compile(rf"[Cc]ould not resolve host(?:name)?:? '?({_HOST})"),
    re.compile(rf"[Uu]nable to resolve host(?:name)? '?({_HOST})"),
    re.compile(rf"\blookup ({_HOST}) on "),
    re.compile(rf"\baddresses of \(({_HOST}), \d{{1,5}}\)"),
    re.compile(rf"\bhost='({_HOST})'"),
    re.compile(rf"(?:DNS resolution failed for|errors resolving) ({_HOST})"),
)
_IN_TEXTS = re.compile(rf"\b[a-z][a-z0-9+]{{1,8}}://(?:[^\s/'\"@]{{1,64}}@)?({_HOST})(?::\d{{1,5}})?(?=[/\s'\",;)\]}}]|$)")
_LETTER = re.compile(r"[A-Za-z]")


class HostFault(NamedTuple):
    """Where a host is out of reach."""

    nodes: tuple[str, ...]
    """The nodes at fault, while others reach it; empty where it is out of reach everywhere."""
    fine: tuple[str, ...]
    """The nodes that reach it."""


def names_unresolved(texts: Iterable[str]) -> bool:
    """Tell whether lines say that the name of a host did not resolve."""
    return any(UNRESOLVED.search(text[:MOST_CHARACTERS]) for text in texts)


def hosts_of(lines: Sequence[str], texts: Iterable[str]) -> tuple[str, ...]:
    """Return the hosts that lines name as not resolved; where they name none, those of URLs in what the job was submitted with.

    Addresses and the machine itself are left out.
    """
    in_lines = [match[1] for line in lines for form in _IN_LINES for match in form.finditer(line[:MOST_CHARACTERS])]
    hosts = in_lines or [match[1] for text in texts for match in _IN_TEXTS.finditer(text)]
    names = dict.fromkeys(host.lower() for host in hosts if _LETTER.search(host) and not host.lower().startswith("localhost"))
    return tuple(names)[:MOST_HOSTS]


def host_fault(answers: Mapping[str, bool | None], job_nodes: Sequence[str]) -> HostFault | None:
    """Return on which nodes a host is out of reach; None where it is not on any of the job, or that is not proven.

    Args:
        answers: By node whether it reaches the host; None where it could not tell.
        job_nodes: On which the job had failed.
    """
    failing = [node for node, answer in answers.items() if answer is False]
    fine = tuple(node for node, answer in answers.items() if answer)
    own = tuple(node for node in failing if node in job_nodes)
    if not own:
        return None
    if not fine:
        return HostFault((), ()) if len(failing) > len(own) else None
    return HostFault(own, fine) if len(failing) == len(own) else None


def with_unreached_host(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that says whether a host is out of reach of single nodes or of all; as it is where that is not proven.

    Of a node alone: the job restarts on others and people are told. Of all: it waits until the host can be resolved again.
    """
    if job is None or not job.nodes or not job.state.ended or diagnosis.reason in ENDED_BY_ITSELF or diagnosis.faulty_nodes:
        return diagnosis
    lines = [cited.text for cited in diagnosis.root_cause]
    by_name = names_unresolved(lines)
    if not by_name and not any(UNREACHED.search(line[:MOST_CHARACTERS]) for line in lines):
        return diagnosis
    try:
        with reading_as(job.account):
            texts = configured_texts(job) if by_name else []
    except (NightshiftError, OSError):
        return diagnosis
    awaited = awaited_by(diagnosis.reason, lines).cause
    hosts = hosts_of(lines, texts) if by_name else tuple(cause for cause in (awaited,) if ":" in cause and cause[0] != "/")
    first = next((place.node for place in diagnosis.where if place.node in job.nodes), job.nodes[0])
    own = list(dict.fromkeys([first, *job.nodes]))[:MOST_OWN_NODES]
    peers = comparable_nodes(nodes_of_cluster(engine), job, first, most=MOST_OWN_NODES)
    nodes = list(dict.fromkeys([*own, *[node for node in peers if node not in job.nodes][:MOST_OTHER_NODES]]))
    for host in hosts:
        answer = ask(engine.store, engine.gate, incident, "host_compared", {"job": job.id, "host": host, "nodes": nodes}) or {}
        answers = answer.get("answers") or {}
        fault = host_fault({node: answers.get(node) for node in nodes}, job.nodes)
        if fault is not None and fault.nodes:
            return _restart_elsewhere(engine, diagnosis, job, host, fault, by_name=by_name)
        if fault is not None and by_name and hosts_of(lines, ()):
            sentence = (
                f"{host} resolves on none of {', '.join(nodes)}: its name or the name service is at fault, and no single node."
            )
            places = diagnosis.where if awaited else (*diagnosis.where, Whereabouts(f"{NOWHERE} {host}"))
            return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}", where=places)
    return diagnosis


def _restart_elsewhere(
    engine: EnginePort, diagnosis: Diagnosis, job: Job, host: str, fault: HostFault, *, by_name: bool
) -> Diagnosis:
    """Return a diagnosis by which a job starts again away from nodes that do not reach a host which others reach."""
    verb = "resolved" if by_name else "reached"
    nodes, fine = ", ".join(fault.nodes), ", ".join(fault.fine[:4])
    sentence = f"{host} cannot be {verb} on {nodes}, and can be on {fine}."
    todo = "its resolver (/etc/resolv.conf, /etc/hosts, nscd, systemd-resolved)" if by_name else "its routes and firewall"
    look = f"Somebody has to look at {todo} on {nodes}."
    remark = f"{sentence} Job {job.id} of {job.user} failed by that: {look[0].lower()}{look[1:-1]}, other jobs will meet it"
    engine.good_runs.remarks.append(Remark(f"{host} on {nodes}", remark))
    places = [Whereabouts(f"{AVOIDED} {host} cannot be {verb} there", node) for node in fault.nodes]
    advice = f"Restart from the last healthy checkpoint on other nodes than {nodes}: {sentence} {look}"
    return caused_outside(diagnosis, sentence, Action.RESTART_SAME_NODES, advice, *places)


TRIED_SINCE = timedelta(seconds=30)
"""For so long the job must have gone on with the old address beside the new one: one that reads it again has it by then."""
MOST_ENTRIES, MOST_FOLDERS, MOST_FILES = 2_000, 32, 64
LARGEST_FILE = 1024
"""Bytes of a file that holds no more than an address."""
_ADDRESS = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+]{1,9}://)?(?P<host>[A-Za-z][\w.-]{0,100}|\d{1,3}(?:\.\d{1,3}){3}):(?P<port>\d{2,5})\b(?!:\d)"
)


class Address(NamedTuple):
    """A host and a port, as a line names them."""

    host: str
    port: str
    text: str

    def is_same(self, address: Address) -> bool:
        """Tell whether two name the same place."""
        return (_short(self.host), self.port) == (_short(address.host), address.port)


@dataclass(frozen=True, slots=True)
class AwaitedAddress:
    """An address for which a job waits."""

    address: Address
    host_state: str = ""
    """What is known of its host, for people; empty where nothing speaks against it."""
    path: Path | None = None
    """The file that names another one now; None where none does."""
    now_named: str = ""
    named_since: datetime | None = None

    @property
    def never_ends(self) -> bool:
        """Whether the job waits for an address that nobody gives any more."""
        return self.path is not None

    def sentence(self, job: Job) -> str:
        """Say what keeps the wait from ending, for people; empty where nothing does."""
        host = f"{self.address.host} {self.host_state}" if self.host_state else ""
        if self.path is None:
            return f"It waits for {self.address.text}, and {host}: it goes on only if that comes back there." if host else ""
        since = f" since {self.named_since:%H:%M} UTC" if self.named_since is not None else ""
        waits = f"It waits for {self.address.text}{f', and {host}' if host else ''}. {self.path} has named {self.now_named}{since}"
        return (
            f"{waits}, and the job, which began before, does not read it again: this wait does not end by itself. "
            f"Start job {job.id} again, so that it reads the file anew"
        )


def addresses_in(text: str, hosts: Iterable[str]) -> list[Address]:
    """Return the addresses that a text names: URLs with a port, and hosts of the cluster or numbers with one."""
    hosts_short = {_short(host) for host in hosts}
    addresses = []
    for match in _ADDRESS.finditer(text[:4_000]):
        host = match["host"]
        if match["scheme"] or _short(host) in hosts_short or host[0].isdigit():
            addresses.append(Address(host, match["port"], match[0]))
    return addresses


def other_address(text: str, used: Address, hosts: Iterable[str]) -> Address | None:
    """Return the only address of a small file where it is another one than the job uses; None for any other file."""
    addresses = addresses_in(text, hosts)
    alone = bool(addresses) and all(address.is_same(addresses[0]) for address in addresses)
    return addresses[0] if alone and not addresses[0].is_same(used) else None


def awaited_address(engine: EnginePort, incident: Incident, job: Job, wait: Event) -> AwaitedAddress | None:
    """Return the address for which a job waits and what is known of it; None where its log names none, or it cannot be read now."""
    try:
        nodes = engine.scheduler.nodes()
        with reading_as(job.account):
            return within(LOOK_S, lambda: _looked_up(engine, job, wait, nodes), f"what job {job.id} waits for")
    except (NightshiftError, OSError):
        return None


def _looked_up(engine: EnginePort, job: Job, wait: Event, nodes: Sequence[Node]) -> AwaitedAddress | None:
    hosts = [node.name for node in nodes]
    texts = [line.text for line in log_lines(job, marks=marks_before(engine.store, job))]
    own = addresses_in(str(wait.detail.get(WAITS, "")), hosts)
    candidates = own or [address for text in texts for address in addresses_in(text, hosts)]
    if not candidates:
        return None
    used = candidates[-1]
    state = _host_state(used.host, nodes)
    served = any(
        peer.state is JobState.RUNNING
        and peer.user == job.user
        and peer.id != job.id
        and _short(used.host) in map(_short, peer.nodes)
        for peer in engine.watcher.jobs
    )
    if job.started is None or (served and not state):
        return AwaitedAddress(used, state)
    words = "\n".join([*configured_texts(engine.scheduler.job(job.id)), *texts])
    now = engine.clock.now()
    for path, modified in _small_files(job, words):
        if not job.started - TRIED_SINCE <= modified <= now - TRIED_SINCE:
            continue
        newer = other_address(read_start(path, LARGEST_FILE).decode("utf-8", "replace"), used, hosts)
        if newer is not None and not _host_state(newer.host, nodes):
            return AwaitedAddress(used, state, path, newer.text, modified)
    return AwaitedAddress(used, state)


def _small_files(job: Job, words: str) -> Iterator[tuple[Path, datetime]]:
    """Yield small files of a job's folder, and of the folders in it, that a text names, with the time of their last change."""
    if job.work_dir is None:
        return
    folders, read_count = [job.work_dir], 0
    for depth, folder in enumerate(folders):
        try:
            entries = list_folder(folder, MOST_ENTRIES)
        except (NightshiftError, OSError):
            continue
        for path in entries:
            try:
                status = status_of(path)
            except (NightshiftError, OSError):
                continue
            if not S_ISREG(status.st_mode):
                if depth == 0 and path.is_dir() and len(folders) < MOST_FOLDERS:
                    folders.append(path)
                continue
            if 0 < status.st_size <= LARGEST_FILE and path.name in words and read_count < MOST_FILES:
                read_count += 1
                yield path, datetime.fromtimestamp(status.st_mtime, UTC)


def _host_state(host: str, nodes: Sequence[Node]) -> str:
    node = next((node for node in nodes if _short(node.name) == _short(host)), None)
    if node is None or node.state is not NodeState.DOWN:
        return ""
    return f"is down ({node.reason})" if node.reason else "is down"


def _short(host: str) -> str:
    return host.lower() if host[:1].isdigit() else host.partition(".")[0].lower()


MOST_ASKED_JOBS, MOST_PEERS, MOST_NODES, KERNEL_LINES = 16, 4, 8, 200
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
            f"{self.node} as the only job with GPUs, and the kernel there says since then: {head_of(self.line.strip(), 200)}"
        )


def server_at_fault(engine: EnginePort, incident: Incident, client: Job, wait: Event) -> ServerAtFault | None:
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
    if len(own) > MOST_ASKED_JOBS:
        return None
    peers = [
        job
        for listed in own
        if gpus_of(job := _with_script(engine, listed))
        and not _shares_gpus(job, [client, *(_with_script(engine, server) for server in living if {*server.nodes} & {*job.nodes})])
    ]
    servers = [server for job in peers[:MOST_PEERS] if (server := _faulty_node(engine, incident, job, wait)) is not None]
    return servers[0] if len(servers) == 1 and len(peers) <= MOST_PEERS else None


def _with_script(engine: EnginePort, job: Job) -> Job:
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
        "witness": f"{proofs[0]}; {head_of(server.line.strip(), 200)}",
        "client": client.id,
    }
    return Event(EventKind.HANG, server.job.id, None, wait.at, detail, server.job.attempt)


def _shares_gpus(job: Job, jobs: Sequence[Job]) -> bool:
    """Tell whether another job may have GPUs on a node of a job: its device errors may be of either."""
    neighbours = [neighbour for neighbour in jobs if neighbour.id != job.id and {*neighbour.nodes} & {*job.nodes}]
    return any(gpus_of(neighbour) or neighbour.spec is None for neighbour in neighbours)


def _faulty_node(engine: EnginePort, incident: Incident, job: Job, wait: Event) -> ServerAtFault | None:
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
