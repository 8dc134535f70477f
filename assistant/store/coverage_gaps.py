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
            Unseen(gap["about"], gap["text"], datetime.fromisoformat(gap["since"]), time_of(gap["told"]))
            for gap in self._stored("unseen")
        ]

    def keep_unseen(self, gaps: Iterable[Unseen], *, by: str) -> None:
        """Replace what is not seen; what is told for the first time, and that nothing is left of it, gets a row in the audit."""
        now = sorted(gaps, key=lambda gap: (gap.since, gap.about))
        with self.transaction():
            recorded_before = {gap.about for gap in self.unseen() if gap.told is not None}
            recorded = [gap for gap in now if gap.told is not None]
            if news := [gap for gap in recorded if gap.about not in recorded_before]:
                self.record(
                    "watch.partly_blind", by=by, why=_listing(news), outcome="on", detail={"about": [gap.about for gap in news]}
                )
            elif recorded_before and not recorded:
                self.record("watch.partly_blind", by=by, why="all of it is seen again", outcome="off")
            self._replace_stored("unseen", [_as_json(gap) for gap in now])

    def aside(self) -> list[str]:
        """Return what the site keeps from Nightshift, as the last pass of a leader found it."""
        return [exclusion["text"] for exclusion in self._stored("aside")]

    def set_aside(self, texts: Sequence[str]) -> None:
        """Replace what the site keeps from Nightshift."""
        if [clean(text) for text in texts] != self.aside():
            self._replace_stored("aside", [{"text": clean(text)} for text in texts])

    def remarks(self) -> list[Said]:
        """Return the last remarks, the newest first."""
        return [Said(datetime.fromisoformat(remark["at"]), remark["text"]) for remark in self._stored("remarks")]

    def add_remarks(self, texts: Sequence[str], at: datetime) -> None:
        """Add remarks, and forget the oldest."""
        with self.transaction():
            remarks = [Said(at, text) for text in reversed(texts)] + [
                remark for remark in self.remarks() if at - remark.at <= KEPT_FOR
            ]
            self._replace_stored(
                "remarks", [{"at": time_text(remark.at), "text": clean(remark.text)} for remark in remarks[:KEPT_REMARKS]]
            )

    def _stored(self, name: str) -> list[dict[str, Any]]:
        row = self.row("SELECT value FROM properties WHERE name = ?", [f"sight:{name}"])
        return list(json.loads(row["value"])) if row is not None else []

    def _replace_stored(self, name: str, value: list[dict[str, Any]]) -> None:
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO properties (name, value) VALUES (?, ?)", [f"sight:{name}", packed(value)])


def _listing(news: Sequence[Unseen]) -> str:
    more = f"; and {len(news) - LISTED} more" if len(news) > LISTED else ""
    return (
        f"not seen since {min(gap.since for gap in news):%Y-%m-%dT%H:%M:%SZ}: {'; '.join(gap.text for gap in news[:LISTED])}{more}"
    )


def _as_json(gap: Unseen) -> dict[str, Any]:
    recorded_at = time_text(gap.told) if gap.told is not None else None
    return {"about": clean(gap.about), "text": clean(gap.text), "since": time_text(gap.since), "told": recorded_at}
