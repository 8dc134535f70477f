"""What vendors say of devices, as data with its source: codes that drivers print, and limits from which a health probe speaks up.

Codes are XIDs of NVIDIA's GPUs, SXIDs of its NVSwitches, CANN's of Ascend: one file each in knowledge/. What a code means for a job
follows from its kind; what the vendor says to do stands beside it. Limits are set for each GPU model and for the node around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path

from assistant.content.reading import build, knowledge_file, read_toml, wrong
from assistant.records import Action


class CodeKind(StrEnum):
    """Who causes a code."""

    HARDWARE = "hardware"
    """The device or its node: it is set aside."""
    APPLICATION = "application"
    """Mostly the program; the node is not blamed."""
    FOLLOWS = "follows"
    """Printed because of something else, which other lines tell."""
    NOTICE = "notice"
    """Nothing is wrong yet."""
    UNCLEAR = "unclear"
    """The vendor names no cause: the node is suspect, to be tested before it is blamed."""
    UNUSED = "unused"
    """No current driver prints it; where one does, it is unclear."""


@dataclass(frozen=True)
class DeviceCode:
    """One row of the table of XIDs or of Ascend's codes."""

    code: str
    mnemonic: str
    kind: CodeKind
    meaning: str
    reason: str
    """Our reason, or `cascade` for codes that only follow another."""
    action: Action
    source: str
    """Where the row is from; the head of its file spells it out."""
    vendor: str = ""
    """The vendor's immediate action."""
    next: str = ""
    """What the vendor says to do after that."""
    gpud: str = ""
    """What the gpud project does about it, where it differs."""

    @property
    def root(self) -> bool:
        """Whether it may be the root of a failure."""
        return self.kind not in (CodeKind.FOLLOWS, CodeKind.NOTICE)

    @property
    def blames_node(self) -> bool:
        """Whether the code alone is proof against its node."""
        return self.kind is CodeKind.HARDWARE


@dataclass(frozen=True)
class _CodeFile:
    source: str
    code: tuple[DeviceCode, ...]
    note: str = ""


@dataclass(frozen=True)
class Sxid:
    """What NVIDIA says about one code of an NVSwitch."""

    code: str
    mnemonic: str
    fatal: bool
    """What its lines say mostly; a line that says otherwise is right."""
    vendor: str
    meaning: str
    source: str


@dataclass(frozen=True)
class _SxidGroup:
    vendor: str
    meaning: str
    fatal: bool
    source: str
    names: Mapping[str, str]


@dataclass(frozen=True)
class _SxidFile:
    source: str
    sxid: tuple[_SxidGroup, ...]
    note: str = ""


@cache
def xids(site: Path | None = None) -> Mapping[int, DeviceCode]:
    """Return the table of XIDs by number."""
    return {int(row.code): row for row in _codes("xid.toml", site)}


@cache
def ascend_codes(site: Path | None = None) -> Mapping[str, DeviceCode]:
    """Return the table of CANN's codes, by number or name such as `EI0006`."""
    return {row.code: row for row in _codes("ascend.toml", site)}


@cache
def sxids(site: Path | None = None) -> Mapping[str, Sxid]:
    """Return the table of SXIDs by number."""
    path = knowledge_file("sxid.toml", site)
    groups = build(_SxidFile, read_toml(path), path).sxid
    return {
        code: Sxid(code, mnemonic, group.fatal, group.vendor, group.meaning, group.source)
        for group in groups
        for code, mnemonic in group.names.items()
    }


def _codes(name: str, site: Path | None) -> tuple[DeviceCode, ...]:
    path = knowledge_file(name, site)
    return build(_CodeFile, read_toml(path), path).code


@dataclass(frozen=True)
class GpuLimits:
    """What is normal for one model of GPU. Zero means: not judged, unless the device itself names a limit."""

    model: str
    """Part of the name that nvidia-smi or rocm-smi prints; the longest that fits counts. `*` stands for every other model."""
    source: str
    warning_c: float = 0.0
    critical_c: float = 0.0
    memory_warning_c: float = 0.0
    memory_critical_c: float = 0.0
    power_w: float = 0.0
    """Default power limit; a lower one slows the whole job down."""
    nvlinks: int = 0
    """Links that must be active."""
    nvlink_gb_s: float = 0.0
    """Speed of one link in one direction, as `nvidia-smi nvlink -s` prints it."""


