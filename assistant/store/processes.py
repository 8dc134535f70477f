"""What was last read of running things: the counters of nodes, and what the processes of jobs were writing.

Both are kept for the time after: a counter that moved since its last reading, a process that has died.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from assistant.counting import Kept, Reading, from_text, to_text
from assistant.errors import StoreError
from assistant.records import Job
from assistant.records.jobs import ProcessReport, report_of
from assistant.store.audit import AuditRows
from assistant.store.rows import packed, time_text, unpacked

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
