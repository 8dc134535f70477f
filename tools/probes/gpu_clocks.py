"""Why GPUs run slower than they could: the reasons that the driver names, and clocks too low for a GPU that works."""

from __future__ import annotations

from collections.abc import Iterator

from assistant.probing import Circumstances, Finding, Health
from assistant.tools.probes._nvidia_smi import Gpu, gpu_probe, wrong

REASONS = {
    "hw_thermal_slowdown": (Health.CRITICAL, "slowed down by heat (hardware)", "look at cooling"),
    "hw_power_brake_slowdown": (
        Health.CRITICAL,
        "slowed down by the power supply (power brake)",
        "look at power supplies and PDUs",
    ),
    "sw_thermal_slowdown": (Health.WARNING, "slowed down by heat (driver)", "look at cooling"),
}
"""Power cap, idle and application clocks are the normal course of things."""
BUSY_PERCENT = 50
LOW_SHARE = 0.6


def judge(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    """Say what holds one GPU back."""
    named = False
    for reason, (status, text, remedy) in REASONS.items():
        if _active(gpu, reason):
            named = True
            yield wrong(status, f"{{}}: {text}", "Active", "Not Active", "", remedy)
    if not named and _active(gpu, "hw_slowdown"):
        named = True
        yield wrong(Health.CRITICAL, "{}: slowed down by its hardware", "Active", "Not Active", "", "look at power and cooling")
    clock, most = gpu.number("clocks/sm_clock"), gpu.number("max_clocks/sm_clock")
    busy = (gpu.number("utilization/gpu_util") or 0) >= BUSY_PERCENT
    if clock is not None and most and busy and not named and not _active(gpu, "sw_power_cap") and clock < LOW_SHARE * most:
        text = f"{{}}: at {clock:.0f} of {most:.0f} MHz while it works, and no reason is named"
        yield wrong(Health.WARNING, text, clock, LOW_SHARE * most, "MHz", "look for clocks locked low: nvidia-smi -rgc, -rac")


def _active(gpu: Gpu, reason: str) -> bool:
    # drivers before 535 say throttle, later ones event
    return (
        gpu.text(f"clocks_event_reasons/clocks_event_reason_{reason}", f"clocks_throttle_reasons/clocks_throttle_reason_{reason}")
        == "Active"
    )


PROBE = gpu_probe("gpu_clocks", judge, "NVML clocks event reasons; low clock: limit of our own, 60 %", "no GPU is slowed down")
