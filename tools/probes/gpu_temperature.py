"""How hot GPUs and their memory are, by the device's own thresholds where it names them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assistant.probing import Circumstances, Finding, Health, Weight, judged, ok
from assistant.tools.probes._nvidia_smi import Gpu, gpu_probe, wrong

COOL = "look at fans, dust, inlet temperature and, with liquid cooling, the flow"


def judge(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    """Compare the temperatures with the slowdown and operating limits."""
    known = circumstances.limits.of(gpu.model)
    yield from _left(gpu)
    core = gpu.number("temperature/gpu_temp")
    slow = gpu.number("temperature/gpu_temp_slow_threshold") or known.critical_c
    high = gpu.number("temperature/gpu_temp_max_gpu_threshold") or known.warning_c
    if core is not None and gpu.number("temperature/gpu_temp_tlimit") is None:
        yield from _hot("{} is", core, high, slow)
    memory = gpu.number("temperature/memory_temp")
    if memory is not None:
        limit = gpu.number("temperature/gpu_temp_max_mem_threshold") or known.memory_warning_c
        yield from _hot("memory of {} is", memory, limit, known.memory_critical_c)


def _hot(what: str, celsius: float, high: float, slow: float) -> Iterator[Finding]:
    status = judged(celsius, high, slow)
    if status is not Health.OK:
        limit = slow if status is Health.CRITICAL else high
        text = f"{what} at {celsius:.0f} C, limit {limit:.0f} C"
        yield wrong(status, text, celsius, limit, "C", COOL, Weight.COUNTS)


def _left(gpu: Gpu) -> Iterator[Finding]:
    """Hopper and later print how many degrees are left until they slow down, instead of limits."""
    left = gpu.number("temperature/gpu_temp_tlimit")
    if left is None:
        return
    slow = gpu.number("temperature/gpu_temp_slow_tlimit_threshold")
    most = gpu.number("temperature/gpu_temp_max_gpu_tlimit_threshold") or 0.0
    if slow is not None and left <= slow:
        yield wrong(Health.CRITICAL, f"{{}}: {left:.0f} C to its limit: it slows down at {slow:.0f}", left, slow, "C", COOL)
    elif left <= most:
        yield wrong(Health.WARNING, f"{{}}: {left:.0f} C to its limit", left, most, "C", COOL)


def hottest(found: Sequence[Gpu]) -> Finding | None:
    """Return how hot the hottest GPU is: the ledger of nodes compares it with those of its neighbours."""
    read = [celsius for gpu in found if (celsius := gpu.number("temperature/gpu_temp")) is not None]
    return ok(f"no GPU is too hot ({len(found)} GPUs), the hottest at {max(read):.0f} C", max(read), unit="C") if read else None


PROBE = gpu_probe(
    "gpu_temperature", judge, "thresholds of the device itself, else knowledge/limits.toml", "no GPU is too hot", well=hottest
)
