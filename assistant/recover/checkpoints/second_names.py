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


def second_names(found: Sequence[Entry]) -> dict[Path, Path]:
    """Return the other names of checkpoints that are one file each, with the checkpoint that each of them is.

    A name with a number is the checkpoint's own; of the others those count that are written again at each save, and any file of
    weights beside them.

    Args:
        found: The checkpoints of a folder, from `layout.entries`.

    Raises:
        OSError: The folder cannot be read.
    """
    single = [entry for entry in found if len(entry.files) == 1 and entry.path.name in entry.files and not entry.temporary]
    numbered = [entry for entry in single if step_in_name(entry.path.name) is not None]
    rolling = [entry for entry in single if step_in_name(entry.path.name) is None]
    names: dict[Path, Path] = {}
    content = lru_cache(maxsize=None)(_content)
    for place, (path, stat) in enumerate([*((one.path, _stat(one)) for one in rolling), *_others(single)]):
        known = numbered if any(path == one.path for one in rolling) else single
        own = next((one for one in known if stat.inode != (0, 0) and _stat(one).inode == stat.inode), None)
        near = sorted(known, key=lambda one: abs(_stat(one).mtime - stat.mtime))[:NEAREST] if place < MOST_NAMES else []
        own = own or next((one for one in near if _is_copy(content, path, stat, one)), None)
        if own is not None:
            names[path] = own.path
    return names


def with_common_steps(found: Sequence[Entry], names: dict[Path, Path]) -> list[Entry]:
    """Return checkpoints in order, where one that tells no step has that of the other name which it lies under.

    Of one step the checkpoint's own name comes behind its other names: the last one is chosen.
    """
    entries = {entry.path: entry for entry in found}
    for path, own in names.items():
        for one, other in ((path, own), (own, path)):
            known = entries.get(other)
            if one in entries and known is not None and entries[one].step == UNKNOWN_STEP:
                entries[one] = replace(entries[one], step=known.step, format=known.format)
    return sorted(
        entries.values(),
        key=lambda entry: (entry.step, entry.temporary, "-last" not in entry.path.name, entry.path not in names, entry.path.name),
    )


def _stat(entry: Entry) -> FileStat:
    return entry.files[entry.path.name]


def _others(single: Sequence[Entry]) -> Iterator[tuple[Path, FileStat]]:
    """Yield files of weights beside checkpoints that are none by their name, as `model_best.pth.tar`."""
    known = {entry.path for entry in single}
    for folder in dict.fromkeys(entry.path.parent for entry in single):
        for path in list_folder(folder):
            if path not in known and path.name.endswith(SUFFIXES) and not is_second_link(path) and is_regular(path):
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
    if not members or len(members) > MOST_ENTRIES or any(one.file_size and not one.CRC for one in members):
        return None
    return tuple((one.filename.partition("/")[2], one.CRC, one.file_size) for one in members if not one.filename.endswith(DERIVED))


def _digest(path: Path) -> Hashable:
    digest = hashlib.sha256()
    with open_regular(path) as stream:
        while block := stream.read(CHUNK_BYTES):
            digest.update(block)
    return digest.digest()
