"""What is to be done with a node that a failure accuses: which GPU, the vendor's action, what to test, and how it comes back."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

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

_OF_REASON = {
    "node_failure": "look at its console and power (BMC), and see whether it and its slurmd answer",
    "network_error": "test its links (`ip -s link`, `ibstat`), its cable and its switch port",
    "nccl_remote_error": "test its links (`ip -s link`, `ibstat`), its cable and its switch port",
    "nvlink_error": "test its NVLinks and switches (`nvidia-smi nvlink -e`, `dcgmi diag -r 3`)",
    "ecc_error": "test its memory and GPUs (`dcgmi diag -r 3`, `ras-mc-ctl --errors`); what fails again is replaced (RMA)",
}
"""What to do with a node that no XID accuses, by the reason of the failure."""
_DISK = re.compile(r"\b(nvme\d{1,3}|sd[a-z]{1,2}|md\d{1,3}|dm-\d{1,3})(?:n\d{1,3})?(?:p?\d{1,3})?\b")
_DISK_FAULT = re.compile(
    r"I/O \d+ |I/O error|timeout, (?:aborting|reset)|Device not ready|controller is down|critical medium|media error"
)


def node_remedies(diagnosis: Diagnosis | None, drained: Collection[str]) -> list[str]:
    """Return a sentence for each accused node about what to do with it: by its XID, else by the reason; none where neither says.

    Args:
        diagnosis: Of the incident; None before there is one.
        drained: The nodes that were drained for it, which somebody has to take back.
    """
    if diagnosis is None:
        return []
    by_node: dict[str, str] = {}
    for finding in diagnosis.nodes:
        if finding.node not in diagnosis.faulty_nodes:
            continue
        cited_lines = [*finding.citations, *(diagnosis.root_cause if len(diagnosis.faulty_nodes) == 1 else ())]
        lines = [cited.text for cited in cited_lines if cited.file == KERNEL_LOG]  # a job may print what it likes
        events = [(event, line) for line in lines if (event := kernel_event(line)) is not None and event.family == "xid"]
        back_words = f"; back into service: nightshift nodes uncordon {finding.node}" if finding.node in drained else ""
        if not events:
            if todo := _disk_remedy(lines) or _OF_REASON.get(diagnosis.reason, ""):
                by_node[finding.node] = f"node {finding.node}: {todo}{back_words}"
            continue
        event, line = events[0]
        row = xids().get(int(event.code)) if event.code.isdigit() else None
        gpu = named_gpu(line)
        target = str(gpu) if gpu is not None else event.device or "GPU"
        action = next((words for word, words in _ACTIONS if row is not None and word in row.vendor.upper()), "")
        vendor = f" (NVIDIA: {row.vendor})" if row is not None and row.vendor else ""
        todo = action.format(gpu=target) or "test the GPU (`dcgmi diag -r 3`) before the node takes jobs again"
        by_node[finding.node] = (
            f"node {finding.node}, {device_name(line) or 'its GPU'}, XID {event.code}{vendor}: {todo}{back_words}"
        )
    return list(by_node.values())


def _disk_remedy(lines: Iterable[str]) -> str:
    """Return what to do with a disk that the kernel complains of; empty where no line names one."""
    disk = next((match[1] for line in lines if _DISK_FAULT.search(line) and (match := _DISK.search(line)) is not None), "")
    if not disk:
        return ""
    command = f"`nvme smart-log /dev/{disk}`" if disk.startswith("nvme") else f"`smartctl -a /dev/{disk}`"
    return f"read the state of its disk {disk} ({command}), reboot it, and replace the disk where the errors come back"
