"""The conversation that is going on: what is typed goes to the agent or to a command, what comes back is shown and kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.agent.answer import Answer
from assistant.display import line
from assistant.errors import UsageError
from assistant.tui.commands import SlashCommands, is_command, parse
from assistant.tui.messages import ChatTrouble, Lane, LastUseRead, NotAnswered, Noted, Resumed, SourceRead, Typed
from assistant.tui.news import NewsEvent, event_text, events_text, since_text
from assistant.tui.sessions import LastUse, SavedSession, SessionEntry, SessionEntryKind, Talks, checked, code, exported

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.tui.app import ChatApp
    from assistant.tui.widgets.conversation import Conversation
    from assistant.tui.widgets.prompt import Prompt
from collections.abc import Mapping
from typing import TYPE_CHECKING

from assistant.errors import NightshiftError
from assistant.private_files import create_private

if TYPE_CHECKING:
    from assistant.engine import Engine
import re
from enum import Enum, auto

STOPPED = "You waited no longer for this."
TOGETHER = timedelta(seconds=20)
"""Events that follow one another by no more than this stand together."""
ENDS_S = 1.0
"""How long the end of the chat waits until all is written."""


class Talk:
    """Stands between prompt, agent, commands, conversation and the file that keeps it; its methods are called by handlers only."""

    def __init__(self, app: ChatApp, name: str, talks: Talks | None) -> None:
        """Begin.

        Args:
            app: Whose conversation it is.
            name: Of the conversation.
            talks: Where it is kept; None keeps nothing.
        """
        self._app, self.name, self._talks = app, name, talks
        self._commands = SlashCommands(app, self)
        self._lane = Lane("conversations", self._failed)
        self._number, self._written = 0, 0
        self._announced = (0, datetime.min.replace(tzinfo=UTC))
        """The exchange of the newest events, and when they were announced."""
        self._last_typed = ""
        self._complained = False
        self.answers = ""
        """What answers, as the status line says it."""
        self.saved_sessions: Sequence[SavedSession] = ()
        """Conversations that can be gone on with, the newest first."""

    @property
    def _conversation(self) -> Conversation:
        from assistant.tui.widgets.conversation import Conversation

        return self._app.main.query_one(Conversation)

    @property
    def _prompt(self) -> Prompt:
        from assistant.tui.widgets.prompt import Prompt

        return self._app.main.query_one(Prompt)

    def open(self) -> None:
        """Read what was kept, behind the first paint."""
        self._prompt.values_of = self._commands.existing_values
        if self._talks is None:
            self._app.post_message(LastUseRead(None))
            return
        self._do(lambda talks: self._app.post_message(Typed(talks.typed())))
        self._load(self.name)
        # behind the conversation, which would take off the screen what was announced before it
        self._do(lambda talks: self._app.post_message(LastUseRead(talks.last_use())))

    def close(self) -> None:
        """Wait a moment until all is written."""
        closed = threading.Event()
        self._lane.ask("end", closed.set)
        closed.wait(ENDS_S)
        self._lane.close()

    def answers_are(self, answers: str) -> None:
        """Say what answers from now on."""
        if not self.is_there:
            return
        self.answers = answers
        self._conversation.welcome.says(answers)

    def typed(self, text: str) -> None:
        """Take what the person typed: a question or a command."""
        if self._talks is not None:
            self._do(lambda talks: talks.add_typed(text))
        self._last_typed = text
        if is_command(text):
            try:
                self._commands.run(parse(text))
            except UsageError as error:
                self._app.notify(line(str(error)), severity="warning", markup=False)
                self._prompt.fill(text)
            return
        wish = stop_wish(text)
        if wish is StopWish.SET:
            self._commands.stop(text)
        elif wish is StopWish.LIFT and self._app.kill_switch is not None:
            self._commands.lift()
        else:
            self.ask(text)

    def ask(self, text: str) -> None:
        """Let the agent answer, whatever the text looks like: for what was offered and chosen, not written by the person."""
        question = self._conversation.option_text(text)
        self._last_typed = question
        number = self.begin(asks=True)
        self._app.backend.ask(number, question)

    def begin(self, *, asks: bool = False) -> int:
        """Begin an exchange with what was just typed, and return its number."""
        self._number += 1
        self._record(SessionEntryKind.TYPED, self._number, self._last_typed)
        self._app.call_later(self._conversation.show_question, self._number, self._last_typed, asks=asks)
        return self._number

    def stop(self) -> bool:
        """Wait no longer for any answer; tell whether one was awaited."""
        working = self._conversation.working
        for number in working:
            self._app.backend.unask(number)
            self._app.post_message(NotAnswered(number, STOPPED))
        return bool(working)

    @property
    def is_there(self) -> bool:
        """Whether there is anything to show it on: an answer may come while the person leaves."""
        from assistant.tui.widgets.conversation import Conversation

        return bool(self._app.main.query(Conversation))

    async def show_call(self, message: SourceRead) -> None:
        """Show a reading call."""
        if not self.is_there:
            return
        await self._conversation.show_call(message.question, message.source, message.took_s)

    async def drafted(self, number: int, text: str) -> None:
        """Show more of what a model says."""
        if self.is_there:
            await self._conversation.drafted(number, text)

    async def answered(self, number: int, answer: Answer) -> None:
        """Show an answer, and keep it."""
        if not self.is_there:
            return
        self._record(SessionEntryKind.ANSWERED, number, answer=answer)
        await self._conversation.show_answer(number, answer)

    async def failed(self, number: int, why: str) -> None:
        """Show why there is no answer, and keep that."""
        if not self.is_there:
            return
        self._record(SessionEntryKind.FAILED, number, why)
        await self._conversation.failed(number, why)

    async def noted(self, number: int, text: str) -> None:
        """Show what came of a command, and keep it."""
        if not self.is_there:
            return
        self._record(SessionEntryKind.NOTED, number, text)
        await self._conversation.noted(number, text)

    def settled(self, approval: int, text: str) -> None:
        """Say below a proposal what came of it, and keep that."""
        if not self.is_there:
            return
        number = self._conversation.settled(approval, text)
        if number is not None:
            self._record(SessionEntryKind.SETTLED, number, f"approval {approval}: {text}")

    def announce(self, events: Sequence[NewsEvent], since: datetime | None = None) -> None:
        """Show events that nobody asked about, and keep them: beside those of just now, where nothing was asked meanwhile.

        Args:
            events: What happened, oldest first.
            since: Since when nobody was there, where it happened meanwhile: all of it is one sentence then.
        """
        now = self._app.backend.now()
        follows = self._number == self._announced[0] and now - self._announced[1] <= TOGETHER
        if since is not None or not follows:
            self._number += 1
        self._announced = (0 if since is not None else self._number, now)
        if since is None:
            entries = [
                SessionEntry(now, SessionEntryKind.NEWS, self._number, event_text(event), events=(event,)) for event in events
            ]
        else:
            text = f"{since_text(since, now)}: {events_text(events)}"
            entries = [SessionEntry(now, SessionEntryKind.AWAY, self._number, text, events=tuple(events))]
        for entry in entries:
            self._keep(entry)
            self._app.call_later(self._conversation.announce, entry)

    @property
    def working(self) -> bool:
        """Whether the agent works on a question."""
        return bool(self._conversation.working)

    @property
    def newest_text(self) -> str:
        """The newest answer or report of the conversation, with the sources of an answer; empty before the first."""
        from assistant.tui.widgets.exchange import evidence

        for entry in reversed(self._conversation.entries):
            if entry.answer is not None:
                return "\n".join(
                    [entry.answer.text, *(f"\n[{each.number}] {each.call}\n{evidence(each)}" for each in entry.answer.sources)]
                )
            if entry.what is SessionEntryKind.NOTED:
                return entry.text
        return ""

    def shows_approval(self, approval: int) -> bool:
        """Tell whether a proposal of this conversation is about an approval."""
        return self._conversation.shows_approval(approval)

    def save_last_use(self, last_use: LastUse) -> None:
        """Keep when the chat was last in use."""
        if self._talks is not None:
            self._do(lambda talks: talks.save_last_use(last_use))

    def clear(self) -> None:
        """Take everything off the screen."""
        self._app.call_later(self._conversation.clear)

    def new(self, name: str) -> None:
        """Begin another conversation.

        Raises:
            UsageError: There is one of that name.
        """
        talks, now = self._keeping(), self._app.backend.now()
        if name:
            checked(name)

        def begin() -> None:
            new_name = name or talks.free_name(now)
            if new_name in [session.name for session in talks.names()]:
                raise UsageError(f"there is a conversation {new_name!r} already: /resume {new_name}")
            self._app.post_message(Resumed(new_name, ()))

        self._lane.ask("change", begin)

    def resume(self, name: str) -> None:
        """Go on with another conversation; without a name with the newest of the others.

        Raises:
            UsageError: Nothing is kept.
        """
        talks, current = self._keeping(), self.name

        def load() -> None:
            other_names = [session.name for session in talks.names() if session.name != current]
            if not name and not other_names:
                raise UsageError("there is no other conversation to go on with")
            session_name = talks.existing_name(name or other_names[0])
            self._app.post_message(Resumed(session_name, talks.entries(session_name)))

        self._lane.ask("change", load)

    async def resumed(self, message: Resumed) -> None:
        """Show another conversation, and go on in it."""
        if not self.is_there:
            return
        if message.name != self.name:
            self.stop()
            self.name = message.name
            self._app.backend.talk_in(message.name)
        self._number = max([self._number, *(entry.question for entry in message.entries)])
        await self._conversation.replace(message.entries)
        self._names()
        self._prompt.focus()

    def export(self, number: int, file: str) -> None:
        """Write the conversation as Markdown to a file, which must not be there yet."""
        entries, name = list(self._conversation.entries[:-1]), self.name or "conversation"

        def work(engine: Engine) -> str:
            text = exported(name, entries, approval_results(engine, entries))
            return f"Written: {code(str(write_new_file(Path(file).expanduser() if file else None, name, text)))}"

        if not any(entry.answer is not None for entry in entries):
            self._app.post_message(Noted(number, "There is nothing to export yet."))
            return
        self._app.backend.act(number, f"export {number}", work)

    def _record(self, kind: SessionEntryKind, number: int, text: str = "", answer: Answer | None = None) -> None:
        self._keep(SessionEntry(self._app.backend.now(), kind, number, text, answer))

    def _keep(self, entry: SessionEntry) -> None:
        self._conversation.record(entry)
        name = self.name
        if self._talks is not None:
            self._do(lambda talks: talks.add(name, entry))

    def _load(self, name: str) -> None:
        def load(talks: Talks) -> None:
            names = [session.name for session in talks.names()]
            self._app.post_message(Resumed(name, talks.entries(name) if name in names else ()))

        self._do(load)

    def _names(self) -> None:
        def look(talks: Talks) -> None:
            self.saved_sessions = talks.names()

        if self._talks is not None:
            self._do(look)

    def _keeping(self) -> Talks:
        if self._talks is None:
            raise UsageError("this chat keeps no conversations")
        return self._talks

    def _do(self, work: Callable[[Talks], object]) -> None:
        """Do something with what is kept, after all that was asked before."""
        talks = self._keeping()
        self._written += 1
        self._lane.ask(str(self._written), lambda: work(talks))

    def _failed(self, lane: str, error: Exception) -> None:
        if not isinstance(error, OSError):
            self._app.post_message(ChatTrouble(lane, str(error)))
        elif not self._complained:
            # a full disk would else be told with every line
            self._complained = True
            complaint = f"{error.filename or 'the file'}: {error.strerror or error}; what is said from here on may not be kept"
            self._app.post_message(ChatTrouble(lane, complaint))


# What the export of a conversation needs of the world: what came of its proposals, and a file that was not there before.


def approval_results(engine: Engine, entries: Sequence[SessionEntry]) -> Mapping[int, str]:
    """Return what came of the changes that were proposed in a conversation, by their approvals."""
    proposals = [proposal for entry in entries if entry.answer is not None for proposal in entry.answer.proposals]
    came = {}
    for approval in {proposal.approval for proposal in proposals if proposal.approval is not None}:
        try:
            record = engine.store.approval(approval)
            outcome = engine.store.outcome(record.call)
        except NightshiftError:
            continue
        end = "" if outcome is None else ", done" if outcome.ok else f", failed: {outcome.error}"
        if record.verdict is not None:
            why = f" ({record.answer_why})" if record.answer_why else ""
            came[approval] = f"{record.verdict} by {record.by}{why}{end}"
        else:
            came[approval] = "lapsed" if record.expired(engine.clock.now()) else "waits for a person"
    return came


def write_new_file(path: Path | None, name: str, text: str) -> Path:
    """Write a new file and return its path.

    Raises:
        UsageError: It is there already, or cannot be written.
    """
    places = (
        [path] if path is not None else [Path(f"nightshift-{name}{tail}.md") for tail in ("", *(f"-{n}" for n in range(2, 100)))]
    )
    for place in places:
        try:
            with create_private(place, "x", encoding="utf-8", errors="replace") as file:
                file.write(text)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"{place} cannot be written: {error.strerror or error}") from error
        return place.absolute()
    raise UsageError(f"{places[-1]} is there already; name another file: /export FILE")


# Words by which a person stops every change or wants to go on: `stop everything`, `pause`, `resume`. Pure.
#
# A line counts only as a whole. Where it names anything, as `stop job 12` does, it is another wish and goes to the agent, and so
# does
# every question about stopping.

POLITE = r"(?:please|pls|now|nightshift|ok|okay|quick|quickly|immediately|at once|right now|for now|hey)"
ALL_TOPICS = (
    r"(?:everything|all|it all|all of it|nightshift|"
    r"(?:all|any|every|the|your|its)?\s*(?:further |other |more |new |automatic |automated )*"
    r"(?:change|changes|action|actions|automation|changing(?: things| anything)?|acting|making changes)"
    r"(?: of yours)?|changing (?:things|anything)|acting)"
)
STOPS = r"(?:(?:an )?emergency(?: stop)?|stop|halt|pause|freeze|suspend|(?:hit |set |use )?(?:the )?kill switch|hands off)"
GOES_ON = (
    r"(?:resume|unpause|unfreeze|unstop|go on|carry on|continue|proceed|start again|un-?pause|end the (?:stop|pause)|"
    r"(?:lift|remove|clear|release|unset) (?:the )?(?:stop|pause|kill switch))"
)
_STOP = re.compile(rf"(?:{POLITE}[\s,]{{1,8}}+){{0,8}}{STOPS}(?:\s{{1,8}}{ALL_TOPICS})?(?:[\s,]{{1,8}}+{POLITE}){{0,8}}")
_GO_ON = re.compile(
    rf"(?:{POLITE}[\s,]{{1,8}}+){{0,8}}{GOES_ON}(?:\s{{1,8}}(?:with\s{{1,8}})?{ALL_TOPICS})?(?:[\s,]{{1,8}}+{POLITE}){{0,8}}"
)
LONGEST = 80
"""Characters of a line that may be such a wish."""


class StopWish(Enum):
    """What a person wants of the kill switch."""

    SET = auto()
    LIFT = auto()


def stop_wish(text: str) -> StopWish | None:
    """Return what a line wants of the kill switch; None where it is about something else."""
    line = " ".join(text.lower().split()).rstrip("!. ")
    if not line or len(line) > LONGEST:
        return None
    if _STOP.fullmatch(line):
        return StopWish.SET
    return StopWish.LIFT if _GO_ON.fullmatch(line) else None
