"""Give what belongs to a checkpoint second names by hard links, and remove them, with the rights of the job's owner.

The links are made under a name that begins with a dot and are put in place by one rename, so half a checkpoint never looks whole.
A name is removed only where the data have another one. Nothing is copied, read, written or followed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import NamedTuple

from assistant.errors import ToolError
from assistant.recover.checkpoints.names import SECURED
from assistant.recover.checkpoints.owner_files import (
    Actor,
    Result,
    as_owner,
    open_inner,
    opened_below,
    opened_folder,
    rename_in,
    resolved_path,
    status_in,
)
from assistant.recover.checkpoints.secured import PREFIX
from assistant.rendering import command_line

MOST_FILES = 40_000
"""Files and folders of one checkpoint that are given second names: one of 10,000 ranks holds some 40,000."""
MOST_FOLDERS = 32
"""Folders below one another."""
DIGEST_LENGTH = 32
"""Hexadecimal digits: 128 bits."""
_UNLINKABLE = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system answers that has no hard links, and a kernel that lets nobody link a file of another account."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Links(NamedTuple):
    """The second names of one checkpoint."""

    sources: tuple[Path, ...]
    """What lies beside one another in the folder of the run: the checkpoint, and the files of its step."""
    folder: Path
    """Where they come to lie under the same names."""
    content: str
    """Names, inodes, sizes and times of all files: `3 files, 18,000 bytes, sha256:…`; another content is another change."""


class _Stage(Enum):
    """What there is of second names while they are made."""

    NOTHING = auto()
    EMPTY = auto()
    """A folder that is not in place, into which they are linked."""
    LINKED = auto()
    """All of them in such a folder, by an interrupted call; their first names are gone."""
    IN_PLACE = auto()


class _Node(NamedTuple):
    """One file or folder of a checkpoint."""

    name: str
    """Relative to the folder that holds the checkpoint."""
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


def planned_links(path: Path, names: Sequence[str], account: str, tag: str = "") -> Links:
    """Return the second names of a checkpoint, as it lies there now, or as it was linked where the first name is gone.

    Args:
        path: The checkpoint.
        names: Of what lies in its folder and belongs to it, the one by which it goes first.
        account: Of the owner of the job.
        tag: Of the call, which may have been interrupted before.

    Raises:
        ToolError: It is not there, has a link, a pipe or somebody else's file in it, or lies where no second name can be given.
        Unavailable: The storage did not answer.
    """

    def plan() -> Links:
        source = resolved_path(path)
        folder = _place_of(source)
        with opened_folder(folder.parents[2]) as home:
            actor = Actor.of(account, home)
            device = os.fstat(home).st_dev
        if names and os.path.lexists(source.with_name(names[0])):
            with opened_folder(source.parent) as own:
                nodes = _nodes(own, names, source.parent, actor)
            elsewhere = next((node.name for node in nodes if node.status.st_dev != device), None)
            if elsewhere is not None:
                raise ToolError(
                    f"{source.parent / elsewhere} lies on another file system than {folder.parents[2]}, and a hard link does not "
                    "reach across; nothing is copied"
                )
            return Links(tuple(source.parent / name for name in names), folder, _content(nodes))
        for place in (folder, folder.with_name(_unfinished(folder.name, tag))):
            with suppress(FileNotFoundError), opened_folder(place) as inner:
                linked_names = sorted(_listed(inner), key=lambda name: (name != source.name, name))
                return Links(
                    tuple(source.parent / name for name in linked_names),
                    folder,
                    _content(_nodes(inner, linked_names, place, actor)),
                )
        raise ToolError(f"{source} is not there any more")

    return as_owner(account, path, plan)


def free_bytes(path: Path, account: str) -> int:
    """Return how much may still be written to the file system of a path, without what quotas of an account leave."""

    def free() -> int:
        status = os.statvfs(path.parent)
        return status.f_bavail * status.f_frsize

    return as_owner(account, path, free)


def link_all(links: Links, account: str, tag: str, last_look: Callable[[Path | None], None] = lambda _: None) -> bool:
    """Make second names, all or none; what an interrupted call of the same tag has begun is begun anew, or put in place.

    Args:
        links: What is linked.
        account: Of the owner of the job.
        tag: Of the call.
        last_look: Called right before each source is linked, and with None right before all are put in place; what it raises ends
            it. It runs in the caller's thread, with the rights of this process.

    Returns:
        Whether they were made now.

    Raises:
        ToolError: The content is another one, the place is taken, or the owner may not make links there.
        Unavailable: The storage did not answer.
    """
    folder, unfinished = links.folder, _unfinished(links.folder.name, tag)

    def begin() -> _Stage:
        with _opened_place(folder, account, make=True) as (place, actor):
            if status_in(folder.name, place) is not None:
                _must_hold(place, folder.name, links, actor)
                return _Stage.IN_PLACE
            if status_in(unfinished, place) is not None:
                if not os.path.lexists(links.sources[0]) and _holds(place, unfinished, links, actor):
                    return _Stage.LINKED
                _remove_tree(place, unfinished, folder.with_name(unfinished))
            os.mkdir(unfinished, 0o700, dir_fd=place)
        return _Stage.EMPTY

    def link(source: Path) -> None:
        with _opened_place(folder, account, make=False) as (place, actor):
            _link_into(place, unfinished, links, source, actor)

    def finish() -> None:
        with _opened_place(folder, account, make=False) as (place, actor):
            if not _holds(place, unfinished, links, actor):
                raise ToolError(
                    f"{links.sources[0]} is not what it was when the change was decided ({links.content}): its program removes or "
                    "writes it now"
                )
            _sync_folders(place, unfinished)
            rename_in(unfinished, place, folder.name, place, folder)
            _sync(place)

    def step(work: Callable[[], Result]) -> Result:
        return as_owner(account, links.sources[0], partial(_with_reason, work, links))

    try:
        progress = _Stage.NOTHING
        for source in links.sources:
            last_look(source)
            progress = step(begin) if progress is _Stage.NOTHING else progress
            if progress is _Stage.EMPTY:
                step(partial(link, source))
        if progress is not _Stage.IN_PLACE:
            last_look(None)
            step(finish)
    except ToolError:
        withdraw_links(folder, account, tag)
        raise
    return progress is not _Stage.IN_PLACE


def withdraw_links(folder: Path, account: str, tag: str) -> None:
    """Remove what an interrupted or failed call has begun; nothing of it looks like a checkpoint.

    Raises:
        ToolError: Something of it has no other name any more and stays.
        Unavailable: The storage did not answer.
    """

    def remove() -> None:
        unfinished = _unfinished(folder.name, tag)
        with suppress(FileNotFoundError), _opened_place(folder, account, make=False) as (place, _):
            if status_in(unfinished, place) is not None:
                _remove_tree(place, unfinished, folder.with_name(unfinished))
        _remove_empty(folder, account)

    as_owner(account, folder, remove)


def unlink_all(folder: Path, content: str, account: str, tag: str) -> bool:
    """Remove second names, all or none of them, where they are still those of the same files and each file has another name.

    Returns:
        Whether they were removed now.

    Raises:
        ToolError: Another file lies there, a file has no other name any more, or the owner may not remove them.
        Unavailable: The storage did not answer.
    """
    going = _unfinished(folder.name, tag)

    def remove() -> bool:
        removed = False
        with suppress(FileNotFoundError), _opened_place(folder, account, make=False) as (place, actor):
            if status_in(folder.name, place) is not None:
                nodes = _nodes_below(place, folder.name, folder, actor)
                if content and _content(nodes) != content:
                    raise ToolError(f"{folder} does not hold what was linked there: {content} then, others now; it stays as it is")
                last = next((node.name for node in nodes if not node.is_folder and node.status.st_nlink < 2), None)
                if last is not None:
                    raise ToolError(
                        f"{folder / last} is the only name of its data now, for the program has removed the other one: it stays. "
                        f"To delete the checkpoint for good: {command_line(['rm', '-r', str(folder)])}"
                    )
                rename_in(folder.name, place, going, place, folder.with_name(going))
            if status_in(going, place) is not None:
                _remove_tree(place, going, folder.with_name(going))
                removed = True
        _remove_empty(folder, account)
        return removed

    return as_owner(account, folder, remove)


def linked_content(folder: Path, account: str) -> str | None:
    """Return what a folder of second names holds; None where it is not there.

    Raises:
        ToolError: The owner may not look there, or something else than files and folders of the owner lies there.
        Unavailable: The storage did not answer.
    """

    def look() -> str | None:
        with suppress(FileNotFoundError), _opened_place(folder, account, make=False) as (place, actor):
            if status_in(folder.name, place) is not None:
                return _content(_nodes_below(place, folder.name, folder, actor))
        return None

    return as_owner(account, folder, look)


def secured_folder(path: Path, account: str) -> Path:
    """Return the folder in which the second name of a checkpoint comes to lie.

    Raises:
        ToolError: It lies too near to the root of its file system tree, or its owner may not look there.
        Unavailable: The storage did not answer.
    """
    return as_owner(account, path, lambda: _place_of(resolved_path(path)))


def is_begun(folder: Path, account: str, tag: str) -> bool:
    """Tell whether something of an interrupted call lies there that was not put in place, or not removed wholly."""
    return as_owner(account, folder, lambda: os.path.lexists(folder.with_name(_unfinished(folder.name, tag))))


def _place_of(source: Path) -> Path:
    if len(source.parts) < 4:
        raise ToolError(f"{source} lies right below the root: there is no place beside its folder")
    if SECURED in source.parts:
        raise ToolError(f"{source} is a second name already")
    return source.parent.parent / SECURED / source.parent.name / f"{PREFIX}{source.name}"


def _unfinished(name: str, tag: str) -> str:
    return f".{hashlib.sha256(f'{name} {tag}'.encode()).hexdigest()[:16]}.unfinished"


@contextmanager
def _opened_place(folder: Path, account: str, *, make: bool) -> Iterator[tuple[int, Actor]]:
    """Open the folder that holds the second names of a run's checkpoints."""
    home_path = folder.parents[2]
    with opened_folder(home_path) as home:
        actor = Actor.of(account, home)
        with opened_below(home, (SECURED, folder.parent.name), actor, make=make) as place:
            yield place, actor


