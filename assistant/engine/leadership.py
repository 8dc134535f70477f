"""Lead or stand by: one of several watches acts, the next takes over when its lease runs out, and one that slept is fenced off."""

from __future__ import annotations

import logging
import threading
from datetime import datetime

from assistant.engine.lease import is_gone
from assistant.errors import StoreError
from assistant.ports import Clock, SystemClock
from assistant.store import Leadership, Store

logger = logging.getLogger(__name__)

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
        self._other: tuple[datetime, float] | None = None
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
        taken = self._store.lead(self._owner, self._lease_s, gone=self._is_gone)
        if taken is None:
            if self._led is not None:
                logger.warning("another watch took over; this one stands by")
            self._led = None
            return False
        if self._led is None or taken.token != self._led.token:
            self._store.fence_off(taken)
            logger.info("leads with token %d", taken.token)
        self._led = taken
        self._keep()
        return True

    def _is_gone(self, owner: str) -> bool:
        """Tell whether the leader is gone: its process is, or its lease was not renewed for as long as it lasts.

        The second goes by what passed here, so that a clock which was set, or differs from the other host's, keeps nobody waiting.
        """
        held, ticks = self._store.leader(), self._clock.ticks()
        if held is not None and (self._other is None or self._other[0] != held.until):
            self._other = held.until, ticks
        unchanged_s = ticks - self._other[1] if self._other is not None else 0.0
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
            held = self._led
            if held is None:
                return
            try:
                taken = self._store.lead(self._owner, self._lease_s, gone=is_gone)
            except StoreError as error:
                logger.warning("leadership was not renewed: %s", error)
                continue
            if taken is None or taken.token != held.token:
                # what was begun under the old token is fenced off; the next pass seeks anew
                logger.warning("leadership was lost while this watch slept; it stands by")
                self._led = None
                return
            self._led = taken
