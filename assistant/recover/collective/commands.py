"""How the two-round test is run on the nodes of a world, and what their answers make of it. Pure.

The terms stand in knowledge/collective.toml: how large, how often, what counts as slow. The best program that all nodes have is
taken: NCCL through torch (`torchrun`) sees the GPUs and the fabric that training uses, the same with gloo sees torch and TCP, and
the ring of the standard library sees hosts, cables and switches. A node that has `all_gather_perf` of nccl-tests is tested by
itself with it, too: only this can tell two GPUs of one node apart.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import median_high
from types import MappingProxyType
from typing import Any, NamedTuple

from assistant.content.reading import build, read_toml, shipped
from assistant.ports import Reply
from assistant.recover.collective.planner import Limits, Outcome, Result, World
from assistant.redact import head_of
from assistant.untrusted import parse_json

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


def choose_program(looks: Mapping[str, str]) -> Choice:
    """Return the best program that all nodes have.

    Args:
        looks: By node what `LOOK` printed; empty for a node that did not answer.
    """
    torch = {node: _torch_of(text) for node, text in looks.items()}
    able = [gpus for _, gpus in torch.values() if gpus is not None]
    without = {node: why for node, (why, gpus) in torch.items() if gpus is None}
    if without or not able:
        return Choice(lacking=without if able else MappingProxyType({}))
    if not min(able):
        return Choice(Program.GLOO, lacking={node: why for node, (why, gpus) in torch.items() if not gpus} if any(able) else {})
    return Choice(Program.NCCL, min(able), all("all_gather_perf" in text for text in looks.values()))


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


MARK = "NIGHTSHIFT-COLLECTIVE"
"""What a line of the ring and the torch program begins with; banners and warnings may stand around it."""
CANNOT_RUN = (126, 127)
"""What shells answer for a program that is not there or may not run."""
OUT_OF_TIME = 124
"""What `timeout` answers when it had to end the program."""
_RANK_KILLED = re.compile(r"Signal (\d{1,18}) \(\w+\) received by PID")
"""What torchrun says of a process of its own that was killed; it ends with status 1 itself."""
NO_VERDICT = ("setup",)
"""Kinds of trouble that say nothing about the node: no free port, no memory for the blocks."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one node said."""

    node: str
    answered: bool
    """False when nothing can be said about the node: not reached, no interpreter, no port."""
    ok: bool
    text: str
    """What went wrong; empty when nothing did."""
    mib_s: float | None = None


def report_of(reply: Reply) -> Report:
    """Return what a node's reply says.

    A node whose program was killed has answered: its part of the world failed. One that has no interpreter, or a wrong one, has
    not, and neither has one that printed something else.
    """
    if not reply.reached:
        return Report(reply.node, False, False, reply.err.strip() or "it did not answer")
    record = _marked(reply.out)
    if record is not None:
        trouble = "" if record.get("ok") is True else f"{record.get('kind') or 'failed'}: {record.get('text') or 'no reason given'}"
        answered = record.get("kind") not in NO_VERDICT
        speed = record.get("mib_s")
        return Report(reply.node, answered, not trouble, trouble, float(speed) if isinstance(speed, (int, float)) else None)
    if ended := ended_by(reply):
        return Report(reply.node, True, False, ended)
    status = reply.status or 0
    last = head_of((reply.err.strip().splitlines() or ["it printed no report"])[-1], 200)
    reason = "the program cannot run there" if status in CANNOT_RUN else f"the program ended with status {status}"
    return Report(reply.node, False, False, f"{reason}: {last}")


def ended_by(reply: Reply) -> str:
    """Return what ended a program before it could report, when that tells about its node; empty when it ended by itself."""
    status = reply.status or 0
    if status == OUT_OF_TIME:
        return "timeout: it did not end in time"
    number = -status if status < 0 else status - 128
    if number <= 0:
        killed = _RANK_KILLED.search(reply.err)
        number = int(killed[1]) if killed else 0
    return f"the program was killed by signal {number}" if number > 0 else ""


