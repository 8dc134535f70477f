"""Where a job ran: rank, GPU, host and node, each claim with the line that makes it.

Claims come from single lines, tables and launchers. A program says where it runs by keys (`rank=3 host=n7`), or by a sentence whose
subject is the rank (`rank 3 on n7`). A local rank is no rank, and a line that names two ranks says nothing of either. Tables are a
map that mpirun displays, `kubectl get pods -o wide`, `kubectl describe pod`, a hosts file, DeepSpeed's world, and dictionaries that
programs print.

Hosts that claim the same rank contradict each other: such a rank is nowhere. What no line claims is reckoned only where it is
proven that each node holds a block of consecutive ranks.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import gcd
from typing import NamedTuple

from assistant.diagnose.readers.node_ranks import NodeRanks
from assistant.diagnose.readers.streams import NumberedLine, ProcessExit, Streams, TaskExit, expand, host_like, numbers
from assistant.logs.lines import Line

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
        self.node_ranks = NodeRanks()
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
            hosts = [host for host in self.hosts if (aws := _AWS_HOST.match(host)) and ".".join(aws.groups()) == name]
            return hosts[0] if len(hosts) == 1 else name
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
            return self._agreed(claims) if claims else self._reckoned(rank) or self._numbered(rank)
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
        return any(_short(host_name) == _short(host) for host_name in (*self.hosts, *self._listed))

    def foreign(self, host: str) -> bool:
        """Tell whether a host is proven to be no node of the job: to what the scheduler lists no line of the log adds another."""
        if self._listed:
            return all(_short(listed) != _short(host) for listed in self._listed)
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
            own = [its_rank for its_rank in self._ranks if host in self._current(self._ranks[its_rank])]
            if base <= rank <= max(own, default=-1):
                return self._agreed([host])
        size = self._block()
        if size is None:
            return self._of_task(rank)
        first = rank - rank % size
        based = [host for host, base in spans if base == first]
        if based:
            return self._agreed(based)
        neighbours = [host for its_rank in range(first, first + size) for host in self._current(self._ranks.get(its_rank, {}))]
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

    def _numbered(self, rank: int) -> str | None:
        """Return the node of a rank by the number of its node, or by its task."""
        by_task = self.node_ranks.host_of_task(rank, self.highest_rank, self.own_exit)
        host = by_task or self.node_ranks.host_of(rank, self.per_node)
        return self._agreed([host]) if host is not None and not self.foreign(host) else None

    def _block(self) -> int | None:
        """Return how many consecutive ranks each node holds, None where that is not proven."""
        bases = {base for bases in self._bases.values() for base in bases}
        most = max((rank - max((b for b in bases if b <= rank), default=rank) for rank in self._ranks), default=0) + 1
        size = self.per_node
        if size is None and len(bases) > 1:
            common = gcd(*bases)
            fitting = [per_node for per_node in COMMON_SIZES if per_node >= most and common % per_node == 0]
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


_MAP_NODE = re.compile(r"^\s*Data for node: ([\w.-]+)")
_MAP_RANK = re.compile(r"\bProcess rank: (\d{1,9})\b")
_HOSTS_FILE = re.compile(r"^(\d{1,3}(?:\.\d{1,3}){3})[ \t]{1,20}([A-Za-z][\w.-]*)(?:[ \t]{1,20}[A-Za-z][\w.-]*)*+[ \t]*$")
_ASSIGNED = re.compile(r"Successfully assigned (?:[\w.-]+/)?([\w.-]+) to ([\w.-]+)")
_DESCRIBED = re.compile(r"^(Name|Node):\s+([\w.-]+)(?:/([\d.]+))?\s*$")
_DICTIONARY = re.compile(r"\{[^{}]{6,20000}\}")
DEEPSPEED_WORLD = "WORLD INFO DICT"
"""DeepSpeed's launcher numbers the ranks of the hosts in the order in which it prints them."""


