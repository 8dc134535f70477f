"""Files and folders of Nightshift's own: 0700 and 0600 from their first byte, whatever the umask is.

A file that is there already and laxer is closed to others where it is ours; where it is not, the caller gets an error.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from assistant.errors import ConfigError
from assistant.way import steps_to

__all__ = ["append_private", "check_own_place", "close_state_folder", "create_private", "open_private", "private_folder"]

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_OTHERS_MODE = 0o077
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


def close_state_folder(folder: Path) -> None:
    """Set a state folder that is there and that others may enter to 0700; a missing one is left alone.

    Raises:
        ConfigError: It is shared by others (its sticky bit says so), or belongs to somebody else.
    """
    try:
        about = folder.stat()
    except FileNotFoundError:
        return
    if about.st_mode & stat.S_ISVTX:
        raise ConfigError(
            f"state_folder: wanted a folder of Nightshift's own, found {folder}, which others share; name a folder inside it"
        )
    _close_to_others(folder, _FOLDER_MODE)


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


def _close_to_others(path: Path, mode: int, descriptor: int | None = None) -> None:
    about = path.stat() if descriptor is None else os.fstat(descriptor)
    if not stat.S_IMODE(about.st_mode) & _OTHERS_MODE:
        return
    if about.st_uid != os.geteuid():
        raise ConfigError(
            f"{path}: wanted a file or folder that only we can open, found mode {stat.S_IMODE(about.st_mode):04o} of user "
            f"{about.st_uid}; have its owner run: chmod {mode:o} {path}"
        )
    # what the owner may do stays: a store that was made read-only is not opened for writing
    closed = stat.S_IMODE(about.st_mode) & ~_OTHERS_MODE
    if descriptor is None:
        path.chmod(closed)
    else:
        os.fchmod(descriptor, closed)
