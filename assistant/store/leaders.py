"""Which of several watches leads, by lease; and the fence that keeps one that slept through its lease from writing.

The token grows whenever leadership changes hands. A store with a fence checks it under the write lock of each transaction, so there
is no moment between the check and the write in which another could have taken over.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from assistant.errors import Fenced
from assistant.store.audit import AuditRows
from assistant.store.rows import time_text

__all__ = ["LeaderRows", "Leadership"]


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads."""

    owner: str
    token: int
    """Grows with each change of hands."""
    until: datetime
    """From when on another may take over."""


class LeaderRows(AuditRows):
    """The leaders' part of the store."""

    def leader(self, name: str = "watch") -> Leadership | None:
        """Return who leads, or led last; None when nobody ever did."""
        row = self.row("SELECT * FROM leaders WHERE name = ?", [name])
        return None if row is None else Leadership(row["owner"], row["token"], datetime.fromisoformat(row["until"]))

    def lead(
        self, owner: str, seconds: float, *, gone: Callable[[str], bool] = lambda _: False, name: str = "watch"
    ) -> Leadership | None:
        """Take or renew leadership, by compare-and-set; None when another leads.

        Args:
            owner: Who wants to lead.
            seconds: For how long, from now.
            gone: Tells whether a holder's process has surely ended, so that its lease need not be waited for.
            name: Of what is led.
        """
        with self.unfenced(), self.transaction() as connection:
            now, current = self.clock.now(), self.leader(name)
            is_ours = current is not None and current.owner == owner
            if current is not None and not is_ours and current.until > now and not gone(current.owner):
                return None
            token = current.token if current is not None and is_ours else (current.token if current is not None else 0) + 1
            renewed = Leadership(owner, token, now + timedelta(seconds=seconds))
            if is_ours:
                connection.execute("UPDATE leaders SET until = ? WHERE name = ?", [time_text(renewed.until), name])
            else:
                connection.execute(
                    "INSERT OR REPLACE INTO leaders (name, owner, token, until) VALUES (?,?,?,?)",
                    [name, owner, token, time_text(renewed.until)],
                )
                why = f"the lease of {current.owner} had run out" if current is not None else ""
                self.record("leader.took_over", by=owner, at=now, why=why, detail={"name": name, "token": token})
            return renewed

    def resign(self, led: Leadership, name: str = "watch") -> None:
        """Give leadership back at once, so that another need not wait; one that is no longer held is left alone."""
        with self.unfenced(), self.transaction() as connection:
            now = time_text(self.clock.now())
            sql = "UPDATE leaders SET until = ? WHERE name = ? AND owner = ? AND token = ?"
            if connection.execute(sql, [now, name, led.owner, led.token]).rowcount:
                self.record("leader.resigned", by=led.owner, detail={"name": name, "token": led.token})

    def fence_off(self, led: Leadership, name: str = "watch") -> None:
        """Let this store write only while the given leadership holds.

        Every later transaction raises `Fenced` once another has taken over.
        """

        def check(connection: sqlite3.Connection) -> None:
            row = connection.execute("SELECT owner, token FROM leaders WHERE name = ?", [name]).fetchone()
            if row is None or (row["owner"], row["token"]) != (led.owner, led.token):
                holder = row["owner"] if row is not None else "nobody"
                raise Fenced(f"{led.owner} led and leads no more: {holder} took over. Nothing was written; this watch stands by")

        self.fence = check

    def must_lead(self) -> None:
        """Make sure that the leadership that this store was fenced with holds; one without a fence may always.

        Raises:
            Fenced: Another has taken over.
        """
        if self.fence is not None:
            with self.snapshot() as connection:
                self.fence(connection)
