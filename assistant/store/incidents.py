"""Incidents: opening and joining, leases, state, timeline, evidence, diagnoses; and readings kept for later ones.

Readings are the counters of nodes and what the processes of jobs were writing, for the time after: a counter that moved since its
last reading, a process that has died.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from assistant.counting import Kept, Reading, from_text, to_text
from assistant.errors import StoreError, UsageError
from assistant.records import Diagnosis, Event, EventKind, Evidence, Incident, IncidentState, Job
from assistant.records.jobs import ProcessReport, report_of
from assistant.store.audit import AuditRows
from assistant.store.rows import (
    clean,
    diagnosis_of,
    event_of,
    evidence_of,
    incident_of,
    packed,
    place_of,
    plain,
    time_text,
    unpacked,
)

__all__ = ["SETTLED_SINCE", "WENT_ON", "Acknowledgement", "IncidentRows"]

ACKNOWLEDGED = "acknowledged"
SETTLED_SINCE = "settled_since"
"""Stage: others have settled it after a person was asked, so that the question is withdrawn."""
WENT_ON = "went_on"
"""Stage of an incident that was closed since its job went on by itself: if it stands still once more, that is another one."""

_ENDED = tuple(str(state) for state in IncidentState if state.ended)
_OPEN_SQL = f"state NOT IN ({', '.join(repr(state) for state in _ENDED)})"


class Acknowledgement(NamedTuple):
    """A person's word that they know of an escalated incident."""

    by: str
    """The door and the person: `cli:alice`, `chat:bob`."""
    at: datetime
    note: str


