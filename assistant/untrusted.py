"""Open, read, parse and walk files that users of the cluster write: logs, trackers, manifests, metrics, checkpoints.

Such a path may be a pipe, a device, a link to /etc/shadow, a sparse file of terabytes or a folder that links to itself, and may
change while it is read. All of it is bounded in bytes, entries, depth and digits; a device is never opened, a pipe never waited
for. `reading_as` makes the kernel judge with the rights of the job's owner instead of ours.
"""

from __future__ import annotations

import contextvars
import io
import json
import math
import os
import queue
import re
import stat
import threading
import tomllib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from assistant.accounts import NOBODY, Account, account_of, as_account, may_read, uid_of
from assistant.errors import InputError, MalformedContent, OwnerDenied, Unavailable, UnreadableFile

METADATA_BYTES = 16 << 20
"""Trackers, manifests, indexes: the largest index of a model's weights is a few MiB."""
MOST_ENTRIES = 200_000
"""Names in a tree of folders: a checkpoint of 10,000 ranks holds some 40,000 files."""
MOST_FOLDERS = 32
"""Folders below one another."""
MOST_DEPTH = 100
"""Levels of JSON inside one another."""
MOST_CONTAINERS = 500_000
"""Lists and objects in one JSON text: the state of a trainer keeps one for each logged step."""
MOST_DIGITS = 400
"""Of an integer: the states of random generators have 39, and some are kept as one number of a few hundred."""
LOOK_S = 20.0
"""For a look at a file; a parallel file system under load takes a few seconds."""
READ_S = 300.0
"""For a pass over a log of the largest size that is read, on a busy machine."""
_AHEAD = 2
"""Items that are read before somebody takes them: blocks of a log are 1 MiB and more."""
_CLOSED_LOOK_S = 0.2
"""Seconds between two looks of a reader whether anybody still wants its items."""
LARGEST = 2**63 - 1
"""What SQLite and NumPy keep."""

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}
_MOST_KEY_PARTS = 1000
"""Of a key of TOML, which no text in a string comes near to; of those below it the depth of the tables is checked."""
_KEY_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![\w.-]){_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{_MOST_KEY_PARTS}}}")
_owner: contextvars.ContextVar[Account | None] = contextvars.ContextVar("owner", default=None)
_subject: contextvars.ContextVar[str] = contextvars.ContextVar("subject", default="")
Result = TypeVar("Result")


class FileEnd(NamedTuple):
    """The last bytes of a file."""

    raw: bytes
    begin: int
    """Offset of the first one; 0 where the file was read whole."""


class WalkedFile(NamedTuple):
    """What lies in a tree of folders and is no folder itself."""

    path: Path
    status: os.stat_result | None
    """None of a link that leads nowhere."""


@contextmanager
def reading_as(account: str) -> Iterator[None]:
    """Open and list with the rights of an account for as long as this block runs, in this thread and in `within`.

    As root the kernel judges (`setfsuid`), so that folders, access lists and NFS count. Without root, files are refused that only
    we and not that account may read by their mode.

    Args:
        account: Name of the job's owner; empty: our own rights. A name that this machine does not know has the rights of `nobody`.
    """
    token, subject_token = _owner.set(account_of(account)), _subject.set(account)
    try:
        yield
    finally:
        _owner.reset(token)
        _subject.reset(subject_token)


def foreign_owner(uid: int, *, folder: Path) -> str:
    """Return whose file lies among those of a job's owner, for people; empty for the owner's own, root's, or where nobody knows.

    Args:
        uid: Of the file; negative: not known.
        folder: Where it lies: where a file server maps all accounts to `nobody`, that is nobody's as well.
    """
    owner = uid_of(_subject.get())
    if owner is None or uid < 0 or uid in (owner, 0):
        return ""
    if uid == NOBODY and status_of(folder).st_uid == NOBODY:
        return ""
    return f"uid {uid}, and the job's owner is uid {owner}"


def open_regular(path: Path | str) -> io.FileIO:
    """Open a regular file for reading, unbuffered; never waits for a writer, never touches a device.

    Raises:
        UnreadableFile: It is a pipe, a device, a socket or a folder.
        OwnerDenied: The owner of the job may not read it, or another user's link leads to it.
        OSError: It is missing or cannot be opened.
    """
    owner = _owner.get()
    with as_account(owner):
        # a handle that gives no access: what it names can be judged before anything is opened, and cannot be exchanged any more
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableFile(f"{path}: is {_kind(status)}, wanted is a regular file")
            _check_owner(path, status, owner)
            descriptor = _reopened(path, handle)
        finally:
            os.close(handle)
    return io.FileIO(descriptor, "rb")


def _reopened(path: Path | str, handle: int) -> int:
    try:
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except PermissionError as error:
        raise PermissionError(error.errno, error.strerror, str(path)) from None


def _kind(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "no file")


