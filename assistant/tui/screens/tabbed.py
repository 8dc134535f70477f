"""A screen about one thing: a head of facts, below it tabs; very wide terminals show two of them side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, Static, Tab, Tabs

from assistant.display import line
from assistant.errors import NightshiftError
from assistant.tui.messages import Deliver
from assistant.tui.screen_basics import panel_keys

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.tui.backend import ChatBackend
    from assistant.tui.citations import CitedPlace
    from assistant.tui.widgets.curves_view import CurvesView

ReadResult = TypeVar("ReadResult")


class NotThere(Message):
    """What should be shown cannot be."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


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
