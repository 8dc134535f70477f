"""The faults of the demo and the drill: what happens to the job for real, and how Nightshift is expected to end it.

One file a fault in knowledge/faults/. Texts may hold {rank}, {local_rank}, {node}, {pid}, {worker}, {step} and {time}, which the
rank that is struck fills in.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from assistant.content.reading import build, content_files, read_toml
from assistant.errors import ContentError, UsageError
from assistant.records import Action, Category, IncidentState


class FaultEffect(StrEnum):
    """What a fault does to the rank that it strikes."""

    RAISE = "raise"
    """It prints, raises `exception` with `message`, and exits with status 1."""
    STALL_LINK = "stall_link"
    """Its connection to the next rank takes no more data; nobody dies until the collective times out."""
    HANG = "hang"
    """It sleeps for ever."""
    KILL_WORKER = "kill_worker"
    """Its data worker, a child process, is killed by SIGKILL."""
    KILL = "kill"
    """It is killed by SIGKILL itself."""
    NODE_DOWN = "node_down"
    """Its node dies with everything on it."""
    STORAGE_DOWN = "storage_down"
    """The checkpoint storage takes and gives nothing for `outage_s`."""
    BROKEN_EVALUATION = "broken_evaluation"
    """The evaluation hook has a bug."""
    BAD_SAMPLES = "bad_samples"
    """The samples of `bad_steps` are damaged in the data itself."""
    EAT_MEMORY = "eat_memory"
    """It takes memory until somebody ends it; only on a cluster that guards memory."""
    FILL_DISK = "fill_disk"
    """It fills the scratch disk of its node; only on a cluster whose nodes have a small one."""


class On(StrEnum):
    """The place in a training step at which a fault strikes."""

    STEP = "step"
    SAVE = "save"
    """While half of a shard is written."""
    EVALUATION = "evaluation"


class Tied(StrEnum):
    """Where a fault comes back after a restart."""

    ONCE = "once"
    """It happens once and is over."""
    NODE = "node"
    """It comes back on that node only."""
    ALWAYS = "always"
    """It comes back wherever the job runs."""


class Damages(StrEnum):
    """What a fault does to checkpoints besides cutting the one that is being written."""

    NOTHING = ""
    TRACKER = "tracker"
    """The tracker names the unfinished checkpoint already."""
    NEWEST = "newest"
    """Bytes of the newest complete checkpoint are flipped, sizes and manifest stay."""


@dataclass(frozen=True)
class Expect:
    """How an incident that a fault causes must end."""

    reason: str
    category: Category
    action: Action
    final: IncidentState
    restarted: bool
    """Whether the job is submitted again."""
    nodes: tuple[str, ...] = ()
    """Nodes to be blamed; `{node}` is the one of the rank that is struck."""
    also: tuple[str, ...] = ()
    """Reasons that are as good."""


@dataclass(frozen=True)
class Fault:
    """One fault that a drill makes happen."""

    name: str
    title: str
    meaning: str
    """What it stands for, and what makes it hard."""
    how: FaultEffect
    tied: Tied
    at_step: int
    """The step from which it may strike."""
    expect: Expect
    rank: int | None = None
    """The rank of the job's first run that is struck; None for all."""
    on: On = On.STEP
    exception: str = "RuntimeError"
    """Dotted name under which the exception prints."""
    message: str = ""
    prints: tuple[str, ...] = ()
    """Lines that the rank prints before it goes."""
    kernel: tuple[str, ...] = ()
    """Lines for the kernel log of its node, without time."""
    damages: Damages = Damages.NOTHING
    outage_s: float = 0.0
    bad_steps: tuple[int, ...] = ()
    """First and last + 1 of the steps whose samples are damaged."""
    collective_timeout_s: float | None = None
    """How long collectives wait in this drill, where it is not the usual."""
    steps: int | None = None
    """Length of the run, where the usual one would end too soon."""
    source: str = ""
    """Where the wordings come from."""

    def __post_init__(self) -> None:
        if self.how is FaultEffect.BAD_SAMPLES and (len(self.bad_steps) != 2 or self.bad_steps[0] >= self.bad_steps[1]):
            raise ValueError("bad_steps must be two steps, the first below the second")
        if self.tied is Tied.NODE and self.rank is None:
            raise ValueError("a fault of a node needs the rank that runs there")


@cache
def faults(site: Path | None = None) -> Mapping[str, Fault]:
    """Return every fault by name.

    Raises:
        ContentError: A file is malformed or not named after its fault.
    """
    return _read("knowledge/faults", site)


@cache
def cluster_faults(site: Path | None = None) -> Mapping[str, Fault]:
    """Return, by name, the faults that only a real cluster can have, and all others."""
    return {**faults(site), **_read("knowledge/drills/faults", site)}


def _read(area: str, site: Path | None) -> dict[str, Fault]:
    faults_by_name: dict[str, Fault] = {}
    for path in content_files(area, site):
        fault = build(Fault, read_toml(path), path)
        if fault.name != path.stem:
            raise ContentError(f"{path}:1: name: is {fault.name!r}, but the file is named {path.stem!r}")
        faults_by_name[fault.name] = fault
    return faults_by_name


def find_fault(name: str, site: Path | None = None) -> Fault:
    """Return a fault.

    Raises:
        UsageError: There is none of that name; the message lists what there is.
    """
    faults_by_name = faults(site)
    if name in faults_by_name:
        return faults_by_name[name]
    near = difflib.get_close_matches(name, faults_by_name, n=1)
    raise UsageError(
        f"fault {name!r} is unknown{f'; did you mean {near[0]!r}?' if near else ';'} known: {', '.join(faults_by_name)}"
    )


# The drills on a real cluster: what is done to it while a job trains, and how Nightshift is expected to end it.


@dataclass(frozen=True)
class Drill:
    """One drill; in its commands `{node}` is the node that is struck and `{job}` the job."""

    name: str
    title: str
    at_step: int
    """When this step is logged, it strikes."""
    expect: Expect | None = None
    """None: no incident may be opened."""
    rank: int = 1
    """Rank whose node is struck."""
    rig: tuple[tuple[str, ...], ...] = ()
    """Commands for the rig."""
    heal: tuple[tuple[str, ...], ...] = ()
    """Commands for the rig when the drill is over, and before it in case an earlier one was broken off."""
    fault: str = ""
    """Fault of knowledge/faults that is armed in the job as well."""
    cancel: bool = False
    """Whether a person cancels the job."""
    outage_s: float = 0.0
    """How long the controller does not answer, from the strike on."""
    steps: int = 120
    """Length of the job, a tenth of a second each."""
    seconds: float = 180.0
    """By then everything must have ended."""


@cache
def drills(site: Path | None = None) -> Mapping[str, Drill]:
    """Return every drill by name.

    Raises:
        ContentError: A file is malformed or not named after its drill.
    """
    drills_by_name: dict[str, Drill] = {}
    for path in content_files("knowledge/drills", site):
        drill = build(Drill, read_toml(path), path)
        if drill.name != path.stem:
            raise ContentError(f"{path}:1: name: is {drill.name!r}, but the file is named {path.stem!r}")
        drills_by_name[drill.name] = drill
    return drills_by_name
