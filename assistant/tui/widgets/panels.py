"""Panels of the first screen: titled boxes with one kind of record, and a calm sentence where there is none.

They show jobs and nodes, and of the store incidents and approvals that wait; `happened` has the panel of the audit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar, NamedTuple

from rich.text import Text, TextType
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import DataTable, Static, Tree
from textual.widgets.tree import TreeNode

from assistant.display import line, unambiguous
from assistant.overall_state import OverallState, StateLevel
from assistant.records import Job, NodeState
from assistant.tui.first_line import overall_state
from assistant.tui.frame import MUTED, is_covered, vi_keys
from assistant.tui.messages import OpenApproval, OpenIncident, OpenJob, OpenNodes
from assistant.tui.snapshot import ApprovalEntry, ClusterSnapshot, IncidentEntry, StoreSnapshot
from assistant.tui.widgets.tables import Cell, Rows, TableRow
from assistant.tui.words import INCIDENTS, JOBS, NODES, RISK_WORDS, RISKS, about, age, clock, folded, short

AGES_S = 5.0
"""Seconds after which ages are drawn anew while nothing is read; jobs are read as often."""
MOST_SENTENCES = 3
"""Remarks on how things stand that the panel of incidents tells; the first line has all of them."""
_NOTHING = object()
"""Stands for what a panel has shown before it was told anything."""


class Panel(Vertical):
    """One part of the sidebar; alone it fills the screen."""

    NAME: ClassVar[str]
    TITLE: ClassVar[str]
    CALM: ClassVar[str]
    """Said where there is nothing to list."""
    COLUMNS: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__(id=f"panel-{self.NAME}", classes="panel")
        self.border_title = self.TITLE
        self.table = Rows(self.COLUMNS)
        self.calm = Static(line(self.CALM), classes="calm", markup=False)
        self._displayed: tuple[object, object] = (_NOTHING, _NOTHING)

    def compose(self) -> ComposeResult:
        """Put table and calm sentence into the box; one of them is shown."""
        yield self.calm
        yield self.table

    def on_mount(self) -> None:
        """Follow what the backend reads."""
        self.watch(self.app, "store_snapshot", self.look, init=False)
        self.watch(self.app, "cluster_snapshot", self.look, init=False)
        self.set_interval(AGES_S, self._tick)
        self.look()

    @property
    def now(self) -> datetime:
        """The time, for ages."""
        at: datetime = self.app.backend.now()  # type: ignore[attr-defined]
        return at

    def _tick(self) -> None:
        if not is_covered(self):
            self.time_passed()

    def time_passed(self) -> None:
        """Draw ages anew; panels with ages of what does not change do."""

    def look(self) -> None:
        """Draw the panel anew from the latest snapshot."""
        if is_covered(self):
            return
        store: StoreSnapshot | None = self.app.store_snapshot  # type: ignore[attr-defined]
        cluster: ClusterSnapshot | None = self.app.cluster_snapshot  # type: ignore[attr-defined]
        previous, self._displayed = self._displayed, (store, cluster)
        if store is not previous[0]:
            self.store_read(store)
        if cluster is not previous[1]:
            self.cluster_read(cluster)

    @property
    def inner(self) -> Widget:
        """What gets the focus."""
        return self.table

    def store_read(self, snapshot: StoreSnapshot | None) -> None:
        """Show what the store says; panels about the store do."""

    def cluster_read(self, snapshot: ClusterSnapshot | None) -> None:
        """Show what the scheduler says; panels about the cluster do."""

    def count(self, rows: int, *, of: int | None = None, calm: str = "") -> None:
        """Say how many there are, or the calm sentence where there is none."""
        self.set_class(not rows, "-empty")
        self.calm.update(calm or self.CALM)
        self.border_subtitle = "" if not rows else f"{rows:,} of {of:,}" if of is not None and of != rows else f"{rows:,}"


# The jobs: those that failed or have an incident first, then what runs, then what waits, then what is over.

MOST = 200
"""Rows; the palette finds the others."""
NO_CLUSTER = "No cluster yet: nobody has said where jobs run."


class JobsPanel(Panel):
    """List jobs."""

    NAME, TITLE, CALM = "jobs", "Jobs", "No jobs."
    COLUMNS = ("", "job", "name", "state", "for", "nodes")

    def cluster_read(self, snapshot: ClusterSnapshot | None) -> None:
        """Show the jobs."""
        if snapshot is None:
            return
        if snapshot.at is None:
            self.count(0, calm=f"The scheduler does not answer: {short(snapshot.trouble, 200)}" if snapshot.trouble else "Asking…")
            return
        if not snapshot.configured:
            self.count(0, calm=NO_CLUSTER)
            return
        jobs = snapshot.foremost[:MOST]
        self.table.show([row_of(job, snapshot.at) for job in jobs])
        self.count(len(jobs), of=len(snapshot.jobs))
        self.set_class(bool(snapshot.trouble), "-stale")
        stale = f" · as of {clock(snapshot.at, self.app.backend.now())}: no answer since" if snapshot.trouble else ""  # type: ignore[attr-defined]
        self.border_title = Content(line(f"{self.TITLE}{stale}"))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the job."""
        event.stop()
        self.post_message(OpenJob(str(event.row_key.value)))


