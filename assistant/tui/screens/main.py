"""The first screen: the conversation, and beside it what is wrong, what waits, what runs. Narrow terminals show one at a time."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Footer

from assistant.tui.screen_basics import panel_keys
from assistant.tui.snapshot import StoreSnapshot
from assistant.tui.widgets.conversation import Conversation, Welcome
from assistant.tui.widgets.panel import JobsPanel, NodesPanel, Panel
from assistant.tui.widgets.prompt import Completion, Prompt
from assistant.tui.widgets.record_panels import ApprovalsPanel, HappenedPanel, IncidentsPanel
from assistant.tui.widgets.status_bar import StatusBar

PANELS: tuple[type[Panel], ...] = (IncidentsPanel, ApprovalsPanel, HappenedPanel, JobsPanel, NodesPanel)


KEPT_KEYS = frozenset({"question_mark"})
"""Printable keys that mean the same outside the prompt wherever the focus is."""


class MainScreen(Screen[None]):
    """Conversation and sidebar."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *panel_keys(show=True),
        Binding("escape", "talk", "Talk", show=False),
    ]

    alone: reactive[str] = reactive("")
    """The panel that fills the screen; empty for none."""

    def __init__(self) -> None:
        super().__init__()
        self._waited = False

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield StatusBar(id="status")
        with Horizontal(id="middle"):
            with Vertical(id="talk"):
                yield Conversation(id="conversation")
                yield (completion := Completion(id="completion"))
                yield Prompt(completion, id="prompt")
            with VerticalScroll(id="sidebar", can_focus=False):
                for panel in PANELS:
                    yield panel()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Let the operator type at once."""
        self.query_one(Prompt).focus()
        self.watch(self.app, "store_snapshot", self._answered, init=False)

    def on_screen_resume(self) -> None:
        """Show what was read while another screen covered this one."""
        for widget in (*self.query(StatusBar), *self.query(Welcome), *self.query(Panel)):
            widget.look()

    def on_key(self, event: events.Key) -> None:
        """Hand letters that mean nothing where they were typed to the prompt: on a card nothing is answered by letters."""
        if not event.is_printable or event.character is None or event.key in KEPT_KEYS or self._means(event.key):
            return
        event.stop()
        event.prevent_default()
        self._to_prompt().insert(event.character)

    def on_paste(self, event: events.Paste) -> None:
        """Hand what is pasted anywhere to the prompt."""
        event.stop()
        self._to_prompt().take_paste(event.text)

    def _means(self, key: str) -> bool:
        """Tell whether a key means something to what has the focus, or to what holds it."""
        chain = self.focused.ancestors_with_self if self.focused is not None else []
        return any(key in node._bindings.key_to_bindings for node in chain if node is not self and node is not self.app)

    def _to_prompt(self) -> Prompt:
        self.action_talk()
        return self.query_one(Prompt)

    def _answered(self, snapshot: StoreSnapshot | None) -> None:
        """Go back to the conversation when the last question that filled the screen is answered."""
        if self.alone == ApprovalsPanel.NAME and snapshot is not None and not snapshot.approvals and self._waited:
            self.action_talk()
        self._waited = snapshot is not None and bool(snapshot.approvals)

    def action_panel(self, name: str) -> None:
        """Go to a panel; from there, or where there is no sidebar, let it fill the screen."""
        panel = self.query_one(f"#panel-{name}", Panel)
        if self.alone == name:
            self.action_talk()
            return
        if self.alone or self.has_class("-narrow") or panel.inner.has_focus or not panel.region.height:
            self.alone = name
        panel.inner.focus()

    def action_talk(self) -> None:
        """Go back to the conversation."""
        self.alone = ""
        self.query_one(Prompt).focus()

    def watch_alone(self) -> None:
        """Show one panel, or conversation and sidebar."""
        self.set_class(bool(self.alone), "-alone")
        for panel in self.query(Panel):
            panel.set_class(self.alone == panel.NAME, "-chosen")
