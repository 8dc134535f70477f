"""Bring notices to one place, on a thread of its own: each at least once, in order, by a cursor over the audit in the store.

What a place was told lately is held back and counted; many at once become one message; a place that does not answer is tried again,
ever later, and holds up neither the watch nor the other places.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import groupby

from assistant.config.outward import About, NotifySettings, SinkSettings
from assistant.daemon.notifications import Notice, grouped, notices, superseded, undecided
from assistant.daemon.pass_result import Passed
from assistant.errors import Fenced, NightshiftError, Unavailable
from assistant.store import Count, Store
from assistant.store.deliveries import cursor_of

__all__ = ["Courier", "Notifier", "Send"]

logger = logging.getLogger(__name__)

PAGE = 5_000
"""Rows of the audit that are looked through at once."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 900.0
LOOK_S = 1.0

Send = Callable[[Notice], None]
"""Hands one notice to a service; raises `Unavailable` when it was not taken."""


@dataclass
class Courier:
    """Brings notices to one place."""

    name: str
    sink: SinkSettings
    terms: NotifySettings
    store: Store
    send: Send
    failures: int = 0
    """How often it failed in a row."""

    def begin(self) -> None:
        """Begin with what happens from now on, where the place was never told anything: history is no news."""
        if self.store.cursor(cursor_of(self.name)) is None:
            self.store.move_cursor(cursor_of(self.name), self.store.newest_row())

    def deliver(self, *, at_once: bool = False) -> bool:
        """Tell what is new; False while more is waited for, so that a storm becomes one message.

        Args:
            at_once: Wait for nothing.

        Raises:
            Unavailable: The service did not take it; what was sent before it is noted.
            StoreError: The store cannot be read or written; what was sent may be sent again.
        """
        self.begin()
        rows = self.store.audit_after(self.store.cursor(cursor_of(self.name)) or 0, PAGE)
        waiting = next((number for number, row in enumerate(rows) if undecided(row, self.store)), None) if not at_once else None
        rows = rows[:waiting]
        if not rows:
            return waiting is None
        now = self.store.clock.now()
        wanted_notices = [notice for notice in superseded(list(notices(rows, self.store))) if self._wants(notice)]
        if wanted_notices and not at_once:
            first = next(row.at for row in rows if row.id >= wanted_notices[0].row)
            if now - first < timedelta(seconds=self.terms.group_s):
                return False
        fresh, suppressed = self._fresh(wanted_notices)
        messages = list(self._messages(fresh))
        with self.store.transaction():
            pass  # a watch that slept and was fenced off ends here, before it repeats what another has said
        for number, (message, parts) in enumerate(messages, 1):
            self.send(message)
            self._note(
                parts, suppressed if number == len(messages) else (), rows[-1].id if number == len(messages) else parts[-1].row
            )
        if not messages:
            self._note((), suppressed, rows[-1].id)
        return True

    def _note(self, delivered: Sequence[Notice], suppressed: Sequence[str], row: int) -> None:
        counts = {"sent": int(bool(delivered)), "held": len(suppressed)}
        more = {self._count(outcome): many for outcome, many in counts.items() if many}
        now = self.store.clock.now()
        self.store.keep_tellings(self.name, {notice.fingerprint: now for notice in delivered}, suppressed, row, more)

    def _count(self, outcome: str) -> Count:
        return Count("notices", (("outcome", outcome), ("sink", self.name)))

    def _wants(self, notice: Notice) -> bool:
        if notice.severity.rank < self.sink.severity.rank or (self.sink.about and notice.about not in self.sink.about):
            return False
        if self.sink.owners:
            return notice.about is About.OWNER and self.sink.covers(notice.owner)
        return notice.about is not About.OWNER or About.OWNER in self.sink.about

    def _fresh(self, notices_due: Sequence[Notice]) -> tuple[list[Notice], list[str]]:
        """Return what is to be told, and the fingerprints of what was told lately or stands twice among these."""
        now, cooldown = self.store.clock.now(), timedelta(minutes=self.terms.cooldown_min)
        deliveries = self.store.tellings(self.name, [notice.fingerprint for notice in notices_due])
        fresh: list[Notice] = []
        suppressed: list[str] = []
        fingerprints: set[str] = set()
        for notice in notices_due:
            last = deliveries.get(notice.fingerprint)
            if notice.fingerprint in fingerprints or (last is not None and now - last.at < cooldown):
                suppressed.append(notice.fingerprint)
                continue
            fingerprints.add(notice.fingerprint)
            repetition = (
                f"\nheld back since {last.at:%H:%M}: {last.suppressed} of the same" if last is not None and last.suppressed else ""
            )
            fresh.append(replace(notice, text=notice.text + repetition))
        return fresh, suppressed

    def _messages(self, fresh: Sequence[Notice]) -> Iterator[tuple[Notice, Sequence[Notice]]]:
        """Yield each message and what it tells, in order: runs of what goes to the same owner, or to the operators."""
        for owner, run in groupby(fresh, key=lambda notice: notice.owner):
            batch = list(run)
            if len(batch) > self.terms.group_over:
                yield replace(grouped(batch, batch[-1].row), owner=owner), batch
            else:
                yield from ((notice, [notice]) for notice in batch)

    def attempt(self, *, at_once: bool = False) -> float:
        """Deliver, and return after how many seconds to look again."""
        try:
            is_done = self.deliver(at_once=at_once)
        except Fenced:
            return LOOK_S
        except (NightshiftError, OSError) as error:
            return self._failed(error)
        self.failures = 0
        return LOOK_S * 5 if is_done else LOOK_S

    def _failed(self, error: Exception) -> float:
        self.failures += 1
        pause = min(FIRST_PAUSE_S * 2.0 ** (self.failures - 1), LONGEST_PAUSE_S)
        logger.warning("notify=%s failed, %d in a row, again in %.0f s: %s", self.name, self.failures, pause, error)
        if isinstance(error, Unavailable):
            try:
                self.store.add_counts({self._count("failed"): 1})
            except NightshiftError as lost:
                logger.warning("notify=%s its failure was not counted: %s", self.name, lost)
        return pause


@dataclass
class Notifier:
    """Lets each courier work on a thread of its own while this watch leads."""

    couriers: Sequence[Courier]
    _leads: bool = field(default=False, init=False)
    _closing: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._wakers = [threading.Event() for _ in self.couriers]
        self._threads = [
            threading.Thread(target=self._work, args=pair, name=f"notify-{pair[0].name}", daemon=True)
            for pair in zip(self.couriers, self._wakers, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def passed(self, passed: Passed) -> None:
        """Let the couriers look; never waits for them."""
        self._leads = passed.leads
        for waker in self._wakers:
            waker.set()

    def close(self) -> None:
        """Send what waits to be grouped, and wait for it as long as a service may take; the rest is told after the next start."""
        self._closing = True
        for waker in self._wakers:
            waker.set()
        until = time.monotonic() + max((courier.terms.timeout_s for courier in self.couriers), default=0.0)
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))

    def _work(self, courier: Courier, waker: threading.Event) -> None:
        pause, next_at = LOOK_S, 0.0
        while True:
            waker.wait(pause)
            waker.clear()
            closing = self._closing
            if self._leads and (closing or time.monotonic() >= next_at):
                try:
                    pause = courier.attempt(at_once=closing)
                except Exception:
                    logger.exception("notify=%s stumbled", courier.name)
                    pause = LONGEST_PAUSE_S
                next_at = time.monotonic() + pause if courier.failures else 0.0
            if closing:
                return