def row_of(job: Job, now: datetime) -> TableRow:
    """Return a job as a row."""
    look = JOBS[job.state]
    return TableRow(
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


# The nodes, folded: one line for each state and reason, which opens to the nodes.

MOST_LEAVES = 512
"""Nodes that are listed one by one under a line."""


class NodesPanel(Panel):
    """List nodes."""

    NAME, TITLE, CALM = "nodes", "Nodes", "No nodes."

    def __init__(self) -> None:
        super().__init__()
        self.branches: NodeTree = NodeTree("nodes")
        self.branches.show_root, self.branches.guide_depth = False, 2
        self._groups: Mapping[tuple[NodeState, str], tuple[str, ...]] = {}

    def compose(self) -> ComposeResult:
        """Put the tree into the box."""
        yield self.calm
        yield self.branches

    @property
    def inner(self) -> Widget:
        """What gets the focus."""
        return self.branches

    def on_mount(self) -> None:
        """Follow what the backend reads, and draw anew when the theme changes."""
        super().on_mount()
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._draw(self._groups))

    def cluster_read(self, snapshot: ClusterSnapshot | None) -> None:
        """Show the nodes."""
        if snapshot is None or snapshot.at is None:
            return
        if snapshot.groups != self._groups:
            self._draw(snapshot.groups)
        self.count(len(snapshot.nodes), calm="" if snapshot.configured else NO_CLUSTER)
        self.set_class(bool(snapshot.trouble), "-stale")

    def _draw(self, groups: Mapping[tuple[NodeState, str], tuple[str, ...]]) -> None:
        opened = {str(line.data) for line in self.branches.root.children if line.is_expanded}
        at = self.branches.cursor_line
        self.branches.clear()
        for (state, reason), names in groups.items():
            key = f"{state}\n{reason}"
            line = self.branches.root.add(self._label(state, reason, names), data=key, expand=key in opened)
            if key in opened:
                self._fill(line, names)
        self._groups = groups
        self.branches.cursor_line = min(at, len(groups) - 1)

    def _label(self, state: NodeState, reason: str, names: Sequence[str]) -> Text:
        look = NODES[state]
        colour = self.app.theme_variables.get(look.colour, "")
        text = Text(line(f"{look.sign} "), style=colour if colour.startswith("#") else "")
        text.append(f"{len(names)} {state}")
        text.append(f"  {folded(names)}", style="dim")
        return text.append(f"  {short(reason, 80)}", style="italic") if reason else text

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[str]) -> None:
        """List the nodes of a line when it is opened."""
        names = self._names_of(event.node)
        if names and not event.node.children:
            self._fill(event.node, names)

    def _fill(self, line: TreeNode[str], names: Sequence[str]) -> None:
        for name in names[:MOST_LEAVES]:
            line.add_leaf(name, data=name)
        if len(names) > MOST_LEAVES:
            line.add_leaf(f"… {len(names) - MOST_LEAVES:,} more", data="")

    def _names_of(self, line: TreeNode[str]) -> tuple[str, ...]:
        state, _, reason = str(line.data or "").partition("\n")
        return self._groups.get((NodeState(state), reason), ()) if state in set(NodeState) else ()

    def on_tree_node_selected(self, event: Tree.NodeSelected[str]) -> None:
        """Open a node; on a line of many the tree opens."""
        event.stop()
        if not event.node.allow_expand and event.node.data:
            self.post_message(OpenNodes(str(event.node.data)))