def _marked(out: str) -> Mapping[str, Any] | None:
    """Return the last report of an output; several ranks of a node that all went well count as the slowest of them."""
    records: list[Mapping[str, Any]] = []
    for line in out.splitlines():
        _, mark, payload = line.partition(MARK + " ")
        if not mark:
            continue
        try:
            record = parse_json(payload)
        except ValueError:
            continue
        records += [record] if isinstance(record, Mapping) else []
    bad = [said for said in records if said.get("ok") is not True]
    if bad or not records:
        return bad[0] if bad else None
    return min(records, key=lambda said: said["mib_s"] if isinstance(said.get("mib_s"), (int, float)) else float("inf"))


class Speeds:
    """The bandwidths of all worlds so far, by their size: only like is compared with like."""

    def __init__(self, slow_share: float) -> None:
        """Call slow what is below this share of the median."""
        self.slow_share = slow_share
        self._by_size: dict[int, list[float]] = {}

    def add(self, world: World, mib_s: float) -> None:
        """Take in a world's bandwidth."""
        self._by_size.setdefault(len(world), []).append(mib_s)

    def limit(self, world: World) -> float:
        """Return the bandwidth below which a world is slow; 0 when there is nothing to compare with.

        Of two worlds the faster is the measure: being suspected costs a node one more world, not its place.
        """
        speeds = self._by_size.get(len(world), [])
        return self.slow_share * median_high(speeds) if len(speeds) > 1 and len(world) > 1 else 0.0


def result_of(world: World, reports: Sequence[Report], speeds: Speeds) -> Result:
    """Return what a world's reports make of it.

    Args:
        world: Its nodes.
        reports: One for each.
        speeds: With this round's bandwidths already in it.
    """
    silent = tuple(report.node for report in reports if not report.answered)
    detail = "; ".join(f"{report.node}: {report.text}" for report in reports if report.text)
    if silent:
        return Result(Outcome.UNREACHED, silent, detail)
    if any(not report.ok for report in reports):
        return Result(Outcome.FAIL, (), detail)
    speed = world_speed(reports)
    if speed is not None and speed < speeds.limit(world):
        return Result(Outcome.SLOW, (), f"{speed:.0f} MiB/s, limit {speeds.limit(world):.0f}", speed)
    return Result(Outcome.PASS, (), "", speed)


def world_speed(reports: Sequence[Report]) -> float | None:
    """Return the bandwidth of a world that went well: that of its slowest node; None when it was not measured."""
    speeds = [report.mib_s for report in reports if report.mib_s is not None]
    return min(speeds) if len(speeds) == len(reports) and all(report.ok for report in reports) else None


PROGRAM = "all_gather_perf"
KILL_AFTER_S = 5
LONGEST_TEXT = 300
_HEADER = re.compile(r"^#?\s*size\s+count\s+type\s.*\bbusbw\b.*$", re.MULTILINE)
_USUAL = ("time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong")
"""Columns of results, should the header have got lost; how many stand before them changes with the version."""
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d")
_FAILURE = re.compile(r"(?<!\S)\S{0,255}: Test (?:NCCL|CUDA) failure .*|(?<!\S)\S{0,255}: Test timeout .*")
_TOO_FEW = re.compile(r"Invalid number of GPUs: \d+ requested but only \d+ were found")
_WARNING = re.compile(r"NCCL WARN (.+)")
_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(-?\d+)")
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(\S+)(\s+FAILED)?")
_NO_MEMORY = "out of memory"


class Table(NamedTuple):
    """What a run that came to its end printed."""

    rows: Sequence[Mapping[str, Sequence[str]]]
    """Of each row the values of each column of results, out of place and in place."""
    bounds: int
    """Results with wrong values, as the program counted them."""
    gb_s: float
    below: bool
    """Whether the bandwidth is below the least that the node's own NCCL_TESTS_MIN_BW wants."""


