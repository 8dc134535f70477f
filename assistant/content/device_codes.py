"""The tables of codes that drivers print about accelerators: XIDs of NVIDIA's GPUs, SXIDs of its NVSwitches, CANN's of Ascend.

One file each in knowledge/, with the source of every entry. What a code means for a job follows from its kind; what the vendor
says to do stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from assistant.content.reading import build, knowledge_file, read_toml
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
