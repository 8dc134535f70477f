"""Tell whether a job waits for an address that it does not read again although the file from which it had it names another one now.

A client that reads its server's address once, at its start, tries that one for ever; a server that was started again elsewhere has
written another one meanwhile. Such a wait ends by itself only if the old host comes back with the server on it. Three things are
needed before that is said: the address that the job's own log names, a small file of its folder that its script or sources name and
that holds one other address, and that nobody of the same user runs on the old host. Only looked at, never connected to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, NamedTuple

from assistant.errors import NightshiftError
from assistant.records import Event, Incident, Job, JobState, Node, NodeState
from assistant.recover.joblog import log_lines, marks_before
from assistant.recover.services import configured_texts
from assistant.untrusted import LOOK_S, list_folder, read_start, reading_as, status_of, within
from assistant.watch.hang import WAITS

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["Address", "AwaitedAddress", "addresses_in", "awaited_address", "other_address"]

TRIED_SINCE = timedelta(seconds=30)
"""For so long the job must have gone on with the old address beside the new one: one that reads it again has it by then."""
MOST_ENTRIES, MOST_FOLDERS, MOST_READ = 2_000, 32, 64
LARGEST = 1024
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


def awaited_address(engine: Engine, incident: Incident, job: Job, wait: Event) -> AwaitedAddress | None:
    """Return the address for which a job waits and what is known of it; None where its log names none, or it cannot be read now."""
    try:
        nodes = engine.scheduler.nodes()
        with reading_as(job.account):
            return within(LOOK_S, lambda: _looked_up(engine, job, wait, nodes), f"what job {job.id} waits for")
    except (NightshiftError, OSError):
        return None


def _looked_up(engine: Engine, job: Job, wait: Event, nodes: Sequence[Node]) -> AwaitedAddress | None:
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
        newer = other_address(read_start(path, LARGEST).decode("utf-8", "replace"), used, hosts)
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
            if 0 < status.st_size <= LARGEST and path.name in words and read_count < MOST_READ:
                read_count += 1
                yield path, datetime.fromtimestamp(status.st_mtime, UTC)


def _host_state(host: str, nodes: Sequence[Node]) -> str:
    node = next((node for node in nodes if _short(node.name) == _short(host)), None)
    if node is None or node.state is not NodeState.DOWN:
        return ""
    return f"is down ({node.reason})" if node.reason else "is down"


def _short(host: str) -> str:
    return host.lower() if host[:1].isdigit() else host.partition(".")[0].lower()
