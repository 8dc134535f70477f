"""Whether GPUs behind NVSwitches have joined the fabric."""

from __future__ import annotations

from collections.abc import Iterator

from assistant.probing import Circumstances, Finding, Health
from assistant.tools.probes._nvidia_smi import Gpu, gpu_probe, wrong

MANAGER = "systemctl restart nvidia-fabricmanager; its version must be the driver's; read /var/log/fabricmanager.log"


def judge(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    """Judge state and status; a GPU without a fabric has neither."""
    state, status = gpu.text("fabric/state"), gpu.text("fabric/status")
    if state.casefold() == "in progress":
        yield wrong(Health.WARNING, "{}: still joins the NVLink fabric", state, "Completed", "", MANAGER)
    elif state.casefold() == "not started":
        yield wrong(Health.CRITICAL, "{}: has not joined the NVLink fabric", state, "Completed", "", MANAGER)
    elif state and status and status.casefold() != "success":
        # "Completed" with another status, such as "Insufficient Resources", is a GPU that cannot talk
        yield wrong(Health.CRITICAL, f"{{}}: joining the NVLink fabric ended with {status}", status, "Success", "", MANAGER)


PROBE = gpu_probe(
    "gpu_fabric", judge, "NVML fabric state: anything but Completed and Success", "NVLink fabric is joined, or there is none"
)
