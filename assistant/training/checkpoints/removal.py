"""Remove checkpoints that retention gives up, and what killed saves left. Nothing else in the folder is touched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from assistant.training.checkpoints.manifest import ATTEMPT, NAME, STEP_FOLDER


def remove(folder: Path) -> None:
    """Remove a checkpoint: the manifest first, so that a half of it never counts as one."""
    try:
        (folder / NAME).unlink(missing_ok=True)
    except OSError:
        return
    shutil.rmtree(folder, ignore_errors=True)


def remove_unfinished(root: Path) -> None:
    """Remove the shards of attempts that were never committed."""
    for folder in root.iterdir():
        if not STEP_FOLDER.fullmatch(folder.name) or not folder.is_dir():
            continue
        try:
            kept = committed_attempt(folder)
        except (OSError, ValueError):
            continue  # a manifest that cannot be read now may still be right
        if remove_attempts(folder, kept) and not any(folder.iterdir()):
            folder.rmdir()


def remove_attempts(folder: Path, kept: str) -> int:
    """Remove the shards of all attempts at one step but one.

    Args:
        folder: The checkpoint of the step.
        kept: The attempt that stays; empty: none.

    Returns:
        How many there were.
    """
    others = [other for other in folder.glob(f"{ATTEMPT}*") if other.name != ATTEMPT + kept or not kept]
    for other in others:
        shutil.rmtree(other, ignore_errors=True)
    return len(others)


def committed_attempt(folder: Path) -> str:
    """Return the attempt that is committed in a folder; empty when it holds no manifest.

    Raises:
        OSError: The manifest cannot be read.
        ValueError: It cannot be understood.
    """
    try:
        said = json.loads((folder / NAME).read_bytes())
    except FileNotFoundError:
        return ""
    attempt = said.get("attempt") if isinstance(said, dict) else None
    if not isinstance(attempt, str):
        raise ValueError(f"{folder / NAME} names no attempt")
    return attempt