# A tree of nodes, folded by what they have in common.


class NodeTree(Tree[str]):
    """A tree with the keys of vi; its labels are names and reasons of others, so none is read as markup."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *vi_keys(down="cursor_down", up="cursor_up", first="scroll_home", last="scroll_end"),
        Binding("l", "toggle_node", show=False),
    ]

    def process_label(self, label: TextType) -> Text:
        """Return a label as it is drawn: a string is escaped and holds no markup."""
        return Text(line(label)) if isinstance(label, str) else label


class IncidentsPanel(Panel):
    """List open incidents."""

    NAME, TITLE, CALM = "incidents", "Incidents", "Nothing is wrong."
    COLUMNS = ("", "id", "what", "state", "reason", "since", "by")

    def on_mount(self) -> None:
        """Follow what the backend reads, and whether it can read."""
        super().on_mount()
        for name in ("store_trouble", "kill_switch"):
            self.watch(self.app, name, self._tick, init=False)

    def store_read(self, snapshot: StoreSnapshot | None) -> None:
        """Show the incidents."""
        self.time_passed()

    def cluster_read(self, snapshot: ClusterSnapshot | None) -> None:
        """Say what the scheduler's answer, or its silence, comes to."""
        self.time_passed()

    def time_passed(self) -> None:
        """Show the incidents with their ages, and how things stand where there is none."""
        snapshot: StoreSnapshot | None = self.app.store_snapshot  # type: ignore[attr-defined]
        if snapshot is None:
            return
        state = overall_state(self.app, self.now, self.app.backend.gap)  # type: ignore[attr-defined, arg-type]
        self.table.show([incident_row(incident, self.now) for incident in snapshot.incidents])
        self.count(len(snapshot.incidents), calm=calm_text(state))
        self.set_class(state.level not in (StateLevel.WELL, StateLevel.UNKNOWN), "-alarming")
        self.set_class(state.level is StateLevel.UNKNOWN and not state.begins, "-stale")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the incident."""
        event.stop()
        self.post_message(OpenIncident(int(str(event.row_key.value))))


def calm_text(state: OverallState) -> str:
    """Return what stands where no incident is listed: that nothing is wrong only where all that can be known is known."""
    sentences = [line(sentence) for sentence in state.sentences[:MOST_SENTENCES]]
    return "\n".join(sentences if state.level is StateLevel.WELL or state.begins else ["No incident is listed.", *sentences])


def incident_row(snapshot: IncidentEntry, now: datetime) -> TableRow:
    """Return an incident as a row."""
    incident = snapshot.incident
    look = INCIDENTS[incident.state]
    dim = "text-muted" if incident.state.ended and look.colour != "error" else ""
    state = f"{incident.state} ({snapshot.waits})" if snapshot.waits else str(incident.state)
    holder = (incident.owner or "").partition("@")[0]
    return TableRow(
        str(incident.id),
        (
            Cell(look.sign, look.colour),
            Cell(str(incident.id), dim),
            Cell(short(about(incident), 18), dim),
            Cell(state, look.colour),
            Cell(short(snapshot.reason or incident.kind, 20), dim),
            Cell(age(incident.failed_at or incident.opened, now), dim),
            Cell(short(holder, 12), "text-muted"),
        ),
    )


# Incidents about one job or node, newest first.


class IncidentList(Vertical):
    """A list of incidents, or a calm sentence."""

    def __init__(self, calm: str) -> None:
        super().__init__()
        self.table = Rows(IncidentsPanel.COLUMNS)
        self.calm = Static(line(calm), classes="calm", markup=False)

    def compose(self) -> ComposeResult:
        """Put both there; one of them is shown."""
        yield self.calm
        yield self.table

    def tell(self, incidents: Sequence[IncidentEntry], now: datetime) -> None:
        """Show the incidents."""
        self.set_class(not incidents, "-empty")
        self.table.show([incident_row(incident, now) for incident in incidents])


# What waits for me: changes that only a person may allow, each with its exact command, why, what it risks and the way back.

COLUMNS_FROM = 130
"""Cells from which all of it has room in one row; below the list it is told of the row that the cursor is on."""
NO_UNDO = "cannot be undone"


class ApprovalsPanel(Panel):
    """List the calls that wait for an answer."""

    NAME, TITLE, CALM = "approvals", "Waiting for you", "Nothing waits for you."
    COLUMNS = ("", "id", "left", "change", "risk", "undo", "why")

    def __init__(self) -> None:
        super().__init__()
        self.detail = Static("", classes="detail", markup=False)
        self._waiting: tuple[ApprovalEntry, ...] = ()
        self._is_read = False

    def compose(self) -> ComposeResult:
        """Put what is told of one row below the list."""
        yield from super().compose()
        yield self.detail

    def store_read(self, snapshot: StoreSnapshot | None) -> None:
        """Show what waits."""
        if snapshot is not None:
            self._waiting, self._is_read = snapshot.approvals, True
            self._show()
            self.count(len(snapshot.approvals))
            self.set_class(bool(snapshot.approvals), "-alarming")

    def on_resize(self) -> None:
        """Put it into columns where they have room."""
        self._show()

    def time_passed(self) -> None:
        """Show how long each can still be answered."""
        self._show()

    def _show(self) -> None:
        if not self._is_read:
            return
        at, room = self.now, room_of(self._waiting, self.scrollable_content_region.width)
        self.table.show([approval_row(approval, at, room) for approval in self._waiting])
        self.set_class(room is not None, "-columns")
        self._tell()

    def _tell(self) -> None:
        current = next((approval for approval in self._waiting if str(approval.approval.id) == self.table.cursor_key), None)
        self.detail.update(detail_of(current, whole=self.has_class("-chosen")) if current is not None else "")

    def on_data_table_row_highlighted(self) -> None:
        """Tell of the row that the cursor is on."""
        self._tell()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the question."""
        event.stop()
        self.post_message(OpenApproval(int(str(event.row_key.value))))


