"""What was read and sent last: rows of the audit, notifications of each place, counters of nodes, processes of jobs.

A reader goes on from there, so that nothing counts twice and nobody is notified twice; counters and processes are compared
with what stands there later: a counter that moved since its last reading, a process that has died.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from assistant.counting import Kept, Reading, from_text, to_text
from assistant.errors import StoreError
from assistant.records import IncidentState, Job
from assistant.records.jobs import ProcessReport, report_of
from assistant.store.audit import AuditRow, AuditRows, row_of
from assistant.store.rows import clean, packed, time_text, unpacked

# Counts that only grow, and how far each reader of the audit has come: both move in one transaction, so nothing counts twice.

Labels = tuple[tuple[str, str], ...]
"""Names and values of what is counted apart, in order of the names."""
_MANY = 500


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
        for start in range(0, len(calls), _MANY):
            chunk = calls[start : start + _MANY]
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


_RETENTION = timedelta(days=7)


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
                connection.execute("DELETE FROM tellings WHERE at < ?", [time_text(max(told_at.values()) - _RETENTION)])
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


# What counters of nodes stood at when they were last checked.

AT_ONCE = 500
"""SQLite takes a limited number of values in one query."""


class ReadingRows(AuditRows):
    """Rows of counters that probes compare with their next reading."""

    def kept_readings(self, nodes: Sequence[str]) -> dict[str, Kept]:
        """Return what is kept of nodes; a row that cannot be read is none, and says so."""
        by_node: dict[str, Kept] = {}
        for first in range(0, len(nodes), AT_ONCE):
            chunk = nodes[first : first + AT_ONCE]
            marks = ",".join("?" * len(chunk))
            for row in self.rows(f"SELECT node, readings FROM readings WHERE node IN ({marks})", chunk):
                by_node[row["node"]] = _stored_reading(row["readings"])
        return by_node

    def keep_readings(self, readings: Mapping[str, Sequence[Reading]]) -> None:
        """Replace what is kept of nodes; no part of the audit, for nothing rests on it but a rate."""
        rows = [(node, to_text(own)) for node, own in readings.items()]
        with self.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO readings (node, readings) VALUES (?, ?)", rows)


def _stored_reading(text: str) -> Kept:
    try:
        return Kept(from_text(text))
    except ValueError as error:
        return Kept(why=f"the earlier reading cannot be read: {error}")


logger = logging.getLogger(__name__)

RETENTION = timedelta(days=60)
SAME_START = timedelta(seconds=2)
"""The queue and the accounting may tell the start of one attempt a second apart."""


class ProcessRows(ReadingRows):
    """The process reports' part of the store."""

    def process_report(self, job: Job) -> ProcessReport | None:
        """Return what was seen of one attempt of a job; None where nothing was, or where it cannot be read.

        An attempt is known by id, number and start, for schedulers use ids again.
        """
        if job.started is None:
            return None
        try:
            rows = self.rows("SELECT begun, report FROM job_processes WHERE job = ? AND attempt = ?", [job.id, job.attempt])
        except StoreError as error:
            # schedulers attach this to every job: what is only an addition must not keep a job from being shown
            logger.warning("job=%s what its processes wrote is not known: %s", job.id, error)
            return None
        for row in rows:
            try:
                if abs(datetime.fromisoformat(row["begun"]) - job.started) <= SAME_START:
                    return report_of(unpacked(row["report"]))
            except ValueError as error:
                logger.warning("job=%s what its processes wrote cannot be read from the store: %s", job.id, error)
        return None

    def keep_process_report(self, job: Job, report: ProcessReport) -> None:
        """Replace what is kept of one attempt; sealed, but no event of the audit: every path is looked at before it counts."""
        if job.started is None:
            return
        with self.transaction() as connection:
            sql = "INSERT OR REPLACE INTO job_processes (job, attempt, begun, at, report) VALUES (?,?,?,?,?)"
            connection.execute(sql, [job.id, job.attempt, time_text(job.started), time_text(report.at), packed(report)])
            connection.execute("DELETE FROM job_processes WHERE at < ?", [time_text(report.at - RETENTION)])