def _check_owner(path: Path | str, status: os.stat_result, owner: Account | None) -> None:
    if owner is not None:
        if not may_read(owner, Path(path), status):
            raise OwnerDenied(f"{path}: account {owner.name} may not read it, so it is no file of that account's job")
        return
    link = os.lstat(path)
    # as with the kernel's fs.protected_symlinks: nobody's link makes us show a file that its owner cannot
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, os.geteuid(), status.st_uid):
        raise OwnerDenied(f"{path}: is a link of uid {link.st_uid} to a file of uid {status.st_uid}; name the file itself")


def status_of(path: Path) -> os.stat_result:
    """Return what the file system says about a path, links followed.

    Raises:
        OSError: It is missing, or cannot be reached with the rights that count.
    """
    with as_account(_owner.get()):
        return path.stat()


def is_regular(path: Path) -> bool:
    """Tell whether a path can be reached and is a regular file."""
    try:
        return stat.S_ISREG(status_of(path).st_mode)
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Tell whether a path can be reached and is a folder."""
    try:
        return stat.S_ISDIR(status_of(path).st_mode)
    except (OSError, ValueError):
        return False


def read_whole(path: Path | str, most_bytes: int = METADATA_BYTES) -> bytes:
    """Return the content of a small file.

    Raises:
        UnreadableFile: It is no regular file, or larger than `most_bytes`.
        OSError: It cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        raw = _up_to(file, most_bytes + 1) if size <= most_bytes else b""
    if size > most_bytes or len(raw) > most_bytes:
        raise UnreadableFile(f"{path}: has {max(size, len(raw)):,} bytes, such a file has at most {most_bytes:,}")
    return raw


def read_start(path: Path | str, most_bytes: int) -> bytes:
    """Return the first bytes of a file of any size; see `open_regular`."""
    with open_regular(path) as file:
        return _up_to(file, most_bytes)


def read_end(path: Path | str, most_bytes: int) -> FileEnd:
    """Return the last bytes of a file of any size; see `open_regular`."""
    with open_regular(path) as file:
        begin = max(0, os.fstat(file.fileno()).st_size - most_bytes)
        file.seek(begin)
        return FileEnd(_up_to(file, most_bytes), begin)


def read_end_from(path: Path | str, begin: int, most_bytes: int) -> FileEnd:
    """Return the last bytes of a file, none of those before `begin`; see `open_regular`."""
    with open_regular(path) as file:
        start = max(0, min(begin, os.fstat(file.fileno()).st_size), os.fstat(file.fileno()).st_size - most_bytes)
        file.seek(start)
        return FileEnd(_up_to(file, most_bytes), start)


def _up_to(file: io.FileIO, most_bytes: int) -> bytes:
    pieces, remaining = [], most_bytes
    while remaining > 0 and (piece := file.read(min(remaining, 1 << 20))):
        pieces.append(piece)
        remaining -= len(piece)
    return b"".join(pieces)


def read_json(path: Path | str, most_bytes: int = METADATA_BYTES) -> Any:
    """Return the content of a JSON file; see `read_whole` and `parse_json`."""
    return parse_json(read_whole(path, most_bytes))


def parse_json(text: bytes | str) -> Any:
    """Return what JSON says; bytes that are no UTF-8 are replaced, NaN and Infinity are kept as numbers.

    Raises:
        MalformedContent: It is no JSON, nests deeper than `MOST_DEPTH`, or holds an integer of more than `MOST_DIGITS` digits.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    if text.count("[") + text.count("{") > MOST_CONTAINERS:
        raise MalformedContent(f"is JSON of more than {MOST_CONTAINERS:,} lists and objects")
    try:
        value = json.loads(text.removeprefix("\ufeff"), parse_int=_bounded_int)
    except RecursionError:
        raise MalformedContent(f"is JSON that nests deeper than {MOST_DEPTH} levels") from None
    except ValueError as error:
        raise MalformedContent(f"is no valid JSON: {error}") from error
    _check_depth(value)
    return value


def read_toml_tables(path: Path | str, most_bytes: int = METADATA_BYTES) -> dict[str, Any]:
    """Return the tables of a TOML file; see `read_whole` and `parse_toml`."""
    return parse_toml(read_whole(path, most_bytes))


def parse_toml(text: bytes | str) -> dict[str, Any]:
    """Return the tables that TOML says, in time that is linear in its length.

    Raises:
        MalformedContent: It is no TOML in UTF-8, nests deeper than `MOST_DEPTH`, or holds an integer that Python does not parse.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        # tomllib takes quadratic time for a key of many parts: 16 s for 100,000
        if _LONG_KEY.search(text):
            raise ValueError(f"a key of more than {_MOST_KEY_PARTS} parts")
        table = tomllib.loads(text)
    except RecursionError:
        raise MalformedContent(f"is TOML that nests deeper than {MOST_DEPTH} levels") from None
    except ValueError as error:
        raise MalformedContent(f"is not valid TOML: {error}") from error
    _check_depth(table)
    return table


