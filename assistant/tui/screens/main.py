"""The first screen, the command palette, and the screens that only show text: a report, a playbook, the keys and commands.

The screen shows the conversation, and beside it what is wrong, what waits, what runs; narrow terminals show one at a time. The
palette finds incidents, approvals, jobs, nodes, playbooks and panels by any part of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.fuzzy import Matcher
from textual.markup import escape
from textual.reactive import reactive
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, Markdown, Static

from assistant.content.playbooks import Playbook, Step, Verify
from assistant.display import block, file_stem, line
from assistant.private_files import create_private
from assistant.tui.frame import StatusBar, panel_keys
from assistant.tui.messages import OpenApproval, OpenIncident, OpenJob, OpenNodes, OpenPlaybook
from assistant.tui.snapshot import StoreSnapshot
from assistant.tui.widgets.conversation import Conversation, Prompt, Welcome
from assistant.tui.widgets.happened import HappenedPanel
from assistant.tui.widgets.panels import ApprovalsPanel, IncidentsPanel, JobsPanel, NodesPanel, Panel
from assistant.tui.widgets.tables import Completion
from assistant.tui.words import about, short

if TYPE_CHECKING:
    from textual.message import Message

    from assistant.tui.app import ChatApp

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


MOST = 40
"""Hits of one kind."""


class Find(NamedTuple):
    """An entry of the palette that can be opened."""

    text: str
    help: str
    open: Callable[[], object]


def _discovered(find: Find) -> DiscoveryHit:
    # the palette parses texts and helps as markup
    return DiscoveryHit(Text(line(find.text)), find.open, find.text, escape(line(find.help)))


def _highlighted(matcher: Matcher, text: str) -> Content:
    """Return a text with what matches in the style of the palette; `Matcher.highlight` would parse the text as markup."""
    content = Content(line(text))
    score, places = matcher.fuzzy_search.match(matcher.query, content.plain)
    for place in places if score else ():
        content = content.stylize(matcher.match_style, place, place + 1)
    return content


class Records(Provider):
    """Finds records of one kind among what is seen now."""

    def finds(self, chat: ChatApp) -> Iterator[Find]:
        """Yield everything that can be found."""
        raise NotImplementedError

    async def search(self, query: str) -> Hits:
        """Yield what fits a query, the best first."""
        matcher = self.matcher(query)
        scored = ((matcher.match(find.text), find) for find in self.finds(cast("ChatApp", self.app)))
        best = sorted(((score, find) for score, find in scored if score > 0), key=lambda pair: -pair[0])
        for score, find in best[:MOST]:
            yield Hit(score, _highlighted(matcher, find.text), find.open, find.text, escape(line(find.help)))

    def _post(self, message: Message) -> Callable[[], object]:
        return partial(self.app.post_message, message)


class Incidents(Records):
    """Incidents."""

    def finds(self, chat: ChatApp) -> Iterator[Find]:
        """Yield the incidents, those that need somebody first."""
        for row in chat.store_snapshot.incidents if chat.store_snapshot else ():
            text = f"incident {row.incident.id} {about(row.incident)} {row.reason or row.incident.kind}"
            yield Find(text, str(row.incident.state), self._post(OpenIncident(row.incident.id)))

    async def discover(self) -> Hits:
        """Yield what is unfinished, before anything is typed."""
        chat = cast("ChatApp", self.app)
        for find, entry in zip(self.finds(chat), chat.store_snapshot.incidents if chat.store_snapshot else (), strict=False):
            if not entry.incident.state.ended:
                yield _discovered(find)


class Approvals(Records):
    """What waits for a person."""

    def finds(self, chat: ChatApp) -> Iterator[Find]:
        """Yield what waits."""
        for approval_entry in chat.store_snapshot.approvals if chat.store_snapshot else ():
            change = short(approval_entry.call.preview or approval_entry.call.tool, 90)
            yield Find(
                f"approval {approval_entry.approval.id}: {change}",
                approval_entry.call.why,
                self._post(OpenApproval(approval_entry.approval.id)),
            )

    async def discover(self) -> Hits:
        """Yield all of it, before anything is typed."""
        for find in self.finds(cast("ChatApp", self.app)):
            yield _discovered(find)


class Jobs(Records):
    """Jobs."""

    def finds(self, chat: ChatApp) -> Iterator[Find]:
        """Yield the jobs, the newest first."""
        for job in reversed(chat.cluster_snapshot.jobs if chat.cluster_snapshot else ()):
            yield Find(f"job {job.id} {short(job.name, 60)}", f"{job.state}, {job.user}", self._post(OpenJob(job.id)))


class Nodes(Records):
    """Nodes."""

    def finds(self, chat: ChatApp) -> Iterator[Find]:
        """Yield the nodes."""
        for node in chat.cluster_snapshot.nodes if chat.cluster_snapshot else ():
            yield Find(f"node {node.name}", f"{node.state} {short(node.reason, 60)}".rstrip(), self._post(OpenNodes(node.name)))


class Playbooks(Records):
    """Playbooks."""

    def finds(self, chat: ChatApp) -> Iterator[Find]:
        """Yield the playbooks."""
        for playbook in chat.playbooks().values():
            yield Find(f"playbook {playbook.name}", playbook.title, self._post(OpenPlaybook(playbook.name)))


class Panels(Records):
    """The panels of the first screen."""

    def finds(self, chat: ChatApp) -> Iterator[Find]:
        """Yield the panels of the first screen."""
        for panel in PANELS:
            yield Find(f"show {panel.TITLE.lower()}", "", partial(chat.action_panel, panel.NAME))


PROVIDERS: frozenset[type[Provider]] = frozenset({Incidents, Approvals, Jobs, Nodes, Playbooks, Panels})


class ReportScreen(Screen[None]):
    """A report."""

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
    ("enter", "open what is under the cursor"),
    ("esc", "back"),
    ("ctrl+p", "find a command, an incident, a job, a node or a playbook by name"),
    ("ctrl+t", "light or dark"),
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
