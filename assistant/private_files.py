"""Files and folders of Nightshift's own: 0700 and 0600 from their first byte, whatever the umask is.

A file that is there already and laxer is closed to others where it is ours; where it is not, the caller gets an error.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from assistant.errors import ConfigError
from assistant.way import steps_to

__all__ = [
    "append_private",
    "check_own_place",
    "check_state_folder",
    "close_state_folder",
    "create_private",
    "give_as",
    "open_private",
    "private_folder",
]

logger = logging.getLogger(__name__)

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_OTHERS_MODE, _OTHERS_WRITE = 0o077, 0o022
MOST_TRIES = 20
"""To make a folder that others, who tidy up, remove while it is empty."""


def private_folder(folder: Path) -> Path:
    """Make a folder and its missing parents with 0700 and return it; one that is there stays as it is.

    Raises:
        OSError: It cannot be made.
    """
    for _ in range(MOST_TRIES):
        missing = [folder, *folder.parents]
        missing = missing[: next((number for number, path in enumerate(missing) if path.exists()), len(missing))]
        for path in reversed(missing):
            try:
                # mkdir takes away what the umask says, and never adds
                path.mkdir(mode=_FOLDER_MODE)
            except (FileExistsError, FileNotFoundError):
                continue
        if folder.is_dir():
            return folder
        if os.path.lexists(folder):
            break
        # another process that tidied up has removed it, or a parent of it, meanwhile
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))


def close_state_folder(folder: Path, store: Path | None = None) -> None:
    """Set a state folder that is there and that others may enter to 0700, and say so; a missing one is left alone.

    Args:
        folder: The state folder.
        store: As for `check_state_folder`.

    Raises:
        ConfigError: As for `check_state_folder`.
    """
    note = check_state_folder(folder, store)
    if note:
        logger.warning("%s; it is closed now", note)
        _close_to_others(folder, _FOLDER_MODE)


def check_state_folder(folder: Path, store: Path | None = None) -> str:
    """Return how a state folder of ours is open to others, which `close_state_folder` mends; empty where it is not.

    Args:
        folder: The state folder, which may be missing.
        store: The store's file. Where it lies in the folder and belongs to the folder's account, root may use both: the account
            that runs the watch has a store of its own.

    Raises:
        ConfigError: It is shared by others (its sticky bit says so), belongs to somebody else, or others can replace it.
    """
    try:
        _check_way(folder, _owners_of_state(folder, store))
        about = folder.stat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(f"state_folder: {error.filename}: cannot be looked at: {error.strerror}") from error
    if about.st_mode & stat.S_ISVTX:
        raise ConfigError(
            f"state_folder: wanted a folder of Nightshift's own, found {folder}, which others share; name a folder inside it"
        )
    mode = stat.S_IMODE(about.st_mode)
    if not mode & _OTHERS_MODE:
        return ""
    if about.st_uid != os.geteuid():
        raise _open_to_others(folder, _FOLDER_MODE, about)
    verb = "write" if mode & _OTHERS_WRITE else "enter"
    return f"state_folder: others could {verb} {folder} (mode {mode:04o})"


def _owners_of_state(folder: Path, store: Path | None) -> set[int]:
    """Return who may own a state folder: root, this account, and the account whose store lies in it where root looks at that."""
    own = {0, os.geteuid()}
    store_status = _looked_at(store) if store is not None and store.parent == folder else None
    if os.geteuid() == 0 and store_status is not None and stat.S_ISREG(store_status.st_mode):
        owner = folder.stat().st_uid
        own |= {owner} if owner == store_status.st_uid else set()
    return own


def _check_way(folder: Path, own: set[int]) -> None:
    """Raise where a folder, or a folder or link on the way to it, is somebody else's, or others may rename what lies on the way."""
    target = folder.resolve()
    for step, status in steps_to(folder):
        shared = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX and stat.S_ISDIR(status.st_mode)
        if status.st_uid not in own or (shared and step != target):
            raise ConfigError(
                f"state_folder: wanted a folder that only we can change, found {step} of user {status.st_uid}, mode "
                f"{stat.S_IMODE(status.st_mode):04o}, on the way to {folder}; chown or chmod it, or name a folder of our own"
            )
        if step == target and not stat.S_ISDIR(status.st_mode):
            raise ConfigError(f"state_folder: {folder} is no folder")


