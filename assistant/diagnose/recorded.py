"""Which node failed, by the scheduler's own records of one attempt: its words on the job, and its log while the job ran."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.streams import stamp
from assistant.records import Citation, Job, NodeFinding

OF_THE_JOB = "scheduler"
"""In place of a file: the scheduler's words on why the job is in its state, as one line."""
DETECTED = timedelta(minutes=10)
"""A controller notices a dead node after its time-out, and ends the job or sets the node down, in either order."""
_DOWN = re.compile(
    r"\b(?:[Nn]odes?[ =/]|NodeName=)?(?P<node>[A-Za-z](?<![\w.-]{2})[\w.-]{0,252}+)(?<![.-]).{0,40}?"
    r"(?:not responding|setting DOWN|set to DOWN|\bDOWN\b|has failed|unexpectedly rebooted)"
)
_NAMED = re.compile(r"[Nn]ode_?(?:[Dd]own|[Ff]ail(?:ed|ure)?)\W+(?P<node>[A-Za-z][\w.-]*)")


def failed_nodes(facts: Facts) -> tuple[NodeFinding, ...]:
    """Return the one node of the job that the scheduler's records call failed; empty where they name none, or several."""
    job = facts.case.job
    if job is None:
        return ()
    named = _NAMED.search(job.reason)
    if named is not None and named["node"] in job.nodes:
        said = Citation(OF_THE_JOB, 1, job.reason, "failed node")
        return (NodeFinding(named["node"], f"the scheduler ended the job over it: {job.reason}", (said,)),)
    found: dict[str, Citation] = {}
    for line in facts.scheduler:
        match = _DOWN.search(line.text)
        if match is not None and match["node"] in job.nodes and during(line.text, job):
            found.setdefault(match["node"], Citation("slurmctld.log", line.number, line.text, "called down"))
    if len(found) != 1:
        return ()
    node, citation = next(iter(found.items()))
    return (NodeFinding(node, f"the scheduler says: {citation.text.strip()[:160]}", (citation,)),)


def during(text: str, job: Job) -> bool:
    """Tell whether a line of the scheduler's log may be of the time in which a job ran, or of the minutes after.

    Whether the scheduler prints local time or UTC is not said: it is outside where it is so by either.
    """
    at = stamp(text, job.ended.year if job.ended is not None else None)
    if at is None:
        return True
    for start, end in ((job.started, job.ended), (_local(job.started), _local(job.ended))):
        early = start is not None and at < start.replace(tzinfo=None)
        late = end is not None and at > end.replace(tzinfo=None) + DETECTED
        if not (early or late):
            return True
    return False


def _local(at: datetime | None) -> datetime | None:
    return at.astimezone() if at is not None else None
