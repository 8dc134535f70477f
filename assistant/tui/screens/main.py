"""The first screen, and the screens that only show text: a report, a playbook, the keys and commands.

The first screen shows the conversation, and beside it what is wrong, what waits, what runs; narrow terminals show one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.reactive import reactive
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, Static

from assistant.content.playbooks import Playbook, Step, Verify
from assistant.display import block, file_stem, line
from assistant.private_files import create_private
from assistant.tui.frame import StatusBar, panel_keys
from assistant.tui.snapshot import StoreSnapshot
from assistant.tui.widgets.conversation import Conversation, Welcome
from assistant.tui.widgets.happened import HappenedPanel
from assistant.tui.widgets.news import NewsView
from assistant.tui.widgets.node_list import NodeList
from assistant.tui.widgets.panels import ApprovalsPanel, IncidentsPanel, JobsPanel, Panel
from assistant.tui.widgets.prompt import Prompt
from assistant.tui.widgets.tables import Completion
from assistant.tui.widgets.whole_rows import leads_to_incident, whole_row

if TYPE_CHECKING:
    from assistant.tui.app import ChatApp

PANELS: tuple[type[Panel], ...] = (IncidentsPanel, ApprovalsPanel, HappenedPanel, JobsPanel, NodeList)


KEPT_KEYS = frozenset({"question_mark"})
"""Printable keys that mean the same outside the prompt wherever the focus is."""


SENTENCE_S = 0.5
"""Seconds within which one key of a sentence follows the other."""
MOST_FIRST = 3
"""Letters of a list that may be the beginning of a sentence."""


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
        self._list_keys: list[str] = []
        """Letters that a list took just now, in case they are the beginning of a sentence."""
        self._key_at = 0.0

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
        chat = cast("ChatApp", self.app)
        for panel in self.query(Panel):
            panel.table.whole_of = partial(self._whole, panel.NAME)
        self.query_one(HappenedPanel).table.leads_somewhere = lambda key: leads_to_incident(key, chat.store_snapshot)

    def _whole(self, panel: str, key: str) -> str:
        chat = cast("ChatApp", self.app)
        return whole_row(panel, key, chat.store_snapshot, chat.cluster_snapshot)

    def on_screen_resume(self) -> None:
        """Show what was read while another screen covered this one."""
        for widget in (*self.query(StatusBar), *self.query(Welcome), *self.query(Panel), *self.query(NewsView)):
            widget.look()

    def on_key(self, event: events.Key) -> None:
        """Hand letters that mean nothing where they were typed to the prompt: on a card nothing is answered by letters.

        A sentence that begins with a letter of a list is whole: `stop everything` does not lose its `s` to the sorting.
        """
        if not event.is_printable or event.character is None or event.key in KEPT_KEYS:
            self._list_keys = []
            return
        if event.time - self._key_at > SENTENCE_S:
            self._list_keys = []
        self._key_at = event.time
        if self._means(event.key):
            self._list_keys.append(event.character)
            return
        first, self._list_keys = self._list_keys, []
        event.stop()
        event.prevent_default()
        # who holds a key down, or goes up and down for long, moves in the list
        sentence = "".join(first) if len(first) <= MOST_FIRST and len(set(first)) == len(first) else ""
        self._to_prompt().insert(f"{sentence}{event.character}")

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


class ReportScreen(Screen[None]):
    """Show the report of an incident."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Back"),
        Binding("x", "export", "Write to a file"),
        Binding("y", "copy", "Copy"),
        Binding("j,down", "scroll('down')", show=False),
        Binding("k,up", "scroll('up')", show=False),
        Binding("g,home", "scroll('home')", show=False),
        Binding("G,end", "scroll('end')", show=False),
        Binding("ctrl+d,pagedown,space", "scroll('page_down')", show=False),
        Binding("ctrl+u,pageup", "scroll('page_up')", show=False),
    ]

    def __init__(self, text: str, *, name: str, export: bool = False) -> None:
        """Prepare the page.

        Args:
            text: Markdown.
            name: Of the file that is proposed, without its ending.
            export: Whether to ask for the file at once.
        """
        super().__init__()
        self.text, self._file = block(text), f"{file_stem(name)}.md"
        self._at_once = export

    def compose(self) -> ComposeResult:
        """Lay out the page."""
        from textual.widgets import Markdown

        yield Input(id="report-path")
        with VerticalScroll(id="report", can_focus=True):
            yield Markdown(self.text, open_links=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Let it be read, or be written at once."""
        self.query_one("#report").focus()
        if self._at_once:
            self.action_export()

    def action_export(self) -> None:
        """Ask for the file."""
        path = self.query_one("#report-path", Input)
        path.add_class("-asked")
        path.border_title = "Write the report to"
        path.value = str(_free(Path.cwd() / self._file))
        path.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Write it; what is there already is not written over."""
        path = Path(event.value.strip()).expanduser()
        try:
            with create_private(path, "x", encoding="utf-8") as file:
                file.write(self.text)
        except (OSError, ValueError) as error:
            why = "it exists already" if isinstance(error, FileExistsError) else getattr(error, "strerror", "") or str(error)
            self.notify(line(f"{path} was not written: {why}."), severity="error", markup=False)
            return
        self.notify(line(f"Written: {path}"), markup=False)
        self._close_input()

    def action_copy(self) -> None:
        """Copy it to the clipboard of the terminal."""
        self.app.copy_to_clipboard(self.text)
        self.notify("Copied, where the terminal allows it.")

    def action_leave(self) -> None:
        """Close the question for the file, else the page."""
        if self.query_one("#report-path").has_class("-asked"):
            self._close_input()
        else:
            self.dismiss(None)

    def action_scroll(self, direction: str) -> None:
        """Scroll."""
        getattr(self.query_one("#report", VerticalScroll), f"scroll_{direction}")(animate=False)

    def _close_input(self) -> None:
        self.query_one("#report-path").remove_class("-asked")
        self.query_one("#report").focus()


def _free(path: Path) -> Path:
    """Return a path that does not exist: the given one, or with a number."""
    number, candidate = 2, path
    while candidate.exists():
        candidate = path.with_stem(f"{path.stem}-{number}")
        number += 1
    return candidate


# All keys of the screen below, and the commands of the chat.

GENERAL = (
    ("tab, shift+tab", "to the next part of the screen, and back"),
    ("j k g G ctrl+d ctrl+u", "move in lists, as in vi"),
    ("/ s y", "in lists: filter by what is typed, sort by the next column, copy the row"),
    ("enter", "open what is under the cursor"),
    ("esc", "back"),
    ("ctrl+p", "find a command, an incident, a job, a node or a playbook by name"),
    ("tab, ctrl+r, ctrl+g", "in the prompt: complete a name, search what was typed, write in $EDITOR"),
    ("ctrl+o", "read what is open in $PAGER"),
    ("ctrl+t", "light or dark"),
    ("ctrl+z", "suspend, as in a shell"),
    ("ctrl+q", "leave; what runs goes on"),
)
"""What holds everywhere."""


class KeysScreen(ModalScreen[None]):
    """A list of keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,question_mark", "dismiss", "Back"),
        Binding("j", "scroll('down')", show=False),
        Binding("k", "scroll('up')", show=False),
    ]

    def __init__(self, screen: Screen[object]) -> None:
        super().__init__()
        self._below = screen

    def compose(self) -> ComposeResult:
        """Lay out the list."""
        with VerticalScroll(id="keys") as box:
            box.border_title = "Keys"
            yield Static(Content("\n").join(_lines("Here", _keys_of(self._below))))
            yield Static(Content("\n").join(_lines("Everywhere", GENERAL)))
            yield Static(Content("\n").join(_lines("Commands", _commands())))

    def action_scroll(self, direction: str) -> None:
        """Scroll the list."""
        box = self.query_one("#keys", VerticalScroll)
        (box.scroll_down if direction == "down" else box.scroll_up)()


def _keys_of(screen: Screen[object]) -> list[tuple[str, str]]:
    """Return the keys that work on a screen now, each with what it does."""
    keys_by_description = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if binding.description and binding.show:
            keys_by_description[binding.description] = screen.app.get_key_display(binding)
    return [(key, description) for description, key in keys_by_description.items()]


def _commands() -> Iterator[tuple[str, str]]:
    from assistant.tui.commands import COMMANDS

    for command in COMMANDS:
        yield f"/{command.name} {command.arguments}".rstrip(), command.help


def _lines(title: str, pairs: object) -> Iterator[Content]:
    yield Content.styled(line(title), "bold $accent")
    for key, description in pairs:  # type: ignore[attr-defined]
        yield Content.styled(line(f"  {key:<26}"), "$primary") + Content(line(description))
    yield Content("")


# A playbook as it is written: what it is for, its steps, how it verifies, when it gives up.


class PlaybookScreen(Screen[None]):
    """Shows one playbook."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Back"),
        Binding("j", "scroll('down')", show=False),
        Binding("k", "scroll('up')", show=False),
    ]

    def __init__(self, playbook: Playbook) -> None:
        super().__init__()
        self.playbook = playbook

    def compose(self) -> ComposeResult:
        """Lay out the steps."""
        with VerticalScroll(id="playbook") as box:
            box.border_title = Content(line(self.playbook.name))
            yield Static(Content("\n").join(_playbook_lines(self.playbook)))
        yield Footer(show_command_palette=False)

    def action_scroll(self, direction: str) -> None:
        """Scroll."""
        box = self.query_one("#playbook", VerticalScroll)
        (box.scroll_down if direction == "down" else box.scroll_up)()


