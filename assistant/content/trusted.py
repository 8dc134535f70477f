"""Read files of the site only where nobody but root and this account could have written them.

A policy, a settings file, a playbook or a program that another account may write is that account's way to act with the rights of
Nightshift. The check covers the file and every folder and link on the way to it, as sshd checks authorized_keys.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from assistant.errors import ContentError
from assistant.way import steps_to

__all__ = ["must_be_trusted", "read_trusted", "untrusted_because", "untrusted_folder_because"]

MOST_BYTES = 4 << 20
"""Of a file: larger ones are no text that a person wrote."""
_SORTS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_trusted(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file that only root or this account may write; never waits for a pipe.

    Raises:
        ContentError: It is missing, no regular file, too large, cannot be read, or others may write it or a folder above it.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        problem = "is a link that points to nothing" if path.is_symlink() else "does not exist"
        raise ContentError(f"{path}: {problem}") from error
    except (OSError, ValueError) as error:
        raise ContentError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        status = os.fstat(handle)
        why = _untrusted_file(path, status) or _untrusted_way(path)
        if why:
            raise ContentError(why)
        if status.st_size > most_bytes:
            raise ContentError(f"{path}: has {status.st_size} bytes; at most {most_bytes} are read")
        content = b""
        # one byte more: a file that grows meanwhile is not taken as if it ended there
        while (piece := os.read(handle, most_bytes + 1 - len(content))) and len(content) <= most_bytes:
            content += piece
    except OSError as error:
        raise ContentError(f"{path}: cannot be read: {error.strerror}") from error
    finally:
        os.close(handle)
    if len(content) > most_bytes:
        raise ContentError(f"{path}: has more than {most_bytes} bytes, and grows")
    return content


def must_be_trusted(path: Path) -> None:
    """Do nothing for a regular file that only root or this account may write.

    Raises:
        ContentError: Others may write it, or a folder above it; it is no regular file; it cannot be looked at.
    """
    why = untrusted_because(path)
    if why:
        raise ContentError(why)


def untrusted_because(path: Path) -> str:
    """Return why an existing file is not to be used, with what to do; empty where only root and this account may write it."""
    try:
        return _untrusted_file(path, path.stat()) or _untrusted_way(path)
    except (OSError, ValueError) as error:
        return f"{path}: cannot be looked at: {getattr(error, 'strerror', None) or error}"


def untrusted_folder_because(folder: Path) -> str:
    """Return why others could remove or replace what lies in a folder, with what to do; empty where they could not.

    A folder that does not exist is judged by the part of its way that does.
    """
    try:
        return _untrusted_way(folder)
    except FileNotFoundError:
        return untrusted_folder_because(folder.parent) if folder != folder.parent else ""
    except (OSError, ValueError) as error:
        return f"{folder}: cannot be looked at: {getattr(error, 'strerror', None) or error}"


def _untrusted_file(path: Path, status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        sort = next((name for fits, name in _SORTS if fits(status.st_mode)), "something else")
        return f"{path}: is {sort}, wanted a regular file"
    return _writable_by_others(path, status)


def _writable_by_others(path: Path, status: os.stat_result) -> str:
    if status.st_uid not in (0, os.geteuid()):
        return (
            f"{path}: belongs to {_name(status.st_uid)}, who could change what Nightshift does; wanted "
            f"{_owners_allowed()}: chown {_name(os.geteuid())} {path}"
        )
    # with the sticky bit, as on /tmp, others may add files to a folder but neither rename nor remove those of ours
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & 0o022 and not sticky:
        mode = stat.S_IMODE(status.st_mode)
        return f"{path}: others may write it (mode {mode:04o}), and so change what Nightshift does: chmod go-w {path}"
    return ""


def _untrusted_way(path: Path) -> str:
    """Return what is wrong with the folders and links that lead to a file, empty when nothing is."""
    for step, status in steps_to(path):
        if stat.S_ISLNK(status.st_mode):
            # its mode says nothing; who owns it may point it elsewhere
            if status.st_uid not in (0, os.geteuid()):
                return f"{step}: the link belongs to {_name(status.st_uid)}, wanted {_owners_allowed()}"
        elif stat.S_ISDIR(status.st_mode):
            why = _writable_by_others(step, status)
            if why:
                return why
    return ""


def _owners_allowed() -> str:
    return " or ".join(dict.fromkeys((_name(0), _name(os.geteuid()))))


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
