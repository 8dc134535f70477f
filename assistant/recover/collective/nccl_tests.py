"""The benchmark `all_gather_perf` of nccl-tests, where a node has it: a test of its GPUs and their links by themselves.

The pair test cannot tell two GPUs of one node apart; this can, since it runs inside one node.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from assistant.ports import Reply
from assistant.recover.collective.reports import Report, ended_by

__all__ = ["alone_command", "report_of_table"]

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
