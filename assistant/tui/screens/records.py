"""Screens about one thing, a head of facts and tabs below it: a job, and one node or a set of them.

Very wide terminals show two tabs side by side. Of a job: how it stands, its incidents, its curves, what it saved. Of nodes:
state, whose cordon, what the ledger says, and on demand the kernel log and a health check.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import DataTable, Footer, ProgressBar, Static, Tab, Tabs

from assistant.display import line
from assistant.errors import NightshiftError
from assistant.nodeset import expand, fold
from assistant.records import Job
from assistant.tui.about_incident import CheckpointsSnapshot, JobSnapshot, read_checkpoints, read_job
from assistant.tui.citations import CitedPlace, text_place
from assistant.tui.curves import CurvesSnapshot, CurvesView, job_curves
from assistant.tui.frame import is_covered, panel_keys
from assistant.tui.messages import Deliver, Latest, NotThere, OpenIncident, OpenNodes
from assistant.tui.snapshot import (
    ClusterSnapshot,
    HealthSnapshot,
    KernelLogSnapshot,
    NodesSnapshot,
    ProbeRow,
    read_health,
    read_kernel,
    read_nodes,
)
from assistant.tui.widgets.panels import IncidentList
from assistant.tui.widgets.prompt import Prompt
from assistant.tui.widgets.tables import Cell, CheckpointsTable, NodeTable, Rows, TableRow
from assistant.tui.words import folded, job_head, nodes_head, short

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.tui.backend import ChatBackend
    from assistant.tui.citations import CitedPlace
    from assistant.tui.curves import CurvesView


ReadResult = TypeVar("ReadResult")


class TabbedScreen(Screen[None]):
    """Head and tabs."""

    PANES: ClassVar[tuple[tuple[str, str], ...]]
    """Name and title of each tab; the first is shown first, and beside the others where there is room."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Back"),
        *(Binding(str(number), f"number({number})", show=False) for number in range(1, 7)),
        Binding("left_square_bracket", "turn(-1)", show=False),
        Binding("right_square_bracket", "turn(1)", show=False),
        *panel_keys("app.", show=False),
    ]

    current_tab: reactive[str] = reactive("")
    """Name of the tab that is shown."""

    def panes(self) -> Sequence[Widget]:
        """Return the content of each tab, in the order of `PANES`."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static(id="head", markup=False)
        yield Tabs(*(Tab(f"{number} {title}", id=f"tab-{name}") for number, (name, title) in enumerate(self.PANES, 1)), id="tabs")
        with Horizontal(id="panes"):
            for (name, title), pane in zip(self.PANES, self.panes(), strict=True):
                pane.id = f"pane-{name}"
                pane.border_title = Content(line(title))
                yield pane.add_class("pane")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Show the first tab."""
        self.query_one(Tabs).can_focus = False
        self._second_pane = self.PANES[1][0] if len(self.PANES) > 1 else self.PANES[0][0]
        self.current_tab = self.current_tab or self.PANES[0][0]

    def watch_current_tab(self, old: str, new: str) -> None:
        """Show a tab."""
        if not new:
            return
        first = self.PANES[0][0]
        self._second_pane = new if new != first else old or self._second_pane
        for name, _ in self.PANES:
            self.pane(name).set_class(name == new, "-chosen")
            self.pane(name).set_class(name in (first, self._second_pane), "-beside")
        self.query_one(Tabs).active = f"tab-{new}"
        self.focus_in(new)
        self.refresh_bindings()
        self.call_after_refresh(self.turned, new)

    def turned(self, tab: str) -> None:
        """Read what a tab needs when it is first shown."""

    def focus_in(self, name: str) -> None:
        """Give a tab the focus."""
        pane = self.pane(name)
        inner = pane if pane.can_focus else next((widget for widget in pane.query("*").results(Widget) if widget.can_focus), None)
        if inner is not None:
            inner.focus(scroll_visible=False)

    def pane(self, name: str) -> Widget:
        """Return the content of a tab."""
        return self.query_one(f"#pane-{name}")

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Follow a click on a tab."""
        event.stop()
        if event.tab.id and event.tab.id == self.query_one(Tabs).active:
            self.current_tab = event.tab.id.removeprefix("tab-")

    def action_number(self, number: int) -> None:
        """Go to a tab by its place."""
        if number <= len(self.PANES):
            self.current_tab = self.PANES[number - 1][0]

    def action_tab(self, name: str) -> None:
        """Go to a tab by its name."""
        self.current_tab = name

    def action_turn(self, by: int) -> None:
        """Go to the tab before or behind."""
        names = [name for name, _ in self.PANES]
        self.current_tab = names[(names.index(self.current_tab) + by) % len(names)]

    def head(self, *lines: Content) -> None:
        """Write the facts above the tabs."""
        self.query_one("#head", Static).update(Content("\n").join([line for line in lines if line.plain]))

    @property
    def backend(self) -> ChatBackend:
        """Who reads for the screen."""
        backend: ChatBackend = self.app.backend  # type: ignore[attr-defined]
        return backend

    def ask(
        self, kind: str, work: Callable[[Engine], ReadResult], message_of: Callable[[ReadResult], Message], *, lane: str = "read"
    ) -> None:
        """Read something on a lane; what comes of it arrives here as a message: that of `then`, or `NotThere`."""

        def tried(engine: Engine) -> Message:
            try:
                return message_of(work(engine))
            except (NightshiftError, OSError) as error:
                return NotThere(str(error))

        self.backend.read(f"{id(self)} {kind}", tried, lambda message: Deliver(self, message), lane=lane)

    def show_place(self, place: CitedPlace) -> None:
        """Open the log viewer there."""
        from assistant.tui.screens.log import LogScreen

        self.app.push_screen(LogScreen([place.path], title=place.title, cited=place.cited, line=place.line, account=place.account))

    def on_curves_view_line_chosen(self, message: CurvesView.LineChosen) -> None:
        """Open the log at the step that was asked for."""
        from assistant.tui.citations import CitedPlace

        self.show_place(CitedPlace(message.path, f"log of {message.run}", message.line, account=message.account))

    def on_not_there(self, message: NotThere) -> None:
        """Say why a citation cannot be shown."""
        self.notify(line(message.why), severity="warning", timeout=10, markup=False)


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
    """Show one job."""

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


MOST_ASKED = 256
"""Nodes whose kernel log or health is asked for at once."""


class NodesRead(Latest):
    """The nodes were read."""

    def __init__(self, snapshot: NodesSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class HealthRead(Message):
    """The probes have answered."""

    def __init__(self, snapshot: HealthSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class KernelRead(Message):
    """The kernel logs were read."""

    def __init__(self, snapshot: KernelLogSnapshot, place: CitedPlace | None) -> None:
        super().__init__()
        self.snapshot, self.place = snapshot, place


class NodesScreen(TabbedScreen):
    """Show all nodes."""

    PANES: ClassVar[tuple[tuple[str, str], ...]] = (("nodes", "Nodes"), ("incidents", "Incidents"), ("health", "Health"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d,K", "kernel", "Kernel log"),
        Binding("h", "health", "Health check"),
        Binding("n", "tab('nodes')", "Nodes", show=False),
        Binding("i", "tab('incidents')", "Incidents", show=False),
    ]

    def __init__(self, nodes: str) -> None:
        super().__init__()
        self.names = tuple(expand(nodes))
        self.snapshot: NodesSnapshot | None = None
        self._texts = tempfile.TemporaryDirectory(prefix="nightshift-chat-")

    def panes(self) -> Sequence[Widget]:
        """Return the tabs."""
        return NodeTable(), IncidentList("No incident blames them."), HealthTable()

    def on_mount(self) -> None:
        """Follow store and scheduler."""
        super().on_mount()
        self.watch(self.app, "store_snapshot", self._look, init=False)
        self.watch(self.app, "cluster_snapshot", self._look, init=False)

    def on_unmount(self) -> None:
        """Throw away the texts that were written to be read."""
        self._texts.cleanup()

    def on_screen_resume(self) -> None:
        """Read, at first and what has happened while something lay on top."""
        self._look(None)

    def _look(self, _cluster: object) -> None:
        if is_covered(self):
            return
        cluster: ClusterSnapshot | None = self.app.cluster_snapshot  # type: ignore[attr-defined]
        nodes = cluster.nodes if cluster is not None and cluster.at is not None else None
        now = self.backend.now()
        self.ask("nodes", lambda engine: read_nodes(engine, self.names, nodes, now), NodesRead)

    def on_nodes_read(self, message: NodesRead) -> None:
        """Show the nodes that were read."""
        self.snapshot = message.snapshot
        self.head(*nodes_head(message.snapshot, fold(self.names)))
        self.query_one(NodeTable).tell(message.snapshot)
        self.query_one(IncidentList).tell(message.snapshot.incidents, message.snapshot.at)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open an incident, or one node of many."""
        event.stop()
        key, parent = str(event.row_key.value), event.data_table.parent
        if isinstance(parent, IncidentList):
            self.post_message(OpenIncident(int(key)))
        elif isinstance(parent, NodeTable) and len(self.names) > 1:
            self.post_message(OpenNodes(key))

    def action_health(self) -> None:
        """Run the health probes; they only read."""
        if self._too_many():
            return
        self.current_tab = "health"
        table, names, by = self.query_one(HealthTable), self.names, self.backend.by
        if not table.busy:
            table.begin(len(names))
            self.ask("health", lambda engine: read_health(engine, names, by), HealthRead, lane="nodes")

    def on_health_read(self, message: HealthRead) -> None:
        """Show the results of the health probes."""
        self.query_one(HealthTable).tell(message.snapshot)

    def action_kernel(self) -> None:
        """Read the end of the kernel logs and open them."""
        if self._too_many():
            return
        names, by, folder = self.names, self.backend.by, Path(self._texts.name)
        self.notify(line(f"Reading the kernel log of {fold(names)}…"), markup=False, timeout=3)

        def kernel(read: KernelLogSnapshot) -> KernelRead:
            return KernelRead(read, text_place(folder, f"kernel log of {fold(names)}", read.text) if read.text else None)

        self.ask("kernel", lambda engine: read_kernel(engine, names, by), kernel, lane="nodes")

    def on_kernel_read(self, message: KernelRead) -> None:
        """Open them; say which node did not answer."""
        if message.snapshot.trouble:
            self.notify(line(message.snapshot.trouble, 500), title="unknown", severity="warning", timeout=10, markup=False)
        if message.place is not None:
            self.show_place(message.place)

    def _too_many(self) -> bool:
        many = len(self.names) > MOST_ASKED
        if many:
            self.notify(line(f"{len(self.names):,} nodes are too many to ask at once; choose at most {MOST_ASKED}."), markup=False)
        return many


