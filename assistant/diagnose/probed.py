"""What health probes found on the nodes of a job, as a source of evidence beside the logs.

A line of `probes.log` is `<node> <status> <probe> <weight>: <text>`. Probes look after the failure, so they tell what is broken
now: that counts where they suffice to take the node out of service, and confirms where they do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from assistant.content.reasons import Role
from assistant.diagnose.case import numbered
from assistant.diagnose.facts import Facts
from assistant.diagnose.weighing.findings import Finding

REASONS: Mapping[str, str] = {
    "gpu_memory": "ecc_error",
    "kernel_log": "cuda_error",
    "gpu_count": "cuda_error",
    "gpu_pcie": "cuda_error",
    "pci": "cuda_error",
    "gpu_fabric": "nvlink_error",
    "nvlink": "nvlink_error",
    "nvlink_errors": "nvlink_error",
    "infiniband": "network_error",
    "infiniband_errors": "network_error",
    "network_log": "network_error",
    "hardware_log": "node_failure",
    "amd": "cuda_error",
}
"""The reason for which what a probe found would stand; probes of load, space or time stand for none."""
_LINE = re.compile(r"(?P<node>\S+) critical (?P<probe>\w+) (?P<weight>\w+): (?P<text>.*)")
SUFFICES = "faulty"
"""In place of the weight: the node may be taken out of service for what was found."""


def as_text(checked: Mapping[str, Any]) -> str:
    """Return what `check_nodes` found as lines, the nodes in order; empty when nothing is wrong.

    Args:
        checked: Its answer.
    """
    nodes, faulty = checked.get("nodes"), set(checked.get("faulty", ()))
    lines = []
    for node, told in sorted(nodes.items()) if isinstance(nodes, Mapping) else ():
        for row in told.get("probes", ()):
            if row.get("status") not in ("critical", "warning"):
                continue
            strong = row.get("status") == "critical" and node in faulty and row.get("weight") in ("strong", "counts")
            weight = SUFFICES if strong else row.get("weight", "counts")
            text = " ".join(str(row.get("text", "")).split())
            lines.append(f"{node} {row['status']} {row.get('probe')} {weight}: {text}")
    return "\n".join(lines)


def of_probes(facts: Facts) -> Iterator[Finding]:
    """Yield what the probes say of the job's own nodes."""
    for line in numbered(facts.case.probes) if facts.case.probes else ():
        match = _LINE.fullmatch(line.text)
        reason = REASONS.get(match["probe"]) if match else None
        if match is None or reason is None or (facts.places.hosts and not facts.places.knows(match["node"])):
            continue
        suffices = match["weight"] == SUFFICES
        yield Finding(
            reason,
            Role.ROOT if suffices else Role.CONFIRMATION,
            0.85 if suffices else 0.5,
            "probes.log",
            line.number,
            line.text,
            f"probe {match['probe']}",
            host=match["node"],
            blames=suffices,
            beside=True,
        )
