"""A program in a terminal of tmux: a person's keys, and what they see."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TMUX = shutil.which("tmux")
PATIENCE_S = 90.0
IN_TMUX = [
    pytest.mark.slow,
    pytest.mark.skipif(TMUX is None, reason="tmux is not installed: make deps-chat"),
    pytest.mark.timeout(240),
]
"""Marks of a module whose tests need the terminal."""


class Screen:
    """A terminal in tmux with a program in it."""

    def __init__(self, folder: Path, *words: str) -> None:
        """Start a program; `folder` gets its exit code."""
        self._socket = f"nightshift-{uuid.uuid4().hex[:8]}"
        self._ends = folder / "ended"
        command = f"{shlex.join(words)}; echo $? > {self._ends}"
        self._tmux("new-session", "-d", "-s", "night", "-x", "140", "-y", "45", "sh", "-c", command)

    def _tmux(self, *words: str) -> str:
        assert TMUX is not None
        # pytest sets a width of its own, which would hide that of the terminal
        own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        command = [TMUX, "-L", self._socket, "-f", "/dev/null", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=own).stdout

    @property
    def text(self) -> str:
        """What a person sees."""
        return self._tmux("capture-pane", "-p", "-t", "night")

    def keys(self, *keys: str) -> None:
        """Type keys, one after the other, as a person does."""
        for key in keys:
            self._tmux("send-keys", "-t", "night", key)
            time.sleep(0.15)

    def answer(self, key: str) -> None:
        """Answer a dialog as a person does who has read it: a key alone, after a look and before anything else."""
        time.sleep(1.2)
        self.keys(key)
        time.sleep(1.2)

    def until(self, sees: str | Callable[[str], object], seconds: float = PATIENCE_S) -> str:
        """Wait until the screen shows something, and return it."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            text = self.text
            if sees in text if isinstance(sees, str) else sees(text):
                return text
            time.sleep(0.1)
        raise AssertionError(f"waited {seconds:g} s in vain for {sees!r}; the screen:\n{self.text}")

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        self._tmux("resize-window", "-t", "night", "-x", str(columns), "-y", str(rows))

    def left(self, seconds: float = 40.0) -> str:
        """Wait until the program has ended, and return its exit code."""
        ends = time.monotonic() + seconds
        while not self._ends.exists() or not self._ends.read_text():
            assert time.monotonic() < ends, f"it did not end; the screen:\n{self.text}"
            time.sleep(0.1)
        return self._ends.read_text().strip()

    def close(self) -> None:
        """End tmux and what runs in it."""
        self._tmux("kill-server")


@pytest.fixture(name="screen")
def demo_screen(tmp_path: Path) -> Iterator[Screen]:
    """Return a terminal with the chat of a small cluster in which a job is about to fail; its state is in `night`."""
    opened = Screen(tmp_path, sys.executable, "-m", "assistant", "demo", "--chat", "--folder", str(tmp_path / "night"))
    yield opened
    opened.close()