class Rosters:
    """Reads tables line by line."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._map_node: str | None = None
        self._columns: dict[str, int] = {}
        self._pod: str | None = None

    def read(self, text: str, number: int) -> None:
        """Take what the next line of a log adds."""
        if "node: " in text or "Process rank" in text:
            self._read_map(text, number)
        if text[:1].isdigit() and (match := _HOSTS_FILE.match(text)):
            self._places.also_called(match[1], match[2], number)
        if "assigned" in text and (match := _ASSIGNED.search(text)):
            self._places.also_called(match[1], match[2], number)
            self._places.name(match[2])
        if text.startswith(("Name:", "Node:")) and (match := _DESCRIBED.match(text)):
            self._read_described(match, number)
        if self._columns or text.startswith("NAME "):
            self._read_pods(text, number)
        if "{" in text and ": " in text and ("rank" in text or "Rank" in text or DEEPSPEED_WORLD in text):
            self._read_dictionary(text, number)

    def _read_map(self, text: str, number: int) -> None:
        if match := _MAP_NODE.match(text):
            self._map_node = match[1]
            self._places.name(match[1])
        elif self._map_node and (match := _MAP_RANK.search(text)):
            self._places.place(int(match[1]), self._map_node, number)

    def _read_described(self, match: re.Match[str], number: int) -> None:
        if match[1] == "Name":
            self._pod = match[2]
            return
        self._places.name(match[2])
        for name in (self._pod, match[3]):
            if name:
                self._places.also_called(name, match[2], number)

    def _read_pods(self, text: str, number: int) -> None:
        """Take a row of a table of pods, whose columns stand under their heads."""
        if text.startswith("NAME ") and " NODE" in text:
            self._columns = {}
            for word in re.finditer(r"\S+", text):
                self._columns.setdefault(word.group(0), word.start())  # NOMINATED NODE is another one
            return
        if not self._columns:
            return
        words = {word.start(): word.group(0) for word in re.finditer(r"\S+", text)}
        row = {head: words.get(start) for head, start in self._columns.items()}
        pod, node, address = row.get("NAME"), row.get("NODE"), row.get("IP")
        if not pod or not node or text[:1].isspace():
            self._columns = {}
            return
        self._places.also_called(pod, node, number)
        if address and ADDRESS.match(address):
            self._places.also_called(address, node, number)

    def _read_dictionary(self, text: str, number: int) -> None:
        for match in _DICTIONARY.finditer(text):
            try:
                table = ast.literal_eval(match.group(0))
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            if isinstance(table, dict):
                for rank, host in _ranks_of(table, in_order=DEEPSPEED_WORLD in text):
                    self._places.place(rank, host, number)


def _ranks_of(table: Mapping[object, object], *, in_order: bool) -> Iterator[tuple[int, str]]:
    """Yield the ranks of a table `rank: host` or `host: ranks`; none where two hosts hold the same numbers: these are GPUs."""
    if table and all(_is_rank(key) and isinstance(host, str) and host_like(host) for key, host in table.items()):
        yield from ((int(str(key)), str(host)) for key, host in table.items())
        return
    lists = {str(host): list(ranks) for host, ranks in table.items() if isinstance(ranks, list | tuple) and isinstance(host, str)}
    if len(lists) != len(table) or not all(host_like(host) and all(map(_is_rank, ranks)) for host, ranks in lists.items()):
        return
    every = [int(str(rank)) for ranks in lists.values() for rank in ranks]
    if in_order:
        hosts = [host for host, ranks in lists.items() for _ in ranks]
        yield from enumerate(hosts)
    elif len(set(every)) == len(every):
        yield from ((int(str(rank)), host) for host, ranks in lists.items() for rank in ranks)


def _is_rank(value: object) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and value.isdecimal())


_NCCL = re.compile(r"(?:^|[> ])([A-Za-z][\w.-]*):\d+:\d+ \[(\d{1,18})\] ")
_NCCL_RANK = re.compile(r"\brank (\d{1,9}) nranks (\d{1,9})(?: cudaDev (\d{1,4}))?(?:.{0,24} busId ([0-9a-f]{1,12}))?")
_NCCL_OWN = re.compile(r"(?<![\d.])(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})<0>")
_MARKED = re.compile(r"^\[rank(\d{1,9})\]")
_RANK = re.compile(
    r"(?<!local[ _-])(?<!local)(?<!node )(?<!Node )(?<!group )(?<![A-Za-z_-])"
    r"(?:[Gg]lobal[ _-]?)?[Rr](?:ank|ANK)[ =:#]{0,3}(\d{1,9})\b"
)
_LOCAL = re.compile(r"[Ll]ocal[ _-]?rank[ =:#]{0,3}(\d{1,4})\b", re.IGNORECASE)
_HOST_KEY = re.compile(
    r"\b(?:host(?:name)?|node(?:[ _-]?name)?|NodeName)\b[ \"']{0,2}[=:| ][ \"']{0,3}([A-Za-z][\w.-]*\w)", re.IGNORECASE
)
_SUBJECT = re.compile(
    r"(?<![A-Za-z_-])[Rr](?:ank|ANK)[ =:#]{0,3}\d{1,9}[ ,:]{0,2}"
    r"(?:\(|(?:is |was |now )?(?:running |started |launched |placed |pid \d+ )*(?:on|at) |PID \d+ RUNNING AT )"
    r"(?:node |host )?([A-Za-z][\w.-]*\w)"
)
_RANGE = re.compile(r"\branks?[ =:\[]{1,3}(\d{1,9}) ?(?:-|to|\.\.+) ?(\d{1,9})\b")
_LAUNCHED = re.compile(r"\bon host ([\w.-]+), \d{1,9} tasks?: \[?([\d,-]+)")
_OPENMPI = re.compile(r"\[([A-Za-z][\w.-]*):(\d{2,8})\] (?:\*\*\*|\[ ?\d+\]|Signal|MCW rank (\d{1,9})|Rank (\d{1,9}))")
_PER_NODE = re.compile(
    r"(?:nproc[_-]per[_-]node|n?tasks[_-]per[_-]node|local_world_size|LOCAL_WORLD_SIZE|gpus[_-]per[_-]node)[ =:]+(\d{1,18})",
    re.IGNORECASE,
)
_LISTS = re.compile(r"(?:NODELIST|nodelist|NodeList|hosts|Nodes|nodes)(?:\(s\))?\s*[=:]\s*([A-Za-z][\w.-]*[\d\[][\w.,\[\]-]*)")
_WHOLE_LIST = re.compile(r"\bSLURM_(?:JOB_)?NODELIST=|^\s*NodeList=")
"""Slurm's own list of the nodes of a job; that of a step may hold fewer."""
_ALLOCATION = re.compile(
    r"\b(?:Allocate|_start_job|sched: (?:Allocate|_slurm_rpc_allocate)\w*)\b.{0,80}?\bNodeList=([\w.,\[\]-]{1,4000})"
)
"""slurmctld.log says with it which nodes a job got."""
MOST_RANKS = 1_000_000


