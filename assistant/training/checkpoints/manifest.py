"""The manifest: what makes a checkpoint exist. It is put in place at one stroke after all shards are on the disk.

    <root>/iter_0000040/manifest.json             {"format", "version", "step", "world", "layout", "attempt", "files", …}
    <root>/iter_0000040/attempt-9f2c41d07a-3/…    the shards of one attempt; files: {"attempt-…/name": {"size", checksum}}

Each save of a step writes into a folder of its own, so a save that is killed, at whatever moment, touches none before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assistant.training.checkpoints.errors import Damaged, LoadRefused, NewerManifest, OtherLayout
from assistant.training.checkpoints.segments import CRC32, XXH3, WrittenFile, of_file, replace_file

NAME = "manifest.json"
VERSION = 2
STEP_FOLDER = re.compile(r"iter_(\d+)")
ATTEMPT = "attempt-"


@dataclass(frozen=True)
class Manifest:
    """What is known of one committed checkpoint."""

    step: int
    world: int
    layout: str
    """`dcp`: PyTorch's distributed checkpoint, loads into any number of ranks; `arrays`: NumPy, into as many as saved it."""
    attempt: str
    checksum: str
    files: Mapping[str, WrittenFile]
    """By path relative to the checkpoint's folder."""
    save: Mapping[str, Any] = field(default_factory=dict)
    """What the save cost: `blocked_s` of the training, `wait_s` for the save before it, `persist_s`, `bytes`, `saved_at`."""

    @property
    def shards(self) -> str:
        """Name of the folder with the shards."""
        return ATTEMPT + self.attempt


def folder_of(root: Path, step: int) -> Path:
    """Return where the checkpoint of a step lies."""
    return root / f"iter_{step:07d}"


def write(folder: Path, manifest: Manifest) -> None:
    """Commit: from now on the checkpoint exists."""
    about = {"format": "nightshift", "version": VERSION, "step": manifest.step, "world": manifest.world}
    files = {name: {"size": size, manifest.checksum: value} for name, (size, value) in sorted(manifest.files.items())}
    more = {"layout": manifest.layout, "attempt": manifest.attempt, "save": dict(manifest.save), "files": files}
    replace_file(folder / NAME, json.dumps({**about, **more}, indent=1).encode())


def read(folder: Path) -> Manifest:
    """Return the manifest of a checkpoint.

    Raises:
        NewerManifest: Its version is not known here.
        OtherLayout: Another program of ours wrote it.
        Damaged: There is none, or it cannot be understood.
        OSError: The storage did not give it.
    """
    path = folder / NAME
    try:
        document = json.loads(path.read_bytes())
        version = int(document["version"])
        if version > VERSION:
            raise NewerManifest(f"{path} is of version {version}, this program knows {VERSION}: update assistant.training")
        if "layout" not in document:
            raise OtherLayout(f"{path} was not written by AsyncCheckpointer: load it with the program that saved it")
        checksum = next((name for about in document["files"].values() for name in (XXH3, CRC32) if name in about), CRC32)
        files = {str(name): WrittenFile(int(about["size"]), int(about[checksum])) for name, about in document["files"].items()}
        identity = int(document["step"]), int(document["world"]), str(document["layout"]), str(document["attempt"])
        return Manifest(*identity, checksum, files, dict(document.get("save", {})))
    except FileNotFoundError:
        raise Damaged(f"{folder} has no {NAME}: the save did not finish") from None
    except LoadRefused:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{path} cannot be understood: {error!r}") from error


def committed(root: Path) -> list[int]:
    """Return the steps that AsyncCheckpointer has committed, oldest first; other programs' checkpoints are not among them.

    Raises:
        OSError: The folder cannot be read.
    """
    matches = (STEP_FOLDER.fullmatch(entry.name) for entry in root.iterdir())
    folders = [(int(match.group(1)), root / match.group(0)) for match in matches if match]
    return sorted(step for step, folder in folders if (folder / NAME).exists() and any(folder.glob(f"{ATTEMPT}*")))


def problems(folder: Path, manifest: Manifest, names: Iterable[str] | None = None, *, contents: bool = True) -> list[str]:
    """Return what is wrong with the files of a checkpoint, in plain words.

    Args:
        folder: The checkpoint.
        manifest: Its manifest.
        names: Files to look at; None: all.
        contents: Whether the files are read through and their checksums compared, too.
    """
    faults = []
    for name in manifest.files if names is None else names:
        path, expected = folder / name, manifest.files[name]
        try:
            size = path.stat().st_size
            value = of_file(path, manifest.checksum) if contents and size == expected.size else expected.checksum
        except FileNotFoundError:
            faults.append(f"{name} is missing")
            continue
        except OSError as error:
            faults.append(f"{name} cannot be read: {error.strerror or error}")
            continue
        if size != expected.size:
            faults.append(f"{name} has {size:,} bytes, its manifest says {expected.size:,}")
        elif value is None:
            faults.append(f"{name} cannot be compared: its checksum is {manifest.checksum}; pip install xxhash")
        elif value != expected.checksum:
            faults.append(f"{name} is damaged: its {manifest.checksum} is not the one in the manifest")
    return faults
