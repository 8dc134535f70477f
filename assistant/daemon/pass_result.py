"""The result of one pass of the watch, for everything that reports about it, and whether it is a sign of life."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from assistant.errors import StoreError
from assistant.store import Store, Unseen
from assistant.watch.attempts import Extent, Remark, Trouble


@dataclass(frozen=True, slots=True)
class PassResult:
    """The result of one pass of the watch."""

    at: datetime
    """When it began."""
    seconds: float
    leads: bool
    """False for a watch that stands by while another leads: it looks at nothing."""
    trouble: tuple[str, ...] = ()
    """What could not be seen or done, in words, and nobody was told of so far: the scheduler did not answer, a log could not be
    read. Empty for a whole pass."""
    opened: tuple[int, ...] = ()
    """Incidents that it opened."""
    unfinished: int = 0
    """Incidents that are not over."""
    in_flight: int = 0
    """Incidents that are being worked on right now."""
    announced: tuple[str, ...] = ()
    """What could not be seen or done for so long that people were told."""

    @property
    def whole(self) -> bool:
        """Whether it saw everything but what people were told of: only such a pass is a sign of life for others."""
        return self.leads and not self.trouble

    @property
    def troubles(self) -> tuple[str, ...]:
        """All that could not be seen or done, what nobody was told of first."""
        return self.trouble + self.announced


class PassListener(Protocol):
    """Something that is told of every pass: systemd, a heartbeat URL, metrics, notifications."""

    def report(self, pass_result: PassResult) -> None:
        """Take note; must not raise, and must not block for longer than its own deadline of a few seconds."""
        ...

    def close(self) -> None:
        """Say that the watch ends on purpose."""
        ...


# Judge what a pass did not see: what is new keeps it from being a sign of life, what people know of does not.
#
# A pass that sees no scheduler sees nothing. But one log on a bad disk, or one mount that hangs for a week, must not silence the
# sign of life for a week: whoever is called by a dead man's switch each night turns it off. So a part that was not seen for a
# while is written down for people, stays visible as degraded, and from then on a pass counts as whole that sees all the rest.

logger = logging.getLogger(__name__)

TOLD_AFTER = timedelta(minutes=5)
"""Mounts hang and come back within minutes. Shorter than WatchdogSec of the unit: systemd starts no watch anew for one log."""


@dataclass(frozen=True, slots=True)
class JudgedTroubles:
    """What a pass did not see, in words."""

    trouble: tuple[str, ...] = ()
    """What nobody was told of so far."""
    announced: tuple[str, ...] = ()
    """What people were told of, with since when."""


class TroubleJudge:
    """Remembers, in the store, what passes do not see: neither a restart nor another leader begins to count anew."""

    def __init__(self, store: Store, owner: str) -> None:
        """Judge passes of `owner`."""
        self._store, self._owner = store, owner

    def judge(self, seen_troubles: Iterable[Trouble], at: datetime) -> JudgedTroubles:
        """Return what became of the troubles of a pass that began at `at`; what lasts is written down for people."""
        troubles = {trouble.about: trouble for trouble in seen_troubles}
        parts = [trouble for trouble in troubles.values() if trouble.extent is Extent.PART]
        aside = [trouble.text for trouble in troubles.values() if trouble.extent is Extent.SET_ASIDE]
        try:
            gaps = {trouble.about: trouble for trouble in self._noted(parts, at)}
            self._store.set_aside(aside)
        except StoreError as error:
            logger.warning("what is not seen was not written down, so nobody knows of it: %s", error)
            gaps = {}
        told_about = {about for about, trouble in gaps.items() if trouble.told is not None}
        return JudgedTroubles(
            tuple(
                trouble.text
                for trouble in troubles.values()
                if trouble.extent is not Extent.SET_ASIDE and trouble.about not in told_about
            ),
            tuple(
                f"{trouble.text} (since {gaps[trouble.about].since:%Y-%m-%d %H:%MZ})"
                for trouble in parts
                if trouble.about in told_about
            ),
        )

    def keep(self, remarks: Sequence[Remark], at: datetime) -> None:
        """Keep the remarks of a pass; they matter too little to fail for."""
        if not remarks:
            return
        try:
            self._store.add_remarks([remark.text for remark in remarks], at)
        except StoreError as error:
            logger.warning("remarks were not written down: %s", error)

    def _noted(self, parts: Sequence[Trouble], at: datetime) -> list[Unseen]:
        earlier_gaps = {trouble.about: trouble for trouble in self._store.unseen()}
        now = []
        for trouble in parts:
            had = earlier_gaps.get(trouble.about)
            since = min(had.since, at) if had is not None else at
            told_at = had.told if had is not None else None
            now.append(Unseen(trouble.about, trouble.text, since, told_at or (at if at - since >= TOLD_AFTER else None)))
        if {(trouble.about, trouble.told) for trouble in now} != {
            (trouble.about, trouble.told) for trouble in earlier_gaps.values()
        }:
            self._store.keep_unseen(now, by=self._owner)
        return now
