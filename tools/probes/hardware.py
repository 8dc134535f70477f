"""Probes of the board of a node: PCIe errors and widths of its devices, the air it draws in; and which kinds of hardware it has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, judged, merged, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._counters import Ceiling, Counter, counts_by, judge_counters

NVIDIA, AMD, MELLANOX = "0x10de", "0x1002", "0x15b3"
GPU_CLASSES = ("0x03", "0x12")


@dataclass(frozen=True, slots=True)
class Device:
    """A PCI device; None where the kernel does not say."""

    address: str
    kind: str
    vendor: str
    width: int | None
    widest: int | None
    fatal: int | None
    nonfatal: int | None
    corrected: int | None

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU of a maker whose GPUs train models."""
        return self.vendor in (NVIDIA, AMD) and self.kind.startswith(GPU_CLASSES)

    @property
    def name(self) -> str:
        """What it is and where."""
        names = {"0x0207": "HCA", "0x0680": "NVSwitch", "0x0108": "NVMe"}
        return f"{'GPU' if self.is_gpu else names.get(self.kind[:6], 'device')} {self.address}"


def devices(reply: Reply) -> Iterator[Device]:
    """Yield the PCI devices of a reading."""
    for line in reply.out.split("\n"):
        words = line.split()
        if len(words) == 9 and words[0] == "pci":
            numbers = [int(word) if word.isdigit() else None for word in words[4:]]
            yield Device(words[1], words[2], words[3], *numbers)


def hardware_kinds(reply: Reply) -> frozenset[str] | None:
    """Return the kinds of hardware on a node (`nvidia`, `amd`, `infiniband`, `bmc`); None for a reading that was cut off."""
    lines = reply.out.split()
    if "end" not in lines:
        return None
    paths = [word for word in lines if word.startswith(("/dev/", "/sys/class/infiniband/"))]
    signs = {"/dev/ipmi": "bmc", "/dev/nvidia": "nvidia", "/dev/kfd": "amd", "/sys/class/infiniband/": "infiniband"}
    present = {kind for path in paths for start, kind in signs.items() if path.startswith(start)}
    for device in devices(reply):
        if device.is_gpu:
            present.add("nvidia" if device.vendor == NVIDIA else "amd")
    return frozenset(present)


PCI_COMMAND = (
    "sh",
    "-c",
    "for d in /sys/bus/pci/devices/*; do [ -r $d/class ] || continue; read -r c <$d/class; "
    "case $c in 0x03*|0x12*|0x0207*|0x0680*|0x0108*) ;; *) continue ;; esac; v=-; read -r v <$d/vendor; "
    "w=-; W=-; [ -r $d/current_link_width ] && { read -r w <$d/current_link_width; read -r W <$d/max_link_width; } "
    "2>/dev/null; "
    'f=-; n=-; k=-; for a in fatal nonfatal correctable; do [ -r "$d/aer_dev_$a" ] || continue; '
    "while read -r key x; do case $key in TOTAL*) case $a in fatal) f=$x ;; nonfatal) n=$x ;; *) k=$x ;; esac ;; "
    'esac; done <"$d/aer_dev_$a"; '
    "done; echo pci ${d##*/} $c $v $w $W $f $n $k; done; "
    "for f in /dev/ipmi0 /dev/nvidia[0-9]* /dev/kfd /sys/class/infiniband/*; do [ -e $f ] && echo device $f; done; echo end",
)
"""`pci ADDRESS CLASS VENDOR WIDTH WIDEST FATAL NONFATAL CORRECTED` for GPUs, NVSwitches, HCAs and NVMe; then `device
PATH`, `end`."""


SEAT = "power cycle the node; then reseat the card or its riser"


def parse_pci(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Judge counters and widths of each device."""
    if "end" not in reply.out.split():
        return [unknown("the PCI devices could not be listed")]
    node_devices = list(devices(reply))
    narrow = [(device.name, finding) for device in node_devices if (finding := _narrow_link(device)) is not None]
    bad = merged([*judge_counters(_pcie_counters(reply, circumstances), circumstances), *narrow])
    return bad or [ok(f"no PCIe error on {len(node_devices)} devices ({circumstances.past.told})", len(node_devices))]


def _pcie_counters(reply: Reply, circumstances: Circumstances) -> Iterator[Counter]:
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


def _narrow_link(device: Device) -> Finding | None:
    # NVIDIA's GPUs are judged by their driver, once
    ours = device.vendor == MELLANOX or (device.vendor == AMD and device.is_gpu)
    if ours and device.width and device.widest and device.width < device.widest <= 16:
        text = f"{{}}: PCIe width x{device.width} of x{device.widest}"
        return Finding(Health.WARNING, text, device.width, device.widest, "lanes", SEAT)
    return None


PCI = Probe(
    name="pci",
    command=PCI_COMMAND,
    needs="sh",
    parse=parse_pci,
    source="Linux, sysfs-bus-pci-devices-aer_stats; of corrected errors limits of our own: knowledge/limits.toml",
    witness="sysfs",
    counts=counts_by(_pcie_counters),
)


INLET_READING = re.compile(r"^\s*inlet[^|\n]*?\s\+?(-?\d+(?:\.\d+)?)\s*C\b", re.IGNORECASE | re.MULTILINE)


def parse_inlet(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read `ipmitool dcmi get_temp_reading`; of several inlets the warmest counts."""
    inlets_c = [float(match) for match in INLET_READING.findall(reply.out)]
    if not inlets_c:
        return [unknown("the board names no inlet temperature")]
    limits, warmest_c = circumstances.limits.node, max(inlets_c)
    status = judged(warmest_c, limits.inlet_warning_c, limits.inlet_critical_c)
    if status is Health.OK:
        return [ok(f"inlet at {warmest_c:.0f} C", warmest_c, limits.inlet_warning_c, "C")]
    limit = limits.inlet_critical_c if status is Health.CRITICAL else limits.inlet_warning_c
    return [
        Finding(
            status,
            f"inlet at {warmest_c:.0f} C, limit {limit:.0f} C",
            warmest_c,
            limit,
            "C",
            "look at the room's cooling",
            Weight.NEVER,
        )
    ]


INLET = Probe(
    name="inlet",
    command=("ipmitool", "dcmi", "get_temp_reading"),
    needs="ipmitool",
    parse=parse_inlet,
    source="ASHRAE TC 9.9, classes A1 and A3",
    package="ipmitool",
    witness="bmc",
    hardware="bmc",
)
