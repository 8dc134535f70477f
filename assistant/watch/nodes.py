"""Notice nodes that go away under a running job, and that come back: by others' hands or by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from assistant.records import Event, EventKind, Job, JobState, Node, NodeState
from assistant.watch.unseen import Remark

FOR_SURE = timedelta(minutes=2)
"""A controller that restarts shows nodes down for a moment, and a node that dies takes its job along within that time."""


@dataclass
class NodeTrack:
    """The nodes that are away, since when, and what was said of them."""

    down: dict[str, datetime] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    states: dict[str, NodeState] = field(default_factory=dict)

    def shift(self, by: timedelta) -> None:
        """Move the past by what the time of day was set by."""
        self.down = {node: since + by for node, since in self.down.items()}

    def look(self, nodes: Sequence[Node], jobs: Sequence[Job], now: datetime) -> tuple[list[Event], list[Remark]]:
        """Return events for nodes that are down although a job still runs there, and remarks on all that changed.

        Nodes that went down together (a rack, a switch) make one event, about the first by name, with all in its detail. A state
        that is unknown changes nothing: neither down nor back. Whoever has told of an event adds its nodes to `told`.

        Args:
            nodes: All of the cluster.
            jobs: All jobs.
            now: Time of the look.
        """
        running = {node: job for job in jobs if job.state is JobState.RUNNING for node in job.nodes}
        remarks: list[Remark] = []
        fresh: list[str] = []
        for node in nodes:
            before, state = self.states.get(node.name), node.state
            if state is NodeState.UNKNOWN:
                continue
            self.states[node.name] = state
            job = running.get(node.name)
            if before is not None and before is not state and (job is not None or node.name in self.told):
                on = f", job {job.id} runs there" if job is not None else ""
                why = f" ({node.reason})" if node.reason else ""
                remarks.append(Remark(f"node {node.name} {state}", f"node {node.name}: {before} -> {state}{why}{on}"))
            if state is not NodeState.DOWN:
                self.down.pop(node.name, None)
                self.told.discard(node.name)
                continue
            since = self.down.setdefault(node.name, now)
            if job is not None and node.name not in self.told and now - since >= FOR_SURE:
                fresh.append(node.name)
        return ([self._event(fresh, running, {node.name: node.reason for node in nodes})] if fresh else []), remarks

    def _event(self, fresh: Sequence[str], running: Mapping[str, Job], reasons: Mapping[str, str]) -> Event:
        jobs = list(dict.fromkeys(running[name].id for name in fresh))
        detail = {"nodes": list(fresh), "jobs": jobs, "reason": reasons.get(fresh[0], "")}
        return Event(EventKind.NODE_DOWN, None, fresh[0], min(self.down[name] for name in fresh), detail)
