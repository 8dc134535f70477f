"""The first screen, and the command palette.

The screen shows the conversation, and beside it what is wrong, what waits, what runs; narrow terminals show one at a time. The
palette finds incidents, approvals, jobs, nodes, playbooks and panels by any part of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
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
from textual.screen import Screen
from textual.widgets import Footer

from assistant.display import line
from assistant.tui.frame import StatusBar, panel_keys
from assistant.tui.messages import OpenApproval, OpenIncident, OpenJob, OpenNodes, OpenPlaybook
from assistant.tui.snapshot import StoreSnapshot
from assistant.tui.widgets.conversation import Conversation, Welcome
from assistant.tui.widgets.panels import ApprovalsPanel, HappenedPanel, IncidentsPanel, JobsPanel, NodesPanel, Panel
from assistant.tui.widgets.prompt import Completion, Prompt
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
