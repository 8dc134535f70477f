"""On which node a rank is that no line names with a node: by the rank of the node, or by the Slurm task that it is.

A launcher that gives each node a number (`torchrun --node_rank`, `SLURM_NODEID`, `GROUP_RANK`) gives it a block of ranks. A
rendezvous (c10d) numbers the nodes as they arrive: there only what it says itself counts. Where srun started several tasks on a
node, and reports the end of all of them, each task is a rank.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

_NODE_RANK = re.compile(
    r"(?<![A-Za-z])(?P<name>node[ _-]?rank|NODE_RANK|GROUP_RANK|group_rank|SLURM_NODEID)[\"']?[ =:]{1,3}(\d{1,6})\b"
)
_ON_HOST = re.compile(r"\bon (?:node |host )?([A-Za-z][\w.-]*\d[\w.-]*)\b")
_WORLD = re.compile(r"(?<!local_)(?<!LOCAL_)(?<!local )\b(?:world[_ -]?size|WORLD_SIZE|SLURM_NTASKS)[ =:]{1,3}(\d{1,9})\b")
_RENDEZVOUS = re.compile(r"rdzv[_-]backend[ =:]{1,3}[\"']?(?:c10d|etcd)")
_LAUNCHES_RANKS = re.compile(
    r"torch\.distributed\.(?:elastic|run|launch)|\btorchrun\b|ChildFailedError|deepspeed\.launcher|accelerate\.commands"
    r"|nproc[_-]per[_-]node"
)
"""Signs of a launcher that is one task itself and starts the ranks of its node."""
GIVEN_BY_RENDEZVOUS = "group_rank"


class NodeRanks:
    """The numbers of nodes, and the tasks whose end srun reported."""

    def __init__(self) -> None:
        self._hosts: dict[int, set[str]] = defaultdict(set)
        self._launcher_hosts: dict[int, set[str]] = defaultdict(set)
        """Those of `_hosts` that the launcher itself says, whatever was asked of it."""
        self._tasks: dict[int, set[str]] = defaultdict(set)
        self._worlds: set[int] = set()
        self._by_rendezvous = False
        self._by_launcher = False

    @staticmethod
    def may_name(text: str) -> bool:
        """Tell whether a line may say the number of a node."""
        return ("ode" in text or "NODE" in text or "roup_r" in text or "GROUP_R" in text) and (
            "ank" in text or "RANK" in text or "ID" in text
        )

    def read(self, text: str, host: str | None) -> None:
        """Take what a line adds.

        Args:
            text: The line.
            host: That it names by a key or by a mark before it; None for none, and for a line that `may_name` says nothing of.
        """
        if "torch" in text or "Child" in text or "deepspeed" in text or "accelerate" in text or "nproc" in text:
            self._by_launcher |= _LAUNCHES_RANKS.search(text) is not None
        if "rdzv" in text:
            self._by_rendezvous |= _RENDEZVOUS.search(text) is not None
        if "orld" in text or "WORLD" in text or "NTASKS" in text:
            self._worlds |= {int(match[1]) for match in _WORLD.finditer(text)}
        if not self.may_name(text):
            return
        claims = {(match["name"].lower().replace(" ", "_"), int(match[2])) for match in _NODE_RANK.finditer(text)}
        speaker = host or (match[1] if (match := _ON_HOST.search(text)) is not None else None)
        if speaker is None or len({number for _, number in claims}) != 1:
            return
        for name, number in claims:
            self._hosts[number].add(speaker)
            if name == GIVEN_BY_RENDEZVOUS:
                self._launcher_hosts[number].add(speaker)

    def add_end(self, task: int, host: str) -> None:
        """Note a task whose end srun reported."""
        self._tasks[task].add(host)

    def host_of_task(self, rank: int, highest_rank: int, own_exit: str | None) -> str | None:
        """Return the node of a rank that is a task; None where tasks are launchers of ranks, or may be.

        Args:
            rank: Of the whole job.
            highest_rank: That a line names.
            own_exit: The only node whose task ended by itself; where each node has one task, no other is told of.
        """
        tasks = _single(self._tasks)
        if self._by_launcher or len(tasks) < len(self._tasks) or highest_rank > max(tasks, default=-1):
            return None
        if len(set(tasks.values())) < len(tasks):
            return tasks.get(rank) if set(tasks) == set(range(len(tasks))) else None
        return own_exit if own_exit is not None and tasks.get(rank) == own_exit else None

    def host_of(self, rank: int, per_node: int | None) -> str | None:
        """Return the node of the block of ranks that a rank is in; None where its size or the node's number is not known.

        Args:
            rank: Of the whole job.
            per_node: Ranks of each node, where a line says how many.
        """
        claims = self._launcher_hosts if self._by_rendezvous else self._hosts
        nodes = _single(claims)
        if len(nodes) != len(claims) or len(set(nodes.values())) != len(nodes):
            return None  # several numbers for one node, or nodes for one number
        size = per_node if per_node is not None else self._block(len(nodes)) if set(nodes) == set(range(len(nodes))) else None
        return nodes.get(rank // size) if size is not None and size >= 1 else None

    def _block(self, nodes: int) -> int | None:
        """Return how many ranks each of all nodes has by the size of the world; None where that is not told, or does not fit."""
        world = next(iter(self._worlds)) if len(self._worlds) == 1 else 0
        return world // nodes if nodes > 1 and world and world % nodes == 0 else None


def _single(claims: Mapping[int, set[str]]) -> dict[int, str]:
    """Return what has one host by its short name."""
    short = {number: {host.partition(".")[0] for host in hosts} for number, hosts in claims.items()}
    return {number: next(iter(claims[number])) for number, hosts in short.items() if len(hosts) == 1}
