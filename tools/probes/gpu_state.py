"""Probes of `nvidia-smi -q -x`: GPUs and driver are there, processes left behind, temperature, clocks, power, memory errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, judged, ok, unknown
from assistant.tools.probes._counters import Ceiling, Counter
from assistant.tools.probes._nvidia_smi import LOST, Gpu, gpu_finding, gpu_probe, gpus, smi_probe

POWER_CYCLE = "drain the node and power cycle it; replace the GPU when it is lost again"
DRIVER_FAILURES = (
    (LOST, Weight.STRONG, "a GPU is lost", POWER_CYCLE),
    (re.compile("No devices were found"), Weight.COUNTS, "the driver finds no GPU", POWER_CYCLE),
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


def parse_gpu_count(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Count GPUs; what nvidia-smi says instead of a report is judged by its words."""
    output = f"{reply.out}\n{reply.err}"
    present = gpus(reply)
    if present is None:
        return [_driver_failure(output, reply)]
    broken = [
        gpu.name for gpu in present if not gpu.model or LOST.search(gpu.element.text or "") or _is_lost(gpu.element.itertext())
    ]
    expected = circumstances.limits.node.gpus or _attached_gpus(reply.out)
    if broken:
        return [
            Finding(
                Health.CRITICAL,
                f"{', '.join(broken)}: lost",
                len(present) - len(broken),
                expected,
                "GPUs",
                POWER_CYCLE,
                Weight.STRONG,
            )
        ]
    if len(present) < expected:
        text = f"{len(present)} of {expected} GPUs are there"
        return [Finding(Health.CRITICAL, text, len(present), expected, "GPUs", POWER_CYCLE)]
    if not present:
        return [Finding(Health.CRITICAL, "the driver finds no GPU", 0, expected or 1, "GPUs", POWER_CYCLE)]
    return [ok(f"{len(present)} GPUs: {present[0].model}", len(present), expected or None, "GPUs")]


def _driver_failure(output: str, reply: Reply) -> Finding:
    for pattern, weight, text, remedy in DRIVER_FAILURES:
        match = pattern.search(output)
        if match:
            line = next(line for line in output.splitlines() if pattern.search(line)).strip()
            return Finding(Health.CRITICAL, f"{text}: {line[:200]}", remedy=remedy, weight=weight)
    if reply.status in (124, 137, None):
        return unknown("nvidia-smi did not end: the driver may be stuck", "see dmesg; drain and reboot the node if it stays so")
    return unknown(f"nvidia-smi ended with status {reply.status}: {output.strip()[:200]}")


def _is_lost(texts: object) -> bool:
    return any(re.search(r"GPU is lost|GPU requires reset", str(text)) for text in texts)  # type: ignore[attr-defined]


def _attached_gpus(out: str) -> int:
    match = re.search(r"<attached_gpus>(\d+)<", out)
    return int(match.group(1)) if match else 0


GPU_COUNT = smi_probe(
    "gpu_count", parse_gpu_count, "NVIDIA XID 79: a GPU that is lost needs a restart of the machine", reads_failures=True
)


DRIVER_VERSION = re.compile(r"<driver_version>\s*([\w.]{1,40})\s*</driver_version>")


