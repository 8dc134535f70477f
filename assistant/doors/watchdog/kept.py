"""Keep in the store what each pass came to: its row for `nightshift status`, the counts, and the conditions that people hear of."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from assistant.doors.watchdog.passed import Passed
from assistant.doors.watchdog.tally import PASS_BUCKETS, catch_up, observed
from assistant.errors import StoreError
from assistant.policy import PolicyStanding
from assistant.store import Count, Store

__all__ = ["Kept"]

logger = logging.getLogger(__name__)

STANDBY_EVERY = timedelta(seconds=15)
"""How often a watch that stands by writes that it does."""


@dataclass
class Kept:
    """Writes each pass down; what cannot be written is logged, and the pass counts all the same."""

    store: Store
    owner: str
    reasons: Callable[[], frozenset[str]]
    """Names of the reasons there are."""
    stopped_by: Callable[[], str | None] = lambda: None
    """Tells which kill switch is set."""
    blind_after: timedelta = timedelta(minutes=10)
    policy: Callable[[], PolicyStanding] | None = None
    """Tells which policy the gate of this process holds."""
    _digest: str | None = field(default=None, init=False)
    """Of the policy in the pass before; None before the first."""
    _whole_at: datetime | None = field(default=None, init=False)
    """When this watch last saw everything, or before that any other; when it began to lead, if none ever did."""
    _stood_by_at: datetime | None = field(default=None, init=False)

    def passed(self, passed: Passed) -> None:
        """Write one pass down."""
        try:
            if not passed.leads:
                self._stands_by(passed)
            else:
                self._led(passed)
        except StoreError as error:
            logger.warning("the pass was not written down: %s", error)

    def close(self) -> None:
        """Nothing is open."""

    def _stands_by(self, passed: Passed) -> None:
        self._whole_at = None
        if self._stood_by_at is None or passed.at - self._stood_by_at >= STANDBY_EVERY:
            self._keep(passed)
            self._stood_by_at = passed.at

    def _led(self, passed: Passed) -> None:
        self._stood_by_at = None
        result = Count("passes", (("result", "degraded" if passed.troubles else "whole"),))
        with self.store.transaction():
            if self._digest is None:
                # over a restart: what the watch that led last held
                self._digest = next((one.policy for one in self.store.watches() if one.leads), None)
            self._keep(passed)
            self.store.add_counts({result: 1, **observed("pass_seconds", passed.seconds, PASS_BUCKETS)})
            self._note_blindness(passed)
            self._note_kill_switch()
            self._note_policy()
        catch_up(self.store, self.reasons())

    def _keep(self, passed: Passed) -> None:
        held = self.policy() if self.policy is not None else None
        self.store.keep_pass(
            self.owner,
            at=passed.at,
            seconds=passed.seconds,
            leads=passed.leads,
            whole=passed.whole,
            trouble=passed.troubles,
            unfinished=passed.unfinished,
            in_flight=passed.in_flight,
            policy=held.digest if held is not None else "",
            mode=held.mode if held is not None else "",
            policy_problem=held.problem if held is not None else "",
            kill_switch=[str(path) for path in held.policy.kill_switch] if held is not None else (),
        )

    def _note_blindness(self, passed: Passed) -> None:
        if passed.whole:
            self._whole_at = passed.at
        elif self._whole_at is None:
            seen = [one.whole_at for one in self.store.watches() if one.whole_at is not None]
            self._whole_at = max(seen, default=passed.at)
        if passed.whole:
            self.store.set_flag("blind", False, why="a pass saw everything again", by=self.owner)
        elif passed.at - self._whole_at >= self.blind_after:
            since = f"{self._whole_at:%Y-%m-%dT%H:%M:%SZ}"
            why = f"no pass saw everything since {since}: {'; '.join(passed.trouble[:3])}"
            self.store.set_flag("blind", True, why=why, by=self.owner)

    def _note_kill_switch(self) -> None:
        switch = self.stopped_by()
        why = f"{switch} is set: nothing is changed until it is removed" if switch else "it was removed: changes are made again"
        self.store.set_flag("kill_switch", switch is not None, why=why, by=self.owner)

    def _note_policy(self) -> None:
        if self.policy is None:
            return
        held = self.policy()
        why = f"every change is refused: {held.problem}" if held.problem else f"it is whole, mode {held.mode}"
        self.store.set_flag("policy", bool(held.problem), why=why, by=self.owner)
        if self._digest is not None and self._digest != held.digest:
            detail = {"policy": held.digest, "before": self._digest}
            self.store.record("policy.changed", by=self.owner, why=f"mode {held.mode}", detail=detail)
        self._digest = held.digest