def _with_reason(make: Callable[[], Result], links: Links) -> Result:
    """Return what `make` returns; an error of the file system says what it means for a link."""
    try:
        return make()
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise ToolError(f"{links.folder} lies on another file system than {links.sources[0]}; nothing is copied") from error
        if error.errno in _FULL:
            full = "quota of its owner is used up" if error.errno == errno.EDQUOT else "file system is full"
            raise ToolError(f"{links.sources[0]} was not given a second name: the {full} ({error.strerror})") from error
        if error.errno in _UNLINKABLE:
            raise ToolError(
                f"{links.sources[0]} was not given a second name in {links.folder.parents[2]}: {error.strerror}; its file system "
                "makes no hard links, or its owner may not make one"
            ) from error
        raise


def _nodes(folder: int, names: Sequence[str], path: Path, actor: Actor) -> list[_Node]:
    """Return the files and folders under some names of an open folder; nothing is followed.

    Raises:
        ToolError: One is neither file nor folder, is another user's, or there are too many.
    """
    nodes: list[_Node] = []

    def walk(above: int, name: str, relative: str, depth: int) -> None:
        status = os.stat(name, dir_fd=above, follow_symlinks=False)
        actor.must_own(status, path / relative)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise ToolError(f"{path / relative} is neither a regular file nor a folder: such a checkpoint is secured by hand")
        nodes.append(_Node(relative, status))
        if len(nodes) > MOST_FILES:
            raise ToolError(f"{path / names[0]} holds more than {MOST_FILES:,} files: it is secured by hand")
        if not stat.S_ISDIR(status.st_mode):
            return
        if depth >= MOST_FOLDERS:
            raise ToolError(f"{path / relative} lies deeper than {MOST_FOLDERS} folders")
        handle = open_inner(name, above, path / relative)
        try:
            for inner in _listed(handle):
                walk(handle, inner, f"{relative}/{inner}", depth + 1)
        finally:
            os.close(handle)

    for name in names:
        walk(folder, name, name, 0)
    return nodes


