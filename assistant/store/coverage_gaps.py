"""What the watch does not see, since when, and whether people were told; and its last remarks. Passes and `status` read it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from assistant.store.audit import AuditRows
from assistant.store.rows import clean, packed, time_of, time_text

__all__ = ["Said", "SightRows", "Unseen"]

KEPT_REMARKS = 20
KEPT_FOR = timedelta(hours=12)
"""A night: whoever comes in the morning still finds them."""
LISTED = 5
"""Things that an entry of the audit names."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that passes do not see or cannot do, one after the other."""

    about: str
    """What, the same in every pass."""
    text: str
    since: datetime
    told: datetime | None = None
    """When it was written down for people; None before."""


@dataclass(frozen=True, slots=True)
class Said:
    """A remark of the watch."""

    at: datetime
    text: str


class SightRows(AuditRows):
    """The sight's part of the store; it is the cluster's, whoever leads."""

    def unseen(self) -> list[Unseen]:
        """Return what the last pass of a leader did not see, in the order in which it began."""
        return [
            Unseen(one["about"], one["text"], datetime.fromisoformat(one["since"]), time_of(one["told"]))
            for one in self._seen("unseen")
        ]

    def keep_unseen(self, found: Iterable[Unseen], *, by: str) -> None:
        """Replace what is not seen; what is told for the first time, and that nothing is left of it, gets a row in the audit."""
        now = sorted(found, key=lambda one: (one.since, one.about))
        with self.transaction():
            before = {one.about for one in self.unseen() if one.told is not None}
            told = [one for one in now if one.told is not None]
            if news := [one for one in told if one.about not in before]:
                self.record(
                    "watch.partly_blind", by=by, why=_named(news), outcome="on", detail={"about": [one.about for one in news]}
                )
            elif before and not told:
                self.record("watch.partly_blind", by=by, why="all of it is seen again", outcome="off")
            self._keep_seen("unseen", [_as_json(one) for one in now])

    def aside(self) -> list[str]:
        """Return what the site keeps from Nightshift, as the last pass of a leader found it."""
        return [one["text"] for one in self._seen("aside")]

    def set_aside(self, texts: Sequence[str]) -> None:
        """Replace what the site keeps from Nightshift."""
        if [clean(text) for text in texts] != self.aside():
            self._keep_seen("aside", [{"text": clean(text)} for text in texts])

    def remarks(self) -> list[Said]:
        """Return the last remarks, the newest first."""
        return [Said(datetime.fromisoformat(one["at"]), one["text"]) for one in self._seen("remarks")]

    def add_remarks(self, texts: Sequence[str], at: datetime) -> None:
        """Add remarks, and forget the oldest."""
        with self.transaction():
            said = [Said(at, text) for text in reversed(texts)] + [one for one in self.remarks() if at - one.at <= KEPT_FOR]
            self._keep_seen("remarks", [{"at": time_text(one.at), "text": clean(one.text)} for one in said[:KEPT_REMARKS]])

    def _seen(self, name: str) -> list[dict[str, Any]]:
        row = self.row("SELECT value FROM properties WHERE name = ?", [f"sight:{name}"])
        return list(json.loads(row["value"])) if row is not None else []

    def _keep_seen(self, name: str, value: list[dict[str, Any]]) -> None:
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO properties (name, value) VALUES (?, ?)", [f"sight:{name}", packed(value)])


def _named(news: Sequence[Unseen]) -> str:
    more = f"; and {len(news) - LISTED} more" if len(news) > LISTED else ""
    return (
        f"not seen since {min(one.since for one in news):%Y-%m-%dT%H:%M:%SZ}: {'; '.join(one.text for one in news[:LISTED])}{more}"
    )


def _as_json(one: Unseen) -> dict[str, Any]:
    told = time_text(one.told) if one.told is not None else None
    return {"about": clean(one.about), "text": clean(one.text), "since": time_text(one.since), "told": told}
