"""Connections that are kept: one a host for as long as it is of use, opened by whoever needs it first.

Jump hosts stand in the same pool, so a thousand nodes behind one share a single connection to it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, Timer
from typing import Any, TypeVar

from assistant.errors import ConfigError
from assistant.ports import Failure
from assistant.transports.ssh_connection import Connection
from assistant.transports.ssh_failures import Deadline, NotForwarded, NotReached, Stale, explained
from assistant.transports.ssh_hosts import Host
from assistant.transports.ssh_identity import Identities
from assistant.transports.ssh_known import KnownHostsFiles
from assistant.transports.ssh_streams import connect

logger = logging.getLogger(__name__)

Route = tuple[Host, ...]
Result = TypeVar("Result")


@dataclass
class _Place:
    """Where the connection to one host is kept."""

    lock: Lock = field(default_factory=Lock)
    """Held while it is being opened, so that two do not open two."""
    connection: Connection | None = None


class Pool:
    """The kept connections."""

    def __init__(self, *, connect_timeout_s: float, keepalive_s: float, idle_s: float) -> None:
        """Keep connections until nobody has used them for `idle_s`."""
        self.connect_timeout_s, self.keepalive_s, self.idle_s = connect_timeout_s, keepalive_s, idle_s
        self._places: dict[Route, _Place] = {}
        self._lock = Lock()
        self._identities = Identities()
        self._known = KnownHostsFiles()
        self._sweeper: Timer | None = None

    def use(self, route: Route, deadline: Deadline, work: Callable[[Connection], Result]) -> Result:
        """Return what `work` makes of the connection to a host; a kept one that turns out dead is replaced once.

        Raises:
            NotReached: There is no connection, or `work` said so.
        """
        with self._borrowed(route, deadline) as connection:
            kept = not connection.fresh
            try:
                return work(connection)
            except Stale:
                connection.retired = True
                if not kept or deadline.passed:
                    raise
        logger.debug("host=%s kept connection is dead, connecting again", route[-1].alias)
        with self._borrowed(route, deadline) as connection:
            return work(connection)

    def close(self) -> None:
        """Close all connections; the pool can be used again afterwards."""
        with self._lock:
            places, self._places = self._places, {}
            sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            sweeper.cancel()
        connections = [place.connection for place in places.values() if place.connection is not None]
        for connection in connections:
            connection.hang_up()  # all at once: each then ends by itself, instead of one after the other
        for connection in reversed(connections):
            connection.close()

    @property
    def size(self) -> int:
        """How many connections stand."""
        with self._lock:
            return sum(place.connection is not None and place.connection.alive for place in self._places.values())

    @contextmanager
    def _borrowed(self, route: Route, deadline: Deadline) -> Iterator[Connection]:
        connection = self._get(route, deadline)
        try:
            yield connection
        finally:
            with self._lock:
                connection.users -= 1
                connection.used_at = time.monotonic()
                done = connection.retired and not connection.busy
            if done:
                connection.close()

    def _get(self, route: Route, deadline: Deadline) -> Connection:
        with self._lock:
            place = self._places.setdefault(route, _Place())
        if not place.lock.acquire(timeout=max(deadline.left(), 0.001)):
            raise NotReached(Failure.SILENT, f"{route[-1].label} is being connected to by another call, which got no answer yet")
        try:
            connection = place.connection
            if connection is None or not connection.alive:
                if connection is not None and not connection.busy:
                    connection.close()
                place.connection = connection = self._open(route, deadline)
            with self._lock:
                connection.users += 1
            self._sweep_later()
            return connection
        finally:
            place.lock.release()

    def _open(self, route: Route, deadline: Deadline) -> Connection:
        host = route[-1]
        within = deadline.sooner(host.connect_timeout_s or self.connect_timeout_s)
        known = self._known.of(host.known_hosts)
        try:
            stream = connect(host, within) if len(route) == 1 else self._through(route[:-1], host, within)
            return Connection.open(host, stream, known, self._identities, within, keepalive_s=self.keepalive_s)
        except (OSError, ConfigError) as error:
            raise explained(error, host.label, "connect to") from error

    def _through(self, way: Route, host: Host, deadline: Deadline) -> Any:
        try:
            return self.use(way, deadline, lambda jump: jump.tunnel(host, deadline))
        except NotForwarded:
            raise
        except NotReached as error:
            raise NotReached(Failure.PROXY, f"the way to {host.label} leads through {way[-1].label}: {error}") from error

    def _sweep_later(self) -> None:
        with self._lock:
            if self._sweeper is None:
                self._sweeper = Timer(self.idle_s, self._sweep)
                self._sweeper.daemon = True
                self._sweeper.start()

    def _sweep(self) -> None:
        """Close what nobody has used for a while."""
        before = time.monotonic() - self.idle_s
        with self._lock:
            self._sweeper = None
            idle = [
                (route, place.connection)
                for route, place in self._places.items()
                if place.connection is not None and not place.connection.busy and place.connection.used_at <= before
            ]
            for _, connection in idle:
                connection.retired = True
            kept = len(self._places) - len(idle)
        for _, connection in idle:
            connection.close()
        if kept:
            self._sweep_later()
