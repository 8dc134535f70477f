"""How words begin a recovery: the playbook is worked up to its next change, and that change waits for a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from assistant.agent.turn import Turn


@dataclass(frozen=True, slots=True)
class Waiting:
    """A change of a playbook that waits for a yes or no."""

    approval: int
    tool: str
    change: str
    """The exact command."""
    why: str
    undo: bool
    """Whether it can be taken back."""
    digest: str
    """Digest of the command, as far as people are shown it."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Where an incident stands after its playbook was worked as far as it goes without a person."""

    incident: int
    state: str
    note: str
    waiting: tuple[Waiting, ...]


class Recovery(Protocol):
    """Works the playbook of a job; every change in it is asked about."""

    def standing(self, job: str) -> Begun | None:
        """Return where the newest incident of a job stands; None where there is none."""
        ...

    def begin(self, job: str) -> Begun:
        """Go on with the incident of a job, opened where none is open, until a change waits for a person or it ends."""
        ...


@dataclass
class RecoveringTurn(Turn):
    """A turn in which a recovery may be begun."""

    recovery: Recovery | None = None
    """None where only single changes can be proposed."""
