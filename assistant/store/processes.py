"""What the processes of running jobs were seen to write, kept for the time after they died."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from assistant.errors import StoreError
from assistant.records import Job
from assistant.records.processes import ProcessReport, report_of
from assistant.store.readings import ReadingRows
from assistant.store.rows import packed, time_text, unpacked

__all__ = ["ProcessRows"]

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
