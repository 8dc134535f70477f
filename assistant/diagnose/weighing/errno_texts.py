"""Read what the operating system answered to a failed call: its errno, by number, name or text, on a line or right below it.

The errno says whose fault a failed call is more surely than the words around it: a call on a socket that is refused with `Bad
address` was handed a wrong buffer by its program, and the network is sound. Texts are those of glibc's strerror(3).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.records import Citation

LINES_BELOW, MOST_OF_LINE, LONGEST_BELOW = 2, 600, 120
"""Lines below the cited one that may only hold the errno, and characters of each that are read."""


class ErrnoClass(StrEnum):
    """Whose matter an errno is."""

    PROGRAM = "program"
    """The call was handed what it cannot take."""
    CONNECTION = "connection"
    NETWORK = "network"
    SPACE = "space"
    MEMORY = "memory"
    ACCESS = "access"
    PATH = "path"
    DEVICE = "device"


class Errno(NamedTuple):
    """An errno in a log."""

    name: str
    text: str
    kind: ErrnoClass
    line: int
    """Line of the job log that holds it."""


_TABLE = {
    "EFAULT": ("Bad address", ErrnoClass.PROGRAM),
    "EINVAL": ("Invalid argument", ErrnoClass.PROGRAM),
    "EBADF": ("Bad file descriptor", ErrnoClass.PROGRAM),
    "EMSGSIZE": ("Message too long", ErrnoClass.PROGRAM),
    "E2BIG": ("Argument list too long", ErrnoClass.PROGRAM),
    "EDOM": ("Numerical argument out of domain", ErrnoClass.PROGRAM),
    "ECONNRESET": ("Connection reset by peer", ErrnoClass.CONNECTION),
    "ECONNREFUSED": ("Connection refused", ErrnoClass.CONNECTION),
    "ETIMEDOUT": ("Connection timed out", ErrnoClass.CONNECTION),
    "ECONNABORTED": ("Software caused connection abort", ErrnoClass.CONNECTION),
    "EHOSTUNREACH": ("No route to host", ErrnoClass.NETWORK),
    "ENETUNREACH": ("Network is unreachable", ErrnoClass.NETWORK),
    "ENETDOWN": ("Network is down", ErrnoClass.NETWORK),
    "EHOSTDOWN": ("Host is down", ErrnoClass.NETWORK),
    "ENOSPC": ("No space left on device", ErrnoClass.SPACE),
    "EDQUOT": ("Disk quota exceeded", ErrnoClass.SPACE),
    "EFBIG": ("File too large", ErrnoClass.SPACE),
    "ENOMEM": ("Cannot allocate memory", ErrnoClass.MEMORY),
    "EACCES": ("Permission denied", ErrnoClass.ACCESS),
    "EPERM": ("Operation not permitted", ErrnoClass.ACCESS),
    "ENOENT": ("No such file or directory", ErrnoClass.PATH),
    "ENOTDIR": ("Not a directory", ErrnoClass.PATH),
    "EIO": ("Input/output error", ErrnoClass.DEVICE),
    "EROFS": ("Read-only file system", ErrnoClass.DEVICE),
    "ESTALE": ("Stale file handle", ErrnoClass.DEVICE),
}
_TEXTS = "|".join(re.escape(text) for text, _ in _TABLE.values())
_BY_TEXT = {text.lower(): name for name, (text, _) in _TABLE.items()}
_ERRNO = re.compile(rf"\b(?:(?P<name>{'|'.join(_TABLE)})|(?i:(?P<text>{_TEXTS})))\b")
_ALONE = re.compile(rf"^\W*(?:[Ee]rr(?:no|or)\W{{0,4}}\d{{0,3}}\W{{1,4}})?(?i:(?P<text>{_TEXTS}))\W{{0,3}}(?:\(?\d{{1,3}}\)?)?\W*$")
"""A line that holds nothing but the text of an errno and its number."""

_OF_MACHINES = frozenset(
    "network_error connection_error node_failure nccl_remote_error nccl_timeout_error nvlink_error ecc_error s3_storage_error hang "
    "killed preempted cancelled time_limit slow_job out_of_memory_error".split()
)
"""Reasons that no call with a wrong argument speaks for."""
FITTING: dict[ErrnoClass, tuple[str, frozenset[str]]] = {
    ErrnoClass.CONNECTION: (
        "connection_error",
        frozenset("network_error node_failure nccl_remote_error nccl_timeout_error s3_storage_error hang".split()),
    ),
    ErrnoClass.NETWORK: (
        "network_error",
        frozenset("connection_error node_failure nccl_remote_error nccl_timeout_error s3_storage_error".split()),
    ),
    ErrnoClass.SPACE: (
        "os_error",
        frozenset("output_file_error s3_storage_error dataset_loading_error called_process_error".split()),
    ),
    ErrnoClass.MEMORY: ("out_of_memory_error", frozenset(["dataloader_killed", "called_process_error"])),
    ErrnoClass.ACCESS: (
        "permission_error",
        frozenset("os_error output_file_error s3_storage_error called_process_error dataset_loading_error".split()),
    ),
    ErrnoClass.PATH: (
        "file_not_found_error",
        frozenset(
            "os_error import_error dataset_loading_error model_loading_error output_file_error called_process_error "
            "argument_error".split()
        ),
    ),
    ErrnoClass.DEVICE: (
        "os_error",
        frozenset(
            "s3_storage_error output_file_error dataset_loading_error model_loading_error node_failure network_error".split()
        ),
    ),
}
"""By class the reason that an errno speaks for, and those that say the same of a narrower case."""


def errno_of(cited: Citation, facts: Facts) -> Errno | None:
    """Return the errno that a cited line gives, or a line right below it that holds nothing else; None where neither does."""
    if (match := _ERRNO.search(cited.text[:MOST_OF_LINE])) is not None:
        return _errno(match["name"] or _BY_TEXT[match["text"].lower()], cited.line)
    if cited.file != "job.log":
        return None
    for line in facts.between(cited.line + 1, cited.line + LINES_BELOW):
        if len(line.text) <= LONGEST_BELOW and (alone := _ALONE.match(facts.streams.body(line.text).text)) is not None:
            return _errno(_BY_TEXT[alone["text"].lower()], line.number)
    return None


def _errno(name: str, line: int) -> Errno:
    text, kind = _TABLE[name]
    return Errno(name, text, kind, line)


def reason_by_errno(reason: str, errno: Errno) -> str:
    """Return the reason that an errno speaks for; the given one where it says the same."""
    if errno.kind is ErrnoClass.PROGRAM:
        return "runtime_error" if reason in _OF_MACHINES else reason
    ruling, narrower = FITTING[errno.kind]
    return reason if reason in narrower else ruling
