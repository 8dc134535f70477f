"""File systems and paths as several nodes show them: what is at fault on one node alone, and which disk is full. Pure.

An error without a path is explained by the one faulty file system that the job uses. Proven is only what was seen: a node that
did not answer, or that may not look, says nothing. What may have been put on a node's own disk by the job or its owner is no fault
of a node that lacks it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from assistant.records import Job
from assistant.watch.outages import ENDED_BY_ITSELF, FRAME, NOT_THERE, PATH, unescaped_lines

FULL_PERCENT = 99.0
LEAST_SHARE = 0.9
"""Of the room on other nodes: what wrote as much here would fill them, too."""
LARGE_SHARE = 0.2
"""Of what is known to lie on a disk: a smaller part does not explain that it is full."""
LOCAL_TYPES = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "f2fs"})
LEAST_DIFFERENCE = 50.0
"""Percent of a disk that are in use on one node more than on each other one: it alone is crowded."""
FEWEST_OTHERS = 2
SPOOLS = ("/tmp", "/var/tmp", "/dev/shm")
"""Where programs write that were told nothing."""
_PATH = re.compile(r"(?<![\w./:@-])/[\w.+@%~-]{1,255}(?:/[\w.+@%~-]{1,255}){0,40}")
_QUOTED = re.compile(r"""["'](/[\w.+@%~-]{1,255}(?:/[\w.+@%~-]{1,255}){0,40})""")
_SEARCHED = re.compile(
    r"^(?:(?:LD_|MAN|INFO|PYTHON|C|CPLUS_INCLUDE_|LIBRARY_)?PATH|LD_LIBRARY_PATH|SHELL|_|MODULE.*|LOADEDMODULES)$"
)
"""Variables whose paths are read and not written."""


class DiskFault(StrEnum):
    """What keeps a file system from being used."""

    FULL = "is full"
    READ_ONLY = "is mounted read-only"
    SILENT = "does not answer"
    CROWDED = "has hardly any room left"


class FaultyDisk(NamedTuple):
    """A file system that a job uses and that cannot be used."""

    place: str
    kind: str
    nodes: tuple[str, ...]
    """Nodes of the job on which it cannot be used."""
    fine: tuple[str, ...]
    """Nodes of the job that answered and on which nothing is wrong with it."""

    @property
    def local(self) -> bool:
        """Whether it is a node's own."""
        return self.kind in LOCAL_TYPES


def crowded_disk(states: Sequence[Mapping[str, Any]], nodes: Sequence[str], used: Sequence[str]) -> FaultyDisk | None:
    """Return the one disk of a node's own that a job uses and that is much fuller than on other nodes; None for none or several.

    A job that met a full disk may have removed its own files since: then the disk is not full any more.

    Args:
        states: Rows of `storage_state` of all file systems, of the nodes and of others of their kind.
        nodes: That may have raised the error.
        used: From `paths_used`.
    """
    crowded: list[FaultyDisk] = []
    for node in nodes:
        mounts_shown = {str(state["place"]): state for state in states if state["node"] == node}
        for place in dict.fromkeys(mount_of(path, mounts_shown) for path in used):
            own = mounts_shown.get(place)
            if own is None or place == "/" or own["kind"] not in LOCAL_TYPES or own.get("silent") or is_read_only(own):
                continue
            peers = [state for state in states if state["node"] != node and (state["place"], state["kind"]) == (place, own["kind"])]
            fine = [
                state for state in peers if not state.get("silent") and _share_used(own) - _share_used(state) >= LEAST_DIFFERENCE
            ]
            if len(fine) == len(peers) >= FEWEST_OTHERS:
                crowded.append(FaultyDisk(place, str(own["kind"]), (node,), tuple(str(state["node"]) for state in fine)))
    return crowded[0] if len(crowded) == 1 else None


def _share_used(state: Mapping[str, Any]) -> float:
    """Return how full a file system is, by space or by inodes, in percent."""
    return max(state.get("used_percent") or 0.0, state.get("inodes_percent") or 0.0)


_UNLOCATED = re.compile(r"The log does not say which: [^.]{1,300}\.")
"""What the advice says of a full file system that the log does not name."""


