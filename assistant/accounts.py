"""The rights of other accounts of this machine: who they are, and how a thread reads with them instead of root's.

`setfsuid` belongs to one thread and counts for file access only, so other threads of this process go on as root.
"""

from __future__ import annotations

import os
import platform
import pwd
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import OwnerDenied

NOBODY = 65534
"""The kernel's overflow uid: it owns nothing and is in no group."""
# glibc's setgroups changes all threads; the system call only the one that makes it
_SETGROUPS = {"x86_64": 116, "aarch64": 159, "ppc64le": 81, "s390x": 206, "riscv64": 159}
_LOGIN, _NO_LOGIN = Path("/proc/self/loginuid"), 4294967295
_MOST_DIGITS = 10
"""Of the number of an account."""
_ACCESS_LISTS = ("system.posix_acl_access", "system.nfs4_acl")


class Account(NamedTuple):
    """An account as the kernel knows it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


def account_of(name: str) -> Account | None:
    """Return the account whose rights count; None where they are our own: an empty name, root, or the account that we run as."""
    if not name:
        return None
    account = _account_of(name)
    return None if account.uid in (0, os.geteuid()) else account


@lru_cache(maxsize=4096)
def _account_of(name: str) -> Account:
    number = name.removeprefix("uid ")
    try:
        entry = pwd.getpwuid(int(number)) if number.isdecimal() and len(number) < 10 else pwd.getpwnam(name)
    except (KeyError, ValueError, OverflowError):
        return Account(name, NOBODY, NOBODY, ())
    return Account(name, entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)))


def as_account(account: Account | None) -> AbstractContextManager[None]:
    """Let this thread access files with the rights of an account, where we are root; else change nothing. May be nested.

    Raises:
        OwnerDenied: The kernel refused: nothing may then be read for that account.
    """
    return _UNCHANGED if account is None or os.geteuid() != 0 else _with_rights_of(account)


_UNCHANGED: AbstractContextManager[None] = nullcontext()


@contextmanager
def _with_rights_of(account: Account) -> Iterator[None]:
    library = _library()
    # of this thread: what it has inside of another `as_account` is taken up again, not root's rights
    before = library.setfsuid(-1), library.setfsgid(-1), os.getgroups()
    try:
        _switch(library, account.uid, account.gid, account.groups)
        if library.setfsuid(-1) != account.uid or library.setfsgid(-1) != account.gid:
            raise OwnerDenied(f"files of {account.name} are not read: the kernel does not let this process take its rights")
        yield
    finally:
        library.setfsuid(0)
        _switch(library, *before)


def _switch(library: Any, uid: int, gid: int, groups: tuple[int, ...] | list[int]) -> None:
    import ctypes

    number = _SETGROUPS.get(platform.machine())
    array = (ctypes.c_uint32 * len(groups))(*groups)
    if number is None or library.syscall(ctypes.c_long(number), ctypes.c_long(len(groups)), array) != 0:
        raise OwnerDenied("files of other accounts are not read: the kernel does not let this process set its groups")
    library.setfsgid(gid)
    library.setfsuid(uid)


@lru_cache(maxsize=1)
def _library() -> Any:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    for function in (library.setfsuid, library.setfsgid):
        function.argtypes, function.restype = [ctypes.c_uint32], ctypes.c_int
    return library


def may_write(name: str, path: Path, status: os.stat_result) -> bool:
    """Tell whether an account may write a file or folder, as far as its mode tells; an account that is not known may.

    Root is left out: it may write everywhere, and does not train in the folders of others.
    """
    account = _account_of(name)
    if status.st_mode & stat.S_IWOTH or status.st_uid == account.uid:
        return True
    if account.uid == NOBODY and status.st_mode & stat.S_IWGRP:
        return True
    if status.st_mode & stat.S_IWGRP and status.st_gid in (account.gid, *account.groups):
        return True
    return _has_access_list(path)


def may_be_shared(name: str, path: Path, status: os.stat_result) -> bool:
    """Tell whether any other account than one may write a file or folder, root left out."""
    return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)) or status.st_uid != uid_of(name) or _has_access_list(path)


def uid_of(name: str) -> int | None:
    """Return the number of an account; None where this machine does not know it."""
    uid = _account_of(name).uid if name else NOBODY
    return uid if uid != NOBODY else None


def name_of(uid: int) -> str:
    """Return the name of an account by its number, else the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"uid {uid}"


def own_name() -> str:
    """Return who runs this process as the kernel knows it: the account that logged in, behind sudo and su too, else its own.

    Variables of the environment are no proof of anything. Linux's login uid is kept from the login on and passed to every child;
    services and containers have none.
    """
    try:
        login = int(_LOGIN.read_text(encoding="ascii"))
    except (OSError, ValueError):
        login = _NO_LOGIN
    return name_of(login if login != _NO_LOGIN else os.getuid())


def both_names(user: str) -> str:
    """Return an account that a scheduler shows as `NAME(UID)`, the way scontrol writes it.

    Args:
        user: `trainer`, `2001`, `uid 2001`, or both already.

    Returns:
        `NAME` alone where this machine knows no number for it, `(UID)` where it knows no name, `()` where nothing is known.
    """
    if not user:
        return "()"
    if user.endswith(")"):
        return user
    number = user.removeprefix("uid ")
    is_number = number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS
    try:
        # asked anew each time: an account that was made meanwhile is known from then on
        if user == number:
            return f"{user}({pwd.getpwnam(user).pw_uid})"
    except (KeyError, ValueError):
        pass
    if not is_number:
        return user
    try:
        return f"{pwd.getpwuid(int(number)).pw_name}({int(number)})"
    except (KeyError, OverflowError):
        return f"({int(number)})"


def may_read(account: Account, path: Path, status: os.stat_result) -> bool:
    """Tell whether an account may read a file by its mode; where an access list stands beside the mode, it may.

    As root this is no question: the kernel answers it when the file is opened.
    """
    if os.geteuid() == 0 or status.st_uid == account.uid or status.st_mode & stat.S_IROTH:
        return True
    if status.st_mode & stat.S_IRGRP and status.st_gid in (account.gid, *account.groups):
        return True
    return _has_access_list(path)


def _has_access_list(path: Path) -> bool:
    try:
        return any(name in _ACCESS_LISTS for name in os.listxattr(path))
    except OSError:
        return False