@dataclass(frozen=True)
class NodeLimits:
    """What is normal for a node, whatever its GPUs."""

    gpus: int = 0
    """GPUs that every node must have; 0 where nodes differ: then only what the driver itself misses is found."""
    kernel_window_h: float = 24.0
    """How far back the kernel log counts when nobody says since when."""
    disk_warning_percent: float = 90.0
    disk_critical_percent: float = 98.0
    inodes_warning_percent: float = 90.0
    inodes_critical_percent: float = 98.0
    memory_warning_share: float = 0.05
    memory_critical_share: float = 0.01
    load_warning_per_cpu: float = 4.0
    stuck_warning: int = 1
    """Processes that wait in the kernel at two looks in a row."""
    stuck_critical: int = 8
    zombies_warning: int = 50
    skew_warning_s: float = 1.0
    skew_critical_s: float = 10.0
    inlet_warning_c: float = 32.0
    inlet_critical_c: float = 40.0
    counters_window_h: float = 1.0
    """A growth between two checks is spread over at least this: checks one after the other make no rate of a single error."""
    ecc_correctable_warning: int = 1000
    """Corrected errors of a GPU's memory since the driver was loaded; holds at the first check, as every total of a counter."""
    ecc_correctable_per_hour: float = 100.0
    sram_aggregate_critical: int = 4
    """More uncorrectable SRAM errors than this over the life of a GPU that does not say so itself."""
    retired_pages_critical: int = 60
    pcie_replays_warning: int = 1000
    pcie_replays_per_hour: float = 480.0
    pcie_errors_warning: int = 100
    """Corrected PCIe errors of one device since boot; one that is fatal and new is always critical."""
    pcie_errors_per_hour: float = 20.0
    nvlink_errors_warning: int = 100
    nvlink_errors_critical: int = 10_000
    nvlink_errors_per_hour: float = 1.0
    """Replays and the like; a link that recovers is always a warning."""
    nvlink_errors_critical_per_hour: float = 1_000.0
    nvlink_crc_per_hour: float = 6_000.0
    nvlink_crc_critical_per_hour: float = 360_000.0
    symbol_errors_per_hour: float = 120.0
    link_errors_per_hour: float = 10.0
    flaps_warning: int = 2
    flaps_critical: int = 10
    flaps_per_hour: float = 1.0
    flaps_critical_per_hour: float = 5.0
    leftover_mib: float = 1024.0
    """GPU memory in use on a node without a job."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where each limit comes from, by its name; `our own` where nobody has set one."""


@dataclass(frozen=True)
class HardwareLimits:
    """All limits that hold at a site."""

    gpu: tuple[GpuLimits, ...]
    node: NodeLimits = NodeLimits()
    sources: tuple[str, ...] = ()
    """More about where limits come from, for people."""

    def of(self, model: str) -> GpuLimits:
        """Return the limits of a GPU by the name that its driver prints."""
        fitting = [gpu for gpu in self.gpu if gpu.model.casefold() in model.casefold()]
        defaults = [gpu for gpu in self.gpu if gpu.model == "*"]
        return max(fitting, key=lambda gpu: len(gpu.model), default=defaults[0])


@cache
def limits(site: Path | None = None) -> HardwareLimits:
    """Return the limits: the site's `knowledge/limits.toml` as a whole, else the shipped one.

    Raises:
        ContentError: The file is malformed, or holds no `[[gpu]]` for every other model (`model = "*"`).
    """
    path = knowledge_file("limits.toml", site)
    loaded = build(HardwareLimits, read_toml(path), path)
    if not any(gpu.model == "*" for gpu in loaded.gpu):
        raise wrong(path, "gpu", 'one [[gpu]] must have model = "*": it stands for every model that has none of its own')
    return loaded
