"""Tell once of a node that failed under a job, which the scheduler itself queued again, and that nobody has seen to since.

The job goes on elsewhere, so that its incident is closed and asks nobody; the node stays out of service until somebody looks at it.
A node that comes back within minutes (a reboot, a switch) is told of by nobody, and one whose state is not known is neither.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from assistant.errors import ToolError, Unavailable
from assistant.records import Evidence, IncidentState, NodeState

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

FOR_SURE = timedelta(minutes=2)
"""For so long a node is down behind its failure before it is told of: a controller shows some down for a moment."""
OUT = (NodeState.DOWN, NodeState.DRAINED, NodeState.DRAINING)
WELL = (NodeState.IDLE, NodeState.ALLOCATED)
MOST_OF_REASON = 80
MOST_INCIDENTS, RECENT = 200, timedelta(hours=12)
"""Incidents that a watch which begins looks through for nodes of which the one before may not have told."""


class LostNode(NamedTuple):
    """A node that failed under a job which went on elsewhere."""

    node: str
    job: str
    incident: int
    """Of the attempt that it ended."""
    since: datetime


@dataclass
class LostNodes:
    """The nodes that have cost an attempt and were not yet back, or told of."""

    open: dict[str, LostNode] = field(default_factory=dict)
    resumed: bool = False
    """Whether what a watch before this one recorded was read."""

    def take(self, job: str, evidence: Evidence) -> None:
        """Take what is recorded of a requeue: its nodes that failed, from the time at which the attempt ended."""
        ended = evidence.facts.get("ended")
        for node in evidence.facts.get("nodes") or () if ended else ():
            self.open.setdefault(str(node), LostNode(str(node), job, evidence.incident, datetime.fromisoformat(str(ended))))

    def look(self, engine: EnginePort, source: str) -> None:
        """Tell of the nodes that are still out of service, once each, in a remark and in the note of the attempt that they ended.

        Args:
            engine: After its look.
            source: Of the evidence about a requeue.

        Raises:
            Fenced: Another watch leads.
        """
        now = engine.clock.now()
        if not self.resumed:
            self.resumed = True
            for incident in engine.store.incidents(limit=MOST_INCIDENTS):
                evidence = (
                    engine.store.evidence(incident.id) if incident.job is not None and now - incident.opened <= RECENT else ()
                )
                for entry in evidence:
                    if entry.source == source and incident.job is not None:
                        self.take(incident.job, entry)
        due = {name: lost for name, lost in self.open.items() if now - lost.since >= FOR_SURE}
        if not due or engine.replays:
            return
        try:
            nodes = {node.name: node for node in engine.scheduler.nodes()}
        except (ToolError, Unavailable) as error:
            logger.info("what became of %s is not known: %s", ", ".join(due), error)
            return
        for name, lost in due.items():
            node = nodes.get(name)
            if node is not None and node.state in WELL:
                del self.open[name]
            elif node is not None and node.state in OUT:
                del self.open[name]
                _tell(engine, lost, f"{node.state}{f' ({node.reason[:MOST_OF_REASON]})' if node.reason else ''}", now)


def _tell(engine: EnginePort, lost: LostNode, state: str, now: datetime) -> None:
    words = (
        f"node {lost.node} is still {state}, since about {lost.since:%H:%M}: its failure ended an attempt of job {lost.job}, which "
        "the scheduler queued again; somebody has to see to it before it runs jobs again"
    )
    begin = f"node {lost.node} is still "
    if any(remark.text.startswith(begin) and remark.at >= lost.since for remark in engine.store.remarks()):
        return
    engine.store.add_remarks([words], now)
    incident = engine.store.incident(lost.incident)
    if incident.state is IncidentState.CLOSED:
        engine.store.set_state(incident.id, IncidentState.CLOSED, note=f"{incident.note}; {words}")
    logger.info("incident=%s %s", lost.incident, words)