def _nodes_below(place: int, name: str, path: Path, actor: Actor) -> list[_Node]:
    """Return the files and folders that a folder of an open one holds."""
    actor.must_own(os.stat(name, dir_fd=place, follow_symlinks=False), path)
    handle = open_inner(name, place, path)
    try:
        return _nodes(handle, _listed(handle), path, actor)
    finally:
        os.close(handle)


def _content(nodes: Sequence[_Node]) -> str:
    """Return number and size of files, and a digest of names, inodes, sizes and times: the same under each of their names."""
    lines, files, size = [], 0, 0
    for node in nodes:
        status = node.status
        if node.is_folder:
            lines.append(f"{node.name}\0/")
            continue
        files, size = files + 1, size + status.st_size
        lines.append(f"{node.name}\0{status.st_dev}\0{status.st_ino}\0{status.st_size}\0{status.st_mtime_ns}")
    digest = hashlib.sha256("\0\0".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()[:DIGEST_LENGTH]
    return f"{files:,} file{'s' if files != 1 else ''}, {size:,} bytes, sha256:{digest}"


def _holds(place: int, name: str, links: Links, actor: Actor) -> bool:
    return _content(_nodes_below(place, name, links.folder.with_name(name), actor)) == links.content


def _must_hold(place: int, name: str, links: Links, actor: Actor) -> None:
    if not _holds(place, name, links, actor):
        raise ToolError(f"{links.folder} is there already and holds other files: it stays as it is")


def _listed(folder: int) -> list[str]:
    """Return the names in an open folder, sorted.

    Raises:
        ToolError: There are more than of any checkpoint.
    """
    names: list[str] = []
    with os.scandir(f"/proc/self/fd/{folder}") as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) > MOST_FILES:
                raise ToolError(f"a folder of the checkpoint holds more than {MOST_FILES:,} files: it is secured by hand")
    return sorted(names)


