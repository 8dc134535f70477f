"""What a call would change: read from its arguments, looked up at the scheduler, so that the policy knows users and partitions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assistant.errors import ToolError, Unavailable
from assistant.nodeset import expand, fold
from assistant.policy import Targets
from assistant.ports import Scheduler, Topology
from assistant.records import Node, partition_names, run_of

__all__ = ["JOB_ARGUMENTS", "NODE_ARGUMENTS", "Reach", "reach_of"]

NODE_ARGUMENTS = ("node", "nodes")
JOB_ARGUMENTS = ("job", "jobs")
"""Names that an argument of a changing tool must have for the policy to see what it changes."""
_RACK = re.compile(r"(?i)(?:rack|cabinet|row)[-_]?\w+")
"""What a site's features of a node call its rack."""
_WHOLE = re.compile(r"[^_+]*")
"""Of the id of an array's task or a heterogeneous job's part: the id of the whole, `12` of `12_3` and of `12+1`."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a call reaches."""

    targets: Targets
    fleet: tuple[Node, ...]
    job_ids: tuple[str, ...]
    racks: Mapping[str, str] = field(default_factory=dict)
    """The rack of each node; where features name none, the switch next to it."""
    runs: tuple[str, ...] = ()
    """Keys of the jobs' runs, as `records.run_of` makes them."""

    def counted(self) -> dict[str, Sequence[str]]:
        """Return what limits, cooldowns and exclusion know it by: nodes and job ids, not the names that jobs share."""
        return {"nodes": self.targets.nodes, "jobs": self.job_ids, "partitions": self.targets.partitions, "runs": self.runs}


def reach_of(arguments: Mapping[str, Any], scheduler: Scheduler) -> Reach:
    """Return what the arguments `node`, `nodes`, `job` and `jobs` of a call name.

    Raises:
        ToolError: A node or job does not exist.
        Unavailable: The scheduler did not answer, so nobody can tell.
    """
    fleet = tuple(scheduler.nodes())
    nodes = tuple(_nodes(arguments, fleet))
    jobs = [scheduler.job(name) for name in _listed(arguments, JOB_ARGUMENTS)]
    partitions = [name for node in fleet if node.name in nodes for name in node.partitions]
    partitions += [name for job in jobs for name in partition_names(job.partition)]
    targets = Targets(
        jobs=tuple(dict.fromkeys(name for job in jobs for name in (job.id, _WHOLE.match(job.id)[0], job.name))),  # type: ignore[index]
        nodes=nodes,
        users=tuple(dict.fromkeys(job.user for job in jobs if job.user)),
        partitions=tuple(dict.fromkeys(partitions)),
    )
    runs = tuple(dict.fromkeys(run_of(job) for job in jobs))
    return Reach(targets, fleet, tuple(job.id for job in jobs), _racks(fleet, scheduler) if nodes else {}, runs)


def _racks(fleet: Sequence[Node], scheduler: Scheduler) -> dict[str, str]:
    switches: Mapping[str, str] = {}
    if isinstance(scheduler, Topology):
        try:
            switches = scheduler.switches()
        except (ToolError, Unavailable):
            switches = {}  # the limits of a rack then hold where features name it
    racks = {node.name: next(filter(_RACK.fullmatch, node.features), switches.get(node.name, "")) for node in fleet}
    return {node: rack for node, rack in racks.items() if rack}


def _nodes(arguments: Mapping[str, Any], fleet: Sequence[Node]) -> Iterator[str]:
    node_names = _listed(arguments, NODE_ARGUMENTS)
    known_nodes = [node.name for node in fleet]
    for name in expand(",".join(node_names)) if node_names else ():
        if name not in known_nodes:
            near = difflib.get_close_matches(name, known_nodes, n=1)
            hint = f" did you mean {near[0]!r}?" if near else ""
            raise ToolError(f"node {name!r} is unknown to the scheduler;{hint} known: {fold(known_nodes) or 'none'}")
        yield name


def _listed(arguments: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    listed_names: list[str] = []
    for name in names:
        value = arguments.get(name)
        listed_names += [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)] if value else []
    return listed_names
