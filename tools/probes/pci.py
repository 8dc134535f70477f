"""PCIe as the kernel sees it: errors of GPUs, NVSwitches, HCAs and NVMe (AER), and the width of HCAs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, merged, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._counters import Ceiling, Counter, counts, judged
from assistant.tools.probes._hardware import AMD, MELLANOX, Device, devices
from assistant.tools.probes._shell import PCI

SEAT = "power cycle the node; then reseat the card or its riser"


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Judge counters and widths of each device."""
    if "end" not in reply.out.split():
        return [unknown("the PCI devices could not be listed")]
    found = list(devices(reply))
    counted = [(one.device, judged(one, circumstances)) for one in _counters(reply, circumstances)]
    narrow = [(device.name, _narrow(device)) for device in found]
    bad = merged((name, finding) for name, finding in counted + narrow if finding is not None)
    return bad or [ok(f"no PCIe error on {len(found)} devices ({circumstances.past.told})", len(found))]


def _counters(reply: Reply, circumstances: Circumstances) -> Iterator[Counter]:
    limits = circumstances.limits.node
    corrected = Ceiling(limits.pcie_errors_warning), Ceiling(limits.pcie_errors_per_hour)
    critical, warning = (Ceiling(critical=0),) * 2, (Ceiling(0),) * 2
    for device in devices(reply):
        for count, words, (total, hourly) in (
            (device.fatal, "# fatal PCIe errors", critical),
            (device.nonfatal, "# uncorrected, not fatal PCIe errors", warning),
            (device.corrected, "# corrected PCIe errors", corrected),
        ):
            if count is not None:
                yield Counter(device.name, f"{device.name} {words}", count, words, total, hourly, SEAT)


def _narrow(device: Device) -> Finding | None:
    # NVIDIA's GPUs are judged by their driver, once
    ours = device.vendor == MELLANOX or (device.vendor == AMD and device.is_gpu)
    if ours and device.width and device.widest and device.width < device.widest <= 16:
        text = f"{{}}: PCIe width x{device.width} of x{device.widest}"
        return Finding(Health.WARNING, text, device.width, device.widest, "lanes", SEAT)
    return None


PROBE = Probe(
    name="pci",
    command=PCI,
    needs="sh",
    parse=parse,
    source="Linux, sysfs-bus-pci-devices-aer_stats; of corrected errors limits of our own: knowledge/limits.toml",
    witness="sysfs",
    counts=counts(_counters),
)
