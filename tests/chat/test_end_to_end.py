"""A whole night in a real terminal: a job dies, the operator looks and allows, the job comes back. Real processes train."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TMUX = shutil.which("tmux")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(TMUX is None, reason="tmux is not installed: make deps-chat"),
    pytest.mark.timeout(240),
]
PATIENCE_S = 90.0


class Screen:
    """A terminal in tmux with a program in it."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._socket = f"nightshift-{uuid.uuid4().hex[:8]}"
        self._ends = folder / "ended"
        command = f"{sys.executable} -m assistant {' '.join(words)}; echo $? > {self._ends}"
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

    def until(self, sees: str | Callable[[str], object], seconds: float = PATIENCE_S) -> str:
        """Wait until the screen shows something, and return it."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            text = self.text
            if sees in text if isinstance(sees, str) else sees(text):
                return text
            time.sleep(0.1)
        raise AssertionError(f"waited {seconds:g} s in vain for {sees!r}; the screen:\n{self.text}")

    def left(self, seconds: float = 40.0) -> str:
        """Wait until the program has ended, and return its exit code."""
        ends = time.monotonic() + seconds
        while not self._ends.exists() or not self._ends.read_text():
            assert time.monotonic() < ends, f"it did not end; the screen:\n{self.text}"
            time.sleep(0.1)
        return self._ends.read_text().strip()

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    opened = Screen(tmp_path, "demo", "--chat", "--folder", str(tmp_path / "night"))
    yield opened
    opened.close()


def test_a_job_dies_and_comes_back_by_the_hands_of_the_operator(screen: Screen) -> None:
    screen.until("Nothing is wrong")
    screen.until(lambda text: re.search(r"waiting \(1\)\s+ecc_error", text))

    # the incident, and the line that proves its verdict
    screen.keys("F2", "Enter")
    screen.until("to blame: node02")
    screen.keys("l")
    screen.until(lambda text: "Per rank" in text and re.search(r"Xid|uncorrectable ECC error", text))
    screen.keys("Escape")
    screen.until("to blame: node02")
    screen.keys("Escape")
    screen.until("Waiting for you")

    # the cordon, then the restart: each with its exact command, and only after a yes
    screen.keys("F3", "Enter")
    asked = screen.until("Approval 1")
    assert "scontrol update NodeName=node02 State=DRAIN" in asked
    assert "uncordon_node" in asked
    screen.keys("y")
    screen.until(lambda text: re.search(r"\? 2 .*submit demo-lm", text))
    screen.keys("F3")
    screen.until(lambda text: "submit demo-lm" in text)
    screen.keys("Enter")
    screen.until("Approval 2")
    screen.keys("y")

    screen.until(lambda text: re.search(r"✓ 1\s+job 1\s+recovered", text) or re.search(r"recovered\s+ecc_error", text))
    screen.keys("Escape")
    screen.until("nothing is wrong")
    screen.keys("C-q")
    assert screen.left() == "0"
