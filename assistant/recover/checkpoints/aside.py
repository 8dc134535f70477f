"""Move checkpoints out of the way and set tracker files, with the rights of the job's owner; both can be taken back.

A folder may be a link, may be shared by several users, and may be exchanged while it is looked at. So paths are resolved once, when
a change is planned; the change opens that folder without following a link and renames inside of it only, by its descriptor. What
belongs to another account than the job's owner is refused, whatever the rights would allow.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from assistant.accounts import NOBODY, account_of, as_account
from assistant.errors import ToolError, Unavailable
from assistant.recover.checkpoints.bundles import files_of_prefix
from assistant.recover.checkpoints.layout import SET_ASIDE
from assistant.recover.checkpoints.trackers import TRACKER_BYTES
from assistant.untrusted import MOST_ENTRIES, is_regular, read_start, reading_as, within

MOST_NUMBERS = 100
"""Times that a checkpoint of the same name may be set aside."""
WALK_S = 120.0
"""For a look at all files of a checkpoint: a parallel file system under load answers some 500 times a second."""
DIGEST_LENGTH = 32
"""Hexadecimal digits: 128 bits."""
_AT_MOST_NAME = 255
_RENAME_NOREPLACE = 1
_CERTAIN = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV,
     errno.EEXIST, errno.ENOTEMPTY, errno.EBUSY, errno.EMLINK, errno.ENAMETOOLONG, errno.EISDIR, errno.ETXTBSY}
)  # fmt: skip
"""Errors after which nothing was changed; behind others, such as EIO, nobody knows."""
Result = TypeVar("Result")


class Move(NamedTuple):
    """One rename."""

    source: Path
    target: Path
    content: str
    """Names, sizes and times of the files: `3 files, 18,000 bytes, sha256:...`; another content is another change."""


def moves_aside(paths: Sequence[Path], account: str) -> list[Move]:
    """Return the renames of checkpoints into `nightshift-refused` beside them, or into a numbered folder in there.

    Files of one checkpoint come into one folder, where none of them was set aside before.

    Paths are resolved but for their last part. One that was renamed before is returned as it was then.

    Raises:
        ToolError: It is not there, or the owner of the job may not look at it.
        Unavailable: The storage did not answer.
    """

    def plan(path: Path) -> Move:
        path = _resolved(path)
        if os.path.lexists(path):
            return Move(path, _free(path, [sibling.name for sibling in paths]), _content(path))
        target = _last(path)
        if target is None:
            raise ToolError(f"{path} is not there")
        return Move(path, target, _content(target))

    return [_as_owner(account, path, partial(plan, path)) for path in paths]


def moves_back(paths: Sequence[Path], account: str) -> list[Move]:
    """Return the renames of checkpoints that were set aside to where they lay.

    Raises:
        ToolError: A path does not lie in a folder `nightshift-refused`, is not there, or may not be looked at.
        Unavailable: The storage did not answer.
    """

    def plan(path: Path) -> Move:
        path = _resolved(path)
        target = original(path)
        return Move(path, target, _content(path if os.path.lexists(path) else target))

    return [_as_owner(account, path, partial(plan, path)) for path in paths]


def original(path: Path) -> Path:
    """Return where a checkpoint lay before it was set aside.

    Raises:
        ToolError: It was not set aside.
    """
    folder = path.parent.parent if path.parent.name.isdecimal() else path.parent
    if folder.name != SET_ASIDE or ".." in path.parts:
        raise ToolError(f"{path} was not set aside: it lies in no folder {SET_ASIDE}")
    return folder.parent / path.name


def lies_at(path: Path, account: str) -> bool:
    """Tell whether something lies at a path, a link that leads nowhere included, as the owner of the job sees it.

    Raises:
        ToolError: The owner may not look there.
        Unavailable: The storage did not answer.
    """
    return _as_owner(account, path, lambda: os.path.lexists(_resolved(path)))


def where_aside(path: Path, account: str) -> Path | None:
    """Return where a checkpoint lies that was set aside, the last one of its name; None where none was.

    Raises:
        ToolError: The owner may not look there.
        Unavailable: The storage did not answer.
    """
    return _as_owner(account, path, lambda: _last(_resolved(path)))


def prefix_files(path: Path, account: str, *, aside: bool = False) -> list[Path]:
    """Return the files of a checkpoint of TensorFlow, whose path is their prefix; empty of any other path.

    Args:
        path: The prefix.
        account: As whom to look.
        aside: Whether to return where they lie that were set aside, the last ones of their names.

    Raises:
        ToolError: The owner may not look there.
        Unavailable: The storage did not answer.
    """

    def files() -> list[Path]:
        prefix = _resolved(path)
        if not aside:
            return files_of_prefix(prefix)
        names = {file.name for place in _places(prefix) for file in files_of_prefix(place)}
        return [file for name in sorted(names) if (file := _last(prefix.parent / name)) is not None]

    return _as_owner(account, path, files)


def move(change: Move, account: str) -> bool:
    """Make a rename; one that was made before a crash is left as it is.

    Args:
        change: From `moves_aside` or `moves_back`.
        account: With whose rights; empty: our own.

    Returns:
        Whether it was made now.

    Raises:
        ToolError: A target is taken, the content is another one, it belongs to somebody else, or the owner may not rename there.
        Unavailable: The storage did not answer.
    """
    source, target = change.source, change.target
    aside = target.parent if _is_aside(target) else source.parent
    top = aside.parent.parent if aside.name.isdecimal() else aside.parent

    def rename() -> bool:
        with _folder(top) as home:
            actor = _Actor.of(account, home)
            inner = aside.relative_to(top).parts
            if _is_aside(target) and (source_status := _status(source.name, home)) is not None:
                actor.must_own(source_status, source)  # before a folder is made beside it
            with _below(home, inner, actor, make=_is_aside(target)) as refused:
                at, to = (home, refused) if _is_aside(target) else (refused, home)
                before = _status(source.name, at)
                if before is None and _status(target.name, to) is not None:
                    return False
                if before is None:
                    raise ToolError(f"{source} is not there any more")
                actor.must_own(before, source)
                if _content(source) != change.content:
                    raise ToolError(f"{source} is not what it was when the change was decided: {change.content} then, others now")
                _rename(source.name, at, target.name, to, target)
                after = _status(target.name, to)
                if after is None or (after.st_dev, after.st_ino) != (before.st_dev, before.st_ino):
                    _rename(target.name, to, source.name, at, source)
                    raise ToolError(f"{source} was exchanged while it was moved; it lies where it lay")
        return True

    return _as_owner(account, source, rename)


def is_link(path: Path, account: str) -> bool:
    """Tell whether a tracker is a link (`latest -> step_40`) and no file, also where it leads nowhere.

    Raises:
        ToolError: The owner may not look there.
        Unavailable: The storage did not answer.
    """
    return _as_owner(account, path, path.is_symlink)


def write_tracker(path: Path, text: str, account: str, *, before: str, link: bool = False, mode: int = 0o644) -> None:
    """Replace a tracker at one stroke: a link by a link to `text`, a file by one with the mode that it had; a new one has `mode`.

    An empty text removes a file. A link leads only to a name beside it.

    Args:
        path: The file, resolved.
        text: What is to stand in it.
        account: With whose rights; empty: our own.
        before: What must stand in it now, or where the link must lead; empty: there must be none.
        link: Whether it must be a link.
        mode: Of a file that was not there.

    Raises:
        ToolError: It says something else now, it is of another kind or somebody else's, or the owner may not write there.
        Unavailable: The storage did not answer.
    """

    def replace() -> None:
        with _folder(path.parent) as home:
            status = _status(path.name, home)
            if status is not None:
                _Actor.of(account, home).must_own(status, path)
                if not (stat.S_ISLNK if link else stat.S_ISREG)(status.st_mode):
                    raise ToolError(f"{path} is no {'link' if link else 'regular file'} any more, so it is not replaced")
            if link and (status is None or not text or Path(text).name in ("", "..") or (path.parent / text).parent != path.parent):
                raise ToolError(f"{path} is a link: it may lead only to a checkpoint beside it, not to {text!r}")
            now = os.readlink(path.name, dir_fd=home) if link else _read(path.name, home) if status is not None else ""
            if now != before:
                raise ToolError(f"{path} says {now[:80]!r} now, and {before[:80]!r} when the change was decided")
            if not text:
                if status is not None:
                    os.unlink(path.name, dir_fd=home)
                return
            if link:
                _link_over(path.name, text, home)
                return
            _write_over(path.name, text, stat.S_IMODE(status.st_mode) if status is not None else mode, home)

    _as_owner(account, path, replace)


def tracker_text(path: Path, account: str) -> str:
    """Return what stands in a tracker file, or where a tracker that is a link leads; empty where there is none.

    Raises:
        ToolError: It may not be read, or is longer than any tracker.
    """

    def read() -> str:
        with suppress(FileNotFoundError):
            if path.is_symlink():
                target = str(path.readlink())
                if not _is_text(target):
                    raise ToolError(f"{path} leads to a name that is no UTF-8: set it by hand")
                return target
            if not is_regular(path) and os.path.lexists(path):
                raise ToolError(f"{path} is no regular file")
            raw = read_start(path, TRACKER_BYTES + 1)
            if len(raw) > TRACKER_BYTES:
                raise ToolError(f"{path} is no tracker: it has more than {TRACKER_BYTES:,} bytes")
            try:
                return raw.decode("utf-8")
            except UnicodeDecodeError:
                # the store keeps text: what stood there could not be put back
                raise ToolError(f"{path} is no tracker: it holds bytes that are no UTF-8") from None
        return ""

    return _as_owner(account, path, read)


def resolved(path: Path, account: str) -> Path:
    """Return a path without links but for its last part, as the owner of the job sees it.

    Raises:
        ToolError: The path is not absolute or holds `..`, or the owner may not look there.
        Unavailable: The storage did not answer.
    """
    return _as_owner(account, path, lambda: _resolved(path))


class _Actor(NamedTuple):
    """With whose rights files are changed, and what of theirs may be changed."""

    uid: int
    squashed: bool
    """Whether the file server maps root to nobody, whom the folder belongs to as well."""

    @classmethod
    def of(cls, account: str, folder: int) -> _Actor:
        owner = account_of(account)
        uid = os.geteuid() if owner is None else owner.uid
        return cls(uid, uid == 0 and os.fstat(folder).st_uid == NOBODY)

    def must_own(self, status: os.stat_result, path: Path) -> None:
        if status.st_uid != self.uid and not (self.squashed and status.st_uid == NOBODY):
            raise ToolError(
                f"{path} belongs to uid {status.st_uid} and the job to uid {self.uid}: what is another user's is not changed; "
                "ask its owner"
            )


def _as_owner(account: str, path: Path, work: Callable[[], Result]) -> Result:
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


def _resolved(path: Path) -> Path:
    if not path.is_absolute() or ".." in path.parts:
        raise ToolError(f"{path} is no absolute path without `..`")
    if not _is_text(str(path)):
        raise ToolError(f"{path} holds bytes that are no UTF-8, which the store does not keep: move it by hand")
    return Path(os.path.realpath(path.parent, strict=True)) / path.name


def _is_text(name: str) -> bool:
    """Tell whether a name or text can be written down and read again as it is."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_aside(path: Path) -> bool:
    return SET_ASIDE in (path.parent.name, path.parent.parent.name if path.parent.name.isdecimal() else "")


