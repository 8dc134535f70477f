"""Move checkpoints out of the way and set tracker files, with the rights of the job's owner; both can be taken back.

How a folder is opened and whose files are changed: `owner_files.py`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from assistant.errors import ToolError
from assistant.recover.checkpoints.bundles import files_of_prefix
from assistant.recover.checkpoints.names import SET_ASIDE
from assistant.recover.checkpoints.owner_files import (
    Actor,
    as_owner,
    is_text,
    opened_below,
    opened_folder,
    rename_in,
    resolved_path,
    status_in,
)
from assistant.recover.checkpoints.trackers import TRACKER_BYTES
from assistant.untrusted import MOST_ENTRIES, is_regular, read_start

MOST_NUMBERS = 100
"""Times that a checkpoint of the same name may be set aside."""
DIGEST_LENGTH = 32
"""Hexadecimal digits: 128 bits."""
_AT_MOST_NAME = 255


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
        path = resolved_path(path)
        if os.path.lexists(path):
            return Move(path, _free(path, [sibling.name for sibling in paths]), _content(path))
        target = _last(path)
        if target is None:
            raise ToolError(f"{path} is not there")
        return Move(path, target, _content(target))

    return [as_owner(account, path, partial(plan, path)) for path in paths]


def moves_back(paths: Sequence[Path], account: str) -> list[Move]:
    """Return the renames of checkpoints that were set aside to where they lay.

    Raises:
        ToolError: A path does not lie in a folder `nightshift-refused`, is not there, or may not be looked at.
        Unavailable: The storage did not answer.
    """

    def plan(path: Path) -> Move:
        path = resolved_path(path)
        target = original(path)
        return Move(path, target, _content(path if os.path.lexists(path) else target))

    return [as_owner(account, path, partial(plan, path)) for path in paths]


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
    return as_owner(account, path, lambda: os.path.lexists(resolved_path(path)))


def where_aside(path: Path, account: str) -> Path | None:
    """Return where a checkpoint lies that was set aside, the last one of its name; None where none was.

    Raises:
        ToolError: The owner may not look there.
        Unavailable: The storage did not answer.
    """
    return as_owner(account, path, lambda: _last(resolved_path(path)))


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
        prefix = resolved_path(path)
        if not aside:
            return files_of_prefix(prefix)
        names = {file.name for place in _places(prefix) for file in files_of_prefix(place)}
        return [file for name in sorted(names) if (file := _last(prefix.parent / name)) is not None]

    return as_owner(account, path, files)


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
        with opened_folder(top) as home:
            actor = Actor.of(account, home)
            inner = aside.relative_to(top).parts
            if _is_aside(target) and (source_status := status_in(source.name, home)) is not None:
                actor.must_own(source_status, source)  # before a folder is made beside it
            with opened_below(home, inner, actor, make=_is_aside(target)) as refused:
                at, to = (home, refused) if _is_aside(target) else (refused, home)
                before = status_in(source.name, at)
                if before is None and status_in(target.name, to) is not None:
                    return False
                if before is None:
                    raise ToolError(f"{source} is not there any more")
                actor.must_own(before, source)
                if _content(source) != change.content:
                    raise ToolError(f"{source} is not what it was when the change was decided: {change.content} then, others now")
                rename_in(source.name, at, target.name, to, target)
                after = status_in(target.name, to)
                if after is None or (after.st_dev, after.st_ino) != (before.st_dev, before.st_ino):
                    rename_in(target.name, to, source.name, at, source)
                    raise ToolError(f"{source} was exchanged while it was moved; it lies where it lay")
        return True

    return as_owner(account, source, rename)


def is_link(path: Path, account: str) -> bool:
    """Tell whether a tracker is a link (`latest -> step_40`) and no file, also where it leads nowhere.

    Raises:
        ToolError: The owner may not look there.
        Unavailable: The storage did not answer.
    """
    return as_owner(account, path, path.is_symlink)


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
        with opened_folder(path.parent) as home:
            status = status_in(path.name, home)
            if status is not None:
                Actor.of(account, home).must_own(status, path)
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

    as_owner(account, path, replace)


def tracker_text(path: Path, account: str) -> str:
    """Return what stands in a tracker file, or where a tracker that is a link leads; empty where there is none.

    Raises:
        ToolError: It may not be read, or is longer than any tracker.
    """

    def read() -> str:
        with suppress(FileNotFoundError):
            if path.is_symlink():
                target = str(path.readlink())
                if not is_text(target):
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

    return as_owner(account, path, read)


def resolved(path: Path, account: str) -> Path:
    """Return a path without links but for its last part, as the owner of the job sees it.

    Raises:
        ToolError: The path is not absolute or holds `..`, or the owner may not look there.
        Unavailable: The storage did not answer.
    """
    return as_owner(account, path, lambda: resolved_path(path))


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
