"""When nodes were out of scheduling, from `sacctmgr -P show event`: then Slurm or people had taken them out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from assistant.engine.backtest.attempts import getter
from assistant.errors import InputError
from assistant.logs.reading import open_log
from assistant.schedulers.slurm_jobs import nodes_of
from assistant.schedulers.slurm_text import moment

HOW = "ask for it with: sacctmgr -P show event Start=YYYY-MM-DD format=NodeName,TimeStart,TimeEnd,State,Reason,User"
_OUT = ("DOWN", "DRAIN", "FAIL", "MAINT")


@dataclass(frozen=True, slots=True)
class Out:
    """A time in which a node was out."""

    start: datetime
    end: datetime | None
    """None while it still is."""
    state: str
    reason: str


@dataclass(frozen=True)
class NodeEvents:
    """The times in which nodes were out, by node and in order."""

    of: Mapping[str, tuple[Out, ...]] = field(default_factory=dict)
    broken: int = 0
    """Rows that could not be read."""

    def out(self, node: str, at: datetime) -> Out | None:
        """Return the time in which a node was out at a moment, None where it was not."""
        return next((one for one in self.of.get(node, ()) if one.start <= at and (one.end is None or one.end > at)), None)

    def out_at(self, at: datetime) -> frozenset[str]:
        """Return the nodes that were out at a moment."""
        return frozenset(node for node in self.of if self.out(node, at) is not None)

    def taken_out(self, node: str, at: datetime, within: timedelta) -> Out | None:
        """Return the first time after a moment in which a node was taken out, None when it was not so soon."""
        listed = self.of.get(node, ())
        place = bisect_right([one.start for one in listed], at)
        found = listed[place] if place < len(listed) else None
        return found if found is not None and found.start <= at + within else None


def read_events(path: Path) -> NodeEvents:
    """Return what a file of sacctmgr holds.

    Raises:
        InputError: It is missing, empty, or lacks a column that is needed.
    """
    with open_log(path) as stream:
        lines = (line.decode("utf-8", "replace").rstrip("\r\n") for line in stream)
        columns = [name.strip().lower() for name in next(lines, "").split("|")]
        if "nodename" not in columns or "state" not in columns or not {"timestart", "start"} & set(columns):
            raise InputError(f"{path}: has not the columns NodeName, TimeStart and State; {HOW}")
        found: dict[str, list[Out]] = {}
        broken = 0
        for line in filter(None, lines):
            fields = line.split("|")
            get = getter(dict(zip(columns, map(str.strip, fields), strict=False)))
            start = moment(get("timestart") or get("start"))
            if len(fields) != len(columns) or start is None:
                broken += 1
                continue
            if any(word in get("state").upper() for word in _OUT):
                ended = moment(get("timeend") or get("end"))
                for node in nodes_of(get("nodename")):
                    found.setdefault(node, []).append(Out(start, ended, get("state"), get("reason")))
    return NodeEvents({node: tuple(sorted(those, key=lambda one: one.start)) for node, those in found.items()}, broken)
