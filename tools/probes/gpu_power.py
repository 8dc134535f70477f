"""Power of GPUs: a limit set lower than the model's slows a whole job down."""

from __future__ import annotations

from collections.abc import Iterator

from assistant.probing import Circumstances, Finding, Health
from assistant.tools.probes._nvidia_smi import Gpu, gpu_probe, wrong

OVER = 1.25
"""Short peaks above the limit are normal, this much is a sensor or supply at fault."""


def judge(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    """Compare limit and draw with what is normal for the model."""
    limit = gpu.number(
        "gpu_power_readings/current_power_limit",
        "gpu_power_readings/enforced_power_limit",
        "power_readings/enforced_power_limit",
        "power_readings/power_limit",
    )
    normal = gpu.number("gpu_power_readings/default_power_limit", "power_readings/default_power_limit")
    normal = normal or circumstances.limits.of(gpu.model).power_w
    if limit and normal and limit < normal:
        text = f"{{}}: power is limited to {limit:.0f} W, default {normal:.0f} W"
        yield wrong(Health.WARNING, text, limit, normal, "W", f"nvidia-smi -pl {normal:.0f}, unless the site wants it so")
    draw = gpu.number(
        "gpu_power_readings/power_draw",
        "gpu_power_readings/average_power_draw",
        "gpu_power_readings/instant_power_draw",
        "power_readings/power_draw",
    )
    if draw and limit and draw > OVER * limit:
        text = f"{{}}: draws {draw:.0f} W, limit {limit:.0f} W"
        yield wrong(Health.WARNING, text, draw, limit, "W", "look at power supplies; replace the GPU if it stays")


PROBE = gpu_probe("gpu_power", judge, "default limit of the device, else knowledge/limits.toml", "power limits are as shipped")
