"""Which kinds of hardware a node has, so that a program for what is not there need not be there either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from assistant.ports import Reply

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
        known = {"0x0207": "HCA", "0x0680": "NVSwitch", "0x0108": "NVMe"}
        return f"{'GPU' if self.is_gpu else known.get(self.kind[:6], 'device')} {self.address}"


def devices(reply: Reply) -> Iterator[Device]:
    """Yield the PCI devices of a reading."""
    for line in reply.out.split("\n"):
        words = line.split()
        if len(words) == 9 and words[0] == "pci":
            numbers = [int(word) if word.isdigit() else None for word in words[4:]]
            yield Device(words[1], words[2], words[3], *numbers)


def kinds(reply: Reply) -> frozenset[str] | None:
    """Return the kinds of hardware on a node; None when that could not be found out."""
    lines = reply.out.split()
    if "end" not in lines:
        return None
    paths = [word for word in lines if word.startswith(("/dev/", "/sys/class/infiniband/"))]
    signs = {"/dev/ipmi": "bmc", "/dev/nvidia": "nvidia", "/dev/kfd": "amd", "/sys/class/infiniband/": "infiniband"}
    found = {kind for path in paths for start, kind in signs.items() if path.startswith(start)}
    for device in devices(reply):
        if device.is_gpu:
            found.add("nvidia" if device.vendor == NVIDIA else "amd")
    return frozenset(found)
