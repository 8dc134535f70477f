"""Where a job ran: rank, GPU, host and node, each claim with the line that makes it.

Claims come from single lines (`claims`), tables (`rosters`) and launchers. Hosts that claim the same rank contradict each
other: such a rank is nowhere. What no line claims is reckoned only where it is proven that each node holds a block of
consecutive ranks.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from math import gcd
from typing import NamedTuple

_AWS_HOST = re.compile(r"^ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})(?:\.|$)")
ADDRESS = re.compile(r"^\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}$")
_NOWHERE = frozenset({"localhost", "localhost.localdomain", "127.0.0.1", "0.0.0.0"})
COMMON_SIZES = (1, 2, 4, 8, 16)
"""Ranks per node of which one must divide the first rank of every node."""


class Communicator(NamedTuple):
    """A rank's place in one communicator of NCCL: of a group, or of the whole job."""

    size: int
    rank: int
    host: str
    gpu: int
    line: int


class Places:
    """Where ranks ran."""

    def __init__(self) -> None:
        self.hosts: Counter[str] = Counter()
        """Every host of the job, with how often it was named."""
        self.addresses: set[str] = set()
        """Addresses by which Ray names its workers; where it knows no other name they are the nodes' names."""
        self.per_node: int | None = None
        """Ranks of each node, where a line says how many."""
        self.since = 0
        """Line behind which the last run begins: where it claims a rank, claims of runs before it do not count."""
        self.highest_rank = -1
        self.complete = False
        """Whether the scheduler's own list of the job's nodes was read, so that no other node is of the job."""
        self.own_exit: str | None = None
        """The only host whose task ended by itself with an exit code, as srun reports it."""
        self._ranks: dict[int, dict[str, int]] = defaultdict(dict)
        self._tasks: dict[int, dict[str, int]] = defaultdict(dict)
        self._gpus: dict[int, int] = {}
        self._listed: set[str] = set()
        self._names: dict[str, dict[str, int]] = defaultdict(dict)
        self._bases: dict[str, set[int]] = defaultdict(set)
        self._devices: dict[tuple[int, int], set[str]] = defaultdict(set)
        self._communicators: list[Communicator] = []

    def name(self, host: str | None) -> None:
        """Note a host of the job."""
        if host and host not in _NOWHERE:
            self.hosts[host] += 1

    def name_all(self, nodes: Iterable[str]) -> None:
        """Note the nodes that the scheduler lists for the job: no other node is of it, and none of them is another's name."""
        for node in nodes:
            self.name(node)
            self._listed.add(node)
            self.complete = True

    def place(self, rank: int, host: str, line: int = 0, gpu: int | None = None) -> None:
        """Note where a rank ran, and which GPU of its node it had."""
        if host in _NOWHERE:
            return
        self.highest_rank = max(self.highest_rank, rank)
        self._ranks[rank][host] = line
        if gpu is not None:
            self._gpus.setdefault(rank, gpu)
        self.name(host)

    def add_task(self, task: int, host: str, line: int = 0) -> None:
        """Note where a Slurm task ran."""
        self._tasks[task][host] = line
        self.name(host)

    def add_base(self, rank: int, local_rank: int, host: str) -> None:
        """Note a rank and its local rank as the launcher gave both: it numbers the ranks of a host one after another."""
        self._bases[host].add(rank - local_rank)
        self._gpus.setdefault(rank, local_rank)

    def add_communicator(self, member: Communicator, bus: int | None) -> None:
        """Note a member of a communicator; ranks of groups are told from those of the job when all are known."""
        self._communicators.append(member)
        self.name(member.host)
        if bus is not None:
            self._devices[bus >> 20, bus >> 12 & 0xFF].add(member.host)

    def also_called(self, name: str, node: str, line: int = 0) -> None:
        """Note that an address or a pod is a node."""
        if name != node and node not in _NOWHERE and name not in _NOWHERE:
            self._names[name][node] = line

    def node_of(self, name: str) -> str:
        """Return the node that an address, a pod or a host is, the name itself where nothing else is known."""
        nodes = self._names.get(name, {}) if name not in self._listed else {}
        if len(_alike(nodes)) == 1:
            return next(iter(nodes))
        if not nodes and ADDRESS.match(name):
            known = [host for host in self.hosts if (aws := _AWS_HOST.match(host)) and ".".join(aws.groups()) == name]
            return known[0] if len(known) == 1 else name
        return name

    def settle(self, since: int = 0) -> None:
        """Take the communicators of the whole job as claims; a line behind which the last run begins may be told."""
        self.since = since
        self.hosts = Counter({host: count for host, count in self.hosts.items() if self.node_of(host) == host}) or self.hosts
        whole = max((member.size for member in self._communicators), default=0)
        if whole <= self.highest_rank:
            return  # no communicator is the whole job
        for member in self._communicators:
            if member.size == whole:
                self.place(member.rank, member.host, member.line, member.gpu)
        self._communicators = []

    def host_of(self, *, rank: int | None, task: int | None) -> str | None:
        """Return the node where a rank or a Slurm task ran, None where that is not known or contradictory."""
        if rank is not None:
            claims = self._current(self._ranks.get(rank, {}))
            return self._agreed(claims) if claims else self._reckoned(rank)
        return self._agreed(self._current(self._tasks.get(task, {}))) if task is not None else None

    def gpu_of(self, rank: int) -> int | None:
        """Return the GPU of a rank on its node, None where that is not known."""
        return self._gpus.get(rank)

    def line_of(self, rank: int) -> int:
        """Return the line that places a rank, 0 where none does by itself."""
        return next(iter(self._current(self._ranks.get(rank, {})).values()), 0)

    def only_host(self) -> str | None:
        """Return the node of a job that ran on one."""
        return self.node_of(next(iter(self.hosts))) if len(self.hosts) == 1 else None

    def knows(self, host: str) -> bool:
        """Tell whether the host belongs to the job, whichever way its domain is written."""
        return any(_short(known) == _short(host) for known in (*self.hosts, *self._listed))

    def foreign(self, host: str) -> bool:
        """Tell whether a host is proven to be no node of the job."""
        return self.complete and not self.knows(host)

    def host_with(self, device: str) -> str | None:
        """Return the only host of the job with a GPU at a PCI address, None unless all hosts tell theirs."""
        parts = device.split(":")
        if len(parts) < 2 or set().union(*self._devices.values()) != set(self.hosts):
            return None
        domain, bus = (int(part, 16) for part in (parts[-3] if len(parts) > 2 else "0", parts[-2]))
        hosts = self._devices.get((domain, bus), set())
        return next(iter(hosts)) if len(hosts) == 1 else None

    def _current(self, claims: Mapping[str, int]) -> dict[str, int]:
        last = {host: line for host, line in claims.items() if line > self.since}
        return last or dict(claims)

    def _agreed(self, claims: Iterable[str]) -> str | None:
        nodes = _alike({self.node_of(host): 0 for host in claims})
        return next(iter(nodes.values())) if len(nodes) == 1 else None

    def _reckoned(self, rank: int) -> str | None:
        """Return the node of a rank that no line places, where blocks of ranks are proven."""
        spans = [(host, base) for host, bases in self._bases.items() for base in bases]
        for host, base in spans:
            own = [other for other in self._ranks if host in self._current(self._ranks[other])]
            if base <= rank <= max(own, default=-1):
                return self._agreed([host])
        size = self._block()
        if size is None:
            return self._of_task(rank)
        first = rank - rank % size
        based = [host for host, base in spans if base == first]
        if based:
            return self._agreed(based)
        neighbours = [host for other in range(first, first + size) for host in self._current(self._ranks.get(other, {}))]
        return self._agreed(neighbours) if neighbours else None

    def _of_task(self, rank: int) -> str | None:
        """Return the node of the Slurm task that would hold a rank, where that node alone ended by itself.

        The order of tasks is no proof: a rendezvous numbers the nodes as they arrive.
        """
        if (
            self.per_node is None
            or self.per_node < 1
            or len(_alike(h for claims in self._tasks.values() for h in claims)) < len(self._tasks)
        ):
            return None
        host = self._agreed(self._current(self._tasks.get(rank // self.per_node, {})))
        return host if host is not None and host == self.own_exit else None

    def _block(self) -> int | None:
        """Return how many consecutive ranks each node holds, None where that is not proven."""
        bases = {base for bases in self._bases.values() for base in bases}
        most = max((rank - max((b for b in bases if b <= rank), default=rank) for rank in self._ranks), default=0) + 1
        size = self.per_node
        if size is None and len(bases) > 1:
            common = gcd(*bases)
            fitting = [one for one in COMMON_SIZES if one >= most and common % one == 0]
            size = fitting[0] if len(fitting) == 1 else None
        if size is None or size < 1 or any(base % size for base in bases):
            return None
        blocks: dict[int, set[str]] = defaultdict(set)
        members: Counter[int] = Counter()
        for rank, claims in self._ranks.items():
            blocks[rank // size] |= {_short(self.node_of(host)) for host in self._current(claims)}
            members[rank // size] += 1
        if any(len(hosts) > 1 for hosts in blocks.values()):
            return None  # ranks are dealt out in turn
        return size if bases or any(count > 1 for count in members.values()) else None


def _short(host: str) -> str:
    return host if ADDRESS.match(host) else host.split(".", maxsplit=1)[0]


def _alike(hosts: Iterable[str]) -> dict[str, str]:
    """Return one name for each host, whichever way its domain is written."""
    names: dict[str, str] = {}
    for host in hosts:
        names.setdefault(_short(host), host)
    return names