def _playbook_lines(book: Playbook) -> Iterator[Content]:
    yield Content.styled(line(book.title), "bold")
    yield _pair("handles", ", ".join((*book.handles, *map(str, book.actions))))
    yield _pair("limits", f"{book.limits.attempts} restarts for one cause within {book.limits.within_h:g} h, then a person is told")
    yield _pair("ends", str(book.ends))
    yield Content("")
    for number, step in enumerate(book.step, 1):
        yield from _step(f"{number:>2}. ", step)
    for check in book.verify:
        yield from _step(" ✓  ", check)


def _step(lead: str, step: Step | Verify) -> Iterator[Content]:
    yield (
        Content.styled(line(lead), "$accent") + Content.styled(line(step.name or step.use), "bold") + Content(line(f"  {step.use}"))
    )
    if step.why:
        yield _pair("why", step.why)
    for name, value in step.with_.items():
        yield _pair(name, str(value))
    terms = {"when": step.when, "unless": " or ".join(getattr(step, "unless", ())), "each": getattr(step, "each", "")}
    conditions = [f"{word} {text}" for word, text in terms.items() if text]
    if conditions:
        yield _pair("only", ", ".join(conditions))
    if step.expect:
        yield _pair("until", f"status is {step.expect}, within {step.within_min:g} min")
    yield Content("")


def _pair(name: str, text: str) -> Content:
    return Content.styled(line(f"    {name:<9}"), "$text-muted") + Content(line(text))
