"""How the training frameworks lay checkpoints out in a folder: which entries there are, of which step, in which format."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from assistant.errors import OwnerDenied, UnreadableFile
from assistant.untrusted import is_folder, list_folder, read_start, status_of, walk_files


class Format(StrEnum):
    """The layouts that are told apart."""

    MEGATRON = "megatron"
    DEEPSPEED = "deepspeed"
    DCP = "dcp"
    """torch.distributed.checkpoint, by itself."""
    HUGGINGFACE = "huggingface"
    INTERNEVO = "internevo"
    NEMO = "nemo"
    """Lightning and NeMo: `*.ckpt`."""
    TORCHTITAN = "torchtitan"
    NIGHTSHIFT = "nightshift"
    """assistant.training: a manifest written last."""
    PLAIN = "plain"
    """One file a step, with the step in its name; or a folder a step of no layout that we know more about."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """What the file system says about one file."""

    size: int
    mtime: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One checkpoint on disk, whole or not."""

    path: Path
    step: int
    format: Format
    files: Mapping[str, FileStat]
    """By path relative to the entry; the file's own name when the entry is one file."""
    temporary: bool = False
    """Whether its name marks it as not finished: `tmp-checkpoint-500`."""
    unreadable: str = ""
    """Why its files could not be listed; then `files` is empty."""

    def file(self, name: str) -> Path:
        """Return where one of its files lies."""
        return self.path / name if is_folder(self.path) else self.path


@dataclass(frozen=True, slots=True)
class Tracker:
    """A small file that names the newest finished checkpoint."""

    path: Path
    step: int | None
    """None when its content is no step: empty, cut short, or the word `release`."""
    text: str


TEMPORARY = re.compile(
    r"^(?:\.|tmp[-_.])+|(?:[._-](?:tmp|temp|part|partial|incomplete|unfinished|writing)[\w.-]{0,64})$", re.IGNORECASE
)
# 18 digits fit into 64 bits; no training counts further
DIRECTORY_STEPS = {
    Format.MEGATRON: re.compile(r"iter_(\d{1,18})"),
    Format.DEEPSPEED: re.compile(r"global_?step_?(\d{1,18})"),
    Format.HUGGINGFACE: re.compile(r"checkpoint-(\d{1,18})"),
    Format.TORCHTITAN: re.compile(r"step-(\d{1,18})"),
    Format.INTERNEVO: re.compile(r"(\d{1,18})"),
}
STEP_WORD = re.compile(r"(?:step|iter(?:ation)?)[=_-]?(\d{1,18})(?!\d)", re.IGNORECASE)
LAST_NUMBER = re.compile(r"(?<!\d)(\d{1,18})(?!.{0,255}\d)")
DISTCP = re.compile(r"(?:^|/)__\d+_\d+\.distcp$")
PLAIN_SUFFIXES = frozenset((".pt", ".pth", ".npz", ".bin", ".safetensors"))
NOT_A_CHECKPOINT = re.compile(r"^(?:optim|opt_|sched|rng|tokenizer)|-of-\d+", re.IGNORECASE)
OURS = re.compile(r"\.npz$|^attempt-[0-9a-f]+-\d+/")
"""Files of assistant.training: the demo's shards, and the folder of one save of AsyncCheckpointer."""
TRACKERS = {
    "latest_checkpointed_iteration.txt": re.compile(r"(\d{1,18})"),
    "latest": re.compile(r"global_?step_?(\d{1,18})"),
}
TRACKER_BYTES = 4096
NESTED = ("checkpoints", "checkpoint", "ckpts", "ckpt")


def entries(folder: Path, *, depth: int = 3) -> list[Entry]:
    """Return every checkpoint in a folder, oldest step first; looks into `checkpoints/` and the like when it holds none itself.

    Args:
        folder: Where to look.
        depth: Folders named `checkpoints` and the like inside one another that are looked into.

    Raises:
        OSError: The folder cannot be read.
    """
    children = list_folder(folder)
    found = [entry for child in children if (entry := entry_of(child)) is not None]
    found += [entry for slot in _slots(folder) if (entry := _snapshot(slot)) is not None]
    if not found:
        nested = [folder / name for name in NESTED if depth and is_folder(folder / name)]
        found = [entry for inner in nested for entry in entries(inner, depth=depth - 1)]
    if any(entry.format is Format.NIGHTSHIFT for entry in found):
        # a save that was cut early on has nothing of its own yet that tells it from Megatron's
        found = [replace(entry, format=Format.NIGHTSHIFT) if _bare(entry) else entry for entry in found]
    return sorted(found, key=lambda entry: (entry.step, entry.temporary, "-last" not in entry.path.name, entry.path.name))


