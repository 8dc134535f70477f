"""Checkpoints of the demo's trainer: one folder a step, a manifest with sizes and CRC-32s that is written last.

    <checkpoints>/iter_0000040/model.npz             parameters, by rank 0
    <checkpoints>/iter_0000040/optimizer_rank3.npz   each rank's slice of Adam's moments
    <checkpoints>/iter_0000040/manifest.json         {"step", "world", "next_sample", "files": {name: {size, crc32}}, …}
    <checkpoints>/latest_checkpointed_iteration.txt  the newest step, written after the manifest

Shards are written in place, so a crash leaves them cut; without a manifest that fits, a checkpoint is not complete.
"""

from __future__ import annotations

import io
import json
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from assistant.training.model import AdamW, Floats, views
from assistant.training.ring import Ring

TRACKER = "latest_checkpointed_iteration.txt"
MANIFEST = "manifest.json"
OUTAGE = "storage_down_until"
"""File in the checkpoint folder that stands for a storage outage: seconds since 1970 at which it is over."""


class StorageDown(Exception):
    """The storage does not take or give anything now."""


class TrainingPosition(NamedTuple):
    """How far training has come."""

    step: int
    next_sample: int


def folder_of(root: Path, step: int) -> Path:
    """Return the folder of a step."""
    return root / f"iter_{step:07d}"


def write_tracker(root: Path, step: int) -> None:
    """Name the newest checkpoint."""
    _replace(root / TRACKER, str(step))


def check_storage(root: Path) -> None:
    """Raise when the storage is down.

    Raises:
        StorageDown: It is.
    """
    try:
        until = float((root / OUTAGE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return
    if time.time() < until:
        raise StorageDown(str(root))


def save(
    root: Path,
    position: TrainingPosition,
    state: tuple[Floats, AdamW],
    *,
    ring: Ring,
    halfway: Callable[[], None] = lambda: None,
) -> None:
    """Write a checkpoint together with all other ranks.

    Args:
        root: The folder of all checkpoints.
        position: Where training stands.
        state: Parameters and optimiser; all ranks have the same, each writes its share.
        ring: To agree on the files.
        halfway: Called when half of this rank's last shard is written.

    Raises:
        StorageDown: The storage takes nothing.
        OSError: A real one.
    """
    folder = folder_of(root, position.step)
    folder.mkdir(parents=True, exist_ok=True)
    if ring.rank == 0:
        (folder / MANIFEST).unlink(missing_ok=True)
    ring.barrier()
    flat, optimizer = state
    checksums = np.zeros((ring.world + 1, 2), dtype=np.float64)
    if ring.rank == 0:
        checksums[-1] = _write_shard(folder / "model.npz", views(flat))
    own = slice(*_slice(len(flat), ring.rank, ring.world))
    moments = {"first": optimizer.first[own], "second": optimizer.second[own]}
    checksums[ring.rank] = _write_shard(folder / f"optimizer_rank{ring.rank}.npz", moments, halfway)
    agreed = ring.all_reduce(checksums.ravel()).reshape(-1, 2)
    if ring.rank == 0:
        names = [*(f"optimizer_rank{rank}.npz" for rank in range(ring.world)), "model.npz"]
        files = {name: {"size": int(row[0]), "crc32": int(row[1])} for name, row in zip(names, agreed.tolist(), strict=True)}
        about = {"format": "nightshift", "version": 1, "step": position.step, "world": ring.world}
        _replace(folder / MANIFEST, json.dumps({**about, "next_sample": position.next_sample, "files": files}, indent=1))
        write_tracker(root, position.step)


def load(folder: Path) -> tuple[TrainingPosition, Floats, AdamW]:
    """Read a checkpoint; the number of ranks may differ from the one that wrote it.

    Raises:
        RuntimeError: It has no manifest: the save did not finish.
        zipfile.BadZipFile: A shard is cut or damaged.
        StorageDown: The storage gives nothing.
    """
    check_storage(folder.parent)
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise RuntimeError(f"checkpoint {folder} is not complete: it has no {MANIFEST}") from None
    with (folder / "model.npz").open("rb") as file, np.load(file) as archive:
        flat = np.concatenate([archive[name].ravel() for name in archive.files])
    optimizer = AdamW(len(flat))
    for rank in range(manifest["world"]):
        own = slice(*_slice(len(flat), rank, manifest["world"]))
        with (folder / f"optimizer_rank{rank}.npz").open("rb") as file, np.load(file) as archive:
            optimizer.first[own], optimizer.second[own] = archive["first"], archive["second"]
    return TrainingPosition(manifest["step"], manifest["next_sample"]), flat, optimizer


def newest_complete(root: Path) -> Path | None:
    """Return the newest checkpoint that has a manifest."""
    return max((path.parent for path in root.glob(f"iter_*/{MANIFEST}")), default=None)


def _slice(size: int, rank: int, world: int) -> tuple[int, int]:
    return size * rank // world, size * (rank + 1) // world


def _write_shard(path: Path, tensors: dict[str, Floats], halfway: Callable[[], None] = lambda: None) -> tuple[int, int]:
    """Write a shard in two pieces and return its size and CRC-32."""
    check_storage(path.parent.parent)
    buffer = io.BytesIO()
    np.savez(buffer, **tensors)  # type: ignore[arg-type]
    content = buffer.getvalue()
    with path.open("wb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
        halfway()
        file.write(content[len(content) // 2 :])
        file.flush()
        os.fsync(file.fileno())
    return len(content), zlib.crc32(content)


def _replace(path: Path, text: str) -> None:
    part_path = path.with_name(f".{path.name}.{os.getpid()}")
    with part_path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part_path.replace(path)
