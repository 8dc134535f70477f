"""The chat as an application: screens on top of one another, and the desk that asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive

from assistant.content.playbooks import Playbook
from assistant.doors.chat import messages
from assistant.doors.chat.desk import Desk
from assistant.doors.chat.palette import PROVIDERS
from assistant.doors.chat.screens.approval import ApprovalScreen
from assistant.doors.chat.screens.keys import KeysScreen
from assistant.doors.chat.screens.main import MainScreen
from assistant.doors.chat.screens.playbook import PlaybookScreen
from assistant.doors.chat.seen import ClusterSeen, StoreSeen
from assistant.doors.chat.themes import DARK, LIGHT, THEMES
from assistant.doors.chat.widgets.conversation import Conversation
from assistant.doors.chat.widgets.prompt import Prompt
from assistant.doors.chat.widgets.status_bar import StatusBar
from assistant.records import Verdict

WIDE = 100
"""Columns from which on a screen has room for two things side by side."""
MakesDesk = Callable[[Callable[[Message], object]], Desk]


class ChatApp(App[int]):
    """`nightshift chat`."""

    TITLE = "Nightshift"
    COMMANDS = App.COMMANDS | PROVIDERS
    CSS_PATH = "chat.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (160, "-very-wide")]  # noqa: RUF012 - as Textual declares it
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (12, "-low"), (30, "-high")]  # noqa: RUF012 - as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", priority=True, show=False),
        Binding("f1", "keys", "Help"),
        Binding("question_mark", "keys", "Help", show=False),
        Binding("ctrl+t", "other_theme", "Light or dark", show=False),
    ]

    store_seen: reactive[StoreSeen | None] = reactive(None)
    cluster_seen: reactive[ClusterSeen | None] = reactive(None)

    def __init__(self, make_desk: MakesDesk, *, thread: str = "", theme: str = DARK.name) -> None:
        """Prepare the application.

        Args:
            make_desk: Gets the function that takes messages from any thread.
            thread: Name of the conversation.
            theme: With which it starts.
        """
        super().__init__()
        for one in THEMES:
            self.register_theme(one)
        self.theme = theme
        self.desk = make_desk(self.post_message)
        self._thread = thread
        self._questions = 0

    def on_mount(self) -> None:
        """Show the first screen, and wake what stands behind it when that is painted."""
        self.main = MainScreen()
        self.push_screen(self.main)
        self.call_after_refresh(self.desk.open, self._thread)

    def on_unmount(self) -> None:
        """Stop looking."""
        self.desk.close()

    def on_store_read(self, message: messages.StoreRead) -> None:
        """Show what the store says."""
        self.store_seen = message.seen
        self._status("trouble", "")

    def on_cluster_read(self, message: messages.ClusterRead) -> None:
        """Show what the scheduler says."""
        self.cluster_seen = message.seen

    def on_trouble(self, message: messages.Trouble) -> None:
        """Say what does not work; what was seen before stays on the screen."""
        if message.lane == "store":
            self._status("trouble", message.text)
        else:
            self.notify(message.text, title=message.lane, severity="error", timeout=15, markup=False)

    def on_engine_ready(self, message: messages.EngineReady) -> None:
        """Say how far Nightshift may go."""
        self._status("mode", message.mode)

    def on_agent_ready(self, message: messages.AgentReady) -> None:
        """Say who answers."""
        self._status("answers", message.mode)

    def _status(self, name: str, value: str) -> None:
        for bar in self.main.query(StatusBar):
            setattr(bar, name, value)

    def on_prompt_asked(self, message: Prompt.Asked) -> None:
        """Let the agent answer."""
        self._questions += 1
        self.main.query_one(Conversation).said(self._questions, message.text)
        self.desk.ask(self._questions, message.text)

    def on_looked(self, message: messages.Looked) -> None:
        """Show a reading call."""
        self.main.query_one(Conversation).looked(message.question, message.source)

    def on_drafted(self, message: messages.Drafted) -> None:
        """Show more of an answer."""
        self.main.query_one(Conversation).drafted(message.question, message.text)

    def on_answered(self, message: messages.Answered) -> None:
        """Show an answer."""
        self.main.query_one(Conversation).told(message.question, message.answer)

    def on_not_answered(self, message: messages.NotAnswered) -> None:
        """Say why there is no answer."""
        self.main.query_one(Conversation).failed(message.question, message.why)

    def on_settled(self, message: messages.Settled) -> None:
        """Say what came of an approval."""
        self.notify(message.text, severity="information" if message.won else "warning", markup=False)

    def on_open_approval(self, message: messages.OpenApproval) -> None:
        """Ask the person about a change."""
        seen = self.store_seen
        found = [one for one in seen.approvals if one.approval.id == message.approval] if seen is not None else []
        if not found:
            self.notify(f"Approval {message.approval} waits no more.", severity="warning")
            return

        def answered(answer: tuple[Verdict, str] | None) -> None:
            if answer is not None:
                self.desk.settle(message.approval, *answer)

        self.push_screen(ApprovalScreen(found[0], self.desk.now()), answered)

    def on_open_playbook(self, message: messages.OpenPlaybook) -> None:
        """Show a playbook."""
        self.push_screen(PlaybookScreen(self.playbooks()[message.name]))

    def playbooks(self) -> Mapping[str, Playbook]:
        """Return all playbooks by name; none before the engine stands."""
        return self.desk.playbooks

    def action_keys(self) -> None:
        """Show the keys of the screen that is open."""
        if not isinstance(self.screen, KeysScreen):
            self.push_screen(KeysScreen(self.screen))

    def action_other_theme(self) -> None:
        """Change between dark and light."""
        self.theme = LIGHT.name if self.theme != LIGHT.name else DARK.name

    def action_panel(self, name: str) -> None:
        """Go to a panel of the first screen."""
        while self.screen is not self.main and len(self.screen_stack) > 2:
            self.pop_screen()
        self.main.action_panel(name)
