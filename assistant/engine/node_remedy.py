"""What is to be done with a node whose GPU or switch a driver has named: which GPU, the vendor's action, and how it comes back."""

from __future__ import annotations

from assistant.content.devices import xids
from assistant.diagnose.readers.kernel import kernel_event, named_gpu
from assistant.records import Diagnosis
from assistant.recover.situation import device_name

__all__ = ["node_remedies"]

KERNEL_LOG = "dmesg.log"

_ACTIONS = (
    ("RESET_GPU", "reset the GPU (`nvidia-smi --gpu-reset -i {gpu}` while nothing uses it) or reboot the node"),
    ("RESTART_BM", "reboot the node"),
    ("RESTART_VM", "restart the virtual machine"),
    ("RESTART_FM", "restart the fabric manager, or reboot the node"),
    ("CONTACT_SUPPORT", "reboot the node and test it (`dcgmi diag -r 3`); what fails again is replaced (RMA)"),
    ("WORKFLOW_XID_48", "reset the GPU or reboot the node; where it comes again, replace the GPU (RMA)"),
    ("WORKFLOW_NVLINK", "reset the GPUs or reboot the node, and see to its NVLink and switches"),
    ("MECHANICALS", "reseat the card, and check its power cables and its cooling"),
    ("UPDATE_SWFW", "update the driver and the firmware"),
)
"""NVIDIA's immediate actions (its catalogue of XIDs), as something to do; the first that is part of the entry counts."""


def node_remedies(diagnosis: Diagnosis | None) -> list[str]:
    """Return a sentence for each node that an XID accuses; none for nodes that are accused by anything else."""
    if diagnosis is None:
        return []
    by_node: dict[str, str] = {}
    for finding in diagnosis.nodes:
        if finding.node not in diagnosis.faulty_nodes:
            continue
        cited_lines = [*finding.citations, *(diagnosis.root_cause if len(diagnosis.faulty_nodes) == 1 else ())]
        lines = [cited.text for cited in cited_lines if cited.file == KERNEL_LOG]  # a job may print what it likes
        events = [(event, line) for line in lines if (event := kernel_event(line)) is not None and event.family == "xid"]
        if not events:
            continue
        event, line = events[0]
        row = xids().get(int(event.code)) if event.code.isdigit() else None
        gpu = named_gpu(line)
        target = str(gpu) if gpu is not None else event.device or "GPU"
        action = next((words for word, words in _ACTIONS if row is not None and word in row.vendor.upper()), "")
        vendor = f" (NVIDIA: {row.vendor})" if row is not None and row.vendor else ""
        todo = action.format(gpu=target) or "test the GPU (`dcgmi diag -r 3`) before the node takes jobs again"
        by_node[finding.node] = (
            f"node {finding.node}, {device_name(line) or 'its GPU'}, XID {event.code}{vendor}: {todo}; "
            f"back into service: nightshift nodes uncordon {finding.node}"
        )
    return list(by_node.values())
