"""Memory errors of GPUs: ECC counters since the driver was loaded and over the GPU's life, remapped rows and retired pages."""

from __future__ import annotations

from collections.abc import Iterator

from assistant.probing import Circumstances, Finding, Health, Weight
from assistant.tools.probes._counters import Ceiling, Counter
from assistant.tools.probes._nvidia_smi import Gpu, gpu_probe, wrong

VOLATILE, LIFE = "ecc_errors/volatile/", "ecc_errors/aggregate/"
SRAM = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")
OLD_SRAM = ("double_bit/l1_cache", "double_bit/l2_cache", "double_bit/register_file", "double_bit/texture_memory")
DRAM = ("dram_uncorrectable", "double_bit/device_memory")
CORRECTED = ("dram_correctable", "sram_correctable", "single_bit/device_memory", "single_bit/total")
WATCH = "watch it; reset at the next drain"
RESET = "drain the node, then reset the GPU: nvidia-smi --gpu-reset -i INDEX"
REPLACE = "drain the node and have the GPU replaced"


def judge(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    """Say what is wrong with the memory of one GPU."""
    yield from _counters(gpu, circumstances)
    yield from _rows(gpu)
    yield from _pages(gpu, circumstances)
    for path in ("reset_required", "drain_and_reset_recommended"):
        if gpu.text(f"gpu_reset_status/{path}") == "Yes":
            said = path.replace("_", " ")
            yield wrong(Health.CRITICAL, f"{{}}: the driver says: {said}", "Yes", "No", "", RESET, Weight.STRONG)
    action = gpu.text("gpu_recovery_action", "gpu_reset_status/gpu_recovery_action")
    if action and action.casefold() != "none":
        strong = Weight.STRONG if "re" in action.casefold() else Weight.COUNTS
        yield wrong(Health.CRITICAL, f"{{}}: the driver asks for: {action}", action, "None", "", f"do it: {action}", strong)
    if gpu.text("ecc_mode/current_ecc") == "Disabled":
        yield wrong(Health.WARNING, "{}: ECC is switched off", "Disabled", "Enabled", "", "nvidia-smi -e 1, then reset the GPU")


def _counters(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    limits = circumstances.limits.node
    sram = gpu.total(*(VOLATILE + name for name in (*SRAM, *OLD_SRAM)))
    if sram:
        text = f"{{}}: {sram:.0f} uncorrectable SRAM errors since the driver was loaded"
        yield wrong(Health.CRITICAL, text, sram, 0, "errors", RESET, Weight.STRONG)
    life = gpu.total(*(LIFE + name for name in (*SRAM, *OLD_SRAM)))
    # newer drivers know how the errors lie in the banks
    said = gpu.text(LIFE + "sram_threshold_exceeded")
    if said == "Yes" or (not said and (life or 0) > limits.sram_aggregate_critical):
        text = f"{{}}: {life or 0:.0f} uncorrectable SRAM errors in its life"
        yield wrong(Health.CRITICAL, text, life, limits.sram_aggregate_critical, "errors", REPLACE, Weight.STRONG)
    dram = gpu.total(*(VOLATILE + name for name in DRAM))
    if dram:
        text = f"{{}}: {dram:.0f} uncorrectable errors in device memory since the driver was loaded"
        yield wrong(Health.CRITICAL, text, dram, 0, "errors", RESET)


def counters(gpu: Gpu, circumstances: Circumstances) -> Iterator[Counter]:
    """Give what may come now and then but not fast, and the errors over a life: new ones show even if the driver was reloaded."""
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


def _rows(gpu: Gpu) -> Iterator[Finding]:
    rows = "remapped_rows/"
    if gpu.text(rows + "remapped_row_failure") == "Yes":
        yield wrong(Health.CRITICAL, "{}: a memory row could not be remapped", "Yes", "No", "", REPLACE, Weight.STRONG)
    if gpu.text(rows + "remapped_row_pending") == "Yes":
        yield wrong(Health.WARNING, "{}: a remapped row takes effect at the next reset", "Yes", "No", "", RESET)
    used_up = gpu.number(rows + "row_remapper_histogram/row_remapper_histogram_none")
    if used_up:
        text = f"{{}}: {used_up:.0f} memory banks have no spare row left"
        yield wrong(Health.WARNING, text, used_up, 0, "banks", REPLACE)


def _pages(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    """Before Ampere bad memory is retired by pages."""
    pages = "retired_pages/"
    retired = gpu.total(pages + "multiple_single_bit_retirement/retired_count", pages + "double_bit_retirement/retired_count")
    limit = circumstances.limits.node.retired_pages_critical
    if retired is not None and retired >= limit:
        yield wrong(Health.CRITICAL, f"{{}}: {retired:.0f} retired pages", retired, limit, "pages", REPLACE, Weight.STRONG)
    if gpu.text(pages + "pending_retirement", pages + "pending_blacklist") == "Yes":
        yield wrong(Health.WARNING, "{}: a page retires at the next reset", "Yes", "No", "", RESET)


PROBE = gpu_probe(
    "gpu_memory",
    judge,
    "NVIDIA, GPU Memory Error Management: row remapping, RMA policy; others: knowledge/limits.toml",
    "no uncorrectable memory error",
    counters,
)
