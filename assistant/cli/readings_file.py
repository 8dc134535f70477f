"""What the counters of this machine stood at, in a small file: for checks on the node itself, where there is no store.

The file is replaced as a whole. One that is missing, damaged, or on a disk that does not answer costs the rates, never the check.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from assistant.counting import Kept, Reading, from_text, to_text
from assistant.errors import StoreError
from assistant.private_files import private_folder

DEADLINE_S = 0.5
"""Slurm waits for the check: a home on a file server that hangs must not hold a prolog up."""


ReadResult = TypeVar("ReadResult")


class ReadingsFile:
    """The readings of one node."""

    def __init__(self, path: Path, *, deadline_s: float = DEADLINE_S) -> None:
        """Name the file; it need not be there."""
        self.path = path
        self._deadline_s = deadline_s

    def kept_readings(self, nodes: Sequence[str]) -> dict[str, Kept]:
        """Return what is kept of the node; one that cannot be read is none, and says why."""

        def read() -> Kept:
            try:
                return Kept(from_text(self.path.read_text(encoding="utf-8")))
            except FileNotFoundError:
                return Kept()
            except OSError as error:
                return Kept(why=f"{self.path}: {error.strerror}")
            except ValueError:
                return Kept(why=f"{self.path} is damaged and is written anew")

        return dict.fromkeys(nodes, _within(self._deadline_s, read, late=Kept(why=f"{self.path} does not answer")))

    def keep_readings(self, readings: Mapping[str, Sequence[Reading]]) -> None:
        """Replace the file.

        Raises:
            StoreError: It cannot be written.
        """
        (own,) = readings.values()
        text = to_text(own)

        def write() -> str:
            try:
                _replace(self.path, text)
            except OSError as error:
                return error.strerror or str(error)
            return ""

        result = _within(self._deadline_s, write, late="a disk that does not answer")
        if result:
            raise StoreError(f"{self.path}: wanted to keep counters, found: {result}; set state_folder to a local disk")


def _replace(path: Path, text: str) -> None:
    private_folder(path.parent)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        # no fsync: after a power cut the node has booted, and the readings are of no use
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _within(seconds: float, act: Callable[[], ReadResult], *, late: ReadResult) -> ReadResult:
    """Return what a function returns, or `late` when that takes too long; a thread that hangs is left behind."""
    results: list[ReadResult] = []
    thread = threading.Thread(target=lambda: results.append(act()), daemon=True)
    thread.start()
    thread.join(seconds)
    return results[0] if results else late