def parse_gpu_driver(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read the driver's version out of the report."""
    version = DRIVER_VERSION.search(reply.out)
    return [ok(f"driver {version[1]}", version[1])] if version else [unknown("nvidia-smi -q -x names no driver")]


GPU_DRIVER = smi_probe("gpu_driver", parse_gpu_driver, "nvidia-smi -q -x")


SYSTEM_PROGRAMS = ("Xorg", "gnome-shell", "nvidia-persistenced", "nv-hostengine", "dcgm", "nvidia-cuda-mps-server")


def parse_gpu_processes(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """List processes on GPUs; a fault only where it is known that no job runs."""
    node_gpus = gpus(reply)
    if node_gpus is None:
        return [unknown("nvidia-smi -q -x printed no report that can be read")]
    processes = [(gpu, pid, name) for gpu in node_gpus for pid, name in _gpu_processes(gpu) if not name.endswith(SYSTEM_PROGRAMS)]
    if circumstances.busy is not False:
        return [ok(f"{len(processes)} processes on {len(node_gpus)} GPUs", len(processes), unit="processes")]
    if processes:
        listing = ", ".join(f"{pid} ({name}) on {gpu.name}" for gpu, pid, name in processes[:4])
        text = f"{len(processes)} processes are left behind: {listing}"
        return [
            Finding(Health.CRITICAL, text, len(processes), 0, "processes", "kill them; drain and reboot if they stay", Weight.NEVER)
        ]
    limit = circumstances.limits.node.leftover_mib
    full = [gpu for gpu in node_gpus if (gpu.number("fb_memory_usage/used") or 0) > limit]
    if full:
        used = max(gpu.number("fb_memory_usage/used") or 0 for gpu in full)
        text = f"{', '.join(gpu.name for gpu in full)}: {used:.0f} MiB in use and no process"
        return [Finding(Health.WARNING, text, used, limit, "MiB", "look for stuck processes: fuser -v /dev/nvidia*; reset the GPU")]
    return [ok("nothing is left behind on the GPUs", 0, 0, "processes")]


def _gpu_processes(gpu: Gpu) -> list[tuple[str, str]]:
    return [
        ((element.findtext("pid") or "?").strip(), (element.findtext("process_name") or "?").strip())
        for element in gpu.element.findall("processes/process_info")
    ]


GPU_PROCESSES = smi_probe("gpu_processes", parse_gpu_processes, "limit of our own: none, and 1 GiB")


COOL = "look at fans, dust, inlet temperature and, with liquid cooling, the flow"


def judge_temperature(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    """Compare the temperatures with the slowdown and operating limits."""
    model_limits = circumstances.limits.of(gpu.model)
    yield from _degrees_left(gpu)
    core = gpu.number("temperature/gpu_temp")
    slow = gpu.number("temperature/gpu_temp_slow_threshold") or model_limits.critical_c
    high = gpu.number("temperature/gpu_temp_max_gpu_threshold") or model_limits.warning_c
    if core is not None and gpu.number("temperature/gpu_temp_tlimit") is None:
        yield from _hot("{} is", core, high, slow)
    memory = gpu.number("temperature/memory_temp")
    if memory is not None:
        limit = gpu.number("temperature/gpu_temp_max_mem_threshold") or model_limits.memory_warning_c
        yield from _hot("memory of {} is", memory, limit, model_limits.memory_critical_c)


def _hot(subject: str, celsius: float, high: float, slow: float) -> Iterator[Finding]:
    status = judged(celsius, high, slow)
    if status is not Health.OK:
        limit = slow if status is Health.CRITICAL else high
        text = f"{subject} at {celsius:.0f} C, limit {limit:.0f} C"
        yield gpu_finding(status, text, celsius, limit, "C", COOL, Weight.COUNTS)


def _degrees_left(gpu: Gpu) -> Iterator[Finding]:
    """Judge the degrees that are left until the GPU slows down, which Hopper and later print instead of limits."""
    degrees = gpu.number("temperature/gpu_temp_tlimit")
    if degrees is None:
        return
    slow = gpu.number("temperature/gpu_temp_slow_tlimit_threshold")
    most = gpu.number("temperature/gpu_temp_max_gpu_tlimit_threshold") or 0.0
    if slow is not None and degrees <= slow:
        yield gpu_finding(
            Health.CRITICAL, f"{{}}: {degrees:.0f} C to its limit: it slows down at {slow:.0f}", degrees, slow, "C", COOL
        )
    elif degrees <= most:
        yield gpu_finding(Health.WARNING, f"{{}}: {degrees:.0f} C to its limit", degrees, most, "C", COOL)


def hottest_gpu(node_gpus: Sequence[Gpu]) -> Finding | None:
    """Return how hot the hottest GPU is: the ledger of nodes compares it with those of its neighbours."""
    temperatures = [celsius for gpu in node_gpus if (celsius := gpu.number("temperature/gpu_temp")) is not None]
    return (
        ok(f"no GPU is too hot ({len(node_gpus)} GPUs), the hottest at {max(temperatures):.0f} C", max(temperatures), unit="C")
        if temperatures
        else None
    )


GPU_TEMPERATURE = gpu_probe(
    "gpu_temperature",
    judge_temperature,
    "thresholds of the device itself, else knowledge/limits.toml",
    "no GPU is too hot",
    summary=hottest_gpu,
)


SLOWDOWN_REASONS = {
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
LOW_CLOCK_SHARE = 0.6


def judge_clocks(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    """Yield the reasons for which a GPU is slowed down."""
    is_explained = False
    for reason, (status, text, remedy) in SLOWDOWN_REASONS.items():
        if _is_active(gpu, reason):
            is_explained = True
            yield gpu_finding(status, f"{{}}: {text}", "Active", "Not Active", "", remedy)
    if not is_explained and _is_active(gpu, "hw_slowdown"):
        is_explained = True
        yield gpu_finding(
            Health.CRITICAL, "{}: slowed down by its hardware", "Active", "Not Active", "", "look at power and cooling"
        )
    clock, most = gpu.number("clocks/sm_clock"), gpu.number("max_clocks/sm_clock")
    busy = (gpu.number("utilization/gpu_util") or 0) >= BUSY_PERCENT
    if (
        clock is not None
        and most
        and busy
        and not is_explained
        and not _is_active(gpu, "sw_power_cap")
        and clock < LOW_CLOCK_SHARE * most
    ):
        text = f"{{}}: at {clock:.0f} of {most:.0f} MHz while it works, and no reason is named"
        yield gpu_finding(
            Health.WARNING, text, clock, LOW_CLOCK_SHARE * most, "MHz", "look for clocks locked low: nvidia-smi -rgc, -rac"
        )


def _is_active(gpu: Gpu, reason: str) -> bool:
    # drivers before 535 say throttle, later ones event
    return (
        gpu.text(f"clocks_event_reasons/clocks_event_reason_{reason}", f"clocks_throttle_reasons/clocks_throttle_reason_{reason}")
        == "Active"
    )


GPU_CLOCKS = gpu_probe(
    "gpu_clocks", judge_clocks, "NVML clocks event reasons; low clock: limit of our own, 60 %", "no GPU is slowed down"
)


PEAK_SHARE = 1.25
"""Short peaks above the limit are normal, this much is a sensor or supply at fault."""


def judge_power(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
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
        yield gpu_finding(Health.WARNING, text, limit, normal, "W", f"nvidia-smi -pl {normal:.0f}, unless the site wants it so")
    draw = gpu.number(
        "gpu_power_readings/power_draw",
        "gpu_power_readings/average_power_draw",
        "gpu_power_readings/instant_power_draw",
        "power_readings/power_draw",
    )
    if draw and limit and draw > PEAK_SHARE * limit:
        text = f"{{}}: draws {draw:.0f} W, limit {limit:.0f} W"
        yield gpu_finding(Health.WARNING, text, draw, limit, "W", "look at power supplies; replace the GPU if it stays")


GPU_POWER = gpu_probe(
    "gpu_power", judge_power, "default limit of the device, else knowledge/limits.toml", "power limits are as shipped"
)


VOLATILE, LIFE = "ecc_errors/volatile/", "ecc_errors/aggregate/"
SRAM = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")
OLD_SRAM = ("double_bit/l1_cache", "double_bit/l2_cache", "double_bit/register_file", "double_bit/texture_memory")
DRAM = ("dram_uncorrectable", "double_bit/device_memory")
CORRECTED = ("dram_correctable", "sram_correctable", "single_bit/device_memory", "single_bit/total")
WATCH = "watch it; reset at the next drain"
RESET = "drain the node, then reset the GPU: nvidia-smi --gpu-reset -i INDEX"
REPLACE = "drain the node and have the GPU replaced"


def judge_memory(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    """Yield the memory errors of a GPU and what its driver asks for because of them."""
    yield from _uncorrectable_errors(gpu, circumstances)
    yield from _remapped_rows(gpu)
    yield from _retired_pages(gpu, circumstances)
    for path in ("reset_required", "drain_and_reset_recommended"):
        if gpu.text(f"gpu_reset_status/{path}") == "Yes":
            request = path.replace("_", " ")
            yield gpu_finding(Health.CRITICAL, f"{{}}: the driver says: {request}", "Yes", "No", "", RESET, Weight.STRONG)
    action = gpu.text("gpu_recovery_action", "gpu_reset_status/gpu_recovery_action")
    if action and action.casefold() != "none":
        strong = Weight.STRONG if "re" in action.casefold() else Weight.COUNTS
        yield gpu_finding(Health.CRITICAL, f"{{}}: the driver asks for: {action}", action, "None", "", f"do it: {action}", strong)
    if gpu.text("ecc_mode/current_ecc") == "Disabled":
        yield gpu_finding(
            Health.WARNING, "{}: ECC is switched off", "Disabled", "Enabled", "", "nvidia-smi -e 1, then reset the GPU"
        )


def _uncorrectable_errors(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    limits = circumstances.limits.node
    sram = gpu.total(*(VOLATILE + name for name in (*SRAM, *OLD_SRAM)))
    if sram:
        text = f"{{}}: {sram:.0f} uncorrectable SRAM errors since the driver was loaded"
        yield gpu_finding(Health.CRITICAL, text, sram, 0, "errors", RESET, Weight.STRONG)
    life = gpu.total(*(LIFE + name for name in (*SRAM, *OLD_SRAM)))
    # newer drivers know how the errors lie in the banks
    exceeded = gpu.text(LIFE + "sram_threshold_exceeded")
    if exceeded == "Yes" or (not exceeded and (life or 0) > limits.sram_aggregate_critical):
        text = f"{{}}: {life or 0:.0f} uncorrectable SRAM errors in its life"
        yield gpu_finding(Health.CRITICAL, text, life, limits.sram_aggregate_critical, "errors", REPLACE, Weight.STRONG)
    dram = gpu.total(*(VOLATILE + name for name in DRAM))
    if dram:
        text = f"{{}}: {dram:.0f} uncorrectable errors in device memory since the driver was loaded"
        yield gpu_finding(Health.CRITICAL, text, dram, 0, "errors", RESET)


def memory_counters(gpu: Gpu, circumstances: Circumstances) -> Iterator[Counter]:
    """Yield the counters of corrected errors, and of all errors of a life: new ones show even if the driver was reloaded."""
    limits = circumstances.limits.node
    corrected = gpu.total(*(VOLATILE + name for name in CORRECTED))
    if corrected is not None:
        total, hourly = Ceiling(limits.ecc_correctable_warning), Ceiling(limits.ecc_correctable_per_hour)
        name, words, until = f"{gpu.identity} corrected", "# corrected memory errors", "since the driver was loaded"
        yield Counter(gpu.name, name, int(corrected), words, total, hourly, WATCH, until=until)
    life = gpu.total(*(LIFE + name for name in (*SRAM, *OLD_SRAM, *DRAM)))
    if life is not None:
        name, words = f"{gpu.identity} life", "# aggregate uncorrectable memory errors"
        yield Counter(gpu.name, name, int(life), words, Ceiling(), Ceiling(0), RESET)


def _remapped_rows(gpu: Gpu) -> Iterator[Finding]:
    rows = "remapped_rows/"
    if gpu.text(rows + "remapped_row_failure") == "Yes":
        yield gpu_finding(Health.CRITICAL, "{}: a memory row could not be remapped", "Yes", "No", "", REPLACE, Weight.STRONG)
    if gpu.text(rows + "remapped_row_pending") == "Yes":
        yield gpu_finding(Health.WARNING, "{}: a remapped row takes effect at the next reset", "Yes", "No", "", RESET)
    used_up = gpu.number(rows + "row_remapper_histogram/row_remapper_histogram_none")
    if used_up:
        text = f"{{}}: {used_up:.0f} memory banks have no spare row left"
        yield gpu_finding(Health.WARNING, text, used_up, 0, "banks", REPLACE)


def _retired_pages(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    """Judge retired pages: GPUs before Ampere retire bad memory by pages."""
    pages = "retired_pages/"
    retired = gpu.total(pages + "multiple_single_bit_retirement/retired_count", pages + "double_bit_retirement/retired_count")
    limit = circumstances.limits.node.retired_pages_critical
    if retired is not None and retired >= limit:
        yield gpu_finding(Health.CRITICAL, f"{{}}: {retired:.0f} retired pages", retired, limit, "pages", REPLACE, Weight.STRONG)
    if gpu.text(pages + "pending_retirement", pages + "pending_blacklist") == "Yes":
        yield gpu_finding(Health.WARNING, "{}: a page retires at the next reset", "Yes", "No", "", RESET)


GPU_MEMORY = gpu_probe(
    "gpu_memory",
    judge_memory,
    "NVIDIA, GPU Memory Error Management: row remapping, RMA policy; others: knowledge/limits.toml",
    "no uncorrectable memory error",
    memory_counters,
)
