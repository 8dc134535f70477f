"""PCIe as the kernel sees it: errors of GPUs, NVSwitches, HCAs and NVMe (AER), and the width of HCAs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, merged, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._hardware import AMD, MELLANOX, Device, devices
from assistant.tools.probes._shell import PCI

SEAT = "power cycle the node; then reseat the card or its riser"


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Judge counters and widths of each device."""
    if "end" not in reply.out.split():
        return [unknown("the PCI devices could not be listed")]
    found = list(devices(reply))
    bad = merged((device.name, finding) for device in found for finding in _judge(device, circumstances))
    return bad or [ok(f"no PCIe error on {len(found)} devices", len(found))]


def _judge(device: Device, circumstances: Circumstances) -> Iterator[Finding]:
    if device.fatal:
        yield Finding(Health.CRITICAL, f"{{}}: {device.fatal} fatal PCIe errors since boot", device.fatal, 0, "errors", SEAT)
    if device.nonfatal:
        text = f"{{}}: {device.nonfatal} uncorrected, not fatal PCIe errors since boot"
        yield Finding(Health.WARNING, text, device.nonfatal, 0, "errors", SEAT)
    limit = circumstances.limits.node.pcie_errors_warning
    if device.corrected is not None and device.corrected >= limit:
        text = f"{{}}: {device.corrected} corrected PCIe errors since boot"
        yield Finding(Health.WARNING, text, device.corrected, limit, "errors", SEAT)
    # NVIDIA's GPUs are judged by their driver, once
    judged = device.vendor == MELLANOX or (device.vendor == AMD and device.is_gpu)
    if judged and device.width and device.widest and device.width < device.widest <= 16:
        text = f"{{}}: PCIe width x{device.width} of x{device.widest}"
        yield Finding(Health.WARNING, text, device.width, device.widest, "lanes", SEAT)


PROBE = Probe(
    name="pci",
    command=PCI,
    needs="sh",
    parse=parse,
    source="Linux, sysfs-bus-pci-devices-aer_stats; limits of our own: 100 corrected errors",
    witness="sysfs",
)
