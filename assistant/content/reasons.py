"""The failure knowledge: one file a reason in knowledge/reasons/.

A signature is a regular expression for one line of a log. It must compile in Hyperscan and in `re` alike (so: no back-references,
no look-around) and match each of its own examples; it may name groups (`node`, `rank`, `xid`, …) that diagnosis reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from assistant.content.reading import build, content_files, read_toml
from assistant.errors import ContentError
from assistant.records import Action, Category


class SignatureSource(StrEnum):
    """Where a line stands: how far it can be believed, and about what."""

    JOB = "job"
    """job.log: the output of the job itself."""
    KERNEL = "kernel"
    """dmesg.log: kernel, syslog or console of nodes."""
    SCHEDULER = "scheduler"
    """slurmctld.log."""


class Role(StrEnum):
    """What a line that matches says about the failure."""

    ROOT = "root"
    """The cause itself, where nothing stronger stands earlier."""
    SYMPTOM = "symptom"
    """Names the reason only where no root is found: an NCCL timeout, a bare SIGKILL."""
    CASCADE = "cascade"
    """Follows from another rank's or node's failure."""
    CONFIRMATION = "confirmation"
    """Proves a reason that something else named: an OOM record for a SIGKILL."""
    TEARDOWN = "teardown"
    """Noise of processes that are being ended."""
    BENIGN = "benign"
    """Looks like an error and is none."""
    RECOVERED = "recovered"
    """Says that an earlier trouble is over."""


@dataclass(frozen=True)
class Signature:
    """A pattern of one line that speaks for a reason."""

    id: str
    """`<reason>.<word>`, unique."""
    pattern: str
    examples: tuple[str, ...]
    """Whole lines that it must match; real wordings."""
    role: Role = Role.ROOT
    where: tuple[SignatureSource, ...] = (SignatureSource.JOB,)
    """Kinds of files in which it counts."""
    weight: float = 0.8
    """0..1: how sure the reason is when this line is the earliest root."""
    action: Action | None = None
    """Instead of the reason's own action."""
    versions: str = ""
    """Program and versions that print it, where known."""
    caseless: bool = False
    blames_node: bool = False
    """Whether the host that printed it (or that the group `node` names) is at fault."""

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise ValueError(f"weight of {self.id} must be above 0 and at most 1, not {self.weight}")


@dataclass(frozen=True)
class Herring:
    """A line that looks like this reason and must not count."""

    id: str
    pattern: str
    why: str
    examples: tuple[str, ...]
    caseless: bool = False


@dataclass(frozen=True)
class Prior:
    """How common and how costly a reason is."""

    source: str
    failures: int | None = None
    """Count in the Acme trace."""
    gpu_time_share: float | None = None
    """0..1 of the GPU time lost to failures."""


@dataclass(frozen=True)
class Reason:
    """One reason of failure: what it means, how it shows, what to do."""

    name: str
    title: str
    category: Category
    meaning: str
    action: Action
    remedy: str
    """What a person should do, in the imperative."""
    confirmation_restart: bool = False
    """Whether one restart is allowed to see if it happens again."""
    persistent: bool | None = None
    """Whether it comes back without a change; None where that needs a test."""
    prior: Prior | None = None
    exceptions: tuple[str, ...] = ()
    """Python exception classes (last part of the name) that mean this reason when nothing better is known."""
    signature: tuple[Signature, ...] = ()
    herring: tuple[Herring, ...] = ()
    undecided: bool = False
    """Whether it names an effect whose cause the case does not show: the summary then ends with the first test."""
    tests: tuple[str, ...] = ()
    """Cheapest checks that would confirm or refute it."""


@cache
def reasons(site: Path | None = None) -> Mapping[str, Reason]:
    """Return every known reason by name.

    Raises:
        ContentError: A file is malformed, is not named after its reason, or uses a signature id twice.
    """
    reasons_by_name: dict[str, Reason] = {}
    ids: dict[str, Path] = {}
    for path in content_files("knowledge/reasons", site):
        reason = build(Reason, read_toml(path), path)
        if reason.name != path.stem:
            raise ContentError(f"{path}:1: name: is {reason.name!r}, but the file is named {path.stem!r}")
        entries: list[Signature | Herring] = [*reason.signature, *reason.herring]
        for entry in entries:
            if entry.id in ids:
                raise ContentError(f"{path}: id {entry.id!r} is used in {ids[entry.id]} already")
            ids[entry.id] = path
        reasons_by_name[reason.name] = reason
    return reasons_by_name
