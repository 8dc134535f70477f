"""Whether somebody else saves into the checkpoint folder of a run: by the times and the owners of what lies there.

Whatever is known of other jobs: where saves appear that cannot be those of the attempt, somebody writes there. A writer without
a job (a login node, tmux, another cluster) is seen by what changes between two looks, by files that processes of this machine hold
open, and by a lock that is newer than the end of the attempt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from assistant.accounts import name_of, uid_of
from assistant.errors import ToolError, Unavailable, UnreadableFile
from assistant.records import Checkpoint, Job
from assistant.recover.checkpoints.inventory import inventory
from assistant.untrusted import LOOK_S, is_folder, status_of, walk_files, within

__all__ = ["TEAR_DOWN", "change_between", "files_in", "is_of_saves", "lock_after", "open_in", "save_after", "save_beside"]

TEAR_DOWN = timedelta(seconds=60)
"""For which processes of a job may still save after the scheduler called it ended: KillWait, background saves, clocks apart."""
AHEAD = timedelta(minutes=5)
"""A file from further ahead than that tells of a clock, not of a writer."""
DIGITS = re.compile(r"\d+")
LOCK = re.compile(r"(?i)(?:.*[._-])?(?:lock|lck|pid)(?:file)?")
"""Names of files by which programs say that they are at work."""
MOST_FILES = 20_000
"""Of a folder with more nothing is compared."""

Files = Mapping[Path, tuple[int, int]]
"""Time of the last change (ns) and size (bytes) of each file of a folder."""


def save_after(job: Job, folder: Path, *, ended: datetime, now: datetime) -> str:
    """Return which save in a folder is later than an attempt that has ended; empty where none is.

    A save of another account counts at once, one of its own after `TEAR_DOWN`. Runs that share a folder differ in their names.

    Args:
        job: The attempt.
        folder: Where it saves.
        ended: When it did.
        now: Files of a time far ahead are not believed.

    Raises:
        Unavailable: The storage did not answer.
    """
    saves = _saves(folder, now)
    own = _own_accounts(job, saves, ended)
    forms = {_form(one) for one in saves if one.saved_at <= ended + TEAR_DOWN}
    for one in reversed(saves):
        if not ended < one.saved_at < now + AHEAD or (forms and _form(one) not in forms):
            continue
        uid = _owner(one.path)
        foreign = bool(own) and uid is not None and uid not in own
        if foreign or one.saved_at > ended + TEAR_DOWN:
            who = f" by {name_of(uid)}" if foreign and uid is not None else ""
            when = f"{one.saved_at:%H:%M:%S} UTC"
            return f"{one.path} was saved{who} at {when}, after job {job.id} had ended ({ended:%H:%M:%S})"
    return ""


def save_beside(restart: Job, folder: Path, *, before: Job | None, now: datetime) -> str:
    """Return which save in a folder somebody else began since a restart did; empty where none is known.

    A file keeps its owner when another account writes over it, so that only new ones count: by the time of their own folder.

    Args:
        restart: The restarted job.
        folder: Where it saves.
        before: The attempt before it, which shows whose name its files bear.
        now: Files of a time far ahead are not believed.

    Raises:
        Unavailable: The storage did not answer.
    """
    begun = restart.started
    if begun is None:
        return ""
    saves = _saves(folder, now)
    own = _own_accounts(before, saves, before.ended or begun) if before is not None else set()
    own |= {uid for uid in (uid_of(restart.user),) if uid is not None}
    for one in reversed(saves):
        uid = _owner(one.path)
        if not own or uid is None or uid in own or not begun < _changed(one) < now + AHEAD:
            continue
        return f"{one.path} was saved by {name_of(uid)} at {_changed(one):%H:%M:%S} UTC, and job {restart.id} is of {restart.user}"
    return ""


def is_of_saves(path: Path, folder: Path, saves: Sequence[Checkpoint]) -> bool:
    """Return whether a file lies where an attempt saves: in what is named as its checkpoints are, finished or not, or as a lock.

    A folder may hold logs, and what other runs save under other names.
    """
    top = path.relative_to(folder).parts[0] if path.is_relative_to(folder) and path != folder else ""
    if not top:
        return False
    return LOCK.fullmatch(path.name) is not None or any(DIGITS.sub("#", top).startswith(_form(one)) for one in saves)


def files_in(folder: Path, saves: Sequence[Checkpoint]) -> Files:
    """Return the files of a folder that `is_of_saves` holds for, as they are now.

    Nothing is returned where the folder cannot be listed in time, or is too large to be compared.
    """

    def listed() -> Files:
        found = walk_files(folder, MOST_FILES)
        known = [(one.path, one.status) for one in found if one.status is not None and is_of_saves(one.path, folder, saves)]
        return {path: (status.st_mtime_ns, status.st_size) for path, status in known}

    try:
        return within(LOOK_S, listed, f"folder {folder}") if is_folder(folder) else {}
    except (ToolError, Unavailable, UnreadableFile, OSError):
        return {}


def change_between(before: Files, after: Files) -> str:
    """Return a file that was written between two looks; empty where none was, or of one look nothing is known."""
    if not before or not after:
        return ""
    changed = next((path for path, state in after.items() if before.get(path) != state), None)
    return f"{changed} was written between two looks at its folder" if changed is not None else ""


def lock_after(files: Files, *, ended: datetime, now: datetime) -> str:
    """Return a lock file that is later than the end of an attempt; empty where there is none."""
    for path, (changed_ns, _) in files.items():
        at = datetime.fromtimestamp(changed_ns / 1e9, UTC)
        if LOCK.fullmatch(path.name) and ended < at < now + AHEAD:
            return f"the lock {path} was written at {at:%H:%M:%S} UTC, after the attempt had ended ({ended:%H:%M:%S})"
    return ""


def open_in(folder: Path, saves: Sequence[Checkpoint], proc: Path = Path("/proc")) -> str:
    """Return which process of this machine holds a file open for writing that `is_of_saves` holds for; empty where none is seen."""
    real = Path(os.path.realpath(folder))
    for pid in _names(proc):
        if not pid.isdecimal() or int(pid) == os.getpid():
            continue
        for number in _names(proc / pid / "fd"):
            try:
                target = (proc / pid / "fd" / number).readlink()
                if not is_of_saves(target, real, saves):
                    continue
                info = (proc / pid / "fdinfo" / number).read_text()
                flags = next((line.split()[1] for line in info.splitlines() if line.startswith("flags:")), "0")
                name = (proc / pid / "comm").read_text().strip()
            except (OSError, ValueError, IndexError):
                continue
            if int(flags, 8) & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR):
                return f"process {pid} ({name}) of this machine holds {target} open for writing"
    return ""


def _names(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from [entry.name for entry in entries]
    except OSError:
        return


def _saves(folder: Path, now: datetime) -> Sequence[Checkpoint]:
    try:
        return inventory(folder, now=now).checkpoints if is_folder(folder) else ()
    except ToolError:
        return ()


def _own_accounts(job: Job, saves: Sequence[Checkpoint], ended: datetime) -> set[int]:
    """Return the accounts in whose name the files of an attempt appear: its user's, and that of what it saved while it ran.

    A storage may show all files as those of one account.
    """
    uid = uid_of(job.user)
    begun = job.started
    during = [one for one in saves if begun is not None and begun <= one.saved_at <= ended]
    return {one for one in (uid, *(_owner(save.path) for save in during)) if one is not None}


def _form(save: Checkpoint) -> str:
    return DIGITS.sub("#", save.path.name)


def _owner(path: Path) -> int | None:
    try:
        return status_of(path).st_uid
    except OSError:
        return None


def _changed(save: Checkpoint) -> datetime:
    try:
        return datetime.fromtimestamp(status_of(save.path).st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return save.saved_at
