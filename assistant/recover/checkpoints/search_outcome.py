"""What a search for a job's checkpoints came to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.place import Place
from assistant.recover.job_program import JobProgram
from assistant.recover.stages import Stages

__all__ = ["CheckpointSearch", "SaveState"]


class SaveState(StrEnum):
    """What is known about a job's checkpoints."""

    FOUND = "found"
    NEVER_SAVED = "never saved"
    SAVED_ELSEWHERE = "saved, and where is not known"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CheckpointSearch:
    """What a search for a job's checkpoints came to."""

    state: SaveState
    inventory: Inventory | None
    """With FOUND."""
    place: Place | None
    """With FOUND: the folder that holds them, and how it was found."""
    note: str
    """The proof of NEVER_SAVED, the evidence of SAVED_ELSEWHERE, or what keeps it UNKNOWN; with FOUND how it was found."""
    settle: str
    """What would decide it; empty with FOUND and NEVER_SAVED."""
    programs: tuple[JobProgram, ...] = ()
    looked_at: tuple[str, ...] = ()
    """Each folder that was looked at, with how it was found and what was in it."""
    stages: Stages | None = None
    """Of a script that trains several times; None of any other."""
    stateless: bool = False
    """With NEVER_SAVED: its programs keep no state, so that a restart loses nothing."""
    pieces: str = ""
    """With NEVER_SAVED: the line by which its script is proven to pass over finished pieces, so that it does what is missing."""
    unsorted: tuple[Place, Inventory] | None = None
    """With UNKNOWN, of a folder of several runs: where it is and all that it holds, whosever it is."""
