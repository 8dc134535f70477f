"""Set a node aside at once that is proven to be at fault and fails one job after the other: an idle broken node takes the next ones.

The steps are those of the playbook that the incident will run, made earlier: it finds their outcome when it comes to them. The gate
decides about each as it would then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from assistant.content.playbooks import Step
from assistant.engine import again
from assistant.errors import NightshiftError
from assistant.records import Diagnosis, Incident, Job, JobState, NodeState
from assistant.recover.playbook import Wanted, calls_of
from assistant.recover.signals import proven

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["set_aside_at_once", "swallows"]

logger = logging.getLogger(__name__)

AT_ONCE = timedelta(minutes=1)
FEWEST = 2
"""Jobs that failed on a node within `AT_ONCE` before it counts as one that swallows jobs."""
OUT = (NodeState.DRAINING, NodeState.DRAINED, NodeState.DOWN)
OF_PROVEN = "{diagnosis.proven_nodes}"
"""Over what a step goes that needs no further look."""


def set_aside_at_once(engine: Engine, incident: Incident, diagnosis: Diagnosis) -> None:
    """Make the cordons of an incident's playbook before it waits for others, for nodes that two witnesses accuse.

    Only where several jobs failed on the node within a minute; who is not sure of a node, or is refused, waits as ever.
    """
    at = incident.failed_at or incident.opened
    accused = [node for node in proven(diagnosis) if swallows(engine.watcher.jobs, node, at)]
    if not accused:
        return
    nodes = [node.name for node in engine.scheduler.nodes() if node.name in accused and node.state not in OUT]
    job = engine.scheduler.job(incident.job) if incident.job is not None else None
    chosen, _ = engine.playbook_for(diagnosis, job)
    steps = [step for step in chosen.step if _is_early(step)] if chosen is not None else []
    values = again.situation_of(engine.store, incident, diagnosis, job) if steps else {}
    for step in steps:
        for wanted in calls_of(step, values):
            if wanted.arguments.get("node") in nodes and not engine.gate.is_begun(incident.id, wanted.key):
                _make(engine, incident, wanted, f"playbook:{chosen.name}" if chosen is not None else "watch")


def swallows(jobs: Iterable[Job], node: str, at: datetime) -> bool:
    """Tell whether several jobs failed on a node within a minute of a time, whosever they are. Pure."""
    bad = (JobState.FAILED, JobState.NODE_FAIL)
    failed = {one.id for one in jobs if one.state in bad and node in one.nodes and one.ended and abs(one.ended - at) <= AT_ONCE}
    return len(failed) >= FEWEST


def _is_early(step: Step) -> bool:
    return step.use == "cordon_node" and step.each == OF_PROVEN and not step.when and not step.unless


def _make(engine: Engine, incident: Incident, wanted: Wanted, by: str) -> None:
    try:
        engine.gate.call(wanted.tool, wanted.arguments, why=wanted.why, by=by, incident=incident.id, step=wanted.key)
    except NightshiftError as error:
        logger.info("incident=%s %s is not set aside yet: %s", incident.id, wanted.arguments.get("node"), error)
