"""Watchdogs that live in one thread and can be killed, paused or refused at any write of their store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from assistant.daemon.loop import Watchdog
from assistant.engine import Engine
from assistant.engine.ownership import Leader
from assistant.errors import NightshiftError, StoreError
from assistant.ports import JumpingClock
from assistant.store import Store
from tests.scenarios.scene import Killed


class Blow(StrEnum):
    """What hits a watch at a write of its store."""

    DIES_BEFORE = "dies before the write"
    DIES_AFTER = "dies after the write"
    FULL = "disk is full"
    PAUSES = "pauses after the write"


class BrittleStore(Store):
    """A store that is hit at a chosen write."""

    def __init__(self, path: Path, clock: JumpingClock, *, busy_timeout_s: float = 0.0) -> None:
        self.blow: Blow | None = None
        self.due = 0
        """Writes that are left until the blow."""
        self.lasts = 0
        """Writes that a full disk still refuses."""
        self.paused: Callable[[], None] = lambda: None
        """What the world does while this process sleeps."""
        self._here = threading.local()
        self.dead = False
        """Whether its process has died."""
        super().__init__(path, clock, busy_timeout_s=busy_timeout_s)
        # processes die here, machines do not: what is committed stays without waiting for a disk
        self._connection().execute("PRAGMA synchronous = OFF")

    def hit(self, blow: Blow, due: int, lasts: int = 1) -> None:
        """Let a blow fall at the write after `due` more."""
        self.blow, self.due, self.lasts = blow, due, lasts

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        if self.dead:
            raise Killed
        self._here.depth = depth = getattr(self._here, "depth", 0) + 1
        falls = None
        try:
            with super().transaction() as connection:
                yield connection
                if depth == 1:
                    falls = self._falling()
                if falls is Blow.DIES_BEFORE:
                    self.dead = True
                    raise Killed
                if falls is Blow.FULL:
                    raise StoreError(f"{self.path}: the disk is full; the last step was not written")
        finally:
            self._here.depth -= 1
        if falls is Blow.DIES_AFTER:
            self.dead = True
            raise Killed
        if falls is Blow.PAUSES:
            self.paused()

    def _falling(self) -> Blow | None:
        if self.blow is None:
            return None
        if self.due > 0:
            self.due -= 1
            return None
        self.lasts -= 1
        falls = self.blow
        if falls is not Blow.FULL or self.lasts <= 0:
            self.blow = None
        return falls


class PassingLeader(Leader):
    """Renews with its passes only: real time means nothing here."""

    def _keep(self) -> None:
        return


class PassingWatchdog(Watchdog):
    """Does what the daemon does, one thing after the other, and keeps what it should never have met."""

    def __init__(self, engine: Engine, owner: str) -> None:
        super().__init__(engine, owner, 10.0, patience_s=0.0)
        self.leader = PassingLeader(engine.store, owner, clock=engine.clock)
        self.bugs: list[str] = []

    def _fly(self, what: int | str, work: Callable[[], object]) -> None:
        self._complete(what, lambda: self._watched(what, work))

    def _watched(self, what: int | str, work: Callable[[], object]) -> Any:
        try:
            return work()
        except NightshiftError:
            raise
        except Exception as error:
            self.bugs.append(f"{what}: {type(error).__name__}: {error}")
            raise
