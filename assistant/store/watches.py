"""The processes that watch: how each fares, which one leads, what they do not see, and what they counted, read and notified.

Each has a row with its last pass, so that others can tell whether it is alive. Whoever reads the audit keeps a cursor and its
counts, and what each place was notified of, so that nothing counts twice and nothing is repeated.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from assistant.errors import Fenced
from assistant.records import IncidentState
from assistant.store.audit import AuditRow, AuditRows, row_of
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


# Counts that only grow, and how far each reader of the audit has come: both move in one transaction, so nothing counts twice.

Labels = tuple[tuple[str, str], ...]
"""Names and values of what is counted apart, in order of the names."""
AT_ONCE = 500
"""SQLite takes a limited number of values in one query."""


class Count(NamedTuple):
    """One count, with its labels."""

    name: str
    labels: Labels = ()


class TallyRows(AuditRows):
    """Rows of counts and cursors over the audit."""

    def audit_after(self, row: int, limit: int) -> list[AuditRow]:
        """Return rows of the audit behind one, the oldest first, at most so many."""
        return [row_of(audit_row) for audit_row in self.rows("SELECT * FROM audit WHERE id > ? ORDER BY id LIMIT ?", [row, limit])]

    def row_before(self, row: int, prefix: str) -> AuditRow | None:
        """Return the last row of the audit before one whose `what` begins with a prefix; None when there is none."""
        sql = "SELECT * FROM audit WHERE id < ? AND what GLOB ? ORDER BY id DESC LIMIT 1"
        earlier = self.row(sql, [row, f"{prefix}*"])
        return None if earlier is None else row_of(earlier)

    def newest_row(self) -> int:
        """Return the number of the newest row of the audit, 0 before the first."""
        newest = self.row("SELECT max(id) AS id FROM audit")
        return int(newest["id"] or 0) if newest is not None else 0

    def cursor(self, name: str) -> int | None:
        """Return how far a reader of the audit has come; None when it never read."""
        position = self.row("SELECT row FROM cursors WHERE name = ?", [name])
        return None if position is None else int(position["row"])

    def move_cursor(self, name: str, row: int) -> None:
        """Note that a reader is done with everything up to a row."""
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO cursors (name, row) VALUES (?, ?)", [name, row])

    def add_counts(self, more: Mapping[Count, float]) -> None:
        """Add to counts; labels are kept without secrets."""
        sql = (
            "INSERT INTO counts (name, labels, value) VALUES (?1, ?2, ?3) "
            "ON CONFLICT (name, labels) DO UPDATE SET value = value + ?3"
        )
        with self.transaction() as connection:
            rows = [
                (count.name, json.dumps([(key, clean(text)) for key, text in count.labels]), value) for count, value in more.items()
            ]
            connection.executemany(sql, rows)

    def counts(self) -> dict[Count, float]:
        """Return all counts."""
        rows = self.rows("SELECT * FROM counts ORDER BY name, labels")
        return {Count(row["name"], tuple((k, v) for k, v in json.loads(row["labels"]))): row["value"] for row in rows}

    def kinds_of(self, calls: Sequence[int]) -> dict[int, str]:
        """Return the action classes of calls by their ids."""
        kinds: dict[int, str] = {}
        for start in range(0, len(calls), AT_ONCE):
            chunk = calls[start : start + AT_ONCE]
            rows = self.rows(f"SELECT id, kind FROM calls WHERE id IN ({', '.join('?' * len(chunk))})", list(chunk))
            kinds |= {row["id"]: row["kind"] for row in rows}
        return kinds

    def is_first(self, row: AuditRow) -> bool:
        """Tell whether a row of the audit is the first of its sort about its incident."""
        sql = "SELECT min(id) AS id FROM audit WHERE incident = ? AND what = ?"
        first = self.row(sql, [row.incident, row.what])
        return first is not None and first["id"] == row.id

    def open_states(self) -> dict[str, int]:
        """Return how many incidents stand in each state that is not an end."""
        # by what they are and not by what they are not: then the index reads only those, however many have ended
        unfinished = [str(state) for state in IncidentState if not state.ended]
        marks = ", ".join("?" * len(unfinished))
        sql = f"SELECT state, count(*) AS many FROM incidents WHERE state IN ({marks}) GROUP BY state"
        return {row["state"]: row["many"] for row in self.rows(sql, unfinished)}

    def waiting_approvals(self, now: datetime) -> int:
        """Return how many approvals can still be answered."""
        sql = "SELECT count(*) AS many FROM approvals WHERE verdict IS NULL AND expires > ?"
        counted = self.row(sql, [time_text(now)])
        return int(counted["many"]) if counted is not None else 0

    def nodes_out(self) -> dict[str, int]:
        """Return the nodes that were cordoned by us and not put back by us, as far as the store knows, with the newest call."""
        sql = (
            "SELECT calls.id, calls.kind, calls.targets, outcomes.value FROM calls LEFT JOIN outcomes ON outcomes.call = calls.id "
            "WHERE calls.kind IN ('cordon', 'uncordon') AND calls.status IN ('done', 'undone') ORDER BY calls.id"
        )
        out: dict[str, int] = {}
        for row in self.rows(sql):
            value = json.loads(row["value"] or "null")
            if isinstance(value, dict) and value.get("cordoned") is False:
                continue
            for node in json.loads(row["targets"]).get("nodes", ()):
                out.pop(node, None)
                if row["kind"] == "cordon":
                    out[node] = row["id"]
        return out


_DELIVERY_RETENTION = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """When a place was last notified of something, and how many notifications were held back."""

    at: datetime
    suppressed: int
    """How often it came again since, and was not told."""


class DeliveryRows(TallyRows):
    """Rows of deliveries: which place was notified of what and when."""

    def tellings(self, sink: str, fingerprints: Iterable[str]) -> dict[str, DeliveryRecord]:
        """Return when a place was last notified of each fingerprint; those that it never was notified of are left out."""
        sql = "SELECT at, held FROM tellings WHERE sink = ? AND fingerprint = ?"
        rows = {fingerprint: self.row(sql, [sink, fingerprint]) for fingerprint in set(fingerprints)}
        return {
            fingerprint: DeliveryRecord(datetime.fromisoformat(row["at"]), row["held"])
            for fingerprint, row in rows.items()
            if row is not None
        }

    def keep_tellings(
        self, sink: str, told_at: Mapping[str, datetime], suppressed: Iterable[str], row: int, counts: Mapping[Count, float]
    ) -> None:
        """Note, in one transaction, what a place was told and how far in the audit that reaches.

        Args:
            sink: The place.
            told_at: What it was told and when, by fingerprint.
            suppressed: Fingerprints of what was held back because it had been told lately.
            row: Number of the audit's row with which the place is done.
            counts: Counts that grow by it.
        """
        with self.transaction() as connection:
            for fingerprint, at in told_at.items():
                sql = "INSERT OR REPLACE INTO tellings (sink, fingerprint, at, held) VALUES (?,?,?,0)"
                connection.execute(sql, [sink, fingerprint, time_text(at)])
            for fingerprint in suppressed:
                connection.execute("UPDATE tellings SET held = held + 1 WHERE sink = ? AND fingerprint = ?", [sink, fingerprint])
            if told_at:
                connection.execute("DELETE FROM tellings WHERE at < ?", [time_text(max(told_at.values()) - _DELIVERY_RETENTION)])
            self.move_cursor(cursor_of(sink), row)
            self.add_counts(counts)

    def known_names(self) -> tuple[list[str], list[str]]:
        """Return the hosts and the users that incidents and changes were about, for masking."""
        hosts = self.rows("SELECT node FROM sightings UNION SELECT node FROM incidents WHERE node IS NOT NULL")
        users = self.rows("SELECT DISTINCT json_each.value AS name FROM calls, json_each(calls.targets, '$.users')")
        nodes = self.rows("SELECT DISTINCT json_each.value AS name FROM calls, json_each(calls.targets, '$.nodes')")
        return [*(row["node"] for row in hosts), *(row["name"] for row in nodes)], [row["name"] for row in users]

    def mask_key(self) -> bytes:
        """Return the secret by which names are masked the same way each time, made when it is first asked for."""
        with self.transaction() as connection:
            new_key = secrets.token_hex(32)
            connection.execute("INSERT OR IGNORE INTO properties (name, value) VALUES ('mask_key', ?)", [new_key])
            row = self.row("SELECT value FROM properties WHERE name = 'mask_key'")
        return bytes.fromhex(row["value"] if row is not None else new_key)


def cursor_of(sink: str) -> str:
    """Return the name of a place's cursor over the audit."""
    return f"notify:{sink}"