def _bare(entry: Entry) -> bool:
    return entry.format is Format.MEGATRON and not any("/" in name or DISTCP.search(name) for name in entry.files)


def entry_of(path: Path) -> Entry | None:
    """Return the checkpoint that lies at a path, or None when it is none."""
    name = TEMPORARY.sub("", path.name)
    if not is_folder(path):
        return _file_entry(path, name)
    unreadable = ""
    try:
        files = stat_files(path)
    except UnreadableFile as error:
        files, unreadable = {}, str(error)
    recognised = _directory_format(name, files)
    if recognised is None:
        return None
    return Entry(path, recognised[1], recognised[0], files, temporary=name != path.name, unreadable=unreadable)


def _file_entry(path: Path, name: str) -> Entry | None:
    suffix = Path(name).suffix
    if suffix == ".ckpt":
        layout, match = Format.NEMO, STEP_WORD.search(name)
    elif suffix in PLAIN_SUFFIXES and not NOT_A_CHECKPOINT.search(name):
        layout, match = Format.PLAIN, STEP_WORD.search(name) or LAST_NUMBER.search(Path(name).stem)
    else:
        return None
    files = {path.name: _stat(path)}
    return Entry(path, int(match.group(1)), layout, files, temporary=name != path.name) if match else None


def _directory_format(name: str, files: Mapping[str, FileStat]) -> tuple[Format, int] | None:
    """Return format and step of a directory, by its name first and by what is in it second."""
    distributed = ".metadata" in files or any(DISTCP.search(file) for file in files)
    if name.endswith(".ckpt"):
        match = STEP_WORD.search(name)
        return (Format.NEMO, int(match.group(1))) if match else None
    for layout, pattern in DIRECTORY_STEPS.items():
        match = pattern.fullmatch(name)
        if match is None:
            continue
        step = int(match.group(1))
        if layout is Format.MEGATRON and any(file == "manifest.json" or OURS.search(file) for file in files):
            return Format.NIGHTSHIFT, step
        if layout is Format.INTERNEVO and not _looks_like_internevo(files):
            break
        if layout is Format.TORCHTITAN and files and not distributed:
            break
        if layout is Format.DEEPSPEED and files and not any(file.endswith("_states.pt") for file in files):
            return (Format.DCP if distributed else Format.PLAIN), step  # verl names its folders alike
        return layout, step
    match = STEP_WORD.search(name) or LAST_NUMBER.search(name)
    return (Format.DCP, int(match.group(1))) if distributed and match else None


def _looks_like_internevo(files: Iterable[str]) -> bool:
    return any(re.match(r"(?:model|optimizer)_\w*tp\d+|context\.pt$|\d+\.step$", file) for file in files)


def _snapshot(slot: Path) -> Entry | None:
    """Return InternEvo's snapshot in one of its two slots; its step stands only in the marker's name."""
    if not is_folder(slot) or not re.fullmatch(r"[01]", slot.name):
        return None
    files = stat_files(slot)
    steps = [int(match.group(1)) for file in files if (match := re.fullmatch(r"(\d{1,18})\.step", file))]
    # Without the marker nothing tells which step it holds, so it cannot be offered at all.
    return Entry(slot, max(steps), Format.INTERNEVO, files) if steps else None


def stat_files(folder: Path) -> dict[str, FileStat]:
    """Return every file below a folder by its relative path.

    Raises:
        OSError: A folder in it cannot be read, leads back to one above it, or holds more files than any checkpoint.
    """
    found = {str(walked.path.relative_to(folder)): _of_status(walked.status) for walked in walk_files(folder)}
    return dict(sorted(found.items()))


def _stat(path: Path) -> FileStat:
    try:
        return _of_status(status_of(path))
    except (FileNotFoundError, OwnerDenied):  # a link that leads nowhere
        return _of_status(None)


def _of_status(status: os.stat_result | None) -> FileStat:
    return FileStat(status.st_size, status.st_mtime) if status is not None else FileStat(0, 0.0)


def tracker(folder: Path) -> Tracker | None:
    """Return the file that names the newest finished checkpoint, when the folder has one."""
    for name, pattern in TRACKERS.items():
        path = folder / name
        try:
            text = read_start(path, TRACKER_BYTES).decode("utf-8", "replace")[:200].strip()
        except FileNotFoundError:
            continue
        except (UnreadableFile, OwnerDenied) as error:
            return Tracker(path, None, f"unreadable: {error}")
        match = pattern.fullmatch(text)
        return Tracker(path, int(match[1]) if match else None, text)
    return None


def _slots(folder: Path) -> list[Path]:
    return list_folder(folder / "snapshot") if is_folder(folder / "snapshot") else []
