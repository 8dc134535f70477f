"""One writer for a folder: a lock file with pid, boot and host, that a dead writer holds no longer.

The kernel's lock on the file counts where all is on one machine. Where another host holds it, its beats do: a writer touches the
file each second, and only a file that stays as it is for some seconds is taken over. No two clocks are compared.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

from assistant.training.checkpoints.errors import FolderInUse

NAME = ".writer.lock"
REQUEST_NAME = ".writer.wanted"
"""Lies in the folder while another run waits for it: an orphaned writer then gives up waiting for ranks that are gone."""
BEAT_S = 1.0
SILENT_S = 5.0
POLL_S = 0.05


class FolderLock:
    """The right to commit checkpoints in a folder."""

    def __init__(self, root: Path) -> None:
        """Name the folder; nothing is done yet."""
        self.path, self.request_path = root / NAME, root / REQUEST_NAME
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
                    raise FolderInUse(self._who())
                time.sleep(POLL_S)
        except BaseException:
            os.close(self._descriptor)
            self._descriptor = -1
            raise
        self.request_path.unlink(missing_ok=True)
        self._write({"pid": os.getpid(), "boot": _boot(), "host": socket.gethostname(), "at": time.time()})
        threading.Thread(target=self._beat, name="lock", daemon=True).start()

    def check(self) -> None:
        """Make sure that it is still ours.

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
        """Give it back."""
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
            time.sleep(POLL_S)
            if self.path.stat().st_mtime_ns != before:
                return False
        return True

    def _who(self) -> str:
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