# What the health probes say of nodes, worst first; nothing before they are asked.

HEALTH_SIGNS = {"ok": ("✓", "success"), "warning": ("!", "warning"), "critical": ("✗", "error"), "unknown": ("?", "warning")}


class HealthTable(Vertical):
    """A health check."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Rows(("", "node", "probe", "says", "remedy"))
        self.note = Static("Press h to run the health probes: they only read, and take some seconds.", classes="note", markup=False)
        self.busy = False
        """Whether they are being asked."""

    def compose(self) -> ComposeResult:
        """Put note, progress and table there."""
        yield self.note
        yield ProgressBar(total=None, show_eta=False, show_percentage=False)
        yield self.table

    def begin(self, nodes: int) -> None:
        """Show that the nodes are being probed."""
        self.busy = True
        self.note.update(f"Asking the probes on {nodes:,} node{'s' * (nodes != 1)}…")
        self.add_class("-busy")

    def tell(self, snapshot: HealthSnapshot) -> None:
        """Show the results of the probes."""
        self.busy = False
        self.remove_class("-busy")
        self.note.update(line(f"Unknown: {snapshot.trouble}" if snapshot.trouble else _summary(snapshot)))
        self.table.show([_row(number, row) for number, row in enumerate(snapshot.rows)])
        self.table.focus()


def _summary(snapshot: HealthSnapshot) -> str:
    counts = Counter(row.status for row in snapshot.rows)
    summary = ", ".join(f"{counts[status]:,} {status}" for status in ("critical", "warning", "unknown", "ok") if counts[status])
    faulty = f"must be taken out: {folded(snapshot.faulty)}" if snapshot.faulty else "no node has to be taken out"
    return f"{summary}; {faulty}"


def _row(number: int, row: ProbeRow) -> TableRow:
    sign, colour = HEALTH_SIGNS.get(row.status, ("?", "warning"))
    message = Cell(short(row.text, 200), "" if row.status == "ok" else colour)
    return TableRow(
        f"{number}",
        (Cell(sign, colour), short(row.node, 24), short(row.probe, 24), message, Cell(short(row.remedy, 120), "text-muted")),
    )
