"""Tell whether a path is at fault on one node alone, by what that node and others say of it; and the sentences about it. Pure.

Proven is only what was seen: a node that did not answer, or that may not look, says nothing. What may have been put on a node's own
disk by the job or its owner is no fault of a node that lacks it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from assistant.engine.unnamed_storage import LOCAL, is_read_only
from assistant.watch.outages import ENDED_BY_ITSELF, FRAME, NOT_THERE, PATH, unescaped_lines

__all__ = ["NodeFault", "PathFault", "held_elsewhere", "node_fault", "system_paths"]

ENOUGH_FINE = 2
"""Nodes that have a file system mounted before one without it may be taken out of service."""
PASSING = ("/tmp", "/var/tmp", "/dev", "/run", "/proc", "/sys", "/var/run")
"""Where mounts and files come and go with a job or a login."""
OF_A_USER = re.compile(r"(?:^|,)user_id=(?!0(?:,|$))\d")
"""Options of a FUSE mount that somebody else than root made."""
STICKY = 0o1000
"""Of a folder's mode: only the owner of an entry may rename or remove it."""
_OF_THE_MACHINE = re.compile(r"^/(?:proc|sys|dev|run|var/spool|var/run)(?:/|$)")
_DENIED = re.compile(r"Permission denied|Errno 13\b|EACCES", re.IGNORECASE)
_READ_ONLY = re.compile(r"Read-only file system|Errno 30\b|EROFS", re.IGNORECASE)
_LIBRARY = re.compile(r"cannot open shared object file|cannot execute|bad interpreter", re.IGNORECASE)

Row = Mapping[str, Any]
"""Of `storage_state`, about one path on one node."""


class PathFault(StrEnum):
    """What is wrong with a path on one node."""

    UNMOUNTED = "is not mounted"
    MISSING = "is missing"
    SILENT = "does not answer"
    READ_ONLY = "is mounted read-only"
    RIGHTS = "has other owners or rights"


class NodeFault(NamedTuple):
    """A path that one node cannot use as others can."""

    node: str
    fault: PathFault
    subject: str
    """The mount point, or the path where no whole file system is at fault."""
    fine: tuple[str, ...]
    """Nodes on which nothing is wrong with it."""
    own: bool = False
    """Whether it is a disk of the node's own: what lies there is nowhere else."""
    mount_point: bool = False
    """Of a file system that is not mounted: whether the folder stands in which it was to be mounted."""

    @property
    def lost_mount(self) -> bool:
        """Whether a whole file system is lost that enough others have: such a node breaks other jobs, too."""
        return self.fault is PathFault.UNMOUNTED and self.mount_point and len(self.fine) >= ENOUGH_FINE

    @property
    def sentence(self) -> str:
        """What was seen, for people."""
        return f"{self.subject} {self.fault} on {self.node}, and nothing is wrong with it on {', '.join(self.fine[:4])}."


def node_fault(error: str, rows: Sequence[Row], user: str) -> NodeFault | None:
    """Return what is at fault on one node alone of those that answered; None where that is not proven.

    Args:
        error: The lines that prove the failure.
        rows: Of `storage_state`, one for each node, all about one path.
        user: Owner of the job.
    """
    silent = [row for row in rows if row.get("silent")]
    answered = [row for row in rows if not row.get("silent") and row.get("stands")]
    if len(silent) == 1 and answered:
        fine = [row for row in answered if row["place"] == silent[0]["place"]]
        return _fault(PathFault.SILENT, silent[0], fine, str(silent[0]["place"])) if fine and silent[0]["place"] else None
    if silent:
        return None
    if _READ_ONLY.search(error):
        refused = [row for row in answered if is_read_only(row)]
        fine = [row for row in answered if row not in refused]
        same = len({row["place"] for row in answered}) == 1
        alone = len(refused) == 1 and bool(fine) and same
        return _fault(PathFault.READ_ONLY, refused[0], fine, str(refused[0]["place"])) if alone else None
    lacking = [row for row in answered if row["stands"] != row["real"]]
    fine = [row for row in answered if row not in lacking]
    if len(lacking) == 1 and fine:
        return _missing(lacking[0], fine, user)
    if not lacking and _DENIED.search(error):
        return _other_rights(fine, user)
    return None


