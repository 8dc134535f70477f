"""Whether something else speaks against a node that one witness accuses: a second, independent signal before it is taken out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from assistant.errors import ToolError, Unavailable
from assistant.probing import Health
from assistant.records import Node, NodeState
from assistant.recover.leases import ours
from assistant.recover.signals import witnesses
from assistant.tooling import Context
from assistant.tools.probes._check import NodeHealth

REPEATED = timedelta(days=30)
"""To blame in an earlier incident within this time: the same node twice is no chance."""


def seconded(context: Context, node: str, checked: Mapping[str, NodeHealth], shown: Sequence[Node]) -> bool:
    """Tell whether a second witness speaks against a node.

    Args:
        context: Its history holds the ledger of nodes.
        node: Is accused by one.
        checked: What the probes say of it and of others.
        shown: All nodes, as the scheduler shows them.
    """
    told = _told(context, node)
    found = checked[node].findings if node in checked else ()
    if any(finding.status is Health.CRITICAL and probe.witness not in told for probe, finding in found):
        return True
    if "scheduler" not in told and any(one.name == node and one.state is NodeState.DOWN and not ours(one.reason) for one in shown):
        return True
    return _alone_in_silence(node, checked) or _blamed_before(context, node)


def _told(context: Context, node: str) -> frozenset[str]:
    """Return who accuses the node in the diagnosis of the call's incident: the same witness once more is no second one."""
    diagnosis = context.history.diagnosis(context.incident) if context.incident is not None else None
    return witnesses(diagnosis, node) if diagnosis is not None else frozenset()


def _alone_in_silence(node: str, checked: Mapping[str, NodeHealth]) -> bool:
    """Tell whether a node does not answer while others do: then it is not the way to all of them."""
    answers = {name: any(f.status is not Health.UNKNOWN for _, f in one.findings) for name, one in checked.items()}
    return node in answers and not answers[node] and any(answers.values())


def _blamed_before(context: Context, node: str) -> bool:
    """Tell whether somebody else than the user of this job had the node blamed before, or a machine had.

    What a job prints is its user's word: the same user's word twice is one witness, where there are other users whom it could harm.
    """
    since = context.clock.now() - REPEATED
    earlier = [one.incident for one in context.history.sightings(since, node) if one.blamed and one.incident != context.incident]
    if not earlier:
        return False
    if len({job.user for job in context.scheduler.jobs()}) <= 1:
        return True
    user = _user(context, context.incident)
    return any(
        _machine_accuses(context, incident, node) or (user and _user(context, incident) not in ("", user)) for incident in earlier
    )


def _machine_accuses(context: Context, incident: int, node: str) -> bool:
    diagnosis = context.history.diagnosis(incident)
    return diagnosis is not None and bool(witnesses(diagnosis, node) - {"job"})


def _user(context: Context, incident: int | None) -> str:
    """Return the user of an incident's job as the scheduler shows it now, empty where it has forgotten the job."""
    job_id = context.history.incident(incident).job if incident is not None else None
    try:
        return context.scheduler.job(job_id).user if job_id is not None else ""
    except (ToolError, Unavailable):
        return ""
