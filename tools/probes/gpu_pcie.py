"""The PCIe link of GPUs as their driver sees it: width, speed and replays."""

from __future__ import annotations

from collections.abc import Iterator

from assistant.probing import Circumstances, Finding, Health
from assistant.tools.probes._counters import Ceiling, Counter
from assistant.tools.probes._nvidia_smi import Gpu, gpu_probe, wrong

INFO = "pci/pci_gpu_link_info/"
BUSY_PERCENT = 20
SEAT = "power cycle the node; then reseat the GPU or its riser"


def judge(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    """Compare the link with the best that device and slot can do."""
    width, widest = gpu.number(INFO + "link_widths/current_link_width"), gpu.number(INFO + "link_widths/max_link_width")
    if width and widest and width < widest:
        text = f"{{}}: PCIe width x{width:.0f} of x{widest:.0f}"
        yield wrong(Health.CRITICAL, text, width, widest, "lanes", SEAT)
    speed, fastest = gpu.number(INFO + "pcie_gen/current_link_gen"), gpu.number(INFO + "pcie_gen/max_link_gen")
    # an idle link may slow down to save power
    works = (gpu.number("utilization/gpu_util") or 0) >= BUSY_PERCENT
    if speed and fastest and speed < fastest and works:
        text = f"{{}}: PCIe generation {speed:.0f} of {fastest:.0f} while it works"
        yield wrong(Health.WARNING, text, speed, fastest, "generation", SEAT)


def counters(gpu: Gpu, circumstances: Circumstances) -> Iterator[Counter]:
    """Give the count of what was sent again."""
    replays, limits = gpu.number("pci/replay_counter"), circumstances.limits.node
    if replays is not None:
        total, hourly = Ceiling(limits.pcie_replays_warning), Ceiling(limits.pcie_replays_per_hour)
        name, words, until = f"{gpu.identity} PCIe replays", "# PCIe replays", "since its last reset"
        yield Counter(gpu.name, name, int(replays), words, total, hourly, SEAT, unit="replays", until=until)


PROBE = gpu_probe(
    "gpu_pcie",
    judge,
    "best link of device and slot, as nvidia-smi names it; replays: knowledge/limits.toml",
    "links are full",
    counters,
)