def located(advice: str, words: str) -> str:
    """Return advice with the words on a file system that nodes have shown, in place of those that none is known."""
    return _UNLOCATED.sub(lambda _: words, advice) if _UNLOCATED.search(advice) else f"{advice} {words}"


class OwnFiles(NamedTuple):
    """What a job wrote onto the full disk of a node."""

    fills_another: bool
    """Whether a disk of another node would be filled as well, or that is not known."""
    sentence: str


def own_files(rows: Sequence[Mapping[str, Any]], node: str, place: str) -> OwnFiles:
    """Return whether what a job wrote onto a node's full disk leaves room on the disks of others.

    Args:
        rows: Of `space_written` for the full node and others of the job, in any order.
        node: Whose disk is full.
        place: Where it is mounted.
    """
    full = next((row for row in rows if row["node"] == node), None)
    if full is None:
        return OwnFiles(True, f"How much of {place} of {node} the job itself has filled could not be read.")
    peers = [row for row in rows if row["node"] != node]
    room_bytes = min((row["free_bytes"] + row["written_bytes"] for row in peers), default=full["total_bytes"])
    room_files = min((row["free_files"] + row["written_files"] for row in peers), default=full["total_files"])
    too_large = full["written_bytes"] >= LEAST_SHARE * room_bytes
    too_many = full["total_files"] > 0 and full["written_files"] >= LEAST_SHARE * room_files
    largest = f", the largest is {full['largest']} ({_mib(full['largest_bytes'])})" if full["largest"] else ""
    files = "file" if full["written_files"] == 1 else "files"
    amount = f"{_mib(full['written_bytes'])} in {full['written_files']} {files} since it began{largest}"
    text = f"The job's owner has written {amount} into {place} of {node}"
    return OwnFiles(
        too_large or too_many, f"{text}: that would fill it on another node, too." if too_large or too_many else f"{text}."
    )


def holders_in_words(rows: Sequence[Mapping[str, Any]], place: str) -> str:
    """Return whose files take most of a file system, and where; empty where nothing is known.

    Args:
        rows: Of `space_holders` for one node, the largest first.
        place: Where it is mounted.
    """
    total = sum(row["held_bytes"] for row in rows)
    large = [row for row in rows if row["held_bytes"] >= LARGE_SHARE * total > 0][:2]
    parts = [f"{_mib(row['held_bytes'])} of {_account(str(row['user']))} in {row['path']}" for row in large]
    return f"Most of what lies in {place} is {' and '.join(parts)}." if parts else ""


def _account(user: str) -> str:
    return f"uid {user}" if user.isdecimal() else user


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:.1f} MiB"


def is_full(state: Mapping[str, Any]) -> bool:
    """Tell whether a file system that can be written has neither space nor inodes left."""
    return _share_used(state) >= FULL_PERCENT and not is_read_only(state)


def is_read_only(state: Mapping[str, Any]) -> bool:
    """Tell whether a file system is mounted read-only."""
    return "ro" in str(state.get("options", "")).split(",")


def paths_used(job: Job, more: Iterable[str], sources: Iterable[str] = ()) -> tuple[str, ...]:
    """Return absolute paths that a job may write below: of script and variables, its folders, and where programs spool by default.

    Args:
        job: With its spec.
        more: Further ones, such as the folders that it saves into.
        sources: Texts of its programs; a path counts there where it begins a quoted text.
    """
    spec = job.spec
    texts = [spec.script, *spec.arguments] if spec is not None else []
    variables = spec.environment.items() if spec is not None else ()
    texts += [value for name, value in variables if not _SEARCHED.fullmatch(name)]
    folders = [str(folder.path) for folder in (job.processes.folders if job.processes is not None else ())]
    own = [str(path) for path in (job.work_dir, job.log, job.error_log) if path is not None]
    matches = [match for text in texts for match in _PATH.findall(text)]
    written = [match for text in sources for match in _QUOTED.findall(text)]
    return tuple(dict.fromkeys([*matches, *folders, *own, *more, *written, *SPOOLS]))


def mount_of(path: str, places: Iterable[str]) -> str:
    """Return the longest of mount points above a path; empty where none is."""
    return max((place for place in places if PurePosixPath(path).is_relative_to(place)), key=len, default="")


