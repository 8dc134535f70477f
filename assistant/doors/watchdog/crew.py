"""Threads that work on incidents, and are not all kept by work that never ends.

A read from a storage that hangs cannot be broken off: its thread is left to it, and after a while another one takes its place, so
that eight incidents whose logs lie there keep no others waiting. When the process ends nobody waits for such threads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

__all__ = ["Crew"]

P = ParamSpec("P")
T = TypeVar("T")

RELIEF_S = 60.0
"""Work that takes longer keeps its thread and no place: most work takes seconds, and what takes minutes waits for something."""
MOST = 64
"""Threads, the ones that hang included."""


class Crew(Executor):
    """An executor with places for those who work, not for those who hang."""

    def __init__(self, places: int, *, relief_s: float = RELIEF_S, most: int = MOST) -> None:
        """Let so many work side by side, that many of them at most counted as at work."""
        self._places, self._relief_s, self._most = places, relief_s, most
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._busy: dict[threading.Thread, tuple[Future[Any], float]] = {}
        self._idle = 0
        self._threads = 0
        self._closed = False

    def submit(self, work: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Future[T]:
        """Let a piece of work be done when there is a place."""
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the crew has gone home")
            self._waiting.append((future, lambda: work(*args, **named)))
            self._hire()
        return future

    def relieve(self) -> None:
        """Replace those who hang, where something waits; call it now and then."""
        with self._changed:
            for _ in self._waiting:
                self._hire()

    def busy_s(self) -> dict[Future[Any], float]:
        """Return for how long each piece of work is being done."""
        now = time.monotonic()
        with self._changed:
            return {future: now - began for future, began in self._busy.values()}

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more; wait for what is being done, but not for what hangs."""
        with self._changed:
            self._closed = True
            if cancel_futures:
                for future, _ in self._waiting:
                    future.cancel()
                self._waiting.clear()
            self._changed.notify_all()
            while wait and (self._waiting or self._at_work()):
                self._changed.wait(0.5)

    def _at_work(self) -> int:
        """Return how many are busy and do not hang."""
        now = time.monotonic()
        return sum(now - began < self._relief_s for _, began in self._busy.values())

    def _hire(self) -> None:
        hang = len(self._busy) - self._at_work()
        if self._idle >= len(self._waiting):
            self._changed.notify()
        elif self._threads - hang < self._places and self._threads < self._most:
            self._threads += 1
            threading.Thread(target=self._work, daemon=True, name=f"incident-{self._threads}").start()

    def _work(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                while not self._waiting or self._at_work() >= self._places:
                    if self._closed and not self._waiting:
                        self._threads -= 1
                        return
                    self._idle += 1
                    self._changed.wait(self._relief_s if self._waiting else None)
                    self._idle -= 1
                future, work = self._waiting.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                self._busy[me] = (future, time.monotonic())
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - whoever waits for the result gets it
                self._done(me)
                future.set_exception(error)
            else:
                self._done(me)
                future.set_result(result)
            del work, future

    def _done(self, me: threading.Thread) -> None:
        with self._changed:
            del self._busy[me]
            self._changed.notify_all()