def allocated_nodes(scheduler: Iterable[Line]) -> list[str]:
    """Return the nodes that the scheduler's log says the last job in it got; none where it does not say so.

    Args:
        scheduler: Lines of slurmctld.log about one job.
    """
    texts = [match[1] for line in scheduler if (match := _ALLOCATION.search(line.text)) is not None]
    return list(expand(texts[-1])) if texts else []


def read_places(lines: Iterable[NumberedLine], streams: Streams, exits: Sequence[ProcessExit], tasks: Sequence[TaskExit]) -> Places:
    """Return what a log tells about where its ranks ran."""
    places = Places()
    rosters = Rosters(places)
    for line in lines:
        rosters.read(line.text, line.number)
        _read_line(line.text, line.number, streams, places)
    for exit in exits:
        if exit.host is None or exit.rank is None:
            continue
        places.place(exit.rank, exit.host, exit.line, exit.local_rank)
        if exit.local_rank is not None:
            places.add_base(exit.rank, exit.local_rank, exit.host)
    for report in tasks:
        for task in report.tasks:
            places.add_task(task, report.host, report.line)
            places.node_ranks.add_end(task, report.host)
    ended = {report.host for report in tasks if report.how.startswith("Exited with")}
    places.own_exit = ended.pop() if len(ended) == 1 else None
    places.settle()
    return places