def unnamed_disk(fault: DiskFault, states: Sequence[Mapping[str, Any]], used: Sequence[str]) -> FaultyDisk | None:
    """Return the one file system with a fault that a job uses; None where there is none, or several may be meant.

    A share that is mounted read-only counts only where another node of the job has it mounted for writing: many always are.

    Args:
        fault: What the error says.
        states: Rows of `storage_state` of the job's nodes, of all their file systems.
        used: From `paths_used`.
    """
    nodes = tuple(dict.fromkeys(str(state["node"]) for state in states))
    mounts_shown = {(str(state["node"]), str(state["place"])): state for state in states}
    faulty: dict[str, list[str]] = {}
    for node in nodes:
        places = [place for name, place in mounts_shown if name == node]
        for place in dict.fromkeys(mount_of(path, places) for path in used):
            if place and _has_fault(fault, mounts_shown[node, place]):
                faulty.setdefault(place, []).append(node)
    faults = []
    for place, on in faulty.items():
        fine = tuple(node for node in nodes if node not in on)
        kind = str(mounts_shown[on[0], place]["kind"])
        compared = any((node, place) in mounts_shown and not is_read_only(mounts_shown[node, place]) for node in fine)
        if fault is not DiskFault.READ_ONLY or compared or kind in LOCAL_TYPES:
            faults.append(FaultyDisk(place, kind, tuple(on), fine))
    return faults[0] if len(faults) == 1 else None


def _has_fault(fault: DiskFault, state: Mapping[str, Any]) -> bool:
    if fault is DiskFault.FULL:
        return is_full(state) and not state.get("silent")
    return bool(state.get("silent")) if fault is DiskFault.SILENT else is_read_only(state)


def full_words(states: Sequence[Mapping[str, Any]]) -> str:
    """Return which file systems of a node that can be written are full; empty where none is."""
    full: list[str] = []
    for state in states:
        used, inodes = state.get("used_percent") or 0.0, state.get("inodes_percent") or 0.0
        if is_full(state):
            share = f"{used:.0f} % in use" if used >= FULL_PERCENT else f"{inodes:.0f} % of its inodes in use"
            full.append(f"{state['place']} ({state['kind']}) of {state['node']}, {share}")
    return f"The error names no path; full is {'; '.join(full)}." if full else ""


def full_disk_words(disk: FaultyDisk, states: Sequence[Mapping[str, Any]]) -> str:
    """Return that a file system which a job uses is full, with its share and its nodes."""
    shares = [state.get("used_percent") for state in states if state["place"] == disk.place and state["node"] in disk.nodes]
    percent = max((float(share) for share in shares if share is not None), default=0.0)
    return f"Of what the job uses {disk.place} ({disk.kind}) is full ({percent:.0f} %) on {', '.join(disk.nodes)}."


def filled_words(used: float | None, inodes: float | None) -> Sequence[str]:
    """Return how much of a file system is in use, in words."""
    space = [f"{used:.0f} % is in use"] if used is not None else []
    return space + ([f"{inodes:.0f} % of the inodes"] if inodes is not None else [])


def size_words(size_bytes: int | None) -> str:
    """Return a size in GiB."""
    return f"{(size_bytes or 0) / 2**30:.1f} GiB"


FEWEST_SOUND_NODES = 2
"""Nodes that have a file system mounted before one without it may be taken out of service."""
TRANSIENT = ("/tmp", "/var/tmp", "/dev", "/run", "/proc", "/sys", "/var/run")
"""Where mounts and files come and go with a job or a login."""
OF_A_USER = re.compile(r"(?:^|,)user_id=(?!0(?:,|$))\d")
"""Options of a FUSE mount that somebody else than root made."""
STICKY = 0o1000
"""Of a folder's mode: only the owner of an entry may rename or remove it."""
_OF_THE_MACHINE = re.compile(r"^/(?:proc|sys|dev|run|var/spool|var/run)(?:/|$)")
_DENIED = re.compile(r"Permission denied|Errno 13\b|EACCES", re.IGNORECASE)
_READ_ONLY = re.compile(r"Read-only file system|Errno 30\b|EROFS", re.IGNORECASE)
_LIBRARY = re.compile(r"cannot open shared object file|cannot execute|bad interpreter", re.IGNORECASE)

