"""What stands until a person changes it: the breaker, the learned rules of a site, and that it has a policy of its own.

The breaker stands in the store, so it holds for all watches and commands and stays open across restarts until a person resets it.
A policy file that vanished is missing as long as the store knows of it, and is not taken for the shipped policy.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from assistant.errors import StoreError
from assistant.records import Category, IncidentState, LearnedRule, RuleKind, RuleState
from assistant.store.audit import AuditRows
from assistant.store.rows import clean, packed, time_text

__all__ = [
    "Lately",
    "Period",
    "PolicyRows",
    "RuleRows",
    "count_lately",
    "failures_by_user",
    "last_period",
    "open_breaker",
    "reset_breaker",
    "why_open",
]

_BREAKER = "breaker"
_WINDOW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Period:
    """One time for which the breaker was open, or is."""

    since: datetime
    until: datetime | None
    """When a person reset it; None while it is open."""
    why: str
    by: str


@dataclass(frozen=True, slots=True)
class Lately:
    """Counts within the last hour and since the last reset that may open the breaker.

    Actions are counted by the user whose jobs they are about, empty where they are about no job or those of several users. What a
    person did at a door is theirs, and counts for none.
    """

    machine_failures: int
    failed_actions: Mapping[str, int]
    refused_actions: Mapping[str, int]


def last_period(store: AuditRows) -> Period | None:
    """Return when the breaker was open last, or is; None when it never was."""
    row = store.row("SELECT value FROM properties WHERE name = ?", [_BREAKER])
    if row is None:
        return None
    stored = json.loads(row["value"])
    until = datetime.fromisoformat(stored["until"]) if stored["until"] else None
    return Period(datetime.fromisoformat(stored["since"]), until, stored["why"], stored["by"])


def why_open(store: AuditRows) -> str | None:
    """Return since when and why the breaker is open, None when it is not."""
    period = last_period(store)
    return f"since {period.since:%Y-%m-%dT%H:%M:%SZ}: {period.why}" if period is not None and period.until is None else None


def open_breaker(store: AuditRows, *, why: str, by: str) -> bool:
    """Open the breaker; False when it is open already."""
    with store.transaction():
        before = last_period(store)
        if before is not None and before.until is None:
            return False
        _keep(store, Period(store.clock.now(), None, clean(why), clean(by)))
        store.record("watch.breaker", by=by, why=why, outcome="on")
    return True


def reset_breaker(store: AuditRows, *, why: str, by: str) -> bool:
    """Close the breaker, by a person's word; False when it is not open."""
    with store.transaction():
        before = last_period(store)
        if before is None or before.until is not None:
            return False
        _keep(store, replace(before, until=store.clock.now()))
        store.record("watch.breaker", by=by, why=why, outcome="off", detail={"open_since": time_text(before.since)})
    return True


def count_lately(store: AuditRows, reset: datetime | None) -> Lately:
    """Return what the last hour saw that may open it; nothing from before the last reset counts again.

    Args:
        store: Its audit is counted.
        reset: When it was reset last.
    """
    since, first = _since(store, reset)
    machine_failures = store.row(
        "SELECT count(DISTINCT audit.incident) FROM audit JOIN incidents ON incidents.id = audit.incident "
        "WHERE what = 'diagnosis' AND opened >= ? AND EXISTS "
        "(SELECT 1 FROM diagnoses WHERE diagnoses.incident = audit.incident AND category = ?) AND audit.id > ?",
        [time_text(since), str(Category.INFRASTRUCTURE), first],
    )
    refused = f"{_CHANGES} AND what = 'decision' AND outcome = 'deny' AND (rule LIKE '%hard.%' OR rule = 'min_healthy_share')"
    return Lately(
        machine_failures=int(machine_failures[0]) if machine_failures is not None else 0,
        failed_actions=failures_by_user(store, reset),
        refused_actions=_by_user(store, refused, [], first),
    )