def _places(path: Path) -> list[Path]:
    folder = path.parent / SET_ASIDE
    return [folder / path.name, *(folder / str(number) / path.name for number in range(2, MOST_NUMBERS))]


def _free(path: Path, names: Sequence[str]) -> Path:
    places = _places(path)
    free = (place for place in places if not any(os.path.lexists(place.parent / name) for name in names))
    return next(free, places[-1])


def _last(path: Path) -> Path | None:
    places = [place for place in _places(path) if os.path.lexists(place)]
    return places[-1] if places else None


def _content(path: Path) -> str:
    """Return the number and size of all files at a path, and a digest of names, kinds, sizes, times and links; none is followed."""
    lines: list[str] = []
    size, files, waiting = 0, 0, [path]
    while waiting:
        folder = waiting.pop()
        status = folder.lstat()
        kind, name = stat.S_IFMT(status.st_mode), str(folder.relative_to(path))
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(folder) as entries:
                waiting += [folder / entry.name for entry in entries]
            lines.append(f"{name}\0{kind:o}")
            files -= 1
        elif stat.S_ISLNK(status.st_mode):
            lines.append(f"{name}\0{kind:o}\0{folder.readlink()}")
        else:
            size += status.st_size
            lines.append(f"{name}\0{kind:o}\0{status.st_size}\0{status.st_mtime_ns}")
        files += 1
        if len(lines) + len(waiting) > MOST_ENTRIES:
            raise ToolError(f"{path} holds more than {MOST_ENTRIES:,} files")
    digest = hashlib.sha256("\0\0".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()[:DIGEST_LENGTH]
    return f"{files:,} file{'s' if files != 1 else ''}, {size:,} bytes, sha256:{digest}"


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    """Open a folder by its resolved path; a link in it, put there since, is refused (ELOOP or ENOTDIR)."""
    handle = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in path.parts[1:]:
            inner = _open_folder(name, handle, path)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def _open_folder(name: str, above: int, path: Path) -> int:
    try:
        return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def _below(home: int, names: Sequence[str], actor: _Actor, *, make: bool) -> Iterator[int]:
    """Open `nightshift-refused` or a numbered folder in it, of the owner of the job or of the checkpoint folder.

    One that is made has the mode of the checkpoint folder.
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
            inner = _open_folder(name, handle, Path(*names))
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


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _rename(name: str, at: int, new_name: str, to: int, status: Path) -> None:
    """Rename inside of open folders; what lies at the target is never replaced."""
    library = ctypes.CDLL(None, use_errno=True)
    failed = library.renameat2(at, os.fsencode(name), to, os.fsencode(new_name), _RENAME_NOREPLACE)
    code = ctypes.get_errno() if failed else 0
    if code in (errno.EINVAL, errno.ENOSYS):  # NFS: it knows no such rename
        if _status(new_name, to) is not None:
            code = errno.EEXIST
        else:
            os.rename(name, new_name, src_dir_fd=at, dst_dir_fd=to)
            code = 0
    if code == errno.EEXIST:
        raise ToolError(f"{name} was not moved: {status} is taken")
    if code:
        raise OSError(code, os.strerror(code), str(status))


def _read(name: str, folder: int) -> str:
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(handle, "rb") as file:
        return file.read(TRACKER_BYTES + 1).decode("utf-8", "surrogateescape")


def _link_over(name: str, target: str, folder: int) -> None:
    new = f".{name}.nightshift"[-_AT_MOST_NAME:]
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=folder)
    os.symlink(target, new, dir_fd=folder)
    os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)


def _write_over(name: str, text: str, mode: int, folder: int) -> None:
    new = f".{name}.nightshift"[-_AT_MOST_NAME:]
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=folder)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise
