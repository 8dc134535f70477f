"""The models that lie in one node's memory: who uses them, who has ordered them, and when they go.

    <root>/<key>.lock        held while the model is copied, counted or removed: one remote read at a time
    <root>/<key>/model/      the model, there only when it is whole
    <root>/<key>/part.…/     being copied; what a crash left of it is removed by the next holder of the lock
    <root>/<key>/whole.json  sizes and digests of the files
    <root>/<key>/users/      one locked file a process that reads it: the kernel drops the lock when the process dies
    <root>/<key>/orders/     one file a run that wants it kept, with the time until which that counts

A model goes when nobody uses it and no order on it counts any more. Nothing of ours stays behind a model that went.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from assistant.evaluation.files import is_held, locked, read_json, write_json
from assistant.private_files import append_private, private_folder

KEEP_S = 6 * 3600.0
"""How long an order counts after it was last renewed: a run that crashed for good blocks memory no longer than this."""


class Shelf:
    """The models in the memory of this node that belong to this user."""

    def __init__(self, root: Path) -> None:
        """Look after the models in a folder, which is made when it is needed."""
        self.root = root

    def folder(self, key: str) -> Path:
        """Return the folder of a model."""
        return self.root / key

    def model(self, key: str) -> Path | None:
        """Return where a model lies; None while it is not whole."""
        whole = read_json(self.folder(key) / "whole.json")
        return self.folder(key) / "model" / whole["name"] if whole is not None else None

    @contextmanager
    def lock_folder(self, key: str, *, wait_s: float | None = None) -> Iterator[Path]:
        """Hold the lock of a model and return its folder.

        Raises:
            TimeoutError: Another process held it for longer than `wait_s`.
        """
        with locked(self.root / f"{key}.lock", wait_s=wait_s):
            yield self.folder(key)

    def order(self, key: str, run: str, *, keep_s: float = KEEP_S) -> None:
        """Let a run want a model, or want it on."""
        write_json(self.folder(key) / "orders" / run, {"until": time.time() + keep_s}, durable=False)

    @contextmanager
    def use_folder(self, key: str, run: str) -> Iterator[Path]:
        """Count as a user of a model that is whole, and return where it lies; ends with the process at the latest.

        Raises:
            FileNotFoundError: It is not whole.
        """
        with self.lock_folder(key):
            model_path = self.model(key)
            if model_path is None:
                raise FileNotFoundError(f"{self.folder(key)} holds no whole model")
            self.order(key, run)
            path = self.folder(key) / "users" / f"{run}.{os.getpid()}.{time.monotonic_ns()}"
            private_folder(path.parent)
            file = append_private(path, "ab")
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield model_path
        finally:
            with suppress(FileNotFoundError):
                path.unlink()
            file.close()

    def users(self, key: str) -> int:
        """Return how many living processes use a model."""
        folder = self.folder(key) / "users"
        return sum(is_held(path) for path in folder.iterdir()) if folder.is_dir() else 0

    def give_up(self, run: str) -> list[str]:
        """Drop all orders of a run, remove what nobody wants any more, and return the keys of what went."""
        for path in self.root.glob(f"*/orders/{run}"):
            path.unlink(missing_ok=True)
        return self.sweep()

    def sweep(self) -> list[str]:
        """Remove what crashed users and copies left, and models that nobody wants; return the keys of what went."""
        removed_keys = []
        for key in sorted({path.name.removesuffix(".lock") for path in self.root.glob("*")} if self.root.is_dir() else ()):
            try:
                with self.lock_folder(key, wait_s=0.0) as folder:
                    if self._unwanted(folder):
                        self._remove(key)
                        removed_keys.append(key)
            except TimeoutError:
                continue  # its holder is at work on it
        with suppress(OSError):
            self.root.rmdir()
        return removed_keys

    def _unwanted(self, folder: Path) -> bool:
        for path in list(folder.glob("users/*")):
            if not is_held(path):
                path.unlink(missing_ok=True)
        for path in list(folder.glob("orders/*")):
            if (read_json(path) or {}).get("until", 0.0) < time.time():
                path.unlink(missing_ok=True)
        if any(folder.glob("users/*")):
            return False
        return not any(folder.glob("orders/*"))

    def _remove(self, key: str) -> None:
        (self.folder(key) / "whole.json").unlink(missing_ok=True)
        shutil.rmtree(self.folder(key), ignore_errors=True)
        (self.root / f"{key}.lock").unlink(missing_ok=True)
