"""What is left behind on the GPUs of a node where no job runs."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, ok, unknown
from assistant.tools.probes._nvidia_smi import Gpu, gpus, smi_probe

SYSTEM = ("Xorg", "gnome-shell", "nvidia-persistenced", "nv-hostengine", "dcgm", "nvidia-cuda-mps-server")


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """List processes on GPUs; a fault only where it is known that no job runs."""
    found = gpus(reply)
    if found is None:
        return [unknown("nvidia-smi -q -x printed no report that can be read")]
    processes = [(gpu, pid, name) for gpu in found for pid, name in _processes(gpu) if not name.endswith(SYSTEM)]
    if circumstances.busy is not False:
        return [ok(f"{len(processes)} processes on {len(found)} GPUs", len(processes), unit="processes")]
    if processes:
        named = ", ".join(f"{pid} ({name}) on {gpu.name}" for gpu, pid, name in processes[:4])
        text = f"{len(processes)} processes are left behind: {named}"
        return [
            Finding(Health.CRITICAL, text, len(processes), 0, "processes", "kill them; drain and reboot if they stay", Weight.NEVER)
        ]
    limit = circumstances.limits.node.leftover_mib
    full = [gpu for gpu in found if (gpu.number("fb_memory_usage/used") or 0) > limit]
    if full:
        used = max(gpu.number("fb_memory_usage/used") or 0 for gpu in full)
        text = f"{', '.join(gpu.name for gpu in full)}: {used:.0f} MiB in use and no process"
        return [Finding(Health.WARNING, text, used, limit, "MiB", "look for stuck processes: fuser -v /dev/nvidia*; reset the GPU")]
    return [ok("nothing is left behind on the GPUs", 0, 0, "processes")]


def _processes(gpu: Gpu) -> list[tuple[str, str]]:
    return [
        ((one.findtext("pid") or "?").strip(), (one.findtext("process_name") or "?").strip())
        for one in gpu.element.findall("processes/process_info")
    ]


PROBE = smi_probe("gpu_processes", parse, "limit of our own: none, and 1 GiB")
