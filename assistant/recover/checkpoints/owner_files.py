"""Change files of a job's owner with the rights of that account: in folders that were opened without following a link.

A folder may be a link, may be shared by several users, and may be exchanged while it is looked at. So paths are resolved once, when
a change is planned; the change opens that folder without following a link and works inside of it only, by its descriptor. What
belongs to another account than the job's owner is refused, whatever the rights would allow.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from assistant.accounts import NOBODY, account_of, as_account
from assistant.errors import ToolError, Unavailable
from assistant.untrusted import reading_as, within

WALK_S = 120.0
"""For a look at all files of a checkpoint: a parallel file system under load answers some 500 times a second."""
_RENAME_NOREPLACE = 1
_CERTAIN = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV,
     errno.EEXIST, errno.ENOTEMPTY, errno.EBUSY, errno.EMLINK, errno.ENAMETOOLONG, errno.EISDIR, errno.ETXTBSY}
)  # fmt: skip
"""Errors after which nothing was changed; behind others, such as EIO, nobody knows."""
Result = TypeVar("Result")


class Actor(NamedTuple):
    """With whose rights files are changed, and what of theirs may be changed."""

    uid: int
    squashed: bool
    """Whether the file server maps root to nobody, whom the folder belongs to as well."""

    @classmethod
    def of(cls, account: str, folder: int) -> Actor:
        """Return as whom files of an account's jobs are changed in an open folder."""
        owner = account_of(account)
        uid = os.geteuid() if owner is None else owner.uid
        return cls(uid, uid == 0 and os.fstat(folder).st_uid == NOBODY)

    def must_own(self, status: os.stat_result, path: Path) -> None:
        """Make sure that something belongs to the actor.

        Raises:
            ToolError: It is another user's.
        """
        if status.st_uid != self.uid and not (self.squashed and status.st_uid == NOBODY):
            raise ToolError(
                f"{path} belongs to uid {status.st_uid} and the job to uid {self.uid}: what is another user's is not changed; "
                "ask its owner"
            )


def as_owner(account: str, path: Path, work: Callable[[], Result]) -> Result:
    """Return what `work` returns, done with the rights of an account.

    Raises:
        ToolError: The kernel refused, or this process cannot take the rights of the account.
        Unavailable: The storage did not answer, or whether anything happened is not known.
    """
    owner = account_of(account)
    if owner is not None and os.geteuid() != 0:
        raise ToolError(
            f"files of {owner.name} are changed with the rights of {owner.name} only, which uid {os.geteuid()} cannot take: run "
            "Nightshift as root or as that user, or move them by hand"
        )

    def run() -> Result:
        with as_account(owner):
            return work()

    try:
        with reading_as(account):
            return within(WALK_S, run, str(path.parent))
    except OSError as error:
        error_path = error.filename if isinstance(error.filename, str) and Path(error.filename).is_absolute() else str(path)
        if error.errno in _CERTAIN:
            raise ToolError(f"{error_path} may not be changed or looked at: {error.strerror}") from error
        raise Unavailable(f"{error_path} cannot be changed or looked at now: {error.strerror or error}") from error


def resolved_path(path: Path) -> Path:
    """Return a path without links but for its last part, with the rights that count now.

    Raises:
        ToolError: The path is not absolute or holds `..`, or its name cannot be written down.
        OSError: The folder cannot be reached.
    """
    if not path.is_absolute() or ".." in path.parts:
        raise ToolError(f"{path} is no absolute path without `..`")
    if not is_text(str(path)):
        raise ToolError(f"{path} holds bytes that are no UTF-8, which the store does not keep: move it by hand")
    return Path(os.path.realpath(path.parent, strict=True)) / path.name


def is_text(name: str) -> bool:
    """Tell whether a name or text can be written down and read again as it is."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """Open a folder by its resolved path; a link in it, put there since, is refused (ELOOP or ENOTDIR)."""
    handle = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in path.parts[1:]:
            inner = open_inner(name, handle, path)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def open_inner(name: str, above: int, path: Path) -> int:
    """Return a handle of a folder inside an open one; a link is refused.

    Args:
        name: Of the folder.
        above: The open one.
        path: For the error.
    """
    try:
        return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def opened_below(home: int, names: Sequence[str], actor: Actor, *, make: bool) -> Iterator[int]:
    """Open a folder of ours inside of an open one, each folder on the way of the owner of the job or of the open folder.

    Args:
        home: The open folder.
        names: Of the folders inside one another: `nightshift-refused`, and a number.
        actor: Of the job.
        make: Whether to make those that are missing, with the mode of the open folder.
    """
    above = os.fstat(home)
    handle = os.dup(home)
    try:
        for name in names:
            created = False
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=handle)
                    created = True
            inner = open_inner(name, handle, Path(*names))
            os.close(handle)
            handle = inner
            status = os.fstat(handle)
            if status.st_uid != above.st_uid:
                actor.must_own(status, Path(name))
            if created:
                with suppress(OSError):
                    Path(f"/proc/self/fd/{handle}").chmod(stat.S_IMODE(above.st_mode) | 0o700)
        yield handle
    finally:
        os.close(handle)


def status_in(name: str, folder: int) -> os.stat_result | None:
    """Return what an open folder holds under a name, links not followed; None for nothing."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def rename_in(name: str, at: int, new_name: str, to: int, status: Path) -> None:
    """Rename inside of open folders; what lies at the target is never replaced."""
    library = ctypes.CDLL(None, use_errno=True)
    failed = library.renameat2(at, os.fsencode(name), to, os.fsencode(new_name), _RENAME_NOREPLACE)
    code = ctypes.get_errno() if failed else 0
    if code in (errno.EINVAL, errno.ENOSYS):  # NFS: it knows no such rename
        if status_in(new_name, to) is not None:
            code = errno.EEXIST
        else:
            os.rename(name, new_name, src_dir_fd=at, dst_dir_fd=to)
            code = 0
    if code == errno.EEXIST:
        raise ToolError(f"{name} was not moved: {status} is taken")
    if code:
        raise OSError(code, os.strerror(code), str(status))