def check_own_place(path: Path, companions: Sequence[str] = ()) -> None:
    """Make sure that nobody else can replace a file of ours or the files beside it, before it is opened or made.

    A file that belongs to another account, as where root looks at the service's store, must lie in a folder of that account; this
    account counts as ours then.

    Args:
        path: The file, which may be missing.
        companions: Endings of the files beside it, which may be missing, too.

    Raises:
        ConfigError: A folder or link on the way, or one of the files, belongs to somebody else.
        OSError: A part of the way cannot be looked at.
    """
    own = {0, os.geteuid()}
    status = _looked_at(path)
    if status is not None and stat.S_ISREG(status.st_mode) and status.st_uid not in own:
        folder = path.parent.stat()
        if folder.st_uid != status.st_uid:
            raise ConfigError(
                f"{path}: wanted a file of our own, found one of user {status.st_uid} in a folder of user {folder.st_uid}; "
                "see who made it, and remove it"
            )
        own.add(status.st_uid)
    for step, status_of_step in steps_to(path.parent):
        shared = (
            status_of_step.st_mode & stat.S_IWOTH
            and not status_of_step.st_mode & stat.S_ISVTX
            and not stat.S_ISLNK(status_of_step.st_mode)
        )
        if status_of_step.st_uid not in own or shared:
            raise ConfigError(
                f"{path}: wanted a place that only we can change, found {step} of user {status_of_step.st_uid}, mode "
                f"{stat.S_IMODE(status_of_step.st_mode):04o}; name a place below a folder of our own"
            )
    for ending in ("", *companions):
        companion = path.with_name(path.name + ending)
        status = _looked_at(companion)
        if status is not None and (status.st_uid not in own or (ending and not stat.S_ISREG(status.st_mode))):
            raise ConfigError(
                f"{companion}: wanted a regular file of our own or none, found one of user {status.st_uid}, mode "
                f"{stat.filemode(status.st_mode)}; see who made it, and remove it"
            )


def _looked_at(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def open_private(path: Path, flags: int) -> int:
    """Open a file that is created with 0600, and return its descriptor; a laxer one of ours is set to 0600.

    Links are not followed. The folder must be there.

    Args:
        path: The file.
        flags: As for `os.open`; O_CREAT, O_NOFOLLOW and O_CLOEXEC are added.

    Raises:
        ConfigError: It belongs to somebody else than root, this account or the owner of its folder; or others may read it.
        OSError: It is a link, no regular file, or cannot be opened.
    """
    # O_NONBLOCK: a named pipe that lies there is not waited for
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, _FILE_MODE)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        owner = status.st_uid
        if owner not in (0, os.geteuid(), path.parent.stat().st_uid):
            raise ConfigError(f"{path}: wanted a file of our own, found one of user {owner}; see who made it, and remove it")
        _close_to_others(path, _FILE_MODE, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def give_as(descriptor: int, model: Path) -> None:
    """Give a file that root has made anew to the owner and group of another file of the same folder; its mode stays.

    So the account that runs the watch can read what root has written beside its store, as SQLite does for its own files. Another
    account than root's, a missing file and a link change nothing.

    Args:
        descriptor: The open file. The caller has created it: one that was there may be a link to any other of root's.
        model: The file that has the owner.

    Raises:
        OSError: It cannot be given away.
    """
    status = _looked_at(model)
    if os.geteuid() != 0 or status is None or not stat.S_ISREG(status.st_mode):
        return
    new_status = os.fstat(descriptor)
    if (new_status.st_uid, new_status.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(descriptor, status.st_uid, status.st_gid)


def create_private(path: Path, mode: str = "w", **options: Any) -> IO[Any]:
    """Open a file anew for writing, 0600 from its first byte; an old one is emptied.

    Args:
        path: The file; its folder must be there.
        mode: `w`, `wb`, `x` or `xb`.
        options: As for `open`.
    """
    flags = os.O_WRONLY | (os.O_EXCL if "x" in mode else os.O_TRUNC)
    return os.fdopen(open_private(path, flags), mode.replace("x", "w"), **options)


def append_private(path: Path, mode: str = "a", **options: Any) -> IO[Any]:
    """Open a file for appending, 0600 from its first byte."""
    return os.fdopen(open_private(path, os.O_RDWR | os.O_APPEND), mode, **options)


def _open_to_others(path: Path, mode: int, about: os.stat_result) -> ConfigError:
    return ConfigError(
        f"{path}: wanted a file or folder that only we can open, found mode {stat.S_IMODE(about.st_mode):04o} of user "
        f"{about.st_uid}; have its owner run: chmod {mode:o} {path}"
    )


def _close_to_others(path: Path, mode: int, descriptor: int | None = None) -> None:
    about = path.stat() if descriptor is None else os.fstat(descriptor)
    if not stat.S_IMODE(about.st_mode) & _OTHERS_MODE:
        return
    if about.st_uid != os.geteuid():
        raise _open_to_others(path, mode, about)
    # what the owner may do stays: a store that was made read-only is not opened for writing
    closed = stat.S_IMODE(about.st_mode) & ~_OTHERS_MODE
    if descriptor is None:
        path.chmod(closed)
    else:
        os.fchmod(descriptor, closed)
