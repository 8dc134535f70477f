"""Checkpoints in the background that are whole or do not exist; for any training loop. docs/checkpoints.md shows how.

Imports nothing of Nightshift. PyTorch and NumPy are needed only for states that hold their tensors or arrays.

Read `checkpointer` first (the class that training loops use), then `saving` (one save after the other) with `arrays`, `tensors` and
`torch_state` (how a state is laid out, copied and loaded), `protocol` and `writer` (who persists it), `persist` and
`files` (what lies on the disk), `ranks` (what all ranks agree on) and `loading` (the newest checkpoint that is whole).
"""

from assistant.training.checkpoints.checkpointer import AsyncCheckpointer
from assistant.training.checkpoints.files import (
    CheckpointError,
    Damaged,
    FolderInUse,
    LoadRefused,
    NewerManifest,
    OtherLayout,
    SaveFailed,
    UnsupportedState,
)
from assistant.training.checkpoints.loading import Loaded, Refusal

__all__ = [
    "AsyncCheckpointer",
    "CheckpointError",
    "Damaged",
    "FolderInUse",
    "LoadRefused",
    "Loaded",
    "NewerManifest",
    "OtherLayout",
    "Refusal",
    "SaveFailed",
    "UnsupportedState",
]