def alone_command(gpus: int, *, deadline_s: float, mib: int = 256, repeats: int = 20, program: str = PROGRAM) -> list[str]:
    """Return the command for all GPUs of one node: one size, content checked.

    Args:
        gpus: How many.
        deadline_s: After which it is ended. Its own option for that is younger than it and does not see every hang.
        mib: Size of the message.
        repeats: Timed runs.
        program: Where it lies.
    """
    size = f"{mib}M"
    words = [program, "--minbytes", size, "--maxbytes", size, "--ngpus", str(gpus), "--iters", str(repeats), "--check", "1"]
    return ["timeout", f"--kill-after={KILL_AFTER_S}", f"{deadline_s:g}", *words]


def report_of_table(reply: Reply, *, program: str = PROGRAM) -> Report:
    """Return what the table says; a program that is missing, or a table that is none, says nothing about the node."""
    if not reply.reached:
        return Report(reply.node, False, False, reply.err.strip() or "it did not answer")
    if trouble := _trouble(reply):
        # leftovers of another job fill the memory, which is no fault of the node
        return Report(reply.node, _NO_MEMORY not in trouble, False, trouble)
    table = _table(reply.out)
    if table is None:
        last = head_of((reply.err.strip().splitlines() or ["no table"])[-1], 200)
        return Report(reply.node, False, False, f"{program} printed no result (status {reply.status}): {last}")
    checks = [value for row in table.rows for name in ("#wrong", "error") for value in row.get(name, ()) if value != "N/A"]
    wrong = sum(_figure(value) for value in checks)
    if wrong or table.bounds:
        many = f"{wrong:.0f} values are" if wrong >= 1 and all("#wrong" in row for row in table.rows) else "values are"
        return Report(reply.node, True, False, f"content: {many} wrong")
    if not checks:
        return Report(reply.node, False, False, f"{program} did not check the content")
    if table.below:
        return Report(reply.node, True, False, f"{table.gb_s:g} GB/s is below its NCCL_TESTS_MIN_BW")
    return Report(reply.node, True, True, "", round(table.gb_s * 1e9 / (1 << 20), 1))


def _trouble(reply: Reply) -> str:
    """Return what went wrong in words; NCCL's warnings alone are no trouble, many are harmless."""
    both = f"{reply.out}\n{reply.err}"
    failure = _FAILURE.search(both) or _TOO_FEW.search(both)
    trouble = failure[0].strip() if failure else ended_by(reply)
    warning = _WARNING.search(both) if trouble else None
    return f"{trouble}; {warning[1].strip()}"[:LONGEST_TEXT] if warning else trouble[:LONGEST_TEXT]


def _table(out: str) -> Table | None:
    """Return the table; None when a part of it is missing."""
    header = _HEADER.search(out)
    named = header[0].replace("# ", " ", 1).split() if header else []
    columns = [name for name in named[_first_result(named) :] if name != "timestamp"] if named else list(_USUAL)
    rows = [row for line in out.splitlines() if (row := _row(line, columns)) is not None]
    bounds, average = _BOUNDS.search(out), _AVERAGE.search(out)
    if not rows or bounds is None or average is None or not math.isfinite(gb_s := _figure(average[1])):
        return None
    return Table(rows, int(bounds[1]), gb_s, bool(average[2]))


def _first_result(columns: Sequence[str]) -> int:
    return next((place for place, name in enumerate(columns) if name in ("time", "cputime")), 0)


def _row(line: str, columns: Sequence[str]) -> Mapping[str, Sequence[str]] | None:
    """Return a row's results by column, read from the right: some versions leave operation and root empty."""
    words = [word for word in line.split() if not _CLOCK.fullmatch(word)]
    if len(words) < len(columns) + 3 or not (words[0].isdigit() and words[1].isdigit()):
        return None
    values = words[-len(columns) :]
    if any(value != "N/A" and math.isnan(_figure(value)) and "nan" not in value for value in values):
        return None
    return {name: list(_of(name, columns, values)) for name in columns}


def _of(name: str, columns: Sequence[str], values: Sequence[str]) -> Iterator[str]:
    return (value for column, value in zip(columns, values, strict=True) if column == name)


def _figure(word: str) -> float:
    """Return a figure as C prints it, for instance 1e+06, inf or -nan; not a number for what is none."""
    try:
        return float(word)
    except ValueError:
        return math.nan