def _link_into(place: int, unfinished: str, links: Links, path: Path, actor: Actor) -> None:
    """Link all files of a source into a folder that is not in place yet, and give that the mode of the source's own."""
    target = open_inner(unfinished, place, links.folder)
    try:
        with opened_folder(path.parent) as source:
            _link(source, path.name, target, path, actor)
            mode = stat.S_IMODE(os.fstat(source).st_mode)
            Path(f"/proc/self/fd/{target}").chmod(mode | 0o700)
    finally:
        os.close(target)


def _link(above: int, name: str, target: int, path: Path, actor: Actor) -> None:
    status = os.stat(name, dir_fd=above, follow_symlinks=False)
    actor.must_own(status, path)
    if stat.S_ISREG(status.st_mode):
        os.link(name, name, src_dir_fd=above, dst_dir_fd=target, follow_symlinks=False)
        return
    if not stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{path} is neither a regular file nor a folder: such a checkpoint is secured by hand")
    os.mkdir(name, 0o700, dir_fd=target)
    source_inner = open_inner(name, above, path)
    target_inner = open_inner(name, target, path)
    try:
        for inner in _listed(source_inner):
            _link(source_inner, inner, target_inner, path / inner, actor)
        Path(f"/proc/self/fd/{target_inner}").chmod(stat.S_IMODE(status.st_mode) | 0o700)
    finally:
        os.close(source_inner)
        os.close(target_inner)


def _remove_tree(place: int, name: str, path: Path) -> None:
    """Remove a folder of second names that is not in place; a file whose data have no other name stays.

    Raises:
        ToolError: Such a file, or something that we did not make, lies in it.
    """
    last_names: list[Path] = []

    def remove(above: int, inner: str, inner_path: Path) -> None:
        status = status_in(inner, above)
        if status is None:
            return
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            os.unlink(inner, dir_fd=above)
            return
        if not stat.S_ISDIR(status.st_mode):
            last_names.append(inner_path)
            return
        handle = open_inner(inner, above, inner_path)
        try:
            for child in _listed(handle):
                remove(handle, child, inner_path / child)
        finally:
            os.close(handle)
        with suppress(OSError):
            os.rmdir(inner, dir_fd=above)

    remove(place, name, path)
    if last_names:
        raise ToolError(f"{last_names[0]} is the only name of its data now and stays: what lies in {path} is no whole checkpoint")


def _remove_empty(folder: Path, account: str) -> None:
    """Remove the folders that hold second names where they are empty."""
    home_path = folder.parents[2]
    with suppress(OSError), opened_folder(home_path) as home:
        actor = Actor.of(account, home)
        with suppress(OSError, ToolError), opened_below(home, (SECURED,), actor, make=False) as above:
            os.rmdir(folder.parent.name, dir_fd=above)
        with suppress(OSError):
            os.rmdir(SECURED, dir_fd=home)


def _sync_folders(place: int, name: str) -> None:
    """Bring the names of a folder and of those below it to the disk before it is put in place."""
    handle = open_inner(name, place, Path(name))
    try:
        for inner in _listed(handle):
            status = status_in(inner, handle)
            if status is not None and stat.S_ISDIR(status.st_mode):
                _sync_folders(handle, inner)
        _sync(handle)
    finally:
        os.close(handle)


def _sync(folder: int) -> None:
    """Bring the names of one folder to the disk, where its file system does that for a folder."""
    with suppress(OSError):
        handle = os.open(f"/proc/self/fd/{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
