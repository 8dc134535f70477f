"""Work that blocks, one thread for each thing that may hang.

Not the thread workers of Textual: those share a small pool that is waited for at exit, so a scheduler that hangs would keep the
operator from leaving, and two of them would starve the rest. A lane is a daemon thread; what hangs in one is waited for by nobody.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

_END = ""
SWITCH_S = 0.001
"""Seconds after which a thread at work lets another one run."""


def let_screens_run() -> None:
    """Let the screens' thread have the interpreter soon: with 5 ms it waits several times a key while a lane is at work."""
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))


class Lane:
    """Does one thing after the other; a newer request of a kind replaces one of that kind that still waits."""

    def __init__(self, name: str, failed: Callable[[str, Exception], None]) -> None:
        """Prepare a lane; its thread starts with the first request.

        Args:
            name: For the thread, and for `failed`.
            failed: Is told, on the lane's thread, what a request raised.
        """
        self.name = name
        self._failed = failed
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._work: dict[str, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.busy = False
        """Whether it is at work."""

    def ask(self, kind: str, work: Callable[[], object]) -> None:
        """Let the lane do something soon; `kind` tells what it replaces among what waits."""
        with self._lock:
            if self._closed:
                return
            waits = kind in self._work
            self._work[kind] = work
            if not waits:
                self._waiting.put(kind)
            if self._thread is None:
                let_screens_run()
                self._thread = threading.Thread(target=self._run, name=f"chat-{self.name}", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Let the thread end after what was asked before; what is asked later is not done. Waits for nothing."""
        with self._lock:
            self._closed = True
            self._waiting.put(_END)

    def _run(self) -> None:
        while (kind := self._waiting.get()) != _END:
            with self._lock:
                work = self._work.pop(kind)
            self.busy = True
            try:
                work()
            except Exception as error:
                logger.debug("lane=%s kind=%s failed", self.name, kind, exc_info=True)
                self._failed(self.name, error)
            finally:
                self.busy = False
