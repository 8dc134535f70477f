"""Many nodes side by side, so that nobody waits for a dead one.

At most `fan_out` nodes are asked at once. One that has said nothing for `patience_s` gives its place to the next, so a row of dead
nodes holds up nobody; and who is not back by `give_up_s` is left behind, even where the system's resolver hangs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from threading import Condition, Lock, Thread
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_THREADS = 1024
"""Beyond this, places are given up no more: threads cost memory."""


class Crew:
    """Threads that are kept for the next round: to make one takes longer than to ask a node over a kept connection."""

    def __init__(self, idle_s: float = 30.0) -> None:
        """Let threads go that had nothing to do for `idle_s`."""
        self.idle_s = idle_s
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = Lock()
        self._idle = 0

    def side_by_side(
        self, items: Iterable[Item], work: Callable[[Item], Answer], *, fan_out: int, patience_s: float, give_up_s: float
    ) -> dict[Item, Answer]:
        """Return the answer for each item; an item that was given up is missing.

        Args:
            items: Distinct.
            work: Asks one; runs in a thread and must not raise.
            fan_out: How many at once.
            patience_s: After this long an item does not count as one of these any more.
            give_up_s: For each item, from the moment that its work began.
        """
        return _Round(self, items, work, fan_out, patience_s, give_up_s).run()

    def hire(self, task: Callable[[], None]) -> None:
        """Run a task in a thread that is free, or in a new one."""
        with self._lock:
            free = self._idle > 0
            self._idle -= free
        if free:
            self._tasks.put(task)
        else:
            Thread(target=self._serve, args=(task,), name="ssh-fan-out", daemon=True).start()

    def close(self) -> None:
        """Let all threads go that have nothing to do."""
        with self._lock:
            free, self._idle = self._idle, 0
        for _ in range(free):
            self._tasks.put(None)

    def _serve(self, task: Callable[[], None] | None) -> None:
        while task is not None:
            task()
            with self._lock:
                self._idle += 1
            try:
                task = self._tasks.get(timeout=self.idle_s)
            except Empty:
                with self._lock:
                    if self._idle > 0:
                        self._idle -= 1
                        return
                task = self._tasks.get()  # somebody counted on this thread just now


class _Round(Generic[Item, Answer]):
    def __init__(
        self, crew: Crew, items: Iterable[Item], work: Callable[[Item], Answer], fan_out: int, patience_s: float, give_up_s: float
    ) -> None:
        self.crew = crew
        self.work, self.fan_out, self.patience_s, self.give_up_s = work, fan_out, patience_s, give_up_s
        self.waiting = deque(items)
        self.running: dict[Item, float] = {}
        self.answers: dict[Item, Answer] = {}
        self.left_behind: set[Item] = set()
        self.total = len(self.waiting)
        self.threads = 0
        self.changed = Condition()

    def run(self) -> dict[Item, Answer]:
        with self.changed:
            while len(self.answers) + len(self.left_behind) < self.total:
                self._hire()
                self.changed.wait(self._next_look_s())
                self._leave_behind()
            return dict(self.answers)

    def _hire(self) -> None:
        wanted = min(self.fan_out + self._silent(), len(self.waiting) + len(self.running), MOST_THREADS)
        while self.threads < wanted:
            self.threads += 1
            self.crew.hire(self._serve)

    def _serve(self) -> None:
        while True:
            with self.changed:
                if not self.waiting or self.threads > max(self.fan_out + self._silent(), 1):
                    self.threads -= 1
                    return
                item = self.waiting.popleft()
                self.running[item] = time.monotonic()
            answer = self.work(item)
            with self.changed:
                if item in self.left_behind:
                    return
                del self.running[item]
                self.answers[item] = answer
                if len(self.answers) + len(self.left_behind) == self.total:
                    self.changed.notify()

    def _silent(self) -> int:
        before = time.monotonic() - self.patience_s
        return sum(began < before for began in self.running.values())

    def _leave_behind(self) -> None:
        before = time.monotonic() - self.give_up_s
        for item in [item for item, began in self.running.items() if began < before]:
            del self.running[item]
            self.left_behind.add(item)
            self.threads -= 1  # the thread is lost to us; it ends with its work

    def _next_look_s(self) -> float:
        now = time.monotonic()
        ends = [began + self.give_up_s for began in self.running.values()]
        if self.waiting:
            ends += [began + self.patience_s for began in self.running.values() if now - began < self.patience_s]
            ends.append(now + self.patience_s)  # for those who have been hired and not yet begun
        return max(min(ends, default=now + self.patience_s) - now, 0.0) + 0.005
