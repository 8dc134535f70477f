"""How the two-round test is run: its terms, its cost, and the words of the command on each node of a world. Pure.

The terms stand in knowledge/collective.toml: how large, how often, what counts as slow.

Three programs can do it, the best that all nodes have is taken: NCCL through torch (`torchrun`) sees the GPUs and the fabric that
training uses, the same with gloo sees torch and TCP, and the ring of the standard library sees hosts, cables and switches.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from assistant.content.reading import build, read_toml, shipped
from assistant.recover.collective.planner import Limits, World

ROUND_S = 2.0
"""What starting a round costs beside the work: connections, interpreters, meeting."""
SLOW_LINK_MIB_S = 100.0
"""A link of 1 Gbit/s, for the estimate."""


@dataclass(frozen=True)
class Terms:
    """Sizes, deadlines and thresholds; the file says more about each."""

    block_mib: int
    repeats: int
    connect_s: float
    deadline_s: float
    margin_s: float
    slow_share: float
    first_port: int
    last_port: int
    tries: int
    side_by_side: int

    def __post_init__(self) -> None:
        if min(self.block_mib, self.repeats, self.tries, self.connect_s, self.deadline_s, self.margin_s) <= 0:
            raise ValueError("block_mib, repeats, tries, connect_s, deadline_s and margin_s must be above 0")
        if not 0 < self.slow_share < 1:
            raise ValueError(f"slow_share must lie between 0 and 1, not {self.slow_share}")
        if not 1024 <= self.first_port < self.last_port <= 65_535:
            raise ValueError(f"ports {self.first_port} to {self.last_port} are no range between 1024 and 65535")
        if self.side_by_side < 8 or self.last_port - self.first_port < max(self.side_by_side, Limits().largest_world) * self.tries:
            raise ValueError("side_by_side must be 8 or more, and the ports enough for so many nodes with their tries")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a test takes."""

    nodes: int
    rounds: int
    """When nothing is broken, and mostly with one faulty node, too."""
    seconds: float
    """So many rounds on a 1 Gbit/s network; every node that hangs costs its deadline on top."""
    most_seconds: float
    """With every round and every deadline used."""
    node_mib: int
    """What one node receives in the usual rounds."""


@cache
def load_terms(site: Path | None = None) -> Terms:
    """Return the terms of the site, or those that are shipped.

    Raises:
        ContentError: The file is malformed.
    """
    own = site / "knowledge" / "collective.toml" if site is not None else None
    path = own if own is not None and own.is_file() else shipped("knowledge") / "collective.toml"
    return build(Terms, read_toml(path), path)


