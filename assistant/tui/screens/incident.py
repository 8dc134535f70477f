"""One incident: why it failed and what proves it, what happened when, what was changed, where its playbook stands."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from assistant.display import line
from assistant.errors import NightshiftError
from assistant.records import Citation, EventKind, IncidentState, Job
from assistant.tui.about_incident import IncidentSnapshot, read_incident
from assistant.tui.citations import first_place, log_of, place_of, rival_place, text_place
from assistant.tui.curves import CurvesSnapshot, CurvesView, incident_curves
from assistant.tui.frame import is_covered
from assistant.tui.messages import ActionReport, NotThere, OpenApproval, OpenIncident, OpenJob, OpenNodes
from assistant.tui.screens.changes import RecoveryScreen, UndoScreen
from assistant.tui.screens.consent import ConsentScreen, ask_on_screen
from assistant.tui.screens.main import ReportScreen
from assistant.tui.screens.records import TabbedScreen
from assistant.tui.snapshot import ClusterSnapshot, StoreSnapshot, UndoSnapshot, recovery_of, take_back, undo_of
from assistant.tui.widgets.incident_tabs import (
    ChangesView,
    EvidenceView,
    PlaybookView,
    TimelineView,
    VerdictView,
    readable,
    value_text,
    weighed,
)
from assistant.tui.widgets.tables import Openable
from assistant.tui.words import hindrance, incident_head

if TYPE_CHECKING:
    from assistant.engine import Engine
from textual.message import Message

from assistant.tui.citations import CitedPlace
from assistant.tui.messages import Latest
from assistant.tui.snapshot import RecoverySnapshot


class IncidentScreen(TabbedScreen):
    """Show one incident, in tabs."""

    PANES: ClassVar[tuple[tuple[str, str], ...]] = (
        ("verdict", "Verdict"),
        ("timeline", "Timeline"),
        ("evidence", "Evidence"),
        ("curves", "Curves"),
        ("playbook", "Playbook"),
        ("changes", "Changes"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l", "log", "Log"),
        Binding("a", "approval", "Approval"),
        Binding("r", "go_on", "Recover"),
        Binding("u", "undo", "Undo"),
        Binding("o", "report", "Report"),
        Binding("x", "export", "Export"),
        Binding("v", "tab('verdict')", "Verdict", show=False),
        Binding("t", "tab('timeline')", "Timeline", show=False),
        Binding("e", "tab('evidence')", "Evidence", show=False),
        Binding("c", "tab('curves')", "Curves", show=False),
        Binding("p", "tab('playbook')", "Playbook", show=False),
        Binding("d", "tab('changes')", "Changes (what was done)", show=False),
    ]

    def __init__(self, incident: int) -> None:
        super().__init__()
        self.incident = incident
        self.snapshot: IncidentSnapshot | None = None
        self._curves: CurvesSnapshot | None = None
        self._export = False
        self._texts = tempfile.TemporaryDirectory(prefix="nightshift-chat-")

    def panes(self) -> Sequence[Widget]:
        """Return the tabs."""
        return VerdictView(), TimelineView(), EvidenceView(), CurvesView(), PlaybookView(), ChangesView()

    def on_mount(self) -> None:
        """Follow the store."""
        super().on_mount()
        self.watch(self.app, "store_snapshot", self._store_read)
        self.watch(self.app, "cluster_snapshot", self._cluster_read, init=False)

    def on_unmount(self) -> None:
        """Throw away the texts that were written to be read."""
        self._texts.cleanup()

    def on_screen_resume(self) -> None:
        """Read what has happened while something lay on top."""
        self._store_read(None)

    def _store_read(self, _store_snapshot: StoreSnapshot | None) -> None:
        if not is_covered(self):
            jobs, now = self._jobs(), self.backend.now()
            self.ask("incident", lambda engine: read_incident(engine, self.incident, jobs, now), IncidentRead)

    def _cluster_read(self, _cluster: ClusterSnapshot | None) -> None:
        # a job that the scheduler has forgotten is not asked for again and again
        if self.snapshot is not None and not self.snapshot.job_unknown:
            self._store_read(None)

    def _jobs(self) -> dict[str, Job]:
        """Return the jobs that are known: as the scheduler lists them, else as it answered before."""
        cluster: ClusterSnapshot | None = self.app.cluster_snapshot  # type: ignore[attr-defined]
        snapshot = self.snapshot
        previous = [job for job in (snapshot.job, *snapshot.restarts) if job is not None] if snapshot is not None else []
        return {job.id: job for job in (*previous, *(cluster.jobs if cluster is not None else ()))}

    def on_incident_read(self, message: IncidentRead) -> None:
        """Show an incident that was read."""
        snapshot = self.snapshot = message.snapshot
        self.head(*incident_head(snapshot))
        self.query_one(VerdictView).tell(snapshot)
        self.query_one(TimelineView).tell(snapshot)
        self.query_one(EvidenceView).tell(snapshot)
        self.query_one(PlaybookView).tell(snapshot)
        self.query_one(ChangesView).tell(snapshot)
        self.refresh_bindings()
        self._read_curves()

    def on_not_there(self, message: NotThere) -> None:
        """Say why; without anything to show the person is led back."""
        super().on_not_there(message)
        if self.snapshot is None and self.is_current:
            self.dismiss(None)

    def turned(self, tab: str) -> None:
        """Read the metrics when they are first wanted."""
        self._read_curves()

    def _read_curves(self) -> None:
        snapshot, previous = self.snapshot, self._curves
        if snapshot is not None and (self.current_tab == "curves" or self.pane("curves").has_class("-beside")):
            self.ask("curves", lambda _engine: incident_curves(snapshot, previous), IncidentCurvesRead)

    def on_incident_curves_read(self, message: IncidentCurvesRead) -> None:
        """Draw the curves that were read."""
        self._curves = message.curves
        self.query_one(CurvesView).tell(message.curves)

    def on_openable_item_opened(self, message: Openable.ItemOpened) -> None:
        """Open what stands behind an item."""
        message.stop()
        if self.snapshot is None:
            return
        kind, _, which = message.key.partition(":")
        openers = {
            "cite": self._open_cited,
            "node": self._open_cited,
            "evidence": self._open_evidence,
            "call": self._open_call,
            "pattern": self._open_pattern,
            "rival": self._open_rival,
        }
        if kind in openers and which:
            openers[kind](self.snapshot, message.key)
        elif kind == "incident":
            self.post_message(OpenIncident(int(which)))
        elif kind == "job":
            self.post_message(OpenJob(which))
        elif kind == "nodes":
            self.post_message(OpenNodes(which))
        elif kind == "log":
            self.action_log()
        elif kind == "step":
            self._open_step(self.snapshot, which)
        elif kind in dict(self.PANES):
            self.current_tab = kind

    def _open_cited(self, snapshot: IncidentSnapshot, key: str) -> None:
        diagnosis = snapshot.diagnosis
        if diagnosis is not None:
            kind, *places = key.split(":")
            numbers = [int(place) for place in places]
            cited = diagnosis.root_cause[numbers[0]] if kind == "cite" else diagnosis.nodes[numbers[0]].citations[numbers[1]]
            self._open(snapshot, cited)

    def _open(self, snapshot: IncidentSnapshot, cited: Citation) -> None:
        folder = Path(self._texts.name)
        self.ask("place", lambda _engine: place_of(snapshot, cited, folder), PlaceFound)

    def _open_evidence(self, snapshot: IncidentSnapshot, key: str) -> None:
        number = int(key.partition(":")[2])
        evidence = next((evidence for evidence in snapshot.evidence if evidence.id == number), None)
        if evidence is None:  # a moment of the timeline: its facts
            self.current_tab = "evidence"
        elif evidence.source == "job log":
            self.ask("place", lambda _engine: log_of(snapshot), PlaceFound)
        else:
            self._read_text(evidence.source, readable(evidence.text))

    def _open_call(self, snapshot: IncidentSnapshot, key: str) -> None:
        number = int(key.partition(":")[2])
        call_entry = next(call_entry for call_entry in snapshot.calls if call_entry.call.id == number)
        call = call_entry.call
        facts = f"{call.preview or call.tool}\n{dict(call.arguments)}\nwhy: {call.why}\n\n{value_text(call_entry)}\n"
        self._read_text(f"call {number} {call.tool}", facts)

    def _open_step(self, snapshot: IncidentSnapshot, name: str) -> None:
        step = next((step for step in snapshot.play.steps if step.name == name), None)
        if step is not None and step.calls:
            self._open_call(snapshot, f"call:{step.calls[-1]}")
        else:
            self.notify(line(f"Step {name} has made no call."), markup=False)

    def _open_pattern(self, snapshot: IncidentSnapshot, key: str) -> None:
        pattern = snapshot.diagnosis.patterns[int(key.partition(":")[2])] if snapshot.diagnosis is not None else None
        if pattern is not None and pattern.incidents:
            self.post_message(OpenIncident(pattern.incidents[0]))
        elif pattern is not None and pattern.nodes:
            self.post_message(OpenNodes(",".join(pattern.nodes)))

    def _open_rival(self, snapshot: IncidentSnapshot, key: str) -> None:
        rival = snapshot.diagnosis.rivals[int(key.partition(":")[2])] if snapshot.diagnosis is not None else None
        cited = rival_place(rival) if rival is not None else None
        if cited is not None:
            self._open(snapshot, cited)
        elif rival is not None:
            # nothing in the case names it: what it rests on is what it would take to decide
            self._read_text(f"{rival.reason} weighed", "\n".join(f"{name}: {text}" for name, text in weighed(rival) if text))

    def _read_text(self, name: str, text: str) -> None:
        folder = Path(self._texts.name)
        self.ask("place", lambda _engine: text_place(folder, name, text), PlaceFound)

    def on_place_found(self, message: PlaceFound) -> None:
        """Open the log viewer there."""
        self.show_place(message.place)

    def action_log(self) -> None:
        """Open the log at the line that the verdict rests on; without one at its end."""
        snapshot = self.snapshot
        if snapshot is None:
            return
        cited = first_place(snapshot)
        if cited is not None:
            self._open(snapshot, cited)
        else:
            self.ask("place", lambda _engine: log_of(snapshot), PlaceFound)

    def action_approval(self) -> None:
        """Open the question that waits."""
        if self.snapshot is None or not self.snapshot.approvals:
            self.notify(line(f"Nothing of incident {self.incident} waits for you."), markup=False)
            return
        self.post_message(OpenApproval(self.snapshot.approvals[0].id))

    def action_go_on(self) -> None:
        """Show what working on the incident now would do, and ask; the policy decides what may be done."""
        snapshot = self.snapshot
        if snapshot is None:
            return
        if snapshot.incident.state.ended:
            retry_hint = f"; to try again: nightshift recover {snapshot.incident.job} --again" if snapshot.incident.job else ""
            self.notify(
                line(f"Incident {self.incident} is {snapshot.incident.state}: there is nothing to go on with{retry_hint}."),
                timeout=8,
                markup=False,
            )
            return
        if snapshot.approvals:
            self.action_approval()
            return
        if snapshot.incident.state is IncidentState.VERIFYING:  # only looked at: nothing is changed that was not shown
            self._work(by_person=snapshot.incident.kind is EventKind.REQUESTED)
            return
        by = self.backend.by
        self.notify("Finding out what it takes; nothing is changed yet.", timeout=3)
        self.ask("recovery", lambda engine: recovery_of(engine, by=by, incident=self.incident), RecoveryPlanned, lane="nodes")

    def on_recovery_planned(self, message: RecoveryPlanned) -> None:
        """Ask."""
        self._ask_person(RecoveryScreen(message.snapshot), lambda yes: self._work() if yes else None)

    def _ask_person(self, question: ConsentScreen[bool], answered: Callable[[bool | None], None]) -> bool:
        """Ask, or say where to ask again; return whether it was asked."""
        dialog = ask_on_screen(self, question, answered)
        if not dialog:
            self.notify(
                line(f"What you asked for on incident {self.incident} was looked at; ask there again to see it."),
                timeout=10,
                markup=False,
            )
        return dialog

    def _work(self, *, by_person: bool = True) -> None:
        self.backend.go_on(self.incident, by_person=by_person)
        self.notify(line(f"Working on incident {self.incident}."), markup=False)

    def action_undo(self) -> None:
        """Show what taking back the change under the cursor would do, and ask."""
        call = self.query_one(ChangesView).call
        if self.current_tab != "changes" or call is None:
            self.current_tab = "changes"
            self.notify(
                "Choose a change, then u." if self.snapshot is not None and self.snapshot.changes else "Nothing was changed.",
                markup=False,
            )
            return
        by = self.backend.by
        self.ask("undo", lambda engine: undo_of(engine, call, by), UndoRead)

    def on_undo_read(self, message: UndoRead) -> None:
        """Ask."""
        undo = message.snapshot

        def answered(yes: bool | None) -> None:
            if yes:
                self._take_back(undo)
            else:
                self.backend.leave_undo(undo)

        if not self._ask_person(UndoScreen(undo), answered):
            self.backend.leave_undo(undo)

    def _take_back(self, undo: UndoSnapshot) -> None:
        by = self.backend.by

        def undone(engine: Engine) -> ActionReport:
            try:
                outcome = take_back(engine, undo, by)
            except NightshiftError as error:
                return ActionReport(hindrance(error, "not undone"), ok=False)
            return ActionReport(f"done: {undo.text}" if outcome.ok else f"failed: {outcome.error}", ok=outcome.ok)

        self.backend.read(f"undo {undo.call.id}", undone, lambda report: report, lane="act")

    def action_report(self) -> None:
        """Show the report."""
        from assistant.engine.report import report

        self.ask("report", lambda engine: report(engine.store, self.incident), ReportMade)

    def action_export(self) -> None:
        """Show the report, ready to be written to a file."""
        self._export = True
        self.action_report()

    def on_report_made(self, message: ReportMade) -> None:
        """Open the report."""
        export, self._export = self._export, False
        self.app.push_screen(ReportScreen(message.text, name=f"incident-{self.incident}", export=export))


# What was read for the screen of an incident.


class IncidentRead(Latest):
    """The incident was read."""

    def __init__(self, snapshot: IncidentSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class IncidentCurvesRead(Latest):
    """The metrics were read."""

    def __init__(self, curves: CurvesSnapshot) -> None:
        super().__init__()
        self.curves = curves


class PlaceFound(Message):
    """What the person wants to read lies there."""

    def __init__(self, place: CitedPlace) -> None:
        super().__init__()
        self.place = place


class ReportMade(Message):
    """The report is written."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class UndoRead(Message):
    """It is known what an undo would do."""

    def __init__(self, snapshot: UndoSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class RecoveryPlanned(Message):
    """It is known what going on would do."""

    def __init__(self, snapshot: RecoverySnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot
