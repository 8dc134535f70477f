"""Which process may work: leases on incidents, and the leadership among several watches.

An owner's name says which process it is, so that the lease of one that died can be taken at once. One of several watches leads;
the next takes over when its lease runs out, and one that slept through it can write nothing more.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from assistant.errors import StoreError
from assistant.ports import Clock, SystemClock
from assistant.store import Leadership, Store

logger = logging.getLogger(__name__)


def owner_name(interface: str) -> str:
    """Return the name under which this process holds incidents: `watch@login1:4821.1029384`.

    Args:
        interface: Which one, with the person where there is one: `cli:alice`.
    """
    return f"{interface}@{socket.gethostname()}:{os.getpid()}.{_started(os.getpid())}"


def is_gone(owner: str) -> bool:
    """Tell whether the process of an owner has surely ended: it ran on this host and its process is no more.

    False for any other host and for names of another form: only their lease's end frees what they hold.
    """
    _, at, place = owner.rpartition("@")
    host, colon, process = place.rpartition(":")
    pid, dot, started = process.partition(".")
    if not (at and colon and dot and pid.isdigit() and host == socket.gethostname()):
        return False
    return _started(int(pid)) != started


def _started(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot, empty when there is none of that id."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    # the second field, the command in parentheses, may hold blanks
    return text.rpartition(")")[2].split()[19]


@contextmanager
def kept_lease(store: Store, incident_id: int, owner: str, seconds: float) -> Iterator[bool]:
    """Hold an incident while the block runs, renewed in the background; False when somebody else holds it.

    The lease of a process of this host that has died is taken over.
    """
    if not _claimed(store, incident_id, owner, seconds):
        yield False
        return
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(seconds / 3):
            store.renew(incident_id, owner, seconds)

    keeper = threading.Thread(target=renew, name=f"lease-{incident_id}", daemon=True)
    keeper.start()
    try:
        yield True
    finally:
        ended.set()
        keeper.join()
        store.release(incident_id, owner)


def _claimed(store: Store, incident_id: int, owner: str, seconds: float) -> bool:
    if store.claim(incident_id, owner, seconds):
        return True
    holder = store.incident(incident_id).owner
    if holder is None or not is_gone(holder):
        return False
    return store.claim(incident_id, owner, seconds, gone=holder)


LEASE_S = 20.0
"""After this without renewal another may lead; with the looks of one that stands by it leads within 30 s."""
SEEK_S = 5.0
"""Seconds between two tries of one that stands by."""


class Leader:
    """Seeks leadership and keeps it while it can."""

    def __init__(self, store: Store, owner: str, *, lease_s: float = LEASE_S, clock: Clock | None = None) -> None:
        """Prepare; nothing is sought yet.

        Args:
            store: Gets a fence with the leadership: from then on it writes only while that holds.
            owner: From `owner_name`.
            lease_s: See LEASE_S; renewed three times as often.
            clock: Tells how long another's lease was not renewed; the machine's when absent.
        """
        self._store, self._owner, self._lease_s = store, owner, lease_s
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._led: Leadership | None = None
        self._other_leader: tuple[datetime, float] | None = None
        self._stopped = threading.Event()
        self._keeper: threading.Thread | None = None

    @property
    def leads(self) -> bool:
        """Whether this watch leads, as far as it knows: the fence knows for certain."""
        return self._led is not None and self._store.clock.now() < self._led.until

    def seek(self) -> bool:
        """Lead if nobody else does, or go on leading; False when another leads.

        Raises:
            StoreError: The store cannot be written: nobody can tell who leads, so this watch does not.
        """
        led_until = self._store.lead(self._owner, self._lease_s, gone=self._is_gone)
        if led_until is None:
            if self._led is not None:
                logger.warning("another watch took over; this one stands by")
            self._led = None
            return False
        if self._led is None or led_until.token != self._led.token:
            self._store.fence_off(led_until)
            logger.info("leads with token %d", led_until.token)
        self._led = led_until
        self._keep()
        return True

    def _is_gone(self, owner: str) -> bool:
        """Tell whether the leader is gone: its process is, or its lease was not renewed for as long as it lasts.

        The second goes by what passed here, so that a clock which was set, or differs from the other host's, keeps nobody waiting.
        """
        leader, ticks = self._store.leader(), self._clock.ticks()
        if leader is not None and (self._other_leader is None or self._other_leader[0] != leader.until):
            self._other_leader = leader.until, ticks
        unchanged_s = ticks - self._other_leader[1] if self._other_leader is not None else 0.0
        return is_gone(owner) or unchanged_s >= self._lease_s

    def resign(self) -> None:
        """Let another lead at once."""
        self._stopped.set()
        if self._keeper is not None:
            self._keeper.join()
        if self._led is not None:
            self._store.resign(self._led)
            self._led = None

    def _keep(self) -> None:
        """Renew in the background: a pass may take longer than the lease."""
        if self._keeper is None or not self._keeper.is_alive():
            self._stopped.clear()
            self._keeper = threading.Thread(target=self._renew, name="leadership", daemon=True)
            self._keeper.start()

    def _renew(self) -> None:
        while not self._stopped.wait(self._lease_s / 3):
            led = self._led
            if led is None:
                return
            try:
                led_until = self._store.lead(self._owner, self._lease_s, gone=is_gone)
            except StoreError as error:
                logger.warning("leadership was not renewed: %s", error)
                continue
            if led_until is None or led_until.token != led.token:
                # what was begun under the old token is fenced off; the next pass seeks anew
                logger.warning("leadership was lost while this watch slept; it stands by")
                self._led = None
                return
            self._led = led_until
