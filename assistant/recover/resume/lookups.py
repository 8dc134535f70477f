"""Look up what an inventory knows of a path: which checkpoint it means, whether that is one file, which file of a rank. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from assistant.records import Checkpoint
from assistant.recover.checkpoints.entry import Entry
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.layout import RANK_WORD, rank_of
from assistant.recover.checkpoints.names import SUFFIXES

MOST_LINKS = 64
"""Links of ranks that are set together; of more of them a person is asked."""


def file_of_rank(link: Path, due: Sequence[Path], folder: Inventory | None, checkpoint: Checkpoint) -> str:
    """Return the name that a link has to lead to; empty where more is to be done than to point it, or one of each rank, there.

    `latest-rank0.pt` stands for the links of all ranks, which `set_tracker` sets with it: each must lead to a file of its own rank.
    """
    if not RANK_WORD.search(link.name):
        return checkpoint.path.name if len(due) == 1 else ""
    entry = next((entry for entry in folder.entries if entry.path == checkpoint.path), None) if folder is not None else None
    form = RANK_WORD.sub("", checkpoint.path.name)
    files = {rank_of(name): name for name in (entry.files if entry is not None else ()) if RANK_WORD.sub("", name) == form}
    alike = {RANK_WORD.sub("", due_link.name) for due_link in due} == {RANK_WORD.sub("", link.name)} and len(due) <= MOST_LINKS
    return files.get(rank_of(link.name), "") if alike and all(rank_of(due_link.name) in files for due_link in due) else ""


def step_of_target(target: Path, inventory: Inventory | None) -> int | None:
    """Return the step of a checkpoint that a link leads to, by its name where it was moved away."""
    for entry in inventory.entries if inventory is not None else ():
        if target == entry.path or (target.parent == entry.path.parent and target.name in entry.files):
            return entry.step
    number = re.search(r"(\d{1,18})\D*$", RANK_WORD.sub("", target.name))
    return int(number[1]) if number else None


def covers(pattern: str, path: Path) -> bool:
    """Tell whether a path, or a pattern of a shell, means a checkpoint or a folder above it."""
    return any(fnmatch.fnmatchcase(str(parent), pattern.rstrip("/")) for parent in (path, *path.parents))


def within_folder(folder: Path, path: PurePosixPath) -> tuple[Path, ...]:
    """Return a path that lies in a folder; nothing of any other."""
    return (Path(path),) if folder in Path(path).parents else ()


def entry_of_path(path: PurePosixPath, inventory: Inventory | None) -> Entry | None:
    """Return the checkpoint that a path means, or lies in; of a relative one its last parts count."""
    for entry in inventory.entries if inventory is not None else ():
        same = entry.path in (Path(path), *Path(path).parents) if path.is_absolute() else entry.path.name in path.parts
        if same or (path.is_absolute() and path.parent == PurePosixPath(entry.path.parent) and path.name in entry.files):
            return entry
    return None


def is_prefix(checkpoint: Checkpoint, folder: Inventory | None) -> bool:
    """Tell whether a checkpoint is a prefix of TensorFlow, which `checkpoint` names."""
    return any(entry.path == checkpoint.path and entry.is_prefix for entry in folder.entries) if folder is not None else False


def is_one_file(checkpoint: Checkpoint, folder: Inventory | None) -> bool:
    """Tell whether a checkpoint is one file, of all ranks."""
    entry = next((entry for entry in folder.entries if entry.path == checkpoint.path), None) if folder is not None else None
    alone = entry is None or (len(entry.files) == 1 and entry.path.name in entry.files)
    return alone and checkpoint.path.name.endswith(SUFFIXES) and not RANK_WORD.search(checkpoint.path.name)
