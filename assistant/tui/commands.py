"""The commands that begin with a slash: a table, what a line means by it, how a line may go on, and what each does."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from assistant.display import shorten
from assistant.errors import NightshiftError, UsageError
from assistant.records import CallStatus, Verdict
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
from assistant.tui.snapshot import UndoSnapshot, read_kill_switch, recovery_of, take_back, undo_of
from assistant.tui.words import MODES, about, agent_sentence, short

if TYPE_CHECKING:
    from textual.message import Message

    from assistant.engine import Engine
    from assistant.tui.app import ChatApp
    from assistant.tui.talk import Talk


MOST_OFFERED = 60
"""Ways to go on that are offered."""


class Takes(StrEnum):
    """What the first argument of a command names, for completion and checks."""

    NOTHING = ""
    INCIDENT = "incident"
    APPROVAL = "approval"
    JOB = "job"
    JOB_NAME = "job name"
    USER = "user"
    NODE = "node"
    CALL = "call"
    THEME = "theme"
    TALK = "conversation"
    TEXT = "text"


NUMBERS = frozenset({Takes.INCIDENT, Takes.APPROVAL, Takes.CALL})


@dataclass(frozen=True, slots=True)
class Command:
    """A command that begins with a slash."""

    name: str
    arguments: str
    """As help shows them; in brackets what may be left out."""
    help: str
    """One line."""
    takes: Takes = Takes.NOTHING

    @property
    def needs(self) -> int:
        """How many arguments must be there."""
        return sum(not word.startswith("[") for word in self.arguments.split())

    @property
    def most(self) -> int:
        """How many it may have; the last takes the rest of the line."""
        return len(self.arguments.split())

    @property
    def usage(self) -> str:
        """The command with its arguments, as help shows it."""
        return f"/{self.name} {self.arguments}".rstrip()


COMMANDS = (
    Command("incidents", "", "what is wrong now"),
    Command("waiting", "", "what waits for you"),
    Command("happened", "", "what happened"),
    Command("jobs", "", "the jobs"),
    Command("nodes", "", "the nodes"),
    Command("incident", "N", "open an incident", Takes.INCIDENT),
    Command("job", "ID", "open a job", Takes.JOB),
    Command("node", "NAME", "open a node", Takes.NODE),
    Command("log", "JOB", "read the log of a job", Takes.JOB),
    Command("explain", "N", "write the report of an incident here", Takes.INCIDENT),
    Command("ack", "N [NOTE]", "say that you know of an incident that was handed over", Takes.INCIDENT),
    Command("recover", "JOB", "show what brings a failed job back, and do it once you say yes", Takes.JOB),
    Command("approve", "N", "look at a change that waits, then allow it", Takes.APPROVAL),
    Command("deny", "N [WHY]", "refuse a change that waits", Takes.APPROVAL),
    Command("undo", "CALL", "show what takes a change of Nightshift back, and do it once you say yes", Takes.CALL),
    Command("stop", "[WHY]", "stop every change at once, by the kill switch; /stop --lift asks before it ends that", Takes.TEXT),
    Command("model", "", "what answers here"),
    Command("mode", "", "how far Nightshift may go"),
    Command("theme", "NAME", "other colours", Takes.THEME),
    Command("export", "[FILE]", "write this conversation as Markdown that can be shared", Takes.TEXT),
    Command("resume", "[NAME]", "go on with an earlier conversation; without a name with the one before this", Takes.TALK),
    Command("new", "[NAME]", "begin another conversation", Takes.TEXT),
    Command("clear", "", "clear the screen; the conversation is kept"),
    Command("help", "", "all keys and commands"),
    Command("quit", "", "leave; what runs goes on"),
)
"""All of them, as help lists them."""
_BY_NAME = {command.name: command for command in COMMANDS}


class TypedCommand(NamedTuple):
    """A command as it was typed."""

    command: Command
    arguments: tuple[str, ...]

    @property
    def first(self) -> str:
        """The first argument; empty where there is none."""
        return self.arguments[0] if self.arguments else ""

    @property
    def second(self) -> str:
        """The second argument; empty where there is none."""
        return self.arguments[1] if len(self.arguments) > 1 else ""


class ArgumentValue(NamedTuple):
    """Something that exists, by which an argument may be completed."""

    name: str
    about: str = ""


class CompletionOffer(NamedTuple):
    """One way in which a line may go on."""

    line: str
    """The whole line when it is taken."""
    label: str
    about: str


def is_command(text: str) -> bool:
    """Tell whether a line is a command: `/tmp/job.log is odd` is a question."""
    word = text.strip().partition(" ")[0]
    return word.startswith("/") and "/" not in word[1:]


def is_known_command(text: str) -> bool:
    """Tell whether a line begins with a slash and the whole name of a command."""
    return is_command(text) and text.split(maxsplit=1)[0][1:].lower() in _BY_NAME


def parse(text: str) -> TypedCommand:
    """Return the command that a line gives.

    Raises:
        UsageError: It is unknown, or an argument is missing, too many or no number; the message says how it is written.
    """
    words = text.strip()[1:].split(None, 1)
    name = words[0].lower() if words else ""
    command = _BY_NAME.get(name)
    if command is None:
        raise UsageError(_unknown(name))
    tail = words[1].strip() if len(words) > 1 else ""
    arguments = tuple(tail.split(None, command.most - 1)) if tail and command.most else ()
    if tail and not command.most:
        raise UsageError(f"/{name} takes nothing behind it; you wrote {_short(tail)!r}")
    if len(arguments) < command.needs:
        raise UsageError(
            f"/{name} needs {' and '.join(command.arguments.split()[len(arguments) : command.needs])}: {command.usage}"
        )
    if command.takes in NUMBERS:
        arguments = (_number(command, arguments[0]), *arguments[1:])
    elif arguments and command.most == 1 and command.takes is not Takes.TEXT and len(arguments[0].split()) > 1:
        raise UsageError(f"/{name} takes one {command.takes}; you wrote {_short(tail)!r}: {command.usage}")
    return TypedCommand(command, arguments)


def offers(text: str, existing: Callable[[Takes], Iterable[ArgumentValue]]) -> list[CompletionOffer]:
    """Return how a line that begins with a slash may go on, the likeliest first; none when it is no such line.

    Args:
        text: All that stands before the cursor.
        existing: Return what exists of a kind.
    """
    if not text.startswith("/") or "\n" in text or not is_command(text):
        return []
    name, space, typed = text[1:].partition(" ")
    if not space:
        return [_command_offer(command) for command in _starting(name.lower())]
    command = _BY_NAME.get(name.lower())
    if command is None or command.takes is Takes.NOTHING or " " in typed.strip() or typed != typed.strip():
        return []
    more = " " if command.most > 1 else ""
    matching = _fitting(typed, existing(command.takes))
    return [CompletionOffer(f"/{command.name} {entry.name}{more}", entry.name, entry.about) for entry in matching]


def _starting(name: str) -> Sequence[Command]:
    starts = sorted((command for command in COMMANDS if command.name.startswith(name)), key=lambda command: command.name != name)
    within = [command for command in COMMANDS if name and name in command.name and command not in starts]
    return [*starts, *within]


def _command_offer(command: Command) -> CompletionOffer:
    return CompletionOffer(f"/{command.name}{' ' if command.arguments else ''}", command.usage, command.help)


def _fitting(typed: str, existing: Iterable[ArgumentValue]) -> list[ArgumentValue]:
    """Return what begins with what was typed, then what contains it; nothing when it is whole."""
    text = typed.lower()
    starts: list[ArgumentValue] = []
    within: list[ArgumentValue] = []
    for entry in existing:
        if entry.name == typed:
            return []
        place = entry.name.lower().find(text)
        if place == 0 and len(starts) < MOST_OFFERED:
            starts.append(entry)
        elif place > 0 or (text and text in entry.about.lower()):
            within.append(entry)
    return [*starts, *within][:MOST_OFFERED]


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _BY_NAME, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(f'/{name}' for name in near)}?" if near else "/help lists them"
    return f"there is no command /{_short(name)}; {hint}"


def _number(command: Command, text: str) -> str:
    plain = text.lstrip("#")
    if not (plain.isascii() and plain.isdigit() and len(plain) <= 15):
        raise UsageError(f"/{command.name} takes the number of the {command.takes}, not {_short(text)!r}: {command.usage}")
    return str(int(plain))


def _short(text: str) -> str:
    return shorten(text, 40)


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
        elif kind is Takes.JOB_NAME and cluster is not None:
            yield from (ArgumentValue(job.name, f"job {job.id}  {job.state}") for job in cluster.foremost)
        elif kind is Takes.USER and cluster is not None:
            jobs_of = Counter(job.user for job in cluster.jobs if job.user)
            yield from (ArgumentValue(user, f"{count} job{'s' * (count != 1)}") for user, count in jobs_of.most_common())
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
            from assistant.engine.intake import requested_incident

            incident = requested_incident(engine, job, by=backend.by)
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