def held_elsewhere(rows: Sequence[Row]) -> str:
    """Return which nodes have a path and which lack it, for its owner; empty where all are alike, or nothing is known."""
    answered = [row for row in rows if not row.get("silent") and row.get("stands")]
    lacking = [str(row["node"]) for row in answered if row["stands"] != row["real"]]
    fine = [str(row["node"]) for row in answered if row["stands"] == row["real"]]
    if not lacking or not fine:
        return ""
    return f"{answered[0]['path']} is there on {', '.join(fine[:4])} and not on {', '.join(lacking[:4])}."


def system_paths(reason: str, texts: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that lines say are not there, those of programs and libraries too; none of what is the machine's alone.

    Unlike `paths_of` it counts /usr and installed packages: what jobs have in common there tells no shared cause, but may be
    missing on one node.
    """
    if reason in ENDED_BY_ITSELF:
        return ()
    lines = unescaped_lines(texts)
    complaints = [text for text in lines if (NOT_THERE.search(text) or _LIBRARY.search(text)) and not FRAME.match(text)]
    paths = [match.rstrip(".,") for text in complaints for match in PATH.findall(text)]
    return tuple(dict.fromkeys(path for path in paths if not _OF_THE_MACHINE.search(path)))[:8]


def _missing(lacking: Row, fine: Sequence[Row], user: str) -> NodeFault | None:
    places = {str(row["place"]) for row in fine}
    if len(places) != 1 or any(row["real"] != lacking["real"] for row in fine):
        return None
    (place,) = places
    if _passes(str(lacking["real"])):
        return None
    if place != lacking["place"]:
        below = PurePosixPath(place).is_relative_to(str(lacking["place"]))
        if not below or any(OF_A_USER.search(str(row["options"])) for row in fine):
            return None
        stands = PurePosixPath(str(lacking["stands"])).is_relative_to(place)
        return _fault(PathFault.UNMOUNTED, lacking, fine, place)._replace(mount_point=stands)
    path = str(lacking["path"])
    if str(fine[0]["kind"]) in LOCAL:
        alone_made = all(_installed(row, user) for row in fine)
        return _fault(PathFault.MISSING, lacking, fine, path) if alone_made else None
    one_share = len({str(row["source"]) for row in (*fine, lacking)}) == 1 and bool(lacking["source"])
    made_by_user = any(OF_A_USER.search(str(row["options"])) for row in (*fine, lacking))
    return _fault(PathFault.MISSING, lacking, fine, path) if one_share and not made_by_user else None


def _other_rights(rows: Sequence[Row], user: str) -> NodeFault | None:
    """Return the one node on whose own disk a path that its owner did not make has other owners or rights than on all others."""
    if len(rows) <= ENOUGH_FINE or any(str(row["kind"]) not in LOCAL for row in rows) or _passes(str(rows[0]["real"])):
        return None
    by_owners: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        by_owners.setdefault(tuple(row.get("owners") or ()), []).append(row)
    odd = [those for those in by_owners.values() if len(those) == 1]
    usual = [those for those in by_owners.values() if len(those) > 1]
    if len(odd) != 1 or len(usual) != 1 or not all(_installed(row, user) for row in usual[0]):
        return None
    return _fault(PathFault.RIGHTS, odd[0][0], usual[0], str(odd[0][0]["path"]))


def _fault(fault: PathFault, row: Row, fine: Sequence[Row], subject: str) -> NodeFault:
    own = all(str(state["kind"]) in LOCAL for state in fine)
    return NodeFault(str(row["node"]), fault, subject, tuple(str(state["node"]) for state in fine), own=own)


def _passes(path: str) -> bool:
    return any(PurePosixPath(path).is_relative_to(place) for place in PASSING)


def _installed(row: Row, user: str) -> bool:
    """Tell whether neither a job's owner nor everybody could have put a path where it stands: it came with the machine.

    Everybody may write into a folder such as /scratch that is sticky, but only root makes an entry that is root's.
    """
    owners = [str(owner).rsplit(":", 2) for owner in row.get("owners") or ()]
    if not owners or not user or any(len(words) != 3 for words in owners):
        return False
    return all(
        owner not in (user, "UNKNOWN")
        and (
            (number > 0 and int(mode, 8) & STICKY and owners[number - 1][0] == "root")
            or (not int(mode, 8) & 0o002 and (group == "0" or not int(mode, 8) & 0o020))
        )
        for number, (owner, group, mode) in enumerate(owners)
    )
