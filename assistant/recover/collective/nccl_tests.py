"""The benchmark `all_gather_perf` of nccl-tests, where a node has it: a test of its GPUs and their links by themselves.

The pair test cannot tell two GPUs of one node apart; this can, since it runs inside one node.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.ports import Reply
from assistant.recover.collective.reports import Report

__all__ = ["alone_command", "report_of_table"]

PROGRAM = "all_gather_perf"
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)((?:\s+(?:[\d.]+|N/A))+)\s*$", re.MULTILINE)
_TROUBLE = re.compile(r"(.*Test NCCL failure.*|.*Test CUDA failure.*|.*NCCL WARN.*|.*unhandled (?:system|cuda) error.*)")
_OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*([\d.]+)")


def alone_command(gpus: int, *, mib: int = 256, repeats: int = 20, program: str = PROGRAM) -> list[str]:
    """Return the command for all GPUs of one node: one size, content checked.

    Args:
        gpus: How many.
        mib: Size of the message.
        repeats: Timed runs.
        program: Where it lies.
    """
    size = f"{mib}M"
    return [program, "--minbytes", size, "--maxbytes", size, "--ngpus", str(gpus), "--iters", str(repeats), "--check", "1"]


def report_of_table(reply: Reply, *, program: str = PROGRAM) -> Report:
    """Return what the table says; a program that is missing, or a table that is none, says nothing about the node."""
    if not reply.reached:
        return Report(reply.node, False, False, reply.err.strip() or "it did not answer")
    both = f"{reply.out}\n{reply.err}"
    trouble = _TROUBLE.search(both)
    if trouble is not None:
        return Report(reply.node, True, False, trouble[1].strip()[:200])
    rows = [row[6].split() for row in _ROW.finditer(reply.out)]
    bounds, average = _OUT_OF_BOUNDS.search(reply.out), _AVERAGE.search(reply.out)
    if not rows or bounds is None or average is None:
        last = (reply.err.strip().splitlines() or ["no table"])[-1][:200]
        return Report(reply.node, False, False, f"{program} printed no result (status {reply.status}): {last}")
    wrong = max(int(bounds[1]), *(_wrong(row) for row in rows))
    if wrong:
        return Report(reply.node, True, False, f"content: {wrong} values are wrong")
    gb_s = float(average[1])
    return Report(reply.node, True, True, "", round(gb_s * 1e9 / (1 << 20), 1))


def _wrong(row: Sequence[str]) -> int:
    """Return the wrong values of a row: the last of four figures, once out of place and once in place."""
    counts = [row[place] for place in range(3, len(row), 4)]
    return sum(int(count) for count in counts if count.isdigit())
