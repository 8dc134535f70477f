"""One checkpoint on disk: its path, step, layout and files; and which of a folder are of a program's own layout after all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from assistant.recover.checkpoints.bundles import BUNDLE_FILE, bundle_prefix
from assistant.untrusted import is_folder


class Format(StrEnum):
    """The layouts that are told apart."""

    MEGATRON = "megatron"
    DEEPSPEED = "deepspeed"
    DCP = "dcp"
    """torch.distributed.checkpoint, by itself."""
    HUGGINGFACE = "huggingface"
    INTERNEVO = "internevo"
    NEMO = "nemo"
    """Lightning and NeMo: `*.ckpt`, and the folders `…-step=900-…/weights` of NeMo 2."""
    ACCELERATE = "accelerate"
    """`Accelerator.save_state`: `checkpoint_7/` counts saves, `step_900/` steps."""
    COMPOSER = "composer"
    """`ep0-ba900-rank0.pt`, a file a rank; or a folder of torch.distributed.checkpoint."""
    ORBAX = "orbax"
    """JAX: a folder named by its step, put in place by a rename when it is whole."""
    TORCHTITAN = "torchtitan"
    NIGHTSHIFT = "nightshift"
    """assistant.training: a manifest written last."""
    TENSORFLOW = "tensorflow"
    """A prefix with its index, its shards of data and, before TensorFlow 2, a graph."""
    SAVES = "saves"
    """Checkpoints of TensorFlow that tell no step, only the number of the save: it orders them and counts nothing else."""
    PLAIN = "plain"
    """Files or folders of no layout that we know more about: the step stands in the name, or in a file that is always replaced."""
    EPOCHS = "epochs"
    """Files that tell no step, only the epoch: the number orders them and cannot be compared with steps."""
    PLACED = "placed"
    """Files that tell nothing: the number is that of the checkpoint behind which the attempt wrote them, the least it can be."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """What the file system says about one file."""

    size: int
    mtime: float
    inode: tuple[int, int] = (0, 0)
    """Device and inode; zeros where they are not known."""
    uid: int = -1  # of the account that it belongs to; -1: not known


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
    marked: bool = False
    """Whether NeMo's marker of a save that did not finish lies beside it."""
    slot: str = ""
    """What is common to the names of the files that are written in turn with it; empty where nothing shows such."""

    def file(self, name: str) -> Path:
        """Return where one of its files lies."""
        if self.format is not Format.PLAIN and name.startswith(f"{self.path.name}.") and BUNDLE_FILE.fullmatch(name):
            return self.path.parent / name  # beside a folder that may have the name of the prefix
        return self.path / name if is_folder(self.path) else self.path.parent / name

    @property
    def is_prefix(self) -> bool:
        """Whether its path is no file, but the beginning of the names of its files, as TensorFlow has it."""
        return self.format is not Format.PLAIN and any(bundle_prefix(name) == self.path.name for name in self.files)

    @property
    def loose_files(self) -> list[Path]:
        """Its files where it is no folder, last the one that it goes by: its own path, or the index of a prefix."""
        if not self.is_prefix and is_folder(self.path):
            return []
        last = f"{self.path.name}.index" if self.is_prefix else self.path.name
        return [self.path.parent / name for name in sorted(self.files, key=lambda name: (name == last, name))]


NEVER_MISSING = {Format.DEEPSPEED: ("_model_states.pt",), Format.HUGGINGFACE: ("trainer_state.json",)}
"""Ends of names of files, one of which each save of a framework holds, by layout."""
FEWEST_ALIKE = 2


def in_own_form(listed: Sequence[Entry]) -> list[Entry]:
    """Return checkpoints with those in no framework's layout that lack, all of them, what that framework never leaves out.

    A single one may be a save that was cut; that each of several was cut at the same place is not: then a program of one's own
    names its files alike, and its saves are compared with each other.
    """
    layouts = {
        layout
        for layout, ends in NEVER_MISSING.items()
        if len(alike := [entry for entry in listed if entry.format is layout and entry.files]) >= FEWEST_ALIKE
        and not any(name.endswith(ends) for entry in alike for name in entry.files)
    }
    return [replace(entry, format=Format.PLAIN) if entry.format in layouts else entry for entry in listed]
