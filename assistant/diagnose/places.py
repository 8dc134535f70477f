"""Map ranks and tasks to hosts, from everything in a log that tells both.

Said outright: torchrun's blocks, srun's and mpirun's reports, NCCL's `host:pid:tid … rank 5 nranks 16`, a host mark beside a rank
mark, `rank 17 (node03)`. Reckoned from that: a node's ranks are consecutive, so `rank 12 (local_rank: 4)` on one host places its
neighbours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from assistant.diagnose.streams import Streams, host_like
from assistant.diagnose.torchrun import Exit, TaskExit
from assistant.diagnose.tracebacks import NumberedLine

_NCCL = re.compile(r"(?:^|[> ])([A-Za-z][\w.-]*):\d+:\d+ \[(\d{1,18})\] ")
_NCCL_RANK = re.compile(r"\brank (\d{1,18}) nranks (\d{1,18})")
_TOLD = re.compile(
    r"\b[Rr]ank[ =:]*(\d{1,18})[ ,]*(?:\(|on |at |host[ =:]+|node[ =:]+|hostname[ =:]+)+(?:node |host )?([A-Za-z][\w.-]*)"
)
_TOLD_BACK = re.compile(r"\b(?:host|node|hostname)[ =:]+([A-Za-z][\w.-]*)[ ,;]+(?:global_)?rank[ =:]+(\d{1,18})")
_OPENMPI = re.compile(r"\[([A-Za-z][\w.-]*):(\d{2,8})\] (?:\*\*\*|\[ ?\d+\]|Signal)")
_PER_NODE = re.compile(
    r"(?:nproc[_-]per[_-]node|ntasks[_-]per[_-]node|local_world_size|LOCAL_WORLD_SIZE|gpus[_-]per[_-]node)[ =:]+(\d{1,18})"
)
_LISTS = re.compile(r"(?:NODELIST|nodelist|NodeList|hosts|Nodes|nodes)(?:\(s\))?\s*[=:]\s*([A-Za-z][\w.-]*[\d\[][\w.,\[\]-]*)")
_HOSTLIST = re.compile(r"([^,\[]{1,255}+(?:\[[^\[\]]*+\])?[^,\[]{0,255}+)(?:,|$)")


class Places:
    """Where ranks ran."""

    def __init__(self) -> None:
        self.hosts: Counter[str] = Counter()
        """Every host of the job, with how often it was named."""
        self.addresses: set[str] = set()
        """Addresses by which Ray names its workers; where it knows no other name they are the nodes' names."""
        self.per_node: int | None = None
        self._ranks: dict[int, str] = {}
        self._tasks: dict[int, str] = {}
        self._bases: dict[int, str] = {}

    def name(self, host: str | None) -> None:
        """Note a host of the job."""
        if host:
            self.hosts[host] += 1

    def place(self, rank: int, host: str) -> None:
        """Note where a rank ran; the first word counts."""
        self._ranks.setdefault(rank, host)
        self.name(host)

    def host_of(self, *, rank: int | None, task: int | None) -> str | None:
        """Return where a rank or a Slurm task ran, None where that is not known."""
        if rank is not None:
            if rank in self._ranks:
                return self._ranks[rank]
            return self._reckoned(rank)
        return self._tasks.get(task) if task is not None else None

    def only_host(self) -> str | None:
        """Return the host of a job that ran on one."""
        return next(iter(self.hosts)) if len(self.hosts) == 1 else None

    def knows(self, host: str) -> bool:
        """Tell whether the host belongs to the job, whichever way its domain is written."""
        short = host.split(".", maxsplit=1)[0]
        return any(known.split(".")[0] == short for known in self.hosts)

    def add_task(self, task: int, host: str) -> None:
        """Note where a Slurm task ran."""
        self._tasks.setdefault(task, host)
        self.name(host)

    def add_base(self, first_rank: int, host: str) -> None:
        """Note the first rank of a host."""
        self._bases.setdefault(first_rank, host)

    def _reckoned(self, rank: int) -> str | None:
        if self.per_node is None or self.per_node < 1:
            return None
        first = rank - rank % self.per_node
        if first in self._bases:
            return self._bases[first]
        neighbours = {self._ranks[other] for other in range(first, first + self.per_node) if other in self._ranks}
        if len(neighbours) == 1:
            return neighbours.pop()
        return self._tasks.get(first // self.per_node) if self._one_task_a_node() else None

    def _one_task_a_node(self) -> bool:
        return len(set(self._tasks.values())) == len(self._tasks) > 0


def read_places(lines: Iterable[NumberedLine], streams: Streams, exits: Sequence[Exit], tasks: Sequence[TaskExit]) -> Places:
    """Return what a log tells about where its ranks ran."""
    places = Places()
    for line in lines:
        _read_line(line.text, streams, places)
    local_ranks = [exit.local_rank for exit in exits if exit.local_rank is not None]
    for told in exits:
        if told.host is None or told.rank is None:
            continue
        places.place(told.rank, told.host)
        if told.local_rank is not None:
            places.add_base(told.rank - told.local_rank, told.host)
    for report in tasks:
        for task in report.tasks:
            places.add_task(task, report.host)
    if places.per_node is None and local_ranks:
        places.per_node = _spacing(places, max(local_ranks) + 1)
    return places


def _spacing(places: Places, at_least: int) -> int:
    """Return ranks per node: the usual size that fits what was seen."""
    return next((size for size in (1, 2, 4, 8, 16) if size >= max(at_least, 8 if at_least > 4 else at_least)), at_least)


def _read_line(text: str, streams: Streams, places: Places) -> None:
    if " [" in text and (match := _NCCL.search(text)) and ("NCCL" in text or " INFO " in text or " WARN " in text):
        places.name(match.group(1))
        if rank := _NCCL_RANK.search(text):
            places.place(int(rank.group(1)), match.group(1))
        elif (body := streams.body(text)).rank is not None:
            places.place(body.rank, match.group(1))
        return
    if "ip=" in text[:80] and (address := streams.body(text).host):
        places.addresses.add(address)
    if "ank" in text:
        if (match := _TOLD.search(text)) and host_like(match.group(2)):
            places.place(int(match.group(1)), match.group(2))
        elif (match := _TOLD_BACK.search(text)) and host_like(match.group(1)):
            places.place(int(match.group(2)), match.group(1))
    if "[" in text[:48] and (match := _OPENMPI.search(text)):
        body = streams.body(text)
        places.place(body.rank, match.group(1)) if body.rank is not None else places.name(match.group(1))
    if ("per" in text or "LOCAL" in text or "local_w" in text) and (match := _PER_NODE.search(text)):
        places.per_node = places.per_node or int(match.group(1)) or None
    if ("ode" in text or "NODE" in text or "host" in text) and (match := _LISTS.search(text)):
        for host in expand(match.group(1)):
            places.name(host)
    for host in streams.hosts:
        if text.startswith(host):
            body = streams.body(text)
            places.place(body.rank, host) if body.rank is not None else places.name(host)


def expand(hostlist: str, limit: int = 4096) -> list[str]:
    """Return the names of a Slurm host list such as `node[001-003,7],login1`."""
    names: list[str] = []
    for match in _HOSTLIST.finditer(hostlist):
        part = match.group(1).strip()
        head, bracket, rest = part.partition("[")
        if not bracket:
            names += [part] if part and host_like(part) else []
            continue
        inside, _, tail = rest.partition("]")
        for item in inside.split(","):
            low, _, high = item.partition("-")
            if low.isdigit() and (high.isdigit() or not high):
                for number in range(int(low), min(int(high or low), int(low) + limit) + 1):
                    names.append(f"{head}{number:0{len(low)}}{tail}")
    return names[:limit]