def _read_line(text: str, number: int, streams: Streams, places: Places) -> None:
    if text.startswith("[rank") and (match := _MARKED.match(text)):
        places.highest_rank = max(places.highest_rank, int(match[1]))
    if " [" in text and (match := _NCCL.search(text)) and ("NCCL" in text or " INFO " in text or " WARN " in text):
        _read_nccl(match, text, number, streams, places)
        return
    if "ip=" in text[:80] and (address := streams.body(text).host):
        places.addresses.add(address)
    if "ank" in text or "ANK" in text:
        _read_rank(text, number, streams, places)
    if "[" in text[:48] and (match := _OPENMPI.search(text)):
        rank = streams.body(text).rank if not (match[3] or match[4]) else int(match[3] or match[4])
        places.place(rank, match[1], number) if rank is not None else places.name(match[1])
    if " on host " in text and (match := _LAUNCHED.search(text)):
        for task in numbers(match[2]):
            places.add_task(task, match[1], number)
    if ("per" in text or "LOCAL" in text or "local_w" in text or "PER" in text) and (match := _PER_NODE.search(text)):
        places.per_node = places.per_node or int(match.group(1)) or None
    if ("ode" in text or "NODE" in text or "host" in text) and (match := _LISTS.search(text)):
        for host in expand(match.group(1)):
            places.name(host)
        places.complete = places.complete or _WHOLE_LIST.search(text) is not None
    places.node_ranks.read(text, _host_in(text, streams) if NodeRanks.may_name(text) else None)
    _read_mark(text, number, streams, places)


def _read_mark(text: str, number: int, streams: Streams, places: Places) -> None:
    """Take the host that a mark before the line names, and `3: node07`, which `srun -l hostname` prints."""
    if text[:1].isdigit() or text[:1] == " ":
        body = streams.body(text) if len(text) < 80 else None
        if body is not None and body.task is not None and host_like(body.text.strip()) and " " not in body.text.strip():
            places.add_task(body.task, body.text.strip(), number)
    for host in streams.hosts:
        if text.startswith(host):
            body = streams.body(text)
            places.place(body.rank, host, number) if body.rank is not None else places.name(host)


def _read_nccl(match: re.Match[str], text: str, number: int, streams: Streams, places: Places) -> None:
    host = match[1]
    body = streams.body(text)
    if rank_match := _NCCL_RANK.search(text):
        bus = int(rank_match[4], 16) if rank_match[4] else None
        gpu = int(rank_match[3] or match[2])
        places.add_communicator(Communicator(int(rank_match[2]), int(rank_match[1]), host, gpu, number), bus)
    else:
        places.name(host)
    if body.rank is not None:
        places.place(body.rank, host, number, int(match[2]))
    if " Using " in text or "OOB" in text:
        for address in _NCCL_OWN.findall(text):
            places.also_called(address, host, number)


def _read_rank(text: str, number: int, streams: Streams, places: Places) -> None:
    """Take `rank` and `host` of one line; a line that names several ranks says nothing of one of them."""
    if (match := _RANGE.search(text)) and (host := _host_in(text, streams)):
        first, last = int(match[1]), int(match[2])
        for rank in range(first, min(last, first + MOST_RANKS) + 1 if last - first < MOST_RANKS else first):
            places.place(rank, host, number)
        return
    ranks = {int(rank_text) for rank_text in _RANK.findall(text)}
    if len(ranks) != 1:
        return
    host_match = _SUBJECT.search(text) or _HOST_KEY.search(text)
    if host_match is not None and host_like(host_match[1]) and not ADDRESS.match(host_match[1]):
        local = _LOCAL.search(text)
        places.place(ranks.pop(), host_match[1], number, int(local[1]) if local else None)


def _host_in(text: str, streams: Streams) -> str | None:
    """Return the host that a line names by a key, or that stands before it."""
    if (match := _HOST_KEY.search(text)) and host_like(match[1]):
        return match[1]
    before, colon, _ = text.partition(":")
    return streams.body(text).host or (before if colon and host_like(before) else None)
