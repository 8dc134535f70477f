"""What an operator or the scheduler asks of a running job: save now, save and stop; by files in its folder or by signals.

    touch <checkpoints>/save-now         save at the next step and go on
    touch <checkpoints>/stop             save at the next step, wait until it is on the disk, and stop
    echo 1200 > <checkpoints>/stop       the same after step 1200
    SIGUSR1, SIGUSR2                     save at the next step, wait until it is on the disk, and go on
    SIGTERM                              the same, and stop

The files are removed when they have been obeyed.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import Any

SAVE_NOW = "save-now"
STOP = "stop"
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
LOOK_S = 0.5
"""The files are looked for at most twice a second."""


class Wish(IntEnum):
    """What a step ends with; the greater one counts."""

    NOTHING = 0
    SAVE = 1
    FLUSH = 2
    """Save and wait until it is on the disk."""
    STOP = 3


class Controls:
    """Looks for wishes."""

    def __init__(self, root: Path, *, leads: bool) -> None:
        """Watch a folder.

        Args:
            root: The checkpoint folder.
            leads: Whether this rank looks for the files; signals are every rank's.
        """
        self._root, self._leads, self._next = root, leads, 0.0
        self.asked = Wish.NOTHING
        """By signals since the last step."""

    def wish(self, step: int) -> Wish:
        """Return what this rank wishes after a step."""
        wish, self.asked = self.asked, Wish.NOTHING
        now = time.monotonic()
        if not self._leads or now < self._next:
            return wish
        self._next = now + LOOK_S
        for name, meant in ((SAVE_NOW, Wish.SAVE), (STOP, Wish.STOP)):
            at = _step_in(self._root / name)
            if at is not None and step >= at:
                wish = max(wish, meant)
            elif at is not None:
                self._next = now  # its step comes soon, and must not be missed
        return wish

    def obeyed(self, wish: Wish, step: int) -> None:
        """Remove the files of a wish that came true."""
        for name in ((SAVE_NOW, STOP) if wish is Wish.STOP else (SAVE_NOW,)) if self._leads else ():
            at = _step_in(self._root / name)
            if at is not None and step >= at:
                (self._root / name).unlink(missing_ok=True)


class Signals:
    """Hears the signals of schedulers; puts back what was there before."""

    def __init__(self, heard: Callable[[int], bool]) -> None:
        """Listen; nothing is heard outside the main thread.

        Args:
            heard: Called with the signal's number, in the main thread between two lines of Python; False: end as without us.
        """
        self._heard = heard
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._hear) for number in SIGNALS}

    def close(self) -> None:
        """Hear no more."""
        if threading.current_thread() is threading.main_thread():
            for number, before in self._before.items():
                if signal.getsignal(number) == self._hear:
                    signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        before = self._before.get(number, signal.SIG_DFL)
        goes_on = self._heard(number)
        if callable(before):
            before(number, frame)
        elif not goes_on and before == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def _step_in(path: Path) -> int | None:
    """Return the step that a file names, 0 when it is empty or holds anything else, None when there is none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else 0
