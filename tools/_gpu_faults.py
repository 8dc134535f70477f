"""Which nodes have a GPU that may compute wrong: an Xid that blames it, or memory errors that were not corrected."""

from __future__ import annotations

from collections.abc import Mapping

from assistant.probing import Finding, Health
from assistant.tooling import Probe
from assistant.tools.probes._check import NodeHealth

LIVE_COUNTS = ("since the driver was loaded", "the driver says", "the driver asks")
"""What the memory probe finds of now; errors of a GPU's whole life may be older than any job."""


def gpu_faults(checked: Mapping[str, NodeHealth]) -> dict[str, str]:
    """Return what speaks against the GPUs of nodes, by node, for people; a node without a finding or an answer is left out.

    Args:
        checked: What the probes said, by node.
    """
    texts_by_node = {
        node: [finding.text for probe, finding in answer.findings if _is_fault(probe, finding)] for node, answer in checked.items()
    }
    return {node: ", ".join(texts[:2])[:400] for node, texts in texts_by_node.items() if texts}


def _is_fault(probe: Probe, finding: Finding) -> bool:
    if finding.status is not Health.CRITICAL:
        return False
    return probe.name == "kernel_log" or (probe.name == "gpu_memory" and any(words in finding.text for words in LIVE_COUNTS))