class Room(NamedTuple):
    """Cells of the columns that are cut where they are long."""

    change: int
    why: int


def room_of(waiting: Sequence[ApprovalEntry], width: int) -> Room | None:
    """Return how wide the columns are, so that all of them stand in the panel; None where there is no room for them."""
    if width < COLUMNS_FROM:
        return None
    # sign, number and time, and an empty cell behind each column
    spare = width - 16 - max((len(RISK_WORDS[approval.risk]) + len(approval.undo or NO_UNDO) for approval in waiting), default=0)
    change = min(max((len(_change(approval)) for approval in waiting), default=0), spare * 6 // 10)
    return Room(change, spare - change)


def approval_row(approval: ApprovalEntry, now: datetime, room: Room | None = None) -> TableRow:
    """Return an approval as a row; without room for columns nothing stands behind the change."""
    colour = RISKS[approval.risk][1]
    columns: tuple[Cell | str, ...] = ("", "", "")
    if room is not None:
        undo = approval.undo or Cell(NO_UNDO, "error")
        columns = (Cell(RISK_WORDS[approval.risk], colour), undo, Cell(short(approval.call.why, room.why), "text-muted"))
    return TableRow(
        str(approval.approval.id),
        (
            Cell("?", "accent"),
            str(approval.approval.id),
            Cell(age(approval.approval.expires, now), "text-muted"),
            Cell(short(_change(approval), room.change if room is not None else 200), colour),
            *columns,
        ),
    )


def _change(approval: ApprovalEntry) -> str:
    about = f"#{approval.call.incident} " if approval.call.incident is not None else ""
    return short(f"{about}{approval.call.preview or approval.call.tool}", 200)


def detail_of(approval: ApprovalEntry, *, whole: bool) -> Content:
    """Return what a row has no room for, each part on a line of its own; with the exact change where all of it has room."""
    risk, colour = RISKS[approval.risk]
    facts = (
        ("does", unambiguous(approval.call.preview or approval.call.tool) if whole else "", "bold"),
        ("why", short(approval.call.why, 400) or "nobody said why", ""),
        ("risk", risk, f"${colour}"),
        ("undo", approval.undo or NO_UNDO, "" if approval.undo else "$error"),
    )
    lines = [Content.styled(line(f"{name:<5}"), MUTED) + Content.styled(line(text), style) for name, text, style in facts if text]
    return Content("\n").join(lines)
