"""The jobs: those that failed or have an incident first, then what runs, then what waits, then what is over."""

from __future__ import annotations

from datetime import datetime

from textual.content import Content
from textual.widgets import DataTable

from assistant.display import line
from assistant.doors.chat.messages import OpenJob
from assistant.doors.chat.seen import ClusterSeen
from assistant.doors.chat.widgets.panel import Panel
from assistant.doors.chat.widgets.rows import Cell, Row
from assistant.doors.chat.words import JOBS, age, clock, folded, short
from assistant.records import Job

MOST = 200
"""Rows; the palette finds the others."""


class JobsPanel(Panel):
    """Jobs."""

    NAME, TITLE, CALM = "jobs", "Jobs", "No jobs."
    COLUMNS = ("", "job", "name", "state", "for", "nodes")

    def cluster_read(self, seen: ClusterSeen | None) -> None:
        """Show the jobs."""
        if seen is None:
            return
        if seen.at is None:
            self.count(0, calm=f"The scheduler does not answer: {short(seen.trouble, 200)}" if seen.trouble else "Asking…")
            return
        chosen = seen.foremost[:MOST]
        self.table.show([row_of(job, seen.at) for job in chosen])
        self.count(len(chosen), of=len(seen.jobs))
        self.set_class(bool(seen.trouble), "-stale")
        stale = f" · as of {clock(seen.at, self.app.desk.now())}: no answer since" if seen.trouble else ""  # type: ignore[attr-defined]
        self.border_title = Content(line(f"{self.TITLE}{stale}"))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the job."""
        event.stop()
        self.post_message(OpenJob(str(event.row_key.value)))


def row_of(job: Job, now: datetime) -> Row:
    """Return a job as a row."""
    look = JOBS[job.state]
    return Row(
        job.id,
        (
            Cell(look.sign, look.colour),
            short(job.id, 14),
            short(job.name, 18),
            Cell(str(job.state), look.colour),
            Cell(age(job.ended or job.started or job.submitted, now), "text-muted"),
            Cell(folded(job.nodes), "text-muted"),
        ),
    )
