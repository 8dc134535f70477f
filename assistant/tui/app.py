"""The chat as an application: screens on top of one another, and their backend."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Button

from assistant.agent.answer import MOST_CHARACTERS
from assistant.config import ChatSettings
from assistant.content.playbooks import Playbook
from assistant.display import line, removed
from assistant.errors import NightshiftError
from assistant.process_memory import PAUSE_S, Garbage
from assistant.tui import messages
from assistant.tui.backend import ChatBackend
from assistant.tui.first_line import overall_state
from assistant.tui.frame import DARK, LIGHT, THEMES, KillSwitchBanner, StatusBar
from assistant.tui.news_feed import SAVE_S, NewsFeed
from assistant.tui.outside_programs import edited_text, page_files, page_text
from assistant.tui.screens.changes import ApprovalAnswer, ApprovalScreen
from assistant.tui.screens.consent import ConsentScreen, ask_on_screen
from assistant.tui.screens.main import KeysScreen, MainScreen, PlaybookScreen
from assistant.tui.screens.palette import PROVIDERS
from assistant.tui.sessions import Talks
from assistant.tui.snapshot import ClusterSnapshot, KillSwitchSnapshot, StoreSnapshot
from assistant.tui.store_reading import read_store
from assistant.tui.talk import Talk
from assistant.tui.terminal import TerminalSignals, title_of
from assistant.tui.widgets.filtering import FilteredList
from assistant.tui.widgets.prompt import Prompt
from assistant.tui.widgets.rows import Rows
from assistant.tui.widgets.tables import Completion

if TYPE_CHECKING:
    from assistant.tui.widgets.exchange import Options, ProposalCard

WIDE = 100
"""Columns from which on a screen has room for two things side by side."""
LACKS_A_NAME = re.compile(r"\b(?:JOB|NODE|ID)\b|\.\.\.")
"""What stands in a reading that is offered, where a name is to be put."""
OutsideResult = TypeVar("OutsideResult")
BackendFactory = Callable[[Callable[[Message], object]], ChatBackend]


class ChatApp(App[int]):
    """`nightshift chat`."""

    TITLE = "Nightshift"
    COMMANDS = App.COMMANDS | PROVIDERS
    CSS_PATH = ["chat.tcss", "talk.tcss", "incident.tcss"]  # noqa: RUF012 - as Textual declares it
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (160, "-very-wide")]  # noqa: RUF012 - as Textual declares it
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (12, "-low"), (30, "-high")]  # noqa: RUF012 - as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", priority=True, show=False),
        Binding("f1", "keys", "Help"),
        Binding("question_mark", "keys", "Help", show=False),
        Binding("ctrl+t", "other_theme", "Light or dark", show=False),
        Binding("ctrl+z", "suspend_process", "Suspend, as in a shell", show=False),
        Binding("ctrl+o", "pager", "Read in $PAGER", show=False),
    ]

    # whoever shows them watches them: without `repaint=False` the whole screen is drawn anew for each look
    store_snapshot: reactive[StoreSnapshot | None] = reactive(None, repaint=False)
    cluster_snapshot: reactive[ClusterSnapshot | None] = reactive(None, repaint=False)
    kill_switch: reactive[KillSwitchSnapshot | None] = reactive(None, repaint=False)
    """The file that stops every change; None while none is set."""
    store_trouble: reactive[str] = reactive("", repaint=False)
    """Why the store cannot be read now; empty while it can."""
    store_looked_at: datetime | None = None
    """When the lane of the store last looked; None before the first look."""

    def __init__(
        self,
        make_backend: BackendFactory,
        *,
        thread: str = "",
        theme: str = DARK.name,
        talks: Talks | None = None,
        garbage: Garbage | None = None,
        settings: ChatSettings | None = None,
    ) -> None:
        """Prepare the application.

        Args:
            make_backend: Gets the function that takes messages from any thread.
            thread: Name of the conversation.
            theme: With which it starts.
            talks: Where conversations are kept; None keeps none.
            garbage: Looks for garbage while nobody types; without it Python does when it likes.
            settings: How it calls a person; None for the defaults.
        """
        super().__init__()
        for scheme in THEMES:
            self.register_theme(scheme)
        self.theme = theme
        self.backend = make_backend(self.post_message)
        self._thread = thread
        self.mode = ""
        """Of the policy; empty before the engine stands."""
        self.talk = Talk(self, thread, talks)
        self._garbage = garbage
        self._signals = TerminalSignals(settings or ChatSettings(), self._tell_terminal)
        self.news = NewsFeed(self.talk, self.backend.now, self._signals.alarm)

    def on_mount(self) -> None:
        """Show the first screen, and wake what stands behind it when that is painted."""
        self.screen_change_signal.subscribe(self, self._show_kill_switch_on)
        self.main = MainScreen()
        self.push_screen(self.main)
        self.call_after_refresh(self.backend.open, self._thread)
        self.call_after_refresh(self.talk.open)
        if self._garbage is not None:
            self._garbage.take_over()
            self.set_interval(PAUSE_S / 2, self._garbage.look_if_quiet)
        self.set_interval(SAVE_S, self.news.save)

    def on_unmount(self) -> None:
        """Stop looking."""
        self.backend.close()
        self.news.save()
        self.talk.close()

    async def on_event(self, event: events.Event) -> None:
        """Note that a person is at the keyboard."""
        if isinstance(event, events.InputEvent):
            self.news.touched()
            if self._garbage is not None:
                self._garbage.touched()
        if isinstance(event, (events.Key, events.Paste)) and not event.is_forwarded and not self._admits(event):
            return
        await super().on_event(event)

    def _admits(self, event: events.Event) -> bool:
        """Let a dialog that leads to a change decide which keys and pastes it gets; of clicks it does so itself."""
        dialog = self.screen_stack[-1] if self.screen_stack else None
        return not isinstance(dialog, ConsentScreen) or dialog.admit(event)

    def _show_kill_switch_on(self, screen: Screen[Any]) -> None:
        """Put the line about the kill switch on a screen that comes to the top for the first time."""

        def mount() -> None:
            if screen.is_attached and not screen.query(KillSwitchBanner):
                screen.mount(KillSwitchBanner())

        screen.call_later(mount)

    def _tell_terminal(self, sequence: str) -> None:
        if self._driver is not None and self._running:
            self._driver.write(sequence)

    def _look_at_title(self) -> None:
        """Say the state in the title of the terminal."""
        self._signals.show(title_of(overall_state(self, self.backend.now(), self.backend.gap)))

    def on_store_read(self, message: messages.StoreRead) -> None:
        """Show what the store says."""
        self._saw(message.snapshot)
        self._trouble("")

    def _trouble(self, text: str) -> None:
        """Say that the store cannot be read, or that it can again."""
        self.store_trouble = text
        self._status("trouble", text)
        self._look_at_title()

    def _saw(self, snapshot: StoreSnapshot) -> None:
        """Take what was read of the store, unless something younger was taken: two threads read it."""
        if self.store_snapshot is None or snapshot.at >= self.store_snapshot.at:
            self.store_snapshot = snapshot
            self.news.look(snapshot)

    def on_kill_switch_read(self, message: messages.KillSwitchRead) -> None:
        """Show whether everything is stopped."""
        self.kill_switch = message.snapshot
        self.store_looked_at = self.backend.now()
        self._look_at_title()

    def on_cluster_read(self, message: messages.ClusterRead) -> None:
        """Show what the scheduler says."""
        self.cluster_snapshot = message.snapshot
        self._look_at_title()

    def on_chat_trouble(self, message: messages.ChatTrouble) -> None:
        """Say what does not work; what was seen before stays on the screen."""
        if message.lane == "store":
            self._trouble(message.text)
        else:
            self.notify(line(message.text), title=message.lane, severity="error", timeout=15, markup=False)

    def on_engine_ready(self, message: messages.EngineReady) -> None:
        """Say how far Nightshift may go."""
        self.mode = message.mode
        self._status("mode", message.mode)

    def on_agent_ready(self, message: messages.AgentReady) -> None:
        """Say who answers."""
        self._status("answers", message.mode)
        self.talk.answers_are(message.mode)
        if self._garbage is not None:
            self._garbage.look()  # what was loaded stays

    def _status(self, name: str, value: str) -> None:
        for bar in self.main.query(StatusBar):
            setattr(bar, name, value)

    def on_prompt_submitted(self, message: Prompt.Submitted) -> None:
        """Give the text of the prompt to the conversation."""
        self.talk.typed(message.text)

    def on_prompt_too_long(self, message: Prompt.TooLong) -> None:
        """Say what to do with a log."""
        self.notify(
            f"{message.size:,} characters; a question has {MOST_CHARACTERS:,} at most. For a log: nightshift diagnose FILE",
            title="Too long",
            severity="warning",
            timeout=10,
            markup=False,
        )

    def on_prompt_stopped(self) -> None:
        """Wait no longer."""
        self.action_help_quit()

    def on_completion_offer_clicked(self, message: Completion.OfferClicked) -> None:
        """Put a way to go on, that was clicked, into the prompt."""
        self.main.query_one(Prompt).fill(message.offer.line)

    def on_filtered_list_command_typed(self, message: FilteredList.CommandTyped) -> None:
        """Put a command that was typed in a list into the prompt: Enter there runs it."""
        self.action_talk()
        self.main.query_one(Prompt).fill(message.line)

    def on_rows_whole_wanted(self, message: Rows.WholeWanted) -> None:
        """Show a row whole."""
        from assistant.tui.screens.text import TextScreen

        self.push_screen(TextScreen(message.text, title="The whole row"))

    def on_options_option_clicked(self, message: Options.OptionClicked) -> None:
        """Say what was clicked; where a name is still missing in it, let the person put it in."""
        if LACKS_A_NAME.search(message.text):
            self.main.query_one(Prompt).fill(message.text)
        else:
            self.talk.ask(message.text)  # what a model offers is a question at most, never a command

    def on_proposal_card_refuse(self, message: ProposalCard.Refuse) -> None:
        """Let the person say why."""
        self.main.query_one(Prompt).fill(f"/deny {message.approval} ")

    async def on_source_read(self, message: messages.SourceRead) -> None:
        """Show a reading call."""
        await self.talk.show_call(message)

    async def on_drafted(self, message: messages.Drafted) -> None:
        """Show more of an answer."""
        await self.talk.drafted(message.question, message.text)

    async def on_answered(self, message: messages.Answered) -> None:
        """Show an answer."""
        await self.talk.answered(message.question, message.answer)
        self.news.go_on()

    async def on_not_answered(self, message: messages.NotAnswered) -> None:
        """Say why there is no answer."""
        await self.talk.failed(message.question, message.why)
        self.news.go_on()

    async def on_noted(self, message: messages.Noted) -> None:
        """Show the result of a command."""
        await self.talk.noted(message.question, message.text)

    async def on_resumed(self, message: messages.Resumed) -> None:
        """Show another conversation."""
        await self.talk.resumed(message)

    def on_last_use_read(self, message: messages.LastUseRead) -> None:
        """Announce what happens from here on, and what happened while nobody was there."""
        self.news.open(message.last_use)

    def on_typed(self, message: messages.Typed) -> None:
        """Let the prompt know what was typed before."""
        for prompt in self.main.query(Prompt):
            prompt.remember(message.lines)

    def on_approval_settled(self, message: messages.ApprovalSettled) -> None:
        """Say how an approval was settled."""
        self.notify(line(message.text), severity="information" if message.won else "warning", markup=False)
        if not message.waits:
            self.talk.settled(message.approval, message.text)

    def on_open_approval(self, message: messages.OpenApproval) -> None:
        """Ask the person about a change."""
        if isinstance(self.screen, ConsentScreen):  # a second Enter or click: what is open stays
            return
        if not self._asks(message.approval):  # it may be younger than what was read last
            ask_on_screen = self.screen
            self.backend.read(
                f"approval {message.approval}",
                lambda engine: read_store(engine.store, self.backend.now(), engine.gate.in_force.look()),
                lambda snapshot: messages.ApprovalLookedFor(message.approval, snapshot, ask_on_screen),
            )

    def on_approval_looked_for(self, message: messages.ApprovalLookedFor) -> None:
        """Ask, or say that nothing waits."""
        self._saw(message.snapshot)
        if self.screen is not message.asked_on:
            text = f"Approval {message.approval} was looked at; ask there again to see it."
            self.notify(line(text), timeout=10, markup=False)
        elif not self._asks(message.approval):
            self.notify(line(f"Approval {message.approval} waits no more."), severity="warning", markup=False)

    def _asks(self, approval: int) -> bool:
        """Ask about an approval that waits as far as is known; tell whether it does."""
        snapshot = self.store_snapshot
        waiting = (
            next((approval_entry for approval_entry in snapshot.approvals if approval_entry.approval.id == approval), None)
            if snapshot is not None
            else None
        )

        def answered(answer: ApprovalAnswer | None) -> None:
            if answer is not None:
                self.backend.settle(approval, answer.verdict, answer.why, snapshot=answer.snapshot)

        if waiting is not None:
            self._focus_prompt()
            self.push_screen(ApprovalScreen(waiting, self.backend.now(), mode=self.mode), answered)
        return waiting is not None

    def _focus_prompt(self) -> None:
        """Take the focus from a button before its dialog opens: what is typed after the dialog is meant for the conversation."""
        if self.main.focused is None or isinstance(self.main.focused, Button):
            self.main.query_one(Prompt).focus()

    def on_ask_recovery(self, message: messages.AskRecovery) -> None:
        """Ask the person whether a playbook may begin."""
        from assistant.tui.screens.changes import RecoveryScreen

        self._ask_person(RecoveryScreen(message.snapshot), message.then)

    def on_ask_undo(self, message: messages.AskUndo) -> None:
        """Ask the person whether a change is taken back."""
        from assistant.tui.screens.changes import UndoScreen

        self._ask_person(UndoScreen(message.snapshot), message.then)

    def on_ask_lift(self, message: messages.AskLift) -> None:
        """Ask the person whether the kill switch is lifted."""
        from assistant.tui.screens.changes import LiftScreen

        self._ask_person(LiftScreen(message.snapshot), message.then)

    def _ask_person(self, question: ConsentScreen[bool], on_answer: Callable[[bool], None]) -> None:
        """Ask on the conversation's screen, or say where to ask again."""
        self._focus_prompt()
        if not ask_on_screen(self.main, question, lambda yes: on_answer(bool(yes))):
            self.notify("What you asked for in the conversation was looked at; ask there again to see it.", timeout=10)
            on_answer(False)

    def on_deliver(self, message: messages.Deliver) -> None:
        """Hand over what was read for a screen, if it is still there."""
        if message.to.is_attached:
            message.to.post_message(message.message)

    def on_action_report(self, message: messages.ActionReport) -> None:
        """Say what came of what the person asked for."""
        self.notify(line(message.text), severity="information" if message.ok else "error", timeout=10, markup=False)

    def on_open_incident(self, message: messages.OpenIncident) -> None:
        """Show an incident."""
        from assistant.tui.screens.incident import IncidentScreen

        self.push_screen(IncidentScreen(message.incident))

    def on_open_job(self, message: messages.OpenJob) -> None:
        """Show a job."""
        from assistant.tui.screens.records import JobScreen

        self.push_screen(JobScreen(message.job))

    def on_open_nodes(self, message: messages.OpenNodes) -> None:
        """Show a node or a set of them."""
        from assistant.tui.screens.records import NodesScreen

        try:
            self.push_screen(NodesScreen(message.nodes))
        except NightshiftError as error:
            self.notify(line(str(error)), severity="warning", markup=False)

    def on_open_playbook(self, message: messages.OpenPlaybook) -> None:
        """Show a playbook."""
        self.push_screen(PlaybookScreen(self.playbooks()[message.name]))

    def playbooks(self) -> Mapping[str, Playbook]:
        """Return all playbooks by name; none before the engine stands."""
        return self.backend.playbooks

    def action_help_quit(self) -> None:
        """Wait no longer for an answer; when none is awaited, say how one leaves."""
        if not self.talk.stop():
            self.notify("Ctrl+Q leaves; what runs goes on.", timeout=4)

    def action_keys(self) -> None:
        """Show the keys of the screen that is open."""
        if not isinstance(self.screen, KeysScreen):
            self.push_screen(KeysScreen(self.screen))

    def action_suspend_process(self) -> None:
        """Go into the background, as a program of a shell does; `fg` brings the chat back."""
        if self._driver is not None and self._driver.can_suspend:
            super().action_suspend_process()
        else:
            self.notify("This terminal cannot be suspended.", severity="warning")

    def on_prompt_editor_wanted(self) -> None:
        """Let the person write a long question in their editor; Enter in the prompt hands it over."""
        prompt = self.main.query_one(Prompt)
        text = self._outside(lambda: edited_text(self, prompt.text))
        if text is not None and len(text) > MOST_CHARACTERS:
            self.on_prompt_too_long(Prompt.TooLong(len(text)))
        elif text is not None:
            prompt.fill(removed(text))

    def action_pager(self) -> None:
        """Read in the person's pager: the log, report or text that is open, else the newest answer."""
        from assistant.tui.logs.view import LogView
        from assistant.tui.screens.log import LogScreen
        from assistant.tui.screens.main import ReportScreen
        from assistant.tui.screens.text import TextScreen

        screen = self.screen
        if isinstance(screen, LogScreen):
            sources = screen.query_one(LogView).state.sources
            self._outside(lambda: page_files(self, sources))
        elif isinstance(screen, (ReportScreen, TextScreen)):
            self._outside(lambda: page_text(self, screen.text, "text"))
        elif screen is self.main and (text := self.talk.newest_text):
            self._outside(lambda: page_text(self, text, "answer"))
        else:
            self.notify("Nothing here is a text: open a log, a report or a row.", severity="warning")

    def _outside(self, work: Callable[[], OutsideResult]) -> OutsideResult | None:
        """Do something in another program of this terminal; say why where it cannot be."""
        try:
            return work()
        except NightshiftError as error:
            self.notify(line(str(error)), severity="warning", markup=False)
        return None

    def action_other_theme(self) -> None:
        """Change between dark and light."""
        self.theme = LIGHT.name if self.theme != LIGHT.name else DARK.name

    def action_panel(self, name: str) -> None:
        """Go to a panel of the first screen."""
        self._to_main()
        self.main.action_panel(name)

    def action_talk(self) -> None:
        """Go to the conversation."""
        self._to_main()
        self.main.action_talk()

    def _to_main(self) -> None:
        while self.screen is not self.main and len(self.screen_stack) > 2:
            self.pop_screen()
