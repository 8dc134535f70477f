"""What the commands that begin with a slash do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from assistant.errors import NightshiftError, UsageError
from assistant.records import CallStatus, Verdict
from assistant.tui.about_changes import UndoSnapshot, recovery_of, take_back, undo_of
from assistant.tui.messages import (
    AskLift,
    AskRecovery,
    AskUndo,
    NotAnswered,
    Noted,
    OpenApproval,
    OpenIncident,
    OpenJob,
    OpenNodes,
)
from assistant.tui.sessions import code, escaped
from assistant.tui.slash import ArgumentValue, Takes, TypedCommand
from assistant.tui.snapshot import read_kill_switch
from assistant.tui.widgets.conversation import agent_sentence
from assistant.tui.words import MODES, about, short

if TYPE_CHECKING:
    from textual.message import Message

    from assistant.engine import Engine
    from assistant.tui.app import ChatApp
    from assistant.tui.talk import Talk

PANELS = {"incidents": "incidents", "waiting": "approvals", "happened": "happened", "jobs": "jobs", "nodes": "nodes"}


class SlashCommands:
    """Does what is typed; nothing here blocks."""

    def __init__(self, app: ChatApp, talk: Talk) -> None:
        self._app, self._talk = app, talk

    def run(self, command: TypedCommand) -> None:
        """Do what a command says.

        Raises:
            UsageError: It cannot be done; the message says why.
        """
        name = command.command.name
        if name in PANELS:
            self._app.action_panel(PANELS[name])
        else:
            does: Callable[[TypedCommand], None] = getattr(self, f"_{name}")
            does(command)

    def existing_values(self, kind: Takes) -> Iterator[ArgumentValue]:
        """Yield what exists of a kind, what needs somebody first."""
        store, cluster = self._app.store_snapshot, self._app.cluster_snapshot
        if kind is Takes.INCIDENT and store is not None:
            for incident_entry in store.incidents:
                yield ArgumentValue(
                    str(incident_entry.incident.id),
                    f"{about(incident_entry.incident)}  {incident_entry.reason}  {incident_entry.incident.state}",
                )
        elif kind is Takes.APPROVAL and store is not None:
            for waits in store.approvals:
                yield ArgumentValue(str(waits.approval.id), short(waits.call.preview or waits.call.tool, 100))
        elif kind is Takes.CALL and store is not None:
            for row in store.happened:
                if row.call is not None and row.undo and row.what in (f"call.{CallStatus.DONE}", "outcome"):
                    yield ArgumentValue(str(row.call), short(row.preview, 100))
        elif kind is Takes.JOB and cluster is not None:
            for job in cluster.foremost:
                yield ArgumentValue(job.id, f"{short(job.name, 40)}  {job.state}")
        elif kind is Takes.NODE and cluster is not None:
            for node in cluster.nodes:
                yield ArgumentValue(node.name, f"{node.state}  {short(node.reason, 60)}".rstrip())
        elif kind is Takes.THEME:
            yield from (ArgumentValue(name) for name in sorted(self._app.available_themes))
        elif kind is Takes.TALK:
            yield from (ArgumentValue(talk.name, talk.at.strftime("%Y-%m-%d %H:%M")) for talk in self._talk.saved_sessions)

    def _incident(self, command: TypedCommand) -> None:
        self._app.post_message(OpenIncident(int(command.first)))

    def _job(self, command: TypedCommand) -> None:
        self._app.post_message(OpenJob(command.first))

    def _node(self, command: TypedCommand) -> None:
        self._app.post_message(OpenNodes(command.first))

    def _log(self, command: TypedCommand) -> None:
        from assistant.tui.screens.log import LogScreen

        jobs = self._app.cluster_snapshot.jobs if self._app.cluster_snapshot is not None else ()
        job = next((job for job in jobs if job.id == command.first), None)
        if job is None:
            raise UsageError(f"the scheduler knows no job {command.first}; /log and Tab lists those that it knows")
        if job.log is None:
            raise UsageError(f"job {job.id} is {job.state} and has no log yet")
        self._app.push_screen(LogScreen([job.log], title=f"job {job.id} {short(job.name, 40)}", account=job.account))

    def _approve(self, command: TypedCommand) -> None:
        self._app.post_message(OpenApproval(int(command.first)))

    def _deny(self, command: TypedCommand) -> None:
        self._app.backend.settle(int(command.first), Verdict.DENY, command.second)

    def _ack(self, command: TypedCommand) -> None:
        number, by = int(command.first), self._app.backend.by

        def work(engine: Engine) -> str:
            engine.store.acknowledge(number, by=by, note=command.second)
            return f"Incident {number} is acknowledged by {code(by)}."

        self._act(command, lambda engine, _: work(engine))

    def _explain(self, command: TypedCommand) -> None:
        from assistant.engine.report import report

        self._act(command, lambda engine, _: report(engine.store, int(command.first)))

    def _recover(self, command: TypedCommand) -> None:
        backend, job, number = self._app.backend, command.first, self._talk.begin()

        def work(engine: Engine) -> str:
            from assistant.engine.requested import requested

            incident = requested(engine, job, by=backend.by)
            backend.tell(Noted(number, f"Incident {incident.id}: Nightshift is at work on job {code(job)}."))
            backend.drive(incident.id, by_person=True)
            return standing(engine, incident.id)

        def answered(yes: bool) -> None:
            if yes:
                backend.act(number, f"recover {job}", work)
            else:
                backend.tell(Noted(number, f"Job {code(job)} was left as it is."))

        def look(engine: Engine) -> Message:
            waits = waiting_for(engine, job)
            if waits is not None:
                return Noted(number, standing(engine, waits))
            return AskRecovery(recovery_of(engine, by=backend.by, job=job), answered)

        self._look(number, f"recover {job}", look, lane="nodes")

    def _undo(self, command: TypedCommand) -> None:
        backend, call, number = self._app.backend, int(command.first), self._talk.begin()

        def work(engine: Engine, undo: UndoSnapshot) -> str:
            outcome = take_back(engine, undo, backend.by)
            return (
                f"Call {call} was taken back." if outcome.ok else f"Call {call} could not be taken back: {escaped(outcome.error)}"
            )

        def look(engine: Engine) -> Message:
            undo = undo_of(engine, call, backend.by)
            if not undo.text:
                return NotAnswered(number, f"call {call} cannot be taken back: {undo.why}")

            def answered(yes: bool) -> None:
                if yes:
                    backend.act(number, f"undo {call}", lambda engine: work(engine, undo))
                else:
                    backend.leave_undo(undo)
                    backend.tell(Noted(number, f"Call {call} was left as it is."))

            return AskUndo(undo, answered)

        self._look(number, f"undo {call}", look)

    def _look(self, number: int, kind: str, look: Callable[[Engine], Message], *, lane: str = "read") -> None:
        """Find out on a lane what a command would change; `look` returns the message that asks the person, or says why none is."""

        def look_or_explain(engine: Engine) -> Message:
            try:
                return look(engine)
            except NightshiftError as error:
                return NotAnswered(number, str(error))

        self._app.backend.read(kind, look_or_explain, lambda message: message, lane=lane)

    def _stop(self, command: TypedCommand) -> None:
        if command.first == "--lift":
            self.lift()
        elif command.first.startswith("--"):
            raise UsageError(f"/stop knows --lift only; you wrote {short(command.first, 40)!r}: /stop [WHY], /stop --lift")
        else:
            self.stop(command.first)

    def stop(self, why: str = "") -> None:
        """Set the kill switch; nothing is asked before, since it only stops."""
        self._app.backend.stop(self._talk.begin(), why)

    def lift(self) -> None:
        """Show the kill switch, and lift it once the person has said yes."""
        backend, number = self._app.backend, self._talk.begin()

        def look(engine: Engine) -> Message:
            switch = read_kill_switch(engine.gate.policy.kill_switch)
            if switch is None:
                return Noted(number, "No kill switch is set.")

            def answered(yes: bool) -> None:
                if yes:
                    backend.lift(number)
                else:
                    backend.tell(Noted(number, "The kill switch stays set."))

            return AskLift(switch, answered)

        backend.read("lift", look, lambda message: message, lane="stop")

    def _model(self, command: TypedCommand) -> None:
        self._app.post_message(Noted(self._talk.begin(), escaped(agent_sentence(self._talk.answers))))

    def _mode(self, command: TypedCommand) -> None:
        def work(engine: Engine, _: int) -> str:
            mode = str(engine.gate.policy.mode)
            return f"Nightshift's {MODES.get(mode, f'mode {mode}')}. The policy file sets it: `knowledge/policy.toml`."

        self._act(command, work)

    def _theme(self, command: TypedCommand) -> None:
        if command.first not in self._app.available_themes:
            raise UsageError(f"there is no theme {command.first!r}; /theme and Tab lists them")
        self._app.theme = command.first

    def _export(self, command: TypedCommand) -> None:
        self._talk.export(self._talk.begin(), command.first)

    def _resume(self, command: TypedCommand) -> None:
        self._talk.resume(command.first)

    def _new(self, command: TypedCommand) -> None:
        self._talk.new(command.first)

    def _clear(self, _: TypedCommand) -> None:
        self._talk.clear()

    def _help(self, _: TypedCommand) -> None:
        self._app.action_keys()

    def _quit(self, _: TypedCommand) -> None:
        self._app.exit(0)

    def _act(self, command: TypedCommand, work: Callable[[Engine, int], str]) -> None:
        number = self._talk.begin()
        self._app.backend.act(number, f"{command.command.name} {command.first}", lambda engine: work(engine, number))


def waiting_for(engine: Engine, job: str) -> int | None:
    """Return the incident of a job with a question that nobody has answered; None where there is none."""
    for incident in engine.store.incidents(job=job, open_only=True, limit=1):
        call_ids = {call.id for call in engine.store.calls(incident.id)}
        if any(approval.call in call_ids for approval in engine.store.approvals()):
            return incident.id
    return None


def standing(engine: Engine, incident: int) -> str:
    """Return how an incident stands after it was worked on, and what a person can do next, as Markdown."""
    record = engine.store.incident(incident)
    lines = [f"Incident {record.id} is **{record.state}**." + (f" {escaped(record.note)}" if record.note else "")]
    call_ids = {call.id for call in engine.store.calls(record.id)}
    for approval in engine.store.approvals():
        if approval.call in call_ids:
            lines.append(f"\nWaits for you: {code(engine.store.call(approval.call).preview)}, `/approve {approval.id}`")
    return "\n".join(lines)
