"""Whether every GPU of a node is there and its driver answers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, ok, unknown
from assistant.tools.probes._nvidia_smi import LOST, gpus, smi_probe

CYCLE = "drain the node and power cycle it; replace the GPU when it is lost again"
FAILURES = (
    (LOST, Weight.STRONG, "a GPU is lost", CYCLE),
    (re.compile("No devices were found"), Weight.COUNTS, "the driver finds no GPU", CYCLE),
    (
        re.compile("Driver/library version mismatch"),
        Weight.NEVER,
        "the driver was updated under the running kernel module",
        "drain the node and reboot it",
    ),
    (
        re.compile("couldn't communicate with the NVIDIA driver"),
        Weight.COUNTS,
        "the driver is not loaded",
        "modprobe nvidia; see dmesg why it was not loaded; reboot the node",
    ),
)


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Count GPUs; what nvidia-smi says instead of a report is judged by its words."""
    said = f"{reply.out}\n{reply.err}"
    found = gpus(reply)
    if found is None:
        return [_failure(said, reply)]
    broken = [gpu.name for gpu in found if not gpu.model or LOST.search(gpu.element.text or "") or _lost(gpu.element.itertext())]
    wanted = circumstances.limits.node.gpus or _attached(reply.out)
    if broken:
        return [
            Finding(Health.CRITICAL, f"{', '.join(broken)}: lost", len(found) - len(broken), wanted, "GPUs", CYCLE, Weight.STRONG)
        ]
    if len(found) < wanted:
        text = f"{len(found)} of {wanted} GPUs are there"
        return [Finding(Health.CRITICAL, text, len(found), wanted, "GPUs", CYCLE)]
    if not found:
        return [Finding(Health.CRITICAL, "the driver finds no GPU", 0, wanted or 1, "GPUs", CYCLE)]
    return [ok(f"{len(found)} GPUs: {found[0].model}", len(found), wanted or None, "GPUs")]


def _failure(said: str, reply: Reply) -> Finding:
    for pattern, weight, text, remedy in FAILURES:
        match = pattern.search(said)
        if match:
            line = next(line for line in said.splitlines() if pattern.search(line)).strip()
            return Finding(Health.CRITICAL, f"{text}: {line[:200]}", remedy=remedy, weight=weight)
    if reply.status in (124, 137, None):
        return unknown("nvidia-smi did not end: the driver may be stuck", "see dmesg; drain and reboot the node if it stays so")
    return unknown(f"nvidia-smi ended with status {reply.status}: {said.strip()[:200]}")


def _lost(texts: object) -> bool:
    return any(re.search(r"GPU is lost|GPU requires reset", str(text)) for text in texts)  # type: ignore[attr-defined]


def _attached(out: str) -> int:
    match = re.search(r"<attached_gpus>(\d+)<", out)
    return int(match.group(1)) if match else 0


PROBE = smi_probe("gpu_count", parse, "NVIDIA XID 79: a GPU that is lost needs a restart of the machine", reads_failures=True)