def failures_by_user(store: AuditRows, reset: datetime | None) -> Mapping[str, int]:
    """Return how many changes for the jobs of each user failed, or brought nothing back, in the last hour; as `count_lately`."""
    _, first = _since(store, reset)
    failed = _by_user(store, f"{_CHANGES} AND what = 'outcome' AND outcome != 'ok'", [], first)
    in_vain = (
        "SELECT DISTINCT audit.incident AS key, calls.targets AS targets FROM audit JOIN calls ON calls.incident = audit.incident "
        "AND calls.kind = 'resubmit' AND calls.status = 'done' WHERE what = 'incident.state' AND outcome = ?"
    )
    return failed + _by_user(store, in_vain, [str(IncidentState.ESCALATED)], first)


_CHANGES = (
    "SELECT DISTINCT calls.id AS key, calls.targets AS targets FROM audit JOIN calls ON calls.id = audit.call "
    "WHERE calls.kind != 'read' AND calls.by NOT LIKE 'cli:%' AND calls.by NOT LIKE 'chat:%'"
)


def _since(store: AuditRows, reset: datetime | None) -> tuple[datetime, int]:
    """Return from when on is counted, and the last row of the audit before that."""
    since = max(store.clock.now() - _WINDOW, reset) if reset is not None else store.clock.now() - _WINDOW
    before = store.row("SELECT id FROM audit WHERE at < ? ORDER BY id DESC LIMIT 1", [time_text(since)])
    return since, before["id"] if before is not None else 0


def _by_user(store: AuditRows, sql: str, values: Sequence[str], first: int) -> Counter[str]:
    rows = store.rows(f"{sql} AND audit.id > ?", [*values, first])
    return Counter({row["key"]: _only_user(row["targets"]) for row in rows}.values())


def _only_user(targets: str) -> str:
    """Return whose jobs a call is about, from its targets as the store keeps them; empty for nobody's, or those of several."""
    try:
        users: list[object] = list(json.loads(targets).get("users") or ())
    except (ValueError, AttributeError):
        return ""
    return str(users[0]) if len(users) == 1 else ""


def _keep(store: AuditRows, period: Period) -> None:
    with store.transaction() as connection:
        connection.execute("INSERT OR REPLACE INTO properties (name, value) VALUES (?, ?)", [_BREAKER, packed(period)])


_SITE_POLICY = "site_policy"


class PolicyRows(AuditRows):
    """Rows that say whether a site has a policy of its own."""

    def site_policy(self) -> str | None:
        """Return the file of the site's policy that was in force last, None where there never was one or it was given up."""
        row = self.row("SELECT value FROM properties WHERE name = ?", [_SITE_POLICY])
        return None if row is None else str(row["value"])

    def keep_site_policy(self, path: str) -> None:
        """Keep the file of the site's policy that is in force now; a watch that stands by writes it as well."""
        with self.unfenced(), self.transaction() as connection:
            before = self.site_policy()
            if before == path:
                return
            connection.execute("INSERT OR REPLACE INTO properties (name, value) VALUES (?, ?)", [_SITE_POLICY, path])
            self.record("policy.site", by="policy", why="the site has a policy of its own", detail={"file": path, "before": before})

    def give_up_site_policy(self, *, by: str, why: str = "") -> str | None:
        """Forget by a person's word that the site has a policy, and return its file; None where the store knows of none."""
        with self.transaction() as connection:
            before = self.site_policy()
            if before is not None:
                connection.execute("DELETE FROM properties WHERE name = ?", [_SITE_POLICY])
                why = clean(why) or "the shipped policy is accepted"
                self.record("policy.shipped", by=by, why=why, detail={"before": before})
            return before


_COLUMNS = "id, kind, pattern, examples, of, state, by, why, made, incident, task, source, weight, hits, misses"