def cost_of(nodes: int, terms: Terms, limits: Limits) -> Cost:
    """Estimate what testing so many nodes takes.

    Args:
        nodes: How many.
        terms: As they will be used.
        limits: The planner's.
    """
    sizes = [2]
    groups = nodes // 2
    while groups > 1:
        sizes.append(min(groups, limits.largest_world))
        groups = -(-groups // limits.largest_world)
    rounds, batches = len(sizes), -(-nodes // terms.side_by_side)
    # a block is one MiB or more, however many nodes a world has
    node_mib = sum(max(size - 1, terms.block_mib) for size in sizes) * terms.repeats
    seconds = rounds * batches * ROUND_S + batches * node_mib / SLOW_LINK_MIB_S
    most = limits.rounds * batches * (terms.deadline_s + terms.margin_s)
    return Cost(nodes, rounds, round(seconds, 1), round(most, 1), node_mib)


MIB = 1 << 20


class Program(StrEnum):
    """What a world runs."""

    RING = "ring"
    """TCP, standard library only."""
    GLOO = "gloo"
    """torch over TCP."""
    NCCL = "nccl"
    """torch over NVLink, InfiniBand or what NCCL finds."""


_ASK_TORCH = "import torch; print('torch', torch.cuda.device_count(), torch.distributed.is_nccl_available())"
LOOK = ("sh", "-c", f'command -v torchrun; command -v all_gather_perf; python3 -c "{_ASK_TORCH}" 2>/dev/null; true')
"""What tells which programs a node has."""
STRAY_S = 40
"""torchrun gives its processes 30 s to end after it was told to; what still hangs then is killed."""


class Choice(NamedTuple):
    """What the worlds run."""

    program: Program = Program.RING
    gpus: int = 0
    """Processes of a node, for NCCL."""
    perf: bool = False
    """Whether a node by itself runs nccl-tests, which sees each of its GPUs."""
    lacking: Mapping[str, str] = MappingProxyType({})
    """By node what it lacks for a better program, where others have it."""


def choose_program(seen: Mapping[str, str]) -> Choice:
    """Return the best program that all nodes have.

    Args:
        seen: By node what `LOOK` printed; empty for a node that did not answer.
    """
    found = {node: _torch_of(text) for node, text in seen.items()}
    able = [gpus for _, gpus in found.values() if gpus is not None]
    without = {node: why for node, (why, gpus) in found.items() if gpus is None}
    if without or not able:
        return Choice(lacking=without if able else MappingProxyType({}))
    if not min(able):
        return Choice(Program.GLOO, lacking={node: why for node, (why, gpus) in found.items() if not gpus} if any(able) else {})
    return Choice(Program.NCCL, min(able), all("all_gather_perf" in text for text in seen.values()))


def _torch_of(text: str) -> tuple[str, int | None]:
    """Return what a node lacks, in words, and on how many GPUs its torch can run NCCL; None without torch or torchrun."""
    words = next((line.split() for line in text.splitlines() if line.startswith("torch ")), [])
    if len(words) != 3 or not words[1].isdigit():
        return "its python3 has no torch", None
    if not any(line.endswith("/torchrun") for line in text.splitlines()):
        return "it has no torchrun", None
    if words[2] != "True":
        return "its torch has no NCCL", 0
    return ("", int(words[1])) if int(words[1]) else ("its torch sees no GPU", 0)


@dataclass(frozen=True, slots=True)
class Seat:
    """A node's place in a round: where it listens."""

    node: str
    address: str
    ports: tuple[int, ...]


def seats_of(worlds: Sequence[World], terms: Terms, chance: random.Random, address: Callable[[str], str]) -> list[list[Seat]]:
    """Give every node of a round ports of its own, also where all nodes share one address.

    Args:
        worlds: At most `side_by_side` nodes.
        terms: Range of ports and tries.
        chance: Where in the range to begin, so that two tests at once rarely meet.
        address: By which address the others reach a node.
    """
    count = sum(map(len, worlds)) * terms.tries
    size = terms.last_port - terms.first_port + 1
    start = chance.randrange(size)
    ports = iter(terms.first_port + (start + place) % size for place in range(count))
    return [[Seat(node, address(node), tuple(next(ports) for _ in range(terms.tries))) for node in world] for world in worlds]


def commands_of(
    choice: Choice,
    seats: Sequence[Seat],
    terms: Terms,
    chance: random.Random,
    *,
    python: Sequence[str] = ("python3",),
) -> list[list[str]]:
    """Return the command of each node of a world.

    Args:
        choice: What to run.
        seats: Of the world's nodes, in the order of the ring.
        terms: Sizes and deadlines.
        chance: Token and seeds.
        python: The interpreter on the nodes.
    """
    token = f"{chance.getrandbits(128):032x}"
    # everybody receives from everybody else: a large world moves smaller blocks, so that no node receives much more than in a pair
    block_bytes = max(MIB, terms.block_mib * MIB // max(1, len(seats) - 1))
    sizes = {
        "block_bytes": block_bytes,
        "repeats": terms.repeats,
        "connect_s": terms.connect_s,
        "deadline_s": terms.deadline_s,
    }
    if choice.program is Program.RING:
        seeds = [chance.getrandbits(32) for _ in seats]
        peers = [[seat.address, list(seat.ports)] for seat in seats]
        tasks = [{"rank": rank, "peers": peers, "token": token, "seeds": seeds, **sizes} for rank in range(len(seats))]
        return [[*python, "-c", program_text("ring_program"), json.dumps(task)] for task in tasks]
    meeting = {"peers": [seat.address for seat in seats], "port": seats[0].ports[0], "token": token}
    shared = {"backend": choice.program.value, "seed": chance.getrandbits(32), **meeting, **sizes}
    tasks = [{**shared, "node": node} for node in range(len(seats))]
    return [_torch_command(task, max(1, choice.gpus), terms, python) for task in tasks]


def _torch_command(task: Mapping[str, object], processes: int, terms: Terms, python: Sequence[str]) -> list[str]:
    """Return the command that starts the processes of one node; the nodes meet in the program, not in torchrun.

    torchrun waits ten minutes for nodes that do not come, and what it prints then tells nothing about them.
    """
    return [
        "timeout",
        f"--kill-after={STRAY_S}",
        f"{terms.deadline_s + terms.margin_s / 2:g}",
        "torchrun",
        # with underscores, and with an address of its own, also older ones understand it and ask no name server
        "--nnodes=1",
        "--node_rank=0",
        f"--nproc_per_node={processes}",
        "--master_addr=127.0.0.1",
        "--master_port=0",
        "--monitor_interval=0.1",
        "--no_python",
        *python,
        "-c",
        program_text("torch_program"),
        json.dumps(task),
    ]


@cache
def program_text(name: str) -> str:
    """Return the text of a program that stands alone."""
    return (files(__package__) / f"{name}.py").read_text(encoding="utf-8")
