"""Find the file system that an error without a path met: by what the nodes of the job say of those that the job uses. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from assistant.records import Job

__all__ = [
    "DiskFault", "FaultyDisk", "OwnFiles", "crowded_disk", "holders_in_words", "is_full", "is_read_only", "mount_of", "own_files",
    "paths_used", "unnamed_disk",
]  # fmt: skip

FULL_PERCENT = 99.0
LEAST_SHARE = 0.9
"""Of the room on other nodes: what wrote as much here would fill them, too."""
LARGE_SHARE = 0.2
"""Of what is known to lie on a disk: a smaller part does not explain that it is full."""
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "f2fs"})
LEAST_DIFFERENCE = 50.0
"""Percent of a disk that are in use on one node more than on each other one: it alone is crowded."""
ENOUGH_OTHERS = 2
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
        return self.kind in LOCAL


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
            if own is None or place == "/" or own["kind"] not in LOCAL or own.get("silent") or is_read_only(own):
                continue
            peers = [state for state in states if state["node"] != node and (state["place"], state["kind"]) == (place, own["kind"])]
            fine = [
                state for state in peers if not state.get("silent") and _share_used(own) - _share_used(state) >= LEAST_DIFFERENCE
            ]
            if len(fine) == len(peers) >= ENOUGH_OTHERS:
                crowded.append(FaultyDisk(place, str(own["kind"]), (node,), tuple(str(state["node"]) for state in fine)))
    return crowded[0] if len(crowded) == 1 else None


def _share_used(state: Mapping[str, Any]) -> float:
    """Return how full a file system is, by space or by inodes, in percent."""
    return max(state.get("used_percent") or 0.0, state.get("inodes_percent") or 0.0)


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
    named = [match for text in texts for match in _PATH.findall(text)]
    written = [match for text in sources for match in _QUOTED.findall(text)]
    return tuple(dict.fromkeys([*named, *folders, *own, *more, *written, *SPOOLS]))


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
        places = [place for one, place in mounts_shown if one == node]
        for place in dict.fromkeys(mount_of(path, places) for path in used):
            if place and _has(fault, mounts_shown[node, place]):
                faulty.setdefault(place, []).append(node)
    found = []
    for place, on in faulty.items():
        fine = tuple(node for node in nodes if node not in on)
        kind = str(mounts_shown[on[0], place]["kind"])
        compared = any((node, place) in mounts_shown and not is_read_only(mounts_shown[node, place]) for node in fine)
        if fault is not DiskFault.READ_ONLY or compared or kind in LOCAL:
            found.append(FaultyDisk(place, kind, tuple(on), fine))
    return found[0] if len(found) == 1 else None


def _has(fault: DiskFault, state: Mapping[str, Any]) -> bool:
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


def filled_words(used: float | None, inodes: float | None) -> Sequence[str]:
    """Return how much of a file system is in use, in words."""
    space = [f"{used:.0f} % is in use"] if used is not None else []
    return space + ([f"{inodes:.0f} % of the inodes"] if inodes is not None else [])


def size_words(size_bytes: int | None) -> str:
    """Return a size in GiB."""
    return f"{(size_bytes or 0) / 2**30:.1f} GiB"
