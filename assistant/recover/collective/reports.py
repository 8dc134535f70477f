"""What the nodes of a world said, and what that makes of the world: pure, so that its tests are files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high
from typing import Any

from assistant.ports import Reply
from assistant.recover.collective.planner import Outcome, Result, World
from assistant.untrusted import parse_json

__all__ = ["MARK", "Report", "Speeds", "ended_by", "report_of", "result_of", "world_speed"]

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
