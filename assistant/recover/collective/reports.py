"""What the nodes of a world said, and what that makes of the world: pure, so that its tests are files.

A node that has `all_gather_perf` of nccl-tests is tested by itself with it: its GPUs and their links. The pair test cannot
tell two GPUs of one node apart; this can, since it runs inside one node.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high
from typing import Any, NamedTuple

from assistant.ports import Reply
from assistant.recover.collective.planner import Outcome, Result, World
from assistant.untrusted import parse_json

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
    said = _marked(reply.out)
    if said is not None:
        trouble = "" if said.get("ok") is True else f"{said.get('kind') or 'failed'}: {said.get('text') or 'no reason given'}"
        answered = said.get("kind") not in NO_VERDICT
        speed = said.get("mib_s")
        return Report(reply.node, answered, not trouble, trouble, float(speed) if isinstance(speed, (int, float)) else None)
    if ended := ended_by(reply):
        return Report(reply.node, True, False, ended)
    status = reply.status or 0
    last = (reply.err.strip().splitlines() or ["it printed no report"])[-1][:200]
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
    found: list[Mapping[str, Any]] = []
    for line in out.splitlines():
        _, mark, rest = line.partition(MARK + " ")
        if not mark:
            continue
        try:
            said = parse_json(rest)
        except ValueError:
            continue
        found += [said] if isinstance(said, Mapping) else []
    bad = [said for said in found if said.get("ok") is not True]
    if bad or not found:
        return bad[0] if bad else None
    return min(found, key=lambda said: said["mib_s"] if isinstance(said.get("mib_s"), (int, float)) else float("inf"))


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
        known = self._by_size.get(len(world), [])
        return self.slow_share * median_high(known) if len(known) > 1 and len(world) > 1 else 0.0


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
    known = [report.mib_s for report in reports if report.mib_s is not None]
    return min(known) if len(known) == len(reports) and all(report.ok for report in reports) else None


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
        last = (reply.err.strip().splitlines() or ["no table"])[-1][:200]
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
    found = _FAILURE.search(both) or _TOO_FEW.search(both)
    said = found[0].strip() if found else ended_by(reply)
    warning = _WARNING.search(both) if said else None
    return f"{said}; {warning[1].strip()}"[:LONGEST_TEXT] if warning else said[:LONGEST_TEXT]


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


def _first_result(named: Sequence[str]) -> int:
    return next((place for place, name in enumerate(named) if name in ("time", "cputime")), 0)


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
