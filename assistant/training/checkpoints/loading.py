"""Load the newest checkpoint that is whole, all ranks of a job together.

A checkpoint is whole when its manifest can be read and all its files read through; else the one before it is tried.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

from assistant.training.checkpoints import files
from assistant.training.checkpoints.files import CheckpointError, Damaged, Manifest, OtherLayout
from assistant.training.checkpoints.ranks import Ranks

logger = logging.getLogger(__name__)


class Refusal(NamedTuple):
    """A checkpoint that was passed over."""

    step: int
    reason: str


class Loaded(NamedTuple):
    """A loaded checkpoint, and the newer ones that were refused."""

    step: int
    state: Any
    path: Path
    refused: tuple[Refusal, ...]
    """Newer ones that are damaged, newest first."""


def load_newest(root: Path, ranks: Ranks, state: Any = None, before: int | None = None) -> Loaded | None:
    """Return the newest checkpoint that is whole, or None when there is none at all; all ranks together.

    Args:
        root: The checkpoint folder.
        ranks: Of this job.
        state: For PyTorch: what to load into, as it is given to `save`.
        before: Only steps before this one, for instance before a loss spike.

    Raises:
        NewerManifest: A newer version saved it; older ones are not taken instead, because that would lose steps.
        OtherLayout: It is of another model, or of another number of ranks that it cannot be cut for.
        Damaged: There are some and none is whole.
        CheckpointError: The folder cannot be read.
    """
    refused: list[Refusal] = []
    for step in reversed(_steps(root)):
        if before is not None and step >= before:
            continue
        folder = files.folder_of(root, step)
        try:
            step_manifest = files.read(folder)
            _verify(folder, step_manifest, ranks)
            return Loaded(step, _state(folder, step_manifest, ranks, state), folder, tuple(refused))
        except Damaged as error:
            logger.warning("checkpoint of step %d is passed over: %s", step, error)
            refused.append(Refusal(step, str(error)))
        except OSError as error:
            raise CheckpointError(f"{folder} cannot be read now: {error}; wait until the storage answers") from error
    if refused:
        raise Damaged(f"no checkpoint in {root} is whole: {'; '.join(f'step {step}: {why}' for step, why in refused)}")
    return None


def _steps(root: Path) -> list[int]:
    try:
        return files.committed(root)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{root} cannot be read: {error.strerror or error}") from error


def _verify(folder: Path, step_manifest: Manifest, ranks: Ranks) -> None:
    """Read the files through; ranks that can agree share the work."""
    names = sorted(step_manifest.files)
    problems = files.problems(folder, step_manifest, names[ranks.rank :: ranks.world] if ranks.agrees else names)
    if ranks.highest(len(problems)):
        raise Damaged("; ".join(problems) or "another rank found a damaged file")


def _state(folder: Path, step_manifest: Manifest, ranks: Ranks, state: Any) -> Any:
    shards = folder / step_manifest.shards
    if step_manifest.layout == "arrays":
        if step_manifest.world != ranks.world:
            raise OtherLayout(
                f"{folder} was saved by {step_manifest.world} ranks and this job has {ranks.world}: "
                f"each rank saved its own arrays, "
                "which cannot be cut anew"
            )
        from assistant.training.checkpoints.arrays import read_state

        return read_state(shards, ranks.rank, step_manifest.attempt)
    if step_manifest.layout != "dcp":
        raise OtherLayout(f"{folder} has the layout {step_manifest.layout!r}; known are arrays and dcp")
    try:
        from assistant.training.checkpoints.tensors import load_state
    except ImportError as error:
        raise OtherLayout(f"{folder} holds tensors of PyTorch, which is not installed here: {error}") from error
    return load_state(shards, state, getattr(ranks, "group", None))
