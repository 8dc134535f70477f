"""One job: how it stands, its incidents, its curves, what it saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import DataTable

from assistant.display import line
from assistant.nodeset import fold
from assistant.records import Job
from assistant.tui.about_incident import CheckpointsSnapshot, JobSnapshot, read_checkpoints, read_job
from assistant.tui.citations import CitedPlace
from assistant.tui.curves import CurvesSnapshot, job_curves
from assistant.tui.messages import Latest, OpenIncident, OpenNodes
from assistant.tui.screen_basics import is_covered
from assistant.tui.screens.tabbed import NotThere, TabbedScreen
from assistant.tui.snapshot import ClusterSnapshot
from assistant.tui.widgets.curves_view import CurvesView
from assistant.tui.widgets.heads import job_head
from assistant.tui.widgets.prompt import Prompt
from assistant.tui.widgets.record_panels import IncidentList
from assistant.tui.widgets.rows import CheckpointsTable


class JobRead(Latest):
    """The job was read."""

    def __init__(self, snapshot: JobSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class CheckpointsRead(Latest):
    """The checkpoints of the job were read."""

    def __init__(self, snapshot: CheckpointsSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class JobCurvesRead(Latest):
    """Its metrics were read."""

    def __init__(self, curves: CurvesSnapshot) -> None:
        super().__init__()
        self.curves = curves


class JobScreen(TabbedScreen):
    """A job."""

    PANES: ClassVar[tuple[tuple[str, str], ...]] = (
        ("incidents", "Incidents"),
        ("curves", "Curves"),
        ("checkpoints", "Checkpoints"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l", "log", "Log"),
        Binding("w", "why", "Why"),
        Binding("n", "nodes", "Nodes"),
        Binding("i", "tab('incidents')", "Incidents", show=False),
        Binding("c", "tab('curves')", "Curves", show=False),
        Binding("s", "tab('checkpoints')", "What it saved", show=False),
    ]

    def __init__(self, job: str) -> None:
        super().__init__()
        self.job = job
        self.snapshot: JobSnapshot | None = None
        self.checkpoints: CheckpointsSnapshot | None = None
        self._curves: CurvesSnapshot | None = None

    def panes(self) -> Sequence[Widget]:
        """Return the tabs."""
        return IncidentList("No incident about this job."), CurvesView(), CheckpointsTable()

    def on_mount(self) -> None:
        """Follow store and scheduler."""
        super().on_mount()
        self.watch(self.app, "store_snapshot", self._look, init=False)
        self.watch(self.app, "cluster_snapshot", self._look, init=False)
        by = self.backend.by
        self.ask("checkpoints", lambda engine: read_checkpoints(engine, self.job, by), CheckpointsRead, lane="nodes")

    def on_screen_resume(self) -> None:
        """Read, at first and what has happened while something lay on top."""
        self._look(None)

    def _look(self, _cluster: object) -> None:
        if is_covered(self):
            return
        jobs, now = self._listed_job(), self.backend.now()
        self.ask("job", lambda engine: read_job(engine, self.job, jobs, now), JobRead)

    def _listed_job(self) -> Job | None:
        cluster: ClusterSnapshot | None = self.app.cluster_snapshot  # type: ignore[attr-defined]
        return next((job for job in cluster.jobs if job.id == self.job), None) if cluster is not None else None

    def on_job_read(self, message: JobRead) -> None:
        """Show a job that was read."""
        self.snapshot = message.snapshot
        self.head(*job_head(message.snapshot))
        self.query_one(IncidentList).tell(message.snapshot.incidents, message.snapshot.at)
        self._read_curves()

    def on_not_there(self, message: NotThere) -> None:
        """Say why; without anything to show the person is led back."""
        super().on_not_there(message)
        if self.snapshot is None and self.is_current:
            self.dismiss(None)

    def on_checkpoints_read(self, message: CheckpointsRead) -> None:
        """Show the checkpoints of the job."""
        self.checkpoints = message.snapshot
        self.query_one(CheckpointsTable).tell(message.snapshot, self.backend.now())
        self._read_curves()

    def turned(self, tab: str) -> None:
        """Read the metrics when they are first wanted."""
        self._read_curves()

    def _read_curves(self) -> None:
        job, previous = self.snapshot.job if self.snapshot is not None else None, self._curves
        step = self.checkpoints.newest_healthy if self.checkpoints is not None else None
        if job is not None and (self.current_tab == "curves" or self.pane("curves").has_class("-beside")):
            self.ask("curves", lambda _engine: job_curves(job, step, previous), JobCurvesRead)

    def on_job_curves_read(self, message: JobCurvesRead) -> None:
        """Draw the curves that were read."""
        self._curves = message.curves
        self.query_one(CurvesView).tell(message.curves)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open an incident."""
        event.stop()
        if isinstance(event.data_table.parent, IncidentList):
            self.post_message(OpenIncident(int(str(event.row_key.value))))

    def action_log(self) -> None:
        """Follow the log."""
        job = self.snapshot.job if self.snapshot is not None else None
        if job is None or job.log is None:
            self.notify(line(f"Where job {self.job} logs is not known."), severity="warning", markup=False)
        elif not job.log.is_file():
            self.notify(line(f"The log is not there: {job.log}"), severity="warning", markup=False)
        else:
            self.show_place(CitedPlace(job.log, f"log of job {self.job}", account=job.account))

    def action_why(self) -> None:
        """Ask the agent."""
        self.app.post_message(Prompt.Submitted(f"why did job {self.job} fail"))
        self.app.call_later(self.app.action_talk)  # type: ignore[attr-defined]

    def action_nodes(self) -> None:
        """Show its nodes."""
        if self.snapshot is None or self.snapshot.job is None or not self.snapshot.job.nodes:
            self.notify(line(f"Job {self.job} has no nodes."), markup=False)
        else:
            self.post_message(OpenNodes(fold(self.snapshot.job.nodes)))
