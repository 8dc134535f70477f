"""The processes that watch: how each fares, which one leads, and what they do not see.

Each has a row with its last pass, so that others can tell whether it is alive.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from assistant.errors import Fenced
from assistant.store.audit import AuditRows
from assistant.store.rows import clean, packed, time_of, time_text

_RETENTION = timedelta(days=30)
"""How long the row of a watch stays that passes no more."""


@dataclass(frozen=True, slots=True)
class PassingWatch:
    """A process that watches, and its last pass."""

    owner: str
    """As in `Leadership.owner`."""
    began: datetime
    """When it made its first pass."""
    at: datetime
    """When its last pass began."""
    seconds: float
    leads: bool
    whole_at: datetime | None
    """When its last pass began that saw everything; None before the first."""
    trouble: tuple[str, ...]
    """What the last pass could not see or do."""
    unfinished: int
    in_flight: int
    policy: str = ""
    """Digest of the policy that its gate held in its last pass; empty where it was not whole."""
    mode: str = ""
    """Of that policy; `none` where it was not whole."""
    policy_problem: str = ""
    """Why no policy was in force; empty when one was."""
    kill_switch: tuple[str, ...] = ()
    """Files that it looks for as kill switches."""


class WatchRows(AuditRows):
    """Rows of watches and their passes, and of what people switch while a watch runs."""

    def keep_pass(
        self,
        owner: str,
        *,
        at: datetime,
        seconds: float,
        leads: bool,
        whole: bool,
        trouble: Sequence[str] = (),
        unfinished: int = 0,
        in_flight: int = 0,
        policy: str = "",
        mode: str = "",
        policy_problem: str = "",
        kill_switch: Sequence[str] = (),
    ) -> None:
        """Keep the last pass of a watch; also one that stands by writes it, so the fence does not hold here."""
        values = [owner, time_text(at), seconds, int(leads), time_text(at) if whole else None]
        values += [packed([clean(problem) for problem in trouble]), unfinished, in_flight]
        values += [policy, mode, clean(policy_problem), json.dumps(list(kill_switch))]
        sql = (
            "INSERT INTO watches (owner, began, at, seconds, leads, whole_at, trouble, unfinished, in_flight, policy, mode, "
            "policy_problem, kill_switch) VALUES (?1,?2,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12) "
            "ON CONFLICT (owner) DO UPDATE SET at = ?2, seconds = ?3, leads = ?4, "
            "whole_at = coalesce(?5, whole_at), trouble = ?6, unfinished = ?7, in_flight = ?8, policy = ?9, mode = ?10, "
            "policy_problem = ?11, kill_switch = ?12"
        )
        with self.unfenced(), self.transaction() as connection:
            connection.execute(sql, values)
            connection.execute("DELETE FROM watches WHERE at < ?", [time_text(at - _RETENTION)])

    def watches(self) -> list[PassingWatch]:
        """Return the watches of the last 30 days, the latest pass first."""
        return [
            PassingWatch(
                row["owner"],
                datetime.fromisoformat(row["began"]),
                datetime.fromisoformat(row["at"]),
                row["seconds"],
                bool(row["leads"]),
                time_of(row["whole_at"]),
                tuple(json.loads(row["trouble"])),
                row["unfinished"],
                row["in_flight"],
                row["policy"],
                row["mode"],
                row["policy_problem"],
                tuple(json.loads(row["kill_switch"])),
            )
            for row in self.rows("SELECT * FROM watches ORDER BY at DESC, owner")
        ]

    def set_flag(self, name: str, value: bool, *, why: str, by: str) -> bool:
        """Note that a standing condition began or ended, with a row `watch.<name>` in the audit; False when it stood so already.

        Args:
            name: Such as `blind` or `kill_switch`.
            value: Whether it holds now.
            why: For people.
            by: Who noticed.
        """
        key = f"flag:{name}"
        with self.transaction() as connection:
            row = self.row("SELECT value FROM properties WHERE name = ?", [key])
            if (row is not None and row["value"] == "on") == value:
                return False
            now = "on" if value else "off"
            connection.execute("INSERT OR REPLACE INTO properties (name, value) VALUES (?, ?)", [key, now])
            self.record(f"watch.{name}", by=by, why=why, outcome=now)
        return True


# What the watch does not see, since when, and whether people were told; and its last remarks. Passes and `status` read it.

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


class CoverageRows(AuditRows):
    """Rows of what passes do not see, and of remarks; they are the cluster's, whichever watch leads."""

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


# Which of several watches leads, by lease; and the fence that keeps one that slept through its lease from writing.
#
# The token grows whenever leadership changes hands. A store with a fence checks it under the write lock of each transaction, so
# there is no moment between the check and the write in which another could have taken over.


@dataclass(frozen=True, slots=True)
class Leadership:
    """The watch that leads, its fencing token, and until when."""

    owner: str
    token: int
    """Grows with each change of hands."""
    until: datetime
    """From when on another may take over."""


class LeaderRows(AuditRows):
    """Rows of leadership among watches."""

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