class IncidentRows(AuditRows):
    """Rows of incidents: state, lease, timeline, evidence and diagnoses."""

    def open_incident(self, event: Event, *, parent: int | None = None, by: str = "watch") -> tuple[Incident, bool]:
        """Return the incident of an event, and whether it was opened for it (True) or joined (False).

        An event joins the open incident of the same job attempt, or of the same node or service when it names no job. It also
        joins an ended one when it is news of old: the same kind about the same attempt again, or the end of an attempt that we
        have recovered from already. Only a person's request opens such an attempt anew.

        Args:
            event: What was noticed. `detail.submitted`, where given, tells two jobs apart that were given the same id.
            parent: The earlier incident whose restart this job was.
            by: Who noticed it.

        Raises:
            UsageError: The event names neither a job nor a node nor a service.
        """
        if event.job is None and event.node is None and event.service is None:
            raise UsageError("an event must name a job, a node or a service; found none of them")
        with self.transaction() as connection:
            standing = self._standing(event)
            if standing is not None:
                if not self._is_told(standing, event):
                    self.add_event(standing.id, event, by=by)
                return standing, False
            row = connection.execute(
                "INSERT INTO incidents (state, job, attempt, node, kind, opened, failed_at, note, parent) "
                "VALUES (?,?,?,?,?,?,?,'',?)",
                [
                    str(IncidentState.OPEN),
                    event.job,
                    event.attempt,
                    place_of(event),
                    str(event.kind),
                    time_text(self.clock.now()),
                    time_text(event.at),
                    parent,
                ],
            )
            number = int(row.lastrowid or 0)
            self._insert_event(connection, number, event)
            subject = self.incident(number).subject
            self.record("incident.opened", by=by, incident=number, why=f"{event.kind}: {subject}", detail={"event": plain(event)})
        return self.incident(number), True

    def _standing(self, event: Event) -> Incident | None:
        if event.job is None:
            rows = self.rows(f"SELECT * FROM incidents WHERE job IS NULL AND node = ? AND {_OPEN_SQL}", [place_of(event)])
            matching = [incident for incident in map(incident_of, rows) if incident.service == event.service]
            return matching[0] if matching else None
        rows = self.rows("SELECT * FROM incidents WHERE job = ? AND attempt = ? ORDER BY id DESC", [event.job, event.attempt])
        for incident in map(incident_of, rows):
            if self._is_about_another_job(incident, event):
                continue
            if not incident.state.ended:
                return incident
            if event.kind is not EventKind.REQUESTED and self._is_old_news(incident, event):
                return incident
        return None

    def _is_about_another_job(self, incident: Incident, event: Event) -> bool:
        """Tell whether the id was given to another job since."""
        times = (earlier.detail["submitted"] for earlier in self.events(incident.id) if "submitted" in earlier.detail)
        submitted = {str(plain(at)) for at in times}
        return bool(submitted) and "submitted" in event.detail and str(plain(event.detail["submitted"])) not in submitted

    def _is_told(self, incident: Incident, event: Event) -> bool:
        """Tell whether the end of an attempt was noted already: it ends once, however often it is seen."""
        return event.kind is EventKind.JOB_ENDED and any(
            (earlier.kind, earlier.job, earlier.attempt, earlier.detail)
            == (event.kind, event.job, event.attempt, plain(event.detail))
            for earlier in self.events(incident.id)
        )

    def _is_old_news(self, ended: Incident, event: Event) -> bool:
        earlier_events = self.events(ended.id)
        if WENT_ON in self.stages(ended.id):
            return False
        if event.kind is EventKind.JOB_ENDED and ended.state is IncidentState.RECOVERED:
            return True
        return event.kind in {earlier.kind for earlier in earlier_events}

    def incident(self, incident: int) -> Incident:
        """Return one incident.

        Raises:
            UsageError: There is none of this id.
        """
        row = self.row("SELECT * FROM incidents WHERE id = ?", [incident])
        if row is None:
            raise UsageError(f"incident {incident} is unknown; `nightshift incidents` lists them")
        return incident_of(row)

    def incidents(
        self,
        *,
        job: str | None = None,
        node: str | None = None,
        state: IncidentState | None = None,
        open_only: bool = False,
        limit: int = 50,
    ) -> list[Incident]:
        """Return incidents, newest first.

        Args:
            job: Only those of this job, any attempt.
            node: Only those about this node.
            state: Only those in this state.
            open_only: Only those that somebody still works on.
            limit: At most so many.
        """
        filters = {"job": job, "node": node, "state": None if state is None else str(state)}
        parts = [f"{name} = ?" for name, value in filters.items() if value is not None] + ([_OPEN_SQL] if open_only else [])
        parts += ["kind != 'outage'"] if node is not None else []
        condition = f"WHERE {' AND '.join(parts)}" if parts else ""
        arguments = [value for value in filters.values() if value is not None]
        return [
            incident_of(row)
            for row in self.rows(f"SELECT * FROM incidents {condition} ORDER BY id DESC LIMIT ?", [*arguments, limit])
        ]

    def claim(self, incident: int, owner: str, seconds: float, now: datetime | None = None, *, gone: str | None = None) -> bool:
        """Take the lease of an incident, by compare-and-set; False when another owner holds it and it has not run out.

        The same owner claims again at will, which renews. The audit gets a row when the lease of another is taken over; that
        somebody holds an incident at all stands there with their first change (`write_call`).

        Args:
            incident: Its id.
            owner: Who takes it.
            seconds: For how long, from now.
            now: The time, by default the clock's.
            gone: An owner whose process has surely ended, so that its lease need not be waited for.
        """
        now = now or self.clock.now()
        with self.transaction() as connection:
            before = self.incident(incident).owner
            updated = connection.execute(
                "UPDATE incidents SET owner = ?, lease_until = ? "
                "WHERE id = ? AND (owner IS NULL OR owner = ? OR lease_until <= ? OR owner = ?)",
                [owner, time_text(now + timedelta(seconds=seconds)), incident, owner, time_text(now), gone],
            )
            if updated.rowcount == 1 and before not in (None, owner):
                why = f"the process of {before} has ended" if before == gone else f"the lease of {before} had run out"
                self.record("incident.claimed", by=owner, at=now, incident=incident, why=why)
            return updated.rowcount == 1

    def renew(self, incident: int, owner: str, seconds: float, now: datetime | None = None) -> bool:
        """Lengthen a lease; False when it is no longer the owner's, who must then stop."""
        until = time_text((now or self.clock.now()) + timedelta(seconds=seconds))
        with self.transaction() as connection:
            sql = "UPDATE incidents SET lease_until = ? WHERE id = ? AND owner = ?"
            return connection.execute(sql, [until, incident, owner]).rowcount == 1

    def release(self, incident: int, owner: str) -> None:
        """Give a lease back; one that is no longer the owner's stays as it is."""
        with self.transaction() as connection:
            connection.execute(
                "UPDATE incidents SET owner = NULL, lease_until = NULL WHERE id = ? AND owner = ?", [incident, owner]
            )

    def set_state(
        self,
        incident: int,
        state: IncidentState,
        *,
        note: str | None = None,
        closed: datetime | None = None,
        playbook: str | None = None,
        digest: str | None = None,
        failed_at: datetime | None = None,
        by: str = "engine",
    ) -> Incident:
        """Change where an incident stands and return it; what is None stays as it was.

        A state that ends it sets `closed` to now when the caller does not say it, and frees the lease.
        """
        changes: dict[str, Any] = {
            "note": None if note is None else clean(note),
            "closed": None if closed is None else time_text(closed),
            "playbook": playbook,
            "playbook_digest": digest,
            "failed_at": None if failed_at is None else time_text(failed_at),
        }
        changes = {name: value for name, value in changes.items() if value is not None} | {"state": str(state)}
        with self.transaction() as connection:
            before = self.incident(incident)
            if state.ended:
                changes |= {"owner": None, "lease_until": None}
                changes.setdefault("closed", time_text(before.closed or self.clock.now()))
            else:
                changes["closed"] = None
            columns = ", ".join(f"{name} = ?" for name in changes)
            connection.execute(f"UPDATE incidents SET {columns} WHERE id = ?", [*changes.values(), incident])
            detail = {"from": str(before.state), **changes}
            self.record("incident.state", by=by, incident=incident, why=note or "", outcome=str(state), detail=detail)
            return self.incident(incident)

    def acknowledge(self, incident: int, *, by: str, note: str = "") -> None:
        """Note that a person knows of an escalated incident; on the record with who, when and why.

        Raises:
            UsageError: It is unknown, or was not handed to a person.
        """
        with self.transaction() as connection:
            state = self.incident(incident).state
            if state is not IncidentState.ESCALATED:
                raise UsageError(f"incident {incident} is {state}: only what was handed to a person, escalated, is acknowledged")
            now = time_text(self.clock.now())
            connection.execute("INSERT OR REPLACE INTO stages (incident, stage, at) VALUES (?,?,?)", [incident, ACKNOWLEDGED, now])
            self.record(f"incident.{ACKNOWLEDGED}", by=by, incident=incident, why=note)

    def acknowledgement(self, incident: int) -> Acknowledgement | None:
        """Return who has acknowledged an incident last, when and with which note; None while nobody has."""
        row = self.row(
            "SELECT by, at, why FROM audit WHERE incident = ? AND what = ? ORDER BY id DESC LIMIT 1",
            [incident, f"incident.{ACKNOWLEDGED}"],
        )
        return None if row is None else Acknowledgement(row["by"], datetime.fromisoformat(row["at"]), row["why"])

    def unacknowledged(self) -> list[int]:
        """Return the escalated incidents that nobody has acknowledged since, oldest first.

        A job that failed of what others failed of counts by the incident of the shared cause, until its own restart fails.
        """
        acknowledged = "SELECT 1 FROM stages WHERE incident = i.id AND stage = ? AND at >= coalesce(i.closed, '')"
        member = "SELECT 1 FROM events WHERE incident = i.id AND kind = 'outage' AND job IS NOT NULL"
        restarted = "SELECT 1 FROM stages WHERE incident = i.id AND stage = 'restarted'"
        rows = self.rows(
            f"SELECT id FROM incidents i WHERE state = ? AND NOT EXISTS ({acknowledged}) "
            f"AND (NOT EXISTS ({member}) OR EXISTS ({restarted})) ORDER BY id",
            [str(IncidentState.ESCALATED), ACKNOWLEDGED],
        )
        return [int(row["id"]) for row in rows]

    def add_event(self, incident: int, event: Event, *, by: str = "watch") -> None:
        """Note that an event belongs to an incident; the same event again is noted once."""
        with self.transaction() as connection:
            if event in self.events(incident):
                return
            self._insert_event(connection, incident, event)
            self.record("incident.event", by=by, incident=incident, why=str(event.kind), detail={"event": plain(event)})

    def _insert_event(self, connection: sqlite3.Connection, incident: int, event: Event) -> None:
        connection.execute(
            "INSERT INTO events (incident, kind, job, node, at, detail, attempt) VALUES (?,?,?,?,?,?,?)",
            [incident, str(event.kind), event.job, place_of(event), time_text(event.at), packed(event.detail), event.attempt],
        )

    def events(self, incident: int) -> list[Event]:
        """Return the events of an incident in the order in which they came."""
        return [event_of(row) for row in self.rows("SELECT * FROM events WHERE incident = ? ORDER BY id", [incident])]

    def mark_stage(self, incident: int, stage: str, at: datetime | None = None) -> None:
        """Note when an incident reached a stage; the first time counts, also after a crash."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO stages (incident, stage, at) VALUES (?,?,?)",
                [incident, stage, time_text(at or self.clock.now())],
            )

    def stages(self, incident: int) -> dict[str, datetime]:
        """Return the stages that an incident has reached and when, in order of time."""
        rows = self.rows("SELECT stage, at FROM stages WHERE incident = ? ORDER BY at, rowid", [incident])
        return {row["stage"]: datetime.fromisoformat(row["at"]) for row in rows}

    def add_evidence(
        self, incident: int, source: str, text: str, facts: Mapping[str, Any] | None = None, at: datetime | None = None
    ) -> Evidence:
        """Keep a fact; secrets in its text and facts are replaced."""
        values = [incident, clean(source), clean(text), packed(facts or {}), time_text(at or self.clock.now())]
        with self.transaction() as connection:
            row = connection.execute("INSERT INTO evidence (incident, source, text, facts, at) VALUES (?,?,?,?,?)", values)
            number = row.lastrowid
        return next(evidence_of(evidence_row) for evidence_row in self.rows("SELECT * FROM evidence WHERE id = ?", [number]))

    def evidence(self, incident: int) -> Sequence[Evidence]:
        """Return the evidence of an incident in the order in which it came."""
        return [evidence_of(row) for row in self.rows("SELECT * FROM evidence WHERE incident = ? ORDER BY id", [incident])]

    def add_diagnosis(self, incident: int, diagnosis: Diagnosis, at: datetime | None = None) -> None:
        """Keep a diagnosis; the newest is the one that counts."""
        at = at or self.clock.now()
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO diagnoses (incident, at, reason, category, action, confidence, by, body) VALUES (?,?,?,?,?,?,?,?)",
                [
                    incident,
                    time_text(at),
                    diagnosis.reason,
                    str(diagnosis.category),
                    str(diagnosis.action),
                    diagnosis.confidence,
                    str(diagnosis.by),
                    packed(diagnosis),
                ],
            )
            detail = {"confidence": diagnosis.confidence, "action": str(diagnosis.action), "nodes": diagnosis.faulty_nodes}
            self.record(
                "diagnosis",
                by=str(diagnosis.by),
                at=at,
                incident=incident,
                why=diagnosis.summary,
                outcome=diagnosis.reason,
                detail=detail,
            )

    def diagnosis(self, incident: int) -> Diagnosis | None:
        """Return the newest diagnosis of an incident, None before the first."""
        row = self.row("SELECT * FROM diagnoses WHERE incident = ? ORDER BY id DESC LIMIT 1", [incident])
        return None if row is None else diagnosis_of(row)


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

REPORT_RETENTION = timedelta(days=60)
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
            connection.execute("DELETE FROM job_processes WHERE at < ?", [time_text(report.at - REPORT_RETENTION)])
