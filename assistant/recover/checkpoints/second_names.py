"""Names under which one checkpoint lies twice in a folder: whoever loads `last.pth.tar` loads `checkpoint-5.pth.tar`.

timm and the examples of PyTorch keep such names as hard links or copies, others save the same state twice. Told by device and
inode, else by content: the checksums of all members of a zip of PyTorch, or every byte of a small file. A file of the same size or
the same time alone is another checkpoint. Links in the folder itself are told by `layout.links`.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from assistant.errors import UnreadableFile
from assistant.recover.checkpoints.files import CHUNK_BYTES, ZIP_HEAD
from assistant.recover.checkpoints.layout import UNKNOWN_STEP, Entry, FileStat, file_stat, is_second_link, step_in_name
from assistant.recover.checkpoints.names import SUFFIXES
from assistant.recover.checkpoints.zipsource import ZipSource
from assistant.untrusted import MOST_ENTRIES, is_regular, list_folder, open_regular, read_start

NEAREST = 3
"""Checkpoints whose content is compared with that of one name: those that were written at nearly the same time."""
MOST_NAMES = 12
"""Names of one folder that are compared by content."""
SMALL_BYTES = 64 << 20
"""Of a file without checksums of its own, that is read to be compared."""
DERIVED = ".data/serialization_id"
"""A member of PyTorch's zip that is computed from the others."""


def second_names(entries: Sequence[Entry]) -> dict[Path, Path]:
    """Return the other names of checkpoints that are one file each, with the checkpoint that each of them is.

    A name with a number is the checkpoint's own; of the others those count that are written again at each save, and any file of
    weights beside them.

    Args:
        entries: The checkpoints of a folder, from `layout.entries`.

    Raises:
        OSError: The folder cannot be read.
    """
    single = [entry for entry in entries if len(entry.files) == 1 and entry.path.name in entry.files and not entry.temporary]
    numbered = [entry for entry in single if step_in_name(entry.path.name) is not None]
    rolling = [entry for entry in single if step_in_name(entry.path.name) is None]
    names: dict[Path, Path] = {}
    content = lru_cache(maxsize=None)(_content)
    for place, (path, stat) in enumerate([*((entry.path, _stat(entry)) for entry in rolling), *_files_beside(single)]):
        candidates = numbered if any(path == entry.path for entry in rolling) else single
        own = next((entry for entry in candidates if stat.inode != (0, 0) and _stat(entry).inode == stat.inode), None)
        near = sorted(candidates, key=lambda entry: abs(_stat(entry).mtime - stat.mtime))[:NEAREST] if place < MOST_NAMES else []
        own = own or next((entry for entry in near if _is_copy(content, path, stat, entry)), None)
        if own is not None:
            names[path] = own.path
    return names


def with_common_steps(entries: Sequence[Entry], names: dict[Path, Path]) -> list[Entry]:
    """Return checkpoints in order, where one that tells no step has that of the other name which it lies under.

    Of one step the checkpoint's own name comes behind its other names: the last one is chosen.
    """
    by_path = {entry.path: entry for entry in entries}
    for name, own in names.items():
        for path, twin in ((name, by_path.get(own)), (own, by_path.get(name))):
            if path in by_path and twin is not None and by_path[path].step == UNKNOWN_STEP:
                by_path[path] = replace(by_path[path], step=twin.step, format=twin.format)
    return sorted(
        by_path.values(),
        key=lambda entry: (entry.step, entry.temporary, "-last" not in entry.path.name, entry.path not in names, entry.path.name),
    )


def _stat(entry: Entry) -> FileStat:
    return entry.files[entry.path.name]


def _files_beside(single: Sequence[Entry]) -> Iterator[tuple[Path, FileStat]]:
    """Yield files of weights beside checkpoints that are none by their name, as `model_best.pth.tar`."""
    candidates = {entry.path for entry in single}
    for folder in dict.fromkeys(entry.path.parent for entry in single):
        for path in list_folder(folder):
            if path not in candidates and path.name.endswith(SUFFIXES) and not is_second_link(path) and is_regular(path):
                yield path, file_stat(path)


def _is_copy(content: Callable[[Path, int], Hashable | None], path: Path, stat: FileStat, entry: Entry) -> bool:
    own = content(path, stat.size)
    return own is not None and own == content(entry.path, _stat(entry).size)


def _content(path: Path, size: int) -> Hashable | None:
    """Return what is the same of two files only where their content is; None where that cannot be told cheaply."""
    try:
        if read_start(path, len(ZIP_HEAD)) == ZIP_HEAD:
            return _checksums(path)
        return _digest(path) if 0 < size <= SMALL_BYTES else None
    except (OSError, UnreadableFile, zipfile.BadZipFile, ValueError, RuntimeError, OverflowError, IndexError, zlib.error, EOFError):
        return None


def _checksums(path: Path) -> Hashable | None:
    """Return names, checksums and sizes of all members of a zip without its topmost folder, which PyTorch calls as the file."""
    with ZipSource(path) as source, zipfile.ZipFile(source) as archive:
        members = archive.infolist()
    # with torch.serialization.set_crc32_options(False) none was written
    if not members or len(members) > MOST_ENTRIES or any(entry.file_size and not entry.CRC for entry in members):
        return None
    return tuple(
        (entry.filename.partition("/")[2], entry.CRC, entry.file_size) for entry in members if not entry.filename.endswith(DERIVED)
    )


def _digest(path: Path) -> Hashable:
    digest = hashlib.sha256()
    with open_regular(path) as stream:
        while block := stream.read(CHUNK_BYTES):
            digest.update(block)
    return digest.digest()
