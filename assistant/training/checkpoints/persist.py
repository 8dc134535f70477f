"""Persist one snapshot in two phases: all shards of all ranks on the disk, then the manifest; only one run at a time in a folder.

<step>/attempt-…/           each rank writes its shards here
<step>/attempt-…/1.begun    a rank has begun; ranks but the first
<step>/attempt-…/1.ack      its shards are on the disk: their sizes and checksums, or why they are not
<step>/manifest.json        written by rank 0 when all have acknowledged this very attempt

Runs in the writer.

The lock of a folder is a file with pid, boot and host, that a dead writer holds no longer. The kernel's lock on the file counts
where all is on one machine. Where another host holds it, its beats do: a writer touches the file each second, and only a file that
stays as it is for some seconds is taken over. No two clocks are compared.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assistant.training.checkpoints import files as manifests
from assistant.training.checkpoints.files import (
    ATTEMPT,
    NAME,
    STEP_FOLDER,
    FolderInUse,
    LoadRefused,
    WrittenFile,
    replace_file,
    sync_folder,
    write_file,
)
from assistant.training.checkpoints.protocol import Layout, Order, SaveSummary, Setup

LOCK_NAME = ".writer.lock"
REQUEST_NAME = ".writer.wanted"
"""Lies in the folder while another run waits for it: an orphaned writer then gives up waiting for ranks that are gone."""
BEAT_S = 1.0
SILENT_S = 5.0
LOCK_POLL_S = 0.05


class FolderLock:
    """The right to commit checkpoints in a folder."""

    def __init__(self, root: Path) -> None:
        """Name the folder; nothing is done yet."""
        self.path, self.request_path = root / LOCK_NAME, root / REQUEST_NAME
        self._descriptor = -1
        self._over = threading.Event()

    def claim(self, patience_s: float) -> None:
        """Take it; a writer that still persists what a dead run left is waited for.

        Raises:
            FolderInUse: Another run holds it, still after `patience_s`.
            OSError: The folder cannot be written.
        """
        until = time.monotonic() + patience_s
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            while not self._locked() or not self._silent():
                self.request_path.touch()
                if time.monotonic() >= until:
                    raise FolderInUse(self._holder_text())
                time.sleep(LOCK_POLL_S)
        except BaseException:
            os.close(self._descriptor)
            self._descriptor = -1
            raise
        self.request_path.unlink(missing_ok=True)
        self._write({"pid": os.getpid(), "boot": _boot(), "host": socket.gethostname(), "at": time.time()})
        threading.Thread(target=self._beat, name="lock", daemon=True).start()

    def check(self) -> None:
        """Make sure that this process still holds the lock.

        Raises:
            FileNotFoundError: The file is gone or another one lies there: the file system vanished, or was replaced.
        """
        own_stat, path_stat = os.fstat(self._descriptor), self.path.stat()
        if (own_stat.st_ino, own_stat.st_dev) != (path_stat.st_ino, path_stat.st_dev):
            raise FileNotFoundError(
                errno.ENOENT, "another folder has come in its place; is the file system mounted?", str(self.path)
            )

    def is_wanted(self) -> bool:
        """Tell whether another run waits for the folder."""
        return self.request_path.exists()

    def release(self) -> None:
        """Give the lock back."""
        if self._descriptor < 0:
            return
        self._over.set()
        with contextlib.suppress(OSError):  # the folder is gone, and the lock with it
            self._write({})
        os.close(self._descriptor)
        self._descriptor = -1

    def _locked(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks: the beats alone tell
            return True
        return True

    def _silent(self) -> bool:
        """Tell whether whoever is named in the file is gone."""
        holder = self._read()
        if not holder or holder.get("boot") == _boot():
            return not holder or not _alive(int(holder.get("pid", 0))) or int(holder.get("pid", 0)) == os.getpid()
        if holder.get("host") == socket.gethostname():
            return True  # this machine was started anew since
        before = self.path.stat().st_mtime_ns
        until = time.monotonic() + SILENT_S
        while time.monotonic() < until:
            time.sleep(LOCK_POLL_S)
            if self.path.stat().st_mtime_ns != before:
                return False
        return True

    def _holder_text(self) -> str:
        holder = self._read()
        writer = f"pid {holder.get('pid', '?')} on {holder.get('host', '?')}" if holder else "another process"
        return f"{self.path.parent} is written by {writer}: two runs must not save into one folder; name another, or end that one"

    def _read(self) -> dict[str, Any]:
        try:
            holder = json.loads(os.pread(self._descriptor, 4096, 0))
        except ValueError:
            return {}
        return holder if isinstance(holder, dict) else {}

    def _write(self, holder: dict[str, Any]) -> None:
        text = json.dumps(holder).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            try:
                os.utime(self._descriptor)
            except OSError:
                continue  # the next save says what is wrong with the folder


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


POLL_S = 0.02
ORPHAN_S = 5.0
"""How long a writer whose trainer is dead waits for ranks that have not begun, or when another run wants the folder."""
SLACK_BYTES = 1 << 20


class RankRefused(Exception):
    """The save cannot be committed; says why."""


class Persister:
    """Writes the snapshots of one rank."""

    def __init__(self, setup: Setup, orphaned: Callable[[], bool] = lambda: False) -> None:
        """Name the run; nothing is written yet.

        Args:
            setup: Of this rank.
            orphaned: Whether the trainer is dead.
        """
        self.setup, self.root, self.orphaned = setup, Path(setup.root), orphaned
        self.layout: Layout | None = None
        self.buffer = memoryview(b"")
        self.lock = FolderLock(self.root)

    def open(self) -> None:
        """Take the folder and remove what killed saves left in it; on rank 0.

        Raises:
            FolderInUse: Another run writes into it.
            OSError: It cannot be written.
        """
        if self.setup.rank == 0:
            self.root.mkdir(parents=True, exist_ok=True)
            self.lock.claim(self.setup.patience_s)
            remove_unfinished(self.root)

    def persist(self, order: Order) -> SaveSummary:
        """Write and commit; never raises for what a file system does."""
        start = time.perf_counter()
        folder = manifests.folder_of(self.root, order.step)
        shards = folder / (manifests.ATTEMPT + order.attempt)
        try:
            files = self._write_shards(shards, order)
            if self.setup.rank == 0:
                self._commit(folder, shards, order, files, start)
            else:
                self._acknowledge(shards, {"files": files})
                self._await_commit(folder, shards, order)
        except (OSError, RankRefused) as error:
            reason = str(error) if isinstance(error, RankRefused) else _in_words(error, self.root)
            self._give_up(shards, reason)
            return SaveSummary(order.step, reason)
        return SaveSummary(order.step, "", False, time.perf_counter() - start, sum(size for size, _ in files.values()))

    def _write_shards(self, shards: Path, order: Order) -> dict[str, WrittenFile]:
        assert self.layout is not None
        if self.setup.rank == 0:
            self.lock.check()
        elif not self.root.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.root))
        shards.parent.mkdir(exist_ok=True)
        shards.mkdir(exist_ok=True)
        need = self.layout.size_bytes + sum(map(len, order.fresh.values())) + SLACK_BYTES
        state = os.statvfs(shards)
        if (free := state.f_bavail * state.f_frsize) < need:
            raise RankRefused(f"the disk is full: it takes {need:,} bytes, {self.root} has {free:,}; older checkpoints were kept")
        if self.setup.rank:
            (shards / f"{self.setup.rank}.begun").touch()
        files = {**self.layout.files, **{name: [content] for name, content in order.fresh.items()}}
        written_files = {
            f"{shards.name}/{name}": write_file(shards / name, segments, self.buffer, self.setup.checksum)
            for name, segments in files.items()
        }
        sync_folder(shards)
        return written_files

    def _commit(self, folder: Path, shards: Path, order: Order, own_files: dict[str, WrittenFile], start: float) -> None:
        assert self.layout is not None
        all_files = dict(own_files)
        for rank in range(1, self.setup.world):
            all_files |= self._acknowledged(shards, rank)
        sync_folder(folder)
        sync_folder(self.root)
        cost = {"persist_s": round(time.perf_counter() - start, 4), "bytes": sum(size for size, _ in all_files.values())}
        self.lock.check()
        manifests.write(
            folder,
            manifests.Manifest(
                *(order.step, self.setup.world, self.layout.kind, order.attempt, self.setup.checksum, all_files),
                {**order.save, **cost, "saved_at": round(time.time(), 3)},
            ),
        )
        self._tidy(folder, shards)

    def _acknowledged(self, shards: Path, rank: int) -> dict[str, WrittenFile]:
        path = shards / f"{rank}.ack"
        self._wait(path.exists, f"rank {rank} did not finish its part", (shards / f"{rank}.begun").exists)
        acknowledgement = json.loads(path.read_bytes())
        if "error" in acknowledgement:
            raise RankRefused(f"rank {rank}: {acknowledgement['error']}")
        return {name: WrittenFile(*about) for name, about in acknowledgement["files"].items()}

    def _acknowledge(self, shards: Path, acknowledgement: object) -> None:
        replace_file(shards / f"{self.setup.rank}.ack", json.dumps(acknowledgement).encode())

    def _await_commit(self, folder: Path, shards: Path, order: Order) -> None:
        def over() -> bool:
            return _is_committed(folder, order) or not shards.exists() or self.orphaned()

        self._wait(over, "rank 0 did not commit")
        if not shards.exists() and not _is_committed(folder, order):
            raise RankRefused("rank 0 gave it up; its log says why")

    def _wait(self, over: Callable[[], bool], otherwise: str, comes: Callable[[], bool] = lambda: True) -> None:
        start, pause = time.monotonic(), POLL_S / 4
        while not over():
            spent = time.monotonic() - start
            hopeless = self.orphaned() and (not comes() or self.lock.is_wanted())
            if spent > (ORPHAN_S if hopeless else self.setup.patience_s):
                raise RankRefused(f"{otherwise} within {spent:.0f} seconds")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.2)

    def _give_up(self, shards: Path, reason: str) -> None:
        try:
            if self.setup.rank:
                self._acknowledge(shards, {"error": reason})
                return
            shutil.rmtree(shards, ignore_errors=True)
            shards.parent.rmdir()
        except OSError:
            return  # it holds a committed attempt, or the file system is gone

    def _tidy(self, folder: Path, shards: Path) -> None:
        """Remove what the new checkpoint makes needless; what cannot be removed stays for the next time."""
        for leftover in (*shards.glob("*.ack"), *shards.glob("*.begun")):
            leftover.unlink(missing_ok=True)
        remove_attempts(folder, shards.name.removeprefix(manifests.ATTEMPT))
        for step in to_delete(
            manifests.committed(self.root), keep=self.setup.keep, keep_every=self.setup.keep_every, healthy=self._healthy
        ):
            remove(manifests.folder_of(self.root, step))

    def _healthy(self, step: int) -> bool:
        folder = manifests.folder_of(self.root, step)
        try:
            return not manifests.problems(folder, manifests.read(folder), contents=False)
        except (LoadRefused, OSError):
            return False


def _is_committed(folder: Path, order: Order) -> bool:
    try:
        return committed_attempt(folder) == order.attempt
    except (OSError, ValueError):
        return False


def _in_words(error: OSError, root: Path) -> str:
    path = error.filename or root
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full ({error.strerror}, {path}); older checkpoints were kept"
    if error.errno == errno.ENOENT:
        return f"{path} is gone ({error.strerror}): is the file system mounted?"
    return f"{path}: {error.strerror or error}"


# Which checkpoints stay: the last k, every n-th for ever, and always one that can be loaded.


def to_delete(
    steps: Sequence[int], *, keep: int | None, keep_every: int, healthy: Callable[[int], bool] = lambda step: True
) -> list[int]:
    """Return the steps whose checkpoints may go, oldest first.

    Args:
        steps: All committed ones, in any order.
        keep: How many of the newest stay; None keeps all.
        keep_every: Steps that this divides stay for ever; 0: none.
        healthy: Whether a checkpoint can be loaded; when none that stays can, the newest that can stays as well. Asked of the
            newest first, until one is.
    """
    ordered = sorted(steps)
    if keep is None:
        return []
    going = [step for step in ordered[: max(0, len(ordered) - keep)] if not (keep_every and step % keep_every == 0)]
    deleted = set(going)
    if going and not any(healthy(step) for step in reversed(ordered) if step not in deleted):
        spared = next((step for step in reversed(going) if healthy(step)), None)
        going = [step for step in going if step != spared]
    return going


# Remove checkpoints that retention gives up, and what killed saves left. Nothing else in the folder is touched.


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
            kept_attempt = committed_attempt(folder)
        except (OSError, ValueError):
            continue  # a manifest that cannot be read now may still be right
        if remove_attempts(folder, kept_attempt) and not any(folder.iterdir()):
            folder.rmdir()


def remove_attempts(folder: Path, kept_attempt: str) -> int:
    """Remove the shards of all attempts at one step but one.

    Args:
        folder: The checkpoint of the step.
        kept_attempt: The attempt that stays; empty: none.

    Returns:
        How many there were.
    """
    other_attempts = [
        attempt_folder
        for attempt_folder in folder.glob(f"{ATTEMPT}*")
        if attempt_folder.name != ATTEMPT + kept_attempt or not kept_attempt
    ]
    for attempt_folder in other_attempts:
        shutil.rmtree(attempt_folder, ignore_errors=True)
    return len(other_attempts)


def committed_attempt(folder: Path) -> str:
    """Return the attempt that is committed in a folder; empty when it holds no manifest.

    Raises:
        OSError: The manifest cannot be read.
        ValueError: It cannot be understood.
    """
    try:
        document = json.loads((folder / NAME).read_bytes())
    except FileNotFoundError:
        return ""
    attempt = document.get("attempt") if isinstance(document, dict) else None
    if not isinstance(attempt, str):
        raise ValueError(f"{folder / NAME} names no attempt")
    return attempt
