"""The drills on a real cluster: what is done to it while a job trains, and how Nightshift is expected to end it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assistant.content.faults import Expect
from assistant.content.reading import build, content_files, read_toml
from assistant.errors import ContentError


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
    known: dict[str, Drill] = {}
    for path in content_files("knowledge/drills", site):
        drill = build(Drill, read_toml(path), path)
        if drill.name != path.stem:
            raise ContentError(f"{path}:1: name: is {drill.name!r}, but the file is named {path.stem!r}")
        known[drill.name] = drill
    return known
