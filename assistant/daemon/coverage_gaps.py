"""Judge what a pass did not see: what is new keeps it from being a sign of life, what people know of does not.

A pass that sees no scheduler sees nothing. But one log on a bad disk, or one mount that hangs for a week, must not silence the sign
of life for a week: whoever is called by a dead man's switch each night turns it off. So a part that was not seen for a while is
written down for people, stays visible as degraded, and from then on a pass counts as whole that sees all the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from assistant.errors import StoreError
from assistant.store import Store, Unseen
from assistant.watch.troubles import Extent, Remark, Trouble

__all__ = ["TOLD_AFTER", "Judged", "Sight"]

logger = logging.getLogger(__name__)

TOLD_AFTER = timedelta(minutes=5)
"""Mounts hang and come back within minutes. Shorter than WatchdogSec of the unit: systemd starts no watch anew for one log."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What a pass did not see, in words."""

    trouble: tuple[str, ...] = ()
    """What nobody was told of so far."""
    known: tuple[str, ...] = ()
    """What people were told of, with since when."""


class Sight:
    """Remembers, in the store, what passes do not see: neither a restart nor another leader begins to count anew."""

    def __init__(self, store: Store, owner: str) -> None:
        """Judge passes of `owner`."""
        self._store, self._owner = store, owner

    def judge(self, found: Iterable[Trouble], at: datetime) -> Judged:
        """Return what became of the troubles of a pass that began at `at`; what lasts is written down for people."""
        troubles = {one.about: one for one in found}
        parts = [one for one in troubles.values() if one.extent is Extent.PART]
        aside = [one.text for one in troubles.values() if one.extent is Extent.SET_ASIDE]
        try:
            unseen = {one.about: one for one in self._noted(parts, at)}
            self._store.set_aside(aside)
        except StoreError as error:
            logger.warning("what is not seen was not written down, so nobody knows of it: %s", error)
            unseen = {}
        known = {about for about, one in unseen.items() if one.told is not None}
        return Judged(
            tuple(one.text for one in troubles.values() if one.extent is not Extent.SET_ASIDE and one.about not in known),
            tuple(f"{one.text} (since {unseen[one.about].since:%Y-%m-%d %H:%MZ})" for one in parts if one.about in known),
        )

    def keep(self, remarks: Sequence[Remark], at: datetime) -> None:
        """Keep the remarks of a pass; they matter too little to fail for."""
        if not remarks:
            return
        try:
            self._store.add_remarks([one.text for one in remarks], at)
        except StoreError as error:
            logger.warning("remarks were not written down: %s", error)

    def _noted(self, parts: Sequence[Trouble], at: datetime) -> list[Unseen]:
        before = {one.about: one for one in self._store.unseen()}
        now = []
        for one in parts:
            had = before.get(one.about)
            since = min(had.since, at) if had is not None else at
            told = had.told if had is not None else None
            now.append(Unseen(one.about, one.text, since, told or (at if at - since >= TOLD_AFTER else None)))
        if {(one.about, one.told) for one in now} != {(one.about, one.told) for one in before.values()}:
            self._store.keep_unseen(now, by=self._owner)
        return now
