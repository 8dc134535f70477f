"""Write a file where a person asked for it, so that no other account can lead the writing elsewhere.

The content goes into a new file beside the target, which then takes the target's name: nothing that lies at the target is followed
or written through, and a reader sees the old file or the whole new one. As root every folder on the way has to be root's, since
whoever may write one of them could put another in its place.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path

from assistant.errors import InputError
from assistant.way import steps_to

__all__ = ["output_folder", "write_output"]

_FILE_MODE, _FOLDER_MODE = 0o666, 0o755
"""Less what the umask takes away, as of any program that writes what a person asked for."""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file; a regular file of ours that is there is replaced and gives the new one its mode.

    Args:
        path: The file, in a folder that is there.
        content: Text is written as UTF-8, what UTF-8 does not have as `?`.

    Raises:
        InputError: A link or anything but a regular file of ours lies there, others could lead the writing elsewhere, or it
            cannot be written; nothing was changed then.
    """
    try:
        folder = _opened_folder(path.parent, path)
        try:
            _write(folder, path, content.encode("utf-8", "replace") if isinstance(content, str) else content)
        finally:
            os.close(folder)
    except OSError as error:
        raise _cannot(path, error) from error


def output_folder(folder: Path) -> Path:
    """Return a folder for several files; it and its missing parents are made.

    Raises:
        InputError: As of `write_output`.
    """
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    try:
        for place in reversed(missing):
            above = _opened_folder(place.parent, folder)
            try:
                os.mkdir(place.name, _FOLDER_MODE, dir_fd=above)
            finally:
                os.close(above)
        os.close(_opened_folder(folder, folder))
    except OSError as error:
        raise _cannot(folder, error) from error
    return folder


def _cannot(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be written: {error.strerror or error}")


def _opened_folder(folder: Path, target: Path) -> int:
    """Open the folder to which the way was looked at: another that was put in its place meanwhile is refused."""
    status = None
    for step, status in steps_to(folder):
        _check_step(step, status, target)
    descriptor = os.open(folder, _FOLDER_FLAGS)
    opened = os.fstat(descriptor)
    if status is None or (opened.st_dev, opened.st_ino) != (status.st_dev, status.st_ino):
        os.close(descriptor)
        raise InputError(f"{target}: the folder {folder} was replaced while it was looked at; see who did that, and ask again")
    return descriptor


def _check_step(step: Path, status: os.stat_result, target: Path) -> None:
    """Raise where another account could replace what lies on the way.

    An account that is not root may write into the folder of a group or of somebody else: what it replaces there has the name that
    it was asked to write, and nothing is followed. What root replaces could be anybody's.
    """
    owners, as_root = {0, os.geteuid()}, os.geteuid() == 0
    if stat.S_ISLNK(status.st_mode):
        if status.st_uid not in owners:
            raise _refused(step, status, target, "a link")
        return
    if not stat.S_ISDIR(status.st_mode):
        raise InputError(f"{target}: wanted a folder at {step}, found {stat.filemode(status.st_mode)}; name another place")
    shared = not status.st_mode & stat.S_ISVTX and (
        status.st_mode & stat.S_IWOTH or (as_root and status.st_mode & stat.S_IWGRP and status.st_gid != 0)
    )
    if shared or (as_root and status.st_uid != 0):
        raise _refused(step, status, target, "a folder")


def _refused(step: Path, status: os.stat_result, target: Path, kind: str) -> InputError:
    return InputError(
        f"{target}: wanted a place that only this account can change, found {kind}, {step}, of user {status.st_uid}, group "
        f"{status.st_gid}, mode {stat.S_IMODE(status.st_mode):04o}: others could lead what is written elsewhere; name a folder of "
        "your own, or run it as that user"
    )


def _write(folder: int, path: Path, content: bytes) -> None:
    mode = _mode_of_old(folder, path)
    part = f".{path.name[:80]}.{secrets.token_hex(8)}.part"
    descriptor = os.open(part, _NEW_FILE_FLAGS, _FILE_MODE if mode is None else 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        os.replace(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(part, dir_fd=folder)
        raise


def _mode_of_old(folder: int, path: Path) -> int | None:
    """Return the mode of the file that is replaced; None where there is none.

    Raises:
        InputError: What lies there is no regular file, or somebody else's.
    """
    if path.name in ("", ".."):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        kind = "a link" if stat.S_ISLNK(status.st_mode) else stat.filemode(status.st_mode)
        raise InputError(
            f"{path}: wanted no file there or a regular one of this account, found {kind} of user {status.st_uid}, which is not "
            "followed or written over; see who made it, remove it, or name another file"
        )
    return stat.S_IMODE(status.st_mode)
