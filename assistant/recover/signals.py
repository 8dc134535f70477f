"""Which nodes a diagnosis accuses by two independent witnesses, and which by one alone: that is not enough to take a node out.

A witness is whoever looked for itself: the job's own output, the kernel of a node, the scheduler, the health probes. Two lines of
the same one are one signal. A line that shows the cause counts for the node that another witness names for the same cause.
"""

from __future__ import annotations

from collections.abc import Mapping

from assistant.records import Diagnosis

ENOUGH = 2
WITNESSES: Mapping[str, str] = {
    "job.log": "job",
    "metrics.jsonl": "job",
    "dmesg.log": "kernel",
    "slurmctld.log": "scheduler",
    "scheduler": "scheduler",
    "probes.log": "probes",
}
"""Who speaks in each file of a case."""


def witnesses(diagnosis: Diagnosis, node: str) -> frozenset[str]:
    """Return who speaks against a node in a diagnosis; empty for one that it does not name."""
    found = next((finding for finding in diagnosis.nodes if finding.node == node), None)
    if found is None:
        return frozenset()
    lines = [*found.citations, *(one for one in diagnosis.root_cause if one.role == "root")]
    # every other file is one of the job: an error file or a rank's own log is no second witness beside job.log
    return frozenset(WITNESSES.get(one.file, "job") for one in lines)


def proven(diagnosis: Diagnosis) -> list[str]:
    """Return the nodes that two witnesses accuse."""
    return [node for node in diagnosis.faulty_nodes if len(witnesses(diagnosis, node)) >= ENOUGH]


def accused(diagnosis: Diagnosis) -> list[str]:
    """Return the nodes that only one witness accuses."""
    return [node for node in diagnosis.faulty_nodes if len(witnesses(diagnosis, node)) < ENOUGH]