def _bounded_int(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(MOST_DEPTH):
        inner: list[object] = []
        for container in level:
            if isinstance(container, dict):
                inner += [child for child in container.values() if isinstance(child, dict | list)]
            elif isinstance(container, list):
                inner += [child for child in container if isinstance(child, dict | list)]
        if not inner:
            return
        level = inner
    raise MalformedContent(f"is JSON that nests deeper than {MOST_DEPTH} levels")


def whole_number(value: object) -> int:
    """Return an integer that a file names, as a number or as its digits, within 64 bits.

    Raises:
        MalformedContent: It is none, or too large.
    """
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,19}\s*", value):
        value = int(value)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedContent(f"has {str(value)[:40]!r}, wanted is a whole number")
    if abs(value) > LARGEST:
        raise MalformedContent("has a whole number beyond 64 bits")
    return value


def finite_number(value: object) -> float:
    """Return a number that a file names, neither NaN nor infinite.

    Raises:
        MalformedContent: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e300:
        raise MalformedContent(f"has {str(value)[:40]!r}, wanted is a finite number")
    return float(value)


def list_folder(folder: Path, most: int = MOST_ENTRIES) -> list[Path]:
    """Return what lies in a folder, sorted.

    Raises:
        UnreadableFile: It holds more than `most` entries.
        OSError: It cannot be listed.
    """
    names: list[str] = []
    with as_account(_owner.get()), os.scandir(folder) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) > most:
                raise UnreadableFile(f"{folder}: holds more than {most:,} files")
    return [folder / name for name in sorted(names)]


def walk_files(folder: Path, most: int = MOST_ENTRIES, *, most_folders: int = MOST_FOLDERS) -> Iterator[WalkedFile]:
    """Yield what lies below a folder and is no folder, links to folders followed.

    Raises:
        UnreadableFile: A link leads back to a folder above it, or there are more than `most` entries or `most_folders` levels.
        OSError: A folder cannot be listed.
    """
    count = 0
    with as_account(_owner.get()):
        top = folder.stat()
    waiting: list[tuple[Path, tuple[tuple[int, int], ...]]] = [(folder, ((top.st_dev, top.st_ino),))]
    while waiting:
        current_folder, ancestors = waiting.pop()
        inner = []
        for path in list_folder(current_folder, most - count):
            count += 1
            try:
                status = status_of(path)
            except FileNotFoundError:  # a link that leads nowhere, or a file that went meanwhile
                yield WalkedFile(path, None)
                continue
            if not stat.S_ISDIR(status.st_mode):
                yield WalkedFile(path, status)
                continue
            key = (status.st_dev, status.st_ino)
            if key in ancestors:
                raise UnreadableFile(f"{path}: leads back to a folder above it")
            if len(ancestors) >= most_folders:
                raise UnreadableFile(f"{path}: lies deeper than {most_folders} folders below {folder}")
            inner.append((path, (*ancestors, key)))
        waiting += reversed(inner)


def within(seconds: float, work: Callable[[], Result], subject: str) -> Result:
    """Return what `work` returns; leave its thread behind where that takes longer, as it does on a mount that hangs.

    Args:
        seconds: How long to wait.
        work: Reads; runs in a thread of its own, with the rights of `reading_as`, and must not use the store.
        subject: What is read, for the error.

    Raises:
        Unavailable: It did not end in time.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            errors.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True, name="bounded read")
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise Unavailable(f"{subject} did not answer within {seconds:g} s: its file system hangs, or it is too large to read")
    return results[0]


def each_within(seconds: float, items: Callable[[], Iterator[Result]], subject: str) -> Iterator[Result]:
    """Yield what an iterator yields, and wait for each item only so long; its thread is left behind where one takes longer.

    Args:
        seconds: How long to wait for each item, the opening of the file included.
        items: Makes the iterator; runs in a thread of its own, with the rights of `reading_as`, and must not use the store.
        subject: What is read, for the error.

    Raises:
        Unavailable: An item did not come in time.
    """
    waiting: queue.Queue[tuple[Result] | BaseException | None] = queue.Queue(maxsize=_AHEAD)
    closed = threading.Event()

    def put(item: tuple[Result] | BaseException | None) -> bool:
        while not closed.is_set():
            with suppress(queue.Full):
                waiting.put(item, timeout=_CLOSED_LOOK_S)
                return True
        return False

    def run() -> None:
        try:
            iterator = items()
            for item in iterator:
                if not put((item,)):
                    break
            if isinstance(iterator, Generator):
                iterator.close()  # in this thread: it holds the file
            put(None)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            put(error)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True, name="bounded reads").start()
    try:
        while True:
            try:
                item = waiting.get(timeout=seconds)
            except queue.Empty:
                raise Unavailable(f"{subject} did not answer within {seconds:g} s: its file system hangs") from None
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item[0]
    finally:
        closed.set()


def why_unreadable(error: Exception) -> str:
    """Return the reason of a failed read without the path, for a sentence that names the path already."""
    if isinstance(error, InputError):
        return str(error).rpartition(": ")[2] or str(error)
    return getattr(error, "strerror", None) or str(error)
