"""Name the file system that a failure met: where the path lies, on which node, how full, read-only or silent it is now."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from assistant.diagnose.classes import network_disk
from assistant.diagnose.wording import DEEDS
from assistant.engine.gather import ask
from assistant.errors import NightshiftError
from assistant.records import Action, Category, Diagnosis, Incident, Job, Whereabouts
from assistant.recover.joblog import log_lines
from assistant.recover.runs import SaveFolders
from assistant.recover.saved_into import saved_into
from assistant.recover.situation import FULL_DISK
from assistant.untrusted import reading_as
from assistant.watch.outages import paths_of
from assistant.watch.unseen import Remark

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

REASONS = frozenset(
    {
        "os_error", "s3_storage_error", "file_not_found_error", "permission_error", "dataset_loading_error", "model_loading_error",
        "runtime_error",
    }
)  # fmt: skip
"""Reasons whose lines may name a path that could not be used."""
FULL_PERCENT = 99.0
MOST_OTHERS = 4
"""Other nodes of the job that are asked whether their disk is full, too."""
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "f2fs"})
_SPACE = re.compile(r"No space left|Errno 28\b|ENOSPC|os error 28\b|code: 28\b", re.IGNORECASE)
_QUOTA = re.compile(r"quota|Errno 122\b|EDQUOT", re.IGNORECASE)
_ABSENT = re.compile(r"No such file|not found|does not exist|Permission denied", re.IGNORECASE)
_WALL = re.compile(f"{_SPACE.pattern}|{_QUOTA.pattern}", re.IGNORECASE)
_READ_ONLY = re.compile(r"Read-only file system|Errno 30\b|EROFS", re.IGNORECASE)


def with_storage(engine: Engine, incident: Incident, found: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that names the file system of the path that a job could not use; as it is where none is named or seen."""
    texts = [cited.text for cited in found.root_cause]
    error = " ".join(texts)
    paths = paths_of(found.reason, texts) if found.reason in REASONS else ()
    if job is None or not job.nodes or (not paths and not _WALL.search(error)):
        return found
    first = next((place.node for place in found.where if place.node in job.nodes), job.nodes[0])
    answer = ask(engine.store, engine.gate, incident, "storage_state", {"nodes": [first], "paths": list(paths[:1])})
    states = (answer or {}).get("states") or ()
    said = full_words(states) if not paths else storage_words(states[0], error) if states else ""
    found = replace(found, summary=f"{found.summary} {said}") if said else found
    if paths and states and (gone := _gone(states[0], job)):
        return _lost(found, gone)
    if (full := full_disk(states, job, error, named=bool(paths))) is not None and _is_only_there(engine, incident, full, job):
        return _moved(engine, found, full, job, said)
    return _without_restart(found, said) if paths and states and still_read_only(states[0], error) else found


def full_disk(states: Sequence[Mapping[str, Any]], job: Job, error: str, *, named: bool) -> Mapping[str, Any] | None:
    """Return the one full file system that a write met, where it is the disk of one node and the job is known to use it.

    Args:
        states: Rows of `storage_state` of one node.
        job: Whose write was refused.
        error: The lines that prove it.
        named: Whether they name the path of the first row; else the job's script has to name the mount point.
    """
    if not _SPACE.search(error) or _QUOTA.search(error):
        return None
    full = [state for state in (states[:1] if named else states) if _is_full(state)]
    if len(full) != 1 or full[0]["kind"] not in LOCAL or full[0].get("silent") or full[0]["place"] == "/":
        return None  # `/` holds the system, too, and paths of mounts that are missing
    script = job.spec.script if job.spec is not None else ""
    return full[0] if named or re.search(rf"(?<![\w/.]){re.escape(str(full[0]['place']))}(?![\w.-])", script) else None


def _is_only_there(engine: Engine, incident: Incident, full: Mapping[str, Any], job: Job) -> bool:
    """Tell whether nothing that the job keeps lies on a full disk, and that disk is full on no other of its nodes."""
    place = str(full["place"])
    with reading_as(job.account):
        try:
            folders = SaveFolders(job, engine.checkpoint_folders)
            own = {*folders.named, folders.certain, job.work_dir, job.log}
        except (NightshiftError, OSError):
            return False
    if not folders.named and folders.certain is None:
        return False
    if any(one is not None and one.is_relative_to(place) for one in own):
        return False
    others = [node for node in job.nodes if node != full["node"]][:MOST_OTHERS]
    if not others:
        return True
    answer = ask(engine.store, engine.gate, incident, "storage_state", {"nodes": others, "paths": [place]}) or {}
    rows = [row for row in answer.get("states") or () if row.get("place") == place]
    return {row["node"] for row in rows} == set(others) and not any(_is_full(row) or row.get("silent") for row in rows)


def _moved(engine: Engine, found: Diagnosis, full: Mapping[str, Any], job: Job, said: str) -> Diagnosis:
    """Return a diagnosis by which the job goes on elsewhere: the node is left out and not blamed, and people hear of its disk."""
    node, place = str(full["node"]), str(full["place"])
    who = f"job {job.id} of {job.user}" if job.user else f"job {job.id}"
    text = f"{place} of {node} is full, and {who} failed by that: free space there, other jobs will meet it"
    engine.good_runs.remarks.append(Remark(f"full disk {place} of {node}", text))
    advice = f"Restart from the last healthy checkpoint on other nodes than {node}: {said or f'{place} is full there.'} "
    advice += f"That is a disk of {node} alone, and nothing that the job keeps lies on it. Somebody has to free space there."
    where = (*found.where, Whereabouts(f"{FULL_DISK} {place}", node))
    return replace(found, category=Category.INFRASTRUCTURE, action=Action.RESTART_SAME_NODES, advice=advice, where=where)


