"""What can go wrong with a checkpoint, each with the step it belongs to.

CheckpointError
├── SaveFailed         a save was not committed; the checkpoints before it are untouched
├── UnsupportedState   the state holds something that no checkpoint can hold; nothing was written
├── FolderInUse        another run writes into this folder
└── LoadRefused        a checkpoint must not be loaded
    ├── Damaged        a file is missing, cut short or changed
    ├── NewerManifest  written by a newer version
    └── OtherLayout    saved by another number of ranks, or with other names, shapes or kinds
"""

from __future__ import annotations


class CheckpointError(RuntimeError):
    """Root of the errors of checkpoints."""


class SaveFailed(CheckpointError):
    """A save was not committed; the checkpoints before it are untouched."""

    def __init__(self, step: int, reason: str) -> None:
        """Say which save it was.

        Args:
            step: The step whose state was to be saved, which may be earlier than the call that raises this.
            reason: What happened, and what to do.
        """
        super().__init__(f"checkpoint of step {step} was not saved: {reason}")
        self.step, self.reason = step, reason


class UnsupportedState(CheckpointError):
    """The state holds something that no checkpoint can hold; nothing was written."""


class FolderInUse(CheckpointError):
    """Another run writes into this folder."""


class LoadRefused(CheckpointError):
    """A checkpoint must not be loaded."""


class Damaged(LoadRefused):
    """A file of it is missing, cut short or changed."""


class NewerManifest(LoadRefused):
    """The manifest was written by a newer version, whose format is not known here."""


class OtherLayout(LoadRefused):
    """The checkpoint was saved by another number of ranks, or with other names, shapes or kinds."""