class RuleRows(AuditRows):
    """The learned rules' part of the store."""

    def add_rule(self, rule: LearnedRule) -> LearnedRule:
        """Write a new rule down and return it as it is kept, without secrets.

        Raises:
            StoreError: Its id was used before.
        """
        values = [
            rule.id,
            str(rule.kind),
            rule.pattern,
            packed(rule.examples),
            rule.of,
            str(rule.state),
            clean(rule.by),
            clean(rule.why),
            time_text(rule.made),
            rule.incident,
            rule.task,
            rule.source,
            rule.weight,
            rule.hits,
            rule.misses,
        ]
        with self.transaction() as connection:
            if self.row("SELECT 1 FROM rules WHERE id = ?", [rule.id]) is not None:
                raise StoreError(f"rule {rule.id!r} is there already: an id is used once")
            connection.execute(f"INSERT INTO rules ({_COLUMNS}) VALUES ({', '.join('?' * len(values))})", values)
            self._record_rule(rule, by=rule.by, why=rule.why)
        return self.rule(rule.id)

    def rule(self, rule_id: str) -> LearnedRule:
        """Return one rule.

        Raises:
            StoreError: There is none of that id.
        """
        row = self.row("SELECT * FROM rules WHERE id = ?", [rule_id])
        if row is None:
            raise StoreError(f"there is no learned rule {rule_id!r}; see `nightshift rules list --learned`")
        return _rule(row)

    def rules(self, *, kind: RuleKind | None = None, counting: bool = False, task: str | None = None) -> list[LearnedRule]:
        """Return rules, oldest first.

        Args:
            kind: Only these.
            counting: Only those on trial and active.
            task: Only those made for this task or for any.
        """
        rows = self.rows("SELECT * FROM rules ORDER BY made, id")
        rules_read = [_rule(row) for row in rows]
        return [
            rule
            for rule in rules_read
            if (kind is None or rule.kind is kind)
            and (not counting or rule.state.counts)
            and (task is None or rule.task in ("", task))
        ]

    def move_rule(self, rule_id: str, state: RuleState, *, by: str, why: str) -> LearnedRule:
        """Change a rule's state and return it; one that is in this state already is left alone."""
        with self.transaction() as connection:
            rule = self.rule(rule_id)
            if rule.state is not state:
                connection.execute("UPDATE rules SET state = ?, why = ? WHERE id = ?", [str(state), clean(why), rule_id])
                self._record_rule(self.rule(rule_id), by=by, why=why, before=rule.state)
        return self.rule(rule_id)

    def use_rule(self, rule_id: str, incident: int, *, agreed: bool, at: datetime | None = None) -> LearnedRule:
        """Count a hit or a miss of a rule in a confirmed incident, once an incident; the latest word holds."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO rule_uses (rule, incident, agreed, at) VALUES (?,?,?,?)",
                [rule_id, incident, int(agreed), time_text(at or self.clock.now())],
            )
            sql = (
                "UPDATE rules SET hits = (SELECT count(*) FROM rule_uses WHERE rule = ?1 AND agreed),"
                " misses = (SELECT count(*) FROM rule_uses WHERE rule = ?1 AND NOT agreed) WHERE id = ?1"
            )
            connection.execute(sql, [rule_id])
        return self.rule(rule_id)

    def count_folded(self, rule_id: str, lines: int) -> None:
        """Add the lines that a filter folded."""
        with self.transaction() as connection:
            connection.execute("UPDATE rules SET hits = hits + ? WHERE id = ?", [lines, rule_id])

    def rules_version(self) -> str:
        """Return a mark that changes whenever the set of rules that count does; cheap enough to ask before every diagnosis."""
        row = self.row("SELECT count(*), max(rowid), group_concat(id) FROM rules WHERE state IN ('trial', 'active')", [])
        return "" if row is None else "|".join(str(value) for value in tuple(row))

    def _record_rule(self, rule: LearnedRule, *, by: str, why: str, before: RuleState | None = None) -> None:
        detail = {"pattern": rule.pattern, "of": rule.of, "from": str(before) if before else None}
        self.record(f"rule.{rule.state}", by=by, incident=rule.incident, why=why, rule=rule.id, detail=detail)


def _rule(row: sqlite3.Row) -> LearnedRule:
    return LearnedRule(
        row["id"],
        RuleKind(row["kind"]),
        row["pattern"],
        tuple(json.loads(row["examples"])),
        row["of"],
        RuleState(row["state"]),
        row["by"],
        row["why"],
        datetime.fromisoformat(row["made"]),
        row["incident"],
        row["task"],
        row["source"],
        row["weight"],
        row["hits"],
        row["misses"],
    )