def _is_full(state: Mapping[str, Any]) -> bool:
    fullest = max(state.get("used_percent") or 0.0, state.get("inodes_percent") or 0.0)
    return fullest >= FULL_PERCENT and "ro" not in str(state.get("options", "")).split(",")


def _gone(state: Mapping[str, Any], job: Job) -> str:
    """Return that a folder into which a job had saved is not there now, seen from a node; empty where that is not proven."""
    folder = missing_folder(state)
    if not folder or state.get("silent"):
        return ""
    try:
        said = saved_into((line.text for line in log_lines(job)), folder, str(state["path"]))
    except (NightshiftError, OSError):
        return ""
    stands = f"The folder {folder} is gone on {state['node']}, where no more than {state['stands']} stands"
    return f"{stands}; the job had saved into it: {said}." if said else ""


def missing_folder(state: Mapping[str, Any]) -> str:
    """Return the highest folder of a path that does not stand; empty where only its last part is missing, or that is not known.

    Args:
        state: A row of `storage_state`.
    """
    path, real, stands = (PurePosixPath(str(state.get(name) or "")) for name in ("path", "real", "stands"))
    if not path.is_absolute() or not stands.is_absolute() or not real.is_relative_to(stands):
        return ""
    missing = min(len(real.parts) - len(stands.parts), len(path.parts) - 1)
    return str(PurePosixPath(*path.parts[: len(path.parts) - missing + 1])) if missing > 1 else ""


def _lost(found: Diagnosis, gone: str) -> Diagnosis:
    """Return a diagnosis of storage that was there and is gone: nothing is made or started by anybody before it is back."""
    advice = (
        f"Do not restart yet, and make no folder. {gone} Look whether its file system is still mounted there and what may have "
        "removed it, and bring it back first: a start now would begin at step 0 in an empty folder."
    )
    if found.action is Action.WAIT_AND_RETRY:
        return replace(found, summary=f"{found.summary} {gone}")
    summary = f"{found.summary} {gone}"
    return replace(found, category=Category.INFRASTRUCTURE, action=Action.FIX_AND_RESUBMIT, summary=summary, advice=advice)


def still_read_only(state: Mapping[str, Any], error: str) -> bool:
    """Tell whether a file system that refused a write is mounted read-only now, so that a restart is refused the same way."""
    return _READ_ONLY.search(error) is not None and "ro" in str(state.get("options", "")).split(",")


def _without_restart(found: Diagnosis, said: str) -> Diagnosis:
    if found.action not in (Action.WAIT_AND_RETRY, Action.RESTART_SAME_NODES):
        return found
    advice = f"{DEEDS[Action.FIX_AND_RESUBMIT]} {said} {found.advice.removeprefix(DEEDS[found.action]).strip()}"
    return replace(found, action=Action.FIX_AND_RESUBMIT, advice=advice)


def full_words(states: Sequence[Mapping[str, Any]]) -> str:
    """Return which file systems of a node that can be written are full; empty where none is."""
    full: list[str] = []
    for state in states:
        used, inodes = state.get("used_percent") or 0.0, state.get("inodes_percent") or 0.0
        if _is_full(state):
            what = f"{used:.0f} % in use" if used >= FULL_PERCENT else f"{inodes:.0f} % of its inodes in use"
            full.append(f"{state['place']} ({state['kind']}) of {state['node']}, {what}")
    return f"The error names no path; full is {'; '.join(full)}." if full else ""


def storage_words(state: Mapping[str, Any], error: str) -> str:
    """Return one sentence about the file system of a path; empty where it is not known.

    Args:
        state: A row of `storage_state`.
        error: The lines that prove the failure.
    """
    place, path, kind = str(state.get("place", "")), str(state.get("path", "")), str(state.get("kind", ""))
    if not place:
        return ""
    source = str(state.get("source", ""))
    of = f"{kind}, {source}" if source and source not in ("none", kind) else kind
    where = f"{path} lies on {place} ({of}) of {state['node']}"
    if state.get("silent"):
        return f"{where}, which does not answer there now."
    if kind in LOCAL and network_disk(path) and place == "/":
        return f"{path} lies on / of {state['node']}: no file system is mounted there now."
    if place == "/" and _ABSENT.search(error):
        return ""  # of a file that is not there it tells nothing that it would lie on the node's own disk
    return f"{where}{_condition(state, error)}."


def _condition(state: Mapping[str, Any], error: str) -> str:
    used, inodes, free = state.get("used_percent"), state.get("inodes_percent"), state.get("free_bytes")
    read_only = "ro" in str(state.get("options", "")).split(",")
    if _READ_ONLY.search(error):
        return ", mounted read-only now" if read_only else ", mounted for writing now"
    if read_only:
        return ", mounted read-only"
    room = ", ".join(_filled(used, inodes))
    if _QUOTA.search(error):
        return f", of which {room}: the quota is less than that" if room else ""
    if not _SPACE.search(error):
        return ""
    if inodes is not None and inodes >= FULL_PERCENT and (used is None or used < FULL_PERCENT):
        return f", of whose inodes {inodes:.0f} % are in use: files have to go, not bytes"
    if used is not None and used >= FULL_PERCENT:
        return f", of which {used:.0f} % is in use ({_size(free)} free)"
    return f", of which {room} now: space was freed since, or a quota of the folder or project was met" if room else ""


def _filled(used: float | None, inodes: float | None) -> Sequence[str]:
    space = [f"{used:.0f} % is in use"] if used is not None else []
    return space + ([f"{inodes:.0f} % of the inodes"] if inodes is not None else [])


def _size(size_bytes: int | None) -> str:
    return f"{(size_bytes or 0) / 2**30:.1f} GiB"
