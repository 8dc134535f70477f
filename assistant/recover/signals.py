"""Which nodes a diagnosis accuses by two independent witnesses, and which by one alone: that is not enough to take a node out.

A witness is whoever looked for itself: the job's own output, the kernel of a node, the scheduler, the health probes. Two lines of
the same one are one signal. A line that shows the cause counts for the node that another witness names for the same cause.
"""

from __future__ import annotations

import re
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
_XID = re.compile(r"\b(S?Xid) \((?:PCI:)?[0-9a-fA-F:.]{1,64}\): (\d{1,6})\b")
_OF_NODE = re.compile(
    r"(\S{1,200} (?:is not mounted|is missing|is full|is mounted read-only|does not answer|has other owners or rights)) on "
)
"""How a finding about a path of a node begins."""


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


def cause_words(diagnosis: Diagnosis) -> str:
    """Return what is wrong with the nodes that a diagnosis accuses, for whoever reads why they are out of service.

    `XID 79 (cuda_error)` where the kernel said so, `/data is not mounted (os_error)` where nodes were compared, else the reason.
    """
    codes = [match for cited in diagnosis.root_cause if cited.file == "dmesg.log" and (match := _XID.search(cited.text))]
    words = f"{codes[0][1].upper()} {codes[0][2]}" if codes else ""
    lost = [match[1] for finding in diagnosis.nodes if (match := _OF_NODE.match(finding.why))]
    words = words or (lost[0] if lost else "")
    return f"{words} ({diagnosis.reason})" if words else diagnosis.reason
