"""The same nights with the daemon's own pool: incidents are worked on side by side, and a process dies with all of its threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from functools import wraps
from pathlib import Path
from random import Random
from typing import Any

from assistant.daemon.loop import Watchdog
from assistant.daemon.pass_result import PassResult
from assistant.engine import Engine
from assistant.ports import Clock
from tests.chaos.watches import Blow, BrittleStore, PassingWatchdog
from tests.chaos.world import PeopleCluster, World
from tests.scenarios.scene import Killed

ASKED = ("jobs", "job", "nodes", "submit", "cancel", "cordon", "uncordon", "controller_log", "run")
"""What watches ask of a cluster."""


class OneAtATime(PeopleCluster):
    """Answers one question after the other, as a real controller does: what is in memory here is not made for threads."""

    def __init__(self, clock: Clock, folder: Path, nodes: int | Sequence[str] = 4, *, random: Random) -> None:
        self._turn = threading.RLock()
        self.threads: set[str] = set()
        """Names of the threads that asked."""
        super().__init__(clock, folder, nodes, random=random)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return self._in_turn(found) if name in ASKED else found

    def _in_turn(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def asked(*given: Any, **named: Any) -> Any:
            with self._turn:
                self.threads.add(threading.current_thread().name)
                return method(*given, **named)

        return asked


class ThreadedWatchdog(PassingWatchdog):
    """Works in its pool. A look ends when all work has ended, since time in this world moves only between looks."""

    def __init__(self, engine: Engine, owner: str) -> None:
        super().__init__(engine, owner)
        self.patience_s = 120.0

    def look(self) -> PassResult:
        """Make one pass; the process dies with all of its threads.

        Raises:
            Killed: It died.
        """
        store = self.engine.store
        assert isinstance(store, BrittleStore)
        try:
            return super().look()
        finally:
            wait(list(self._flying.values()))
            if store.dead:
                self._pool.shutdown(wait=True, cancel_futures=True)
                raise Killed

    def _fly(self, what: int | str, work: Callable[[], object]) -> None:
        Watchdog._fly(self, what, lambda: self._watched(what, work))


class ThreadedWorld(World):
    """A world whose watches use their pools. Nobody sleeps in it: a process would have to sleep with all of its threads."""

    cluster_of = OneAtATime
    dog_of = ThreadedWatchdog
    busy_s = 30.0

    def hit(self, name: str, blow: Blow, due: int, lasts: int = 1) -> None:
        """Let a blow fall on a watch, unless it is a sleep."""
        if blow is not Blow.PAUSES:
            super().hit(name, blow, due, lasts)

    def doze(self, name: str, due: int) -> None:
        """Let nobody sleep."""

    def locked_pass(self) -> None:
        """Let nobody hold the store: here it is waited for."""

    def _asked(self, method: str) -> None:
        dogs: Mapping[str, PassingWatchdog] = getattr(self, "dogs", {})
        for dog in dogs.values():
            store = dog.engine.store
            if dog.owner == self.actor and isinstance(store, BrittleStore) and store.dead:
                raise Killed
