"""How each watch fares: a row for every process that watches, with its last pass, so that others can see whether it is alive."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from assistant.store.audit import AuditRows
from assistant.store.rows import clean, packed, time_of, time_text

__all__ = ["PassingWatch", "WatchRows"]

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
    """The watches' part of the store."""

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