PathRow = Mapping[str, Any]
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
        return self.fault is PathFault.UNMOUNTED and self.mount_point and len(self.fine) >= FEWEST_SOUND_NODES

    @property
    def sentence(self) -> str:
        """What was seen, for people."""
        return f"{self.subject} {self.fault} on {self.node}, and nothing is wrong with it on {', '.join(self.fine[:4])}."


def node_fault(error: str, rows: Sequence[PathRow], user: str) -> NodeFault | None:
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
        return _fault_of(PathFault.SILENT, silent[0], fine, str(silent[0]["place"])) if fine and silent[0]["place"] else None
    if silent:
        return None
    if _READ_ONLY.search(error):
        refused = [row for row in answered if is_read_only(row)]
        fine = [row for row in answered if row not in refused]
        same = len({row["place"] for row in answered}) == 1
        alone = len(refused) == 1 and bool(fine) and same
        return _fault_of(PathFault.READ_ONLY, refused[0], fine, str(refused[0]["place"])) if alone else None
    lacking = [row for row in answered if row["stands"] != row["real"]]
    fine = [row for row in answered if row not in lacking]
    if len(lacking) == 1 and fine:
        return _missing_on_node(lacking[0], fine, user)
    if not lacking and _DENIED.search(error):
        return _other_rights(fine, user)
    return None


def held_elsewhere(rows: Sequence[PathRow]) -> str:
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


def _missing_on_node(lacking: PathRow, fine: Sequence[PathRow], user: str) -> NodeFault | None:
    places = {str(row["place"]) for row in fine}
    if len(places) != 1 or any(row["real"] != lacking["real"] for row in fine):
        return None
    (place,) = places
    if _is_transient(str(lacking["real"])):
        return None
    if place != lacking["place"]:
        below = PurePosixPath(place).is_relative_to(str(lacking["place"]))
        if not below or any(OF_A_USER.search(str(row["options"])) for row in fine):
            return None
        stands = PurePosixPath(str(lacking["stands"])).is_relative_to(place)
        return _fault_of(PathFault.UNMOUNTED, lacking, fine, place)._replace(mount_point=stands)
    path = str(lacking["path"])
    if str(fine[0]["kind"]) in LOCAL_TYPES:
        alone_made = all(_installed(row, user) for row in fine)
        return _fault_of(PathFault.MISSING, lacking, fine, path) if alone_made else None
    one_share = len({str(row["source"]) for row in (*fine, lacking)}) == 1 and bool(lacking["source"])
    made_by_user = any(OF_A_USER.search(str(row["options"])) for row in (*fine, lacking))
    return _fault_of(PathFault.MISSING, lacking, fine, path) if one_share and not made_by_user else None


def _other_rights(rows: Sequence[PathRow], user: str) -> NodeFault | None:
    """Return the one node on whose own disk a path that its owner did not make has other owners or rights than on all others."""
    if (
        len(rows) <= FEWEST_SOUND_NODES
        or any(str(row["kind"]) not in LOCAL_TYPES for row in rows)
        or _is_transient(str(rows[0]["real"]))
    ):
        return None
    by_owners: dict[tuple[str, ...], list[PathRow]] = {}
    for row in rows:
        by_owners.setdefault(tuple(row.get("owners") or ()), []).append(row)
    odd = [those for those in by_owners.values() if len(those) == 1]
    usual = [those for those in by_owners.values() if len(those) > 1]
    if len(odd) != 1 or len(usual) != 1 or not all(_installed(row, user) for row in usual[0]):
        return None
    return _fault_of(PathFault.RIGHTS, odd[0][0], usual[0], str(odd[0][0]["path"]))


def _fault_of(fault: PathFault, row: PathRow, fine: Sequence[PathRow], subject: str) -> NodeFault:
    own = all(str(state["kind"]) in LOCAL_TYPES for state in fine)
    return NodeFault(str(row["node"]), fault, subject, tuple(str(state["node"]) for state in fine), own=own)


def _is_transient(path: str) -> bool:
    return any(PurePosixPath(path).is_relative_to(place) for place in TRANSIENT)


def _installed(row: PathRow, user: str) -> bool:
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
