"""What a look could not see, by how much that takes from it; and what it found worth saying although it is nobody's incident."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Extent", "Remark", "Trouble"]


class Extent(StrEnum):
    """How much is not seen."""

    ALL = "all"
    """The scheduler or the store: nothing can be concluded from such a pass."""
    PART = "part"
    """A log, a mount, the states of nodes, an incident that could not be worked on: all else is seen."""
    SET_ASIDE = "set aside"
    """What the site itself keeps from Nightshift, such as logs that their owners show to nobody: no fault of a pass."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that could not be seen or done."""

    about: str
    """The same for as long as the same is in trouble: `the log of job 4821`, `/lustre/project`, `incident 12`."""
    text: str
    """For people; counts in it may differ from look to look."""
    extent: Extent = Extent.PART


@dataclass(frozen=True, slots=True)
class Remark:
    """Something worth saying that is no incident: a node drained by others, a slow job that may pass, what was learned."""

    about: str
    """It is said anew only after a look at which nothing was said about the same."""
    text: str
