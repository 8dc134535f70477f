"""What the command palette finds by any part of its name: incidents, approvals, jobs, nodes, playbooks, panels, commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from rich.text import Text
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.fuzzy import Matcher
from textual.markup import escape

from assistant.display import line
from assistant.tui.commands import COMMANDS
from assistant.tui.messages import OpenApproval, OpenIncident, OpenJob, OpenNodes, OpenPlaybook
from assistant.tui.screens.main import PANELS
from assistant.tui.widgets.prompt import Prompt
from assistant.tui.words import about, short

if TYPE_CHECKING:
    from textual.message import Message

    from assistant.tui.app import ChatApp

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
    """Offer incidents in the palette."""

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
    """Offer jobs in the palette."""

    def finds(self, chat: ChatApp) -> Iterator[Find]:
        """Yield the jobs, the newest first."""
        for job in reversed(chat.cluster_snapshot.jobs if chat.cluster_snapshot else ()):
            yield Find(f"job {job.id} {short(job.name, 60)}", f"{job.state}, {job.user}", self._post(OpenJob(job.id)))


class Nodes(Records):
    """Offer nodes in the palette."""

    def finds(self, chat: ChatApp) -> Iterator[Find]:
        """Yield the nodes."""
        for node in chat.cluster_snapshot.nodes if chat.cluster_snapshot else ():
            yield Find(f"node {node.name}", f"{node.state} {short(node.reason, 60)}".rstrip(), self._post(OpenNodes(node.name)))


class Playbooks(Records):
    """Offer playbooks in the palette."""

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


class Commands(Records):
    """The commands that begin with a slash."""

    def finds(self, chat: ChatApp) -> Iterator[Find]:
        """Yield the commands; one that takes anything is put into the prompt, where Enter runs it."""
        for command in COMMANDS:
            typed = f"/{command.name}"
            run = partial(self._fill, chat, f"{typed} ") if command.arguments else partial(chat.talk.typed, typed)
            yield Find(command.usage, command.help, run)

    async def discover(self) -> Hits:
        """Yield all of them, before anything is typed."""
        for find in self.finds(cast("ChatApp", self.app)):
            yield _discovered(find)

    def _fill(self, chat: ChatApp, text: str) -> None:
        chat.action_talk()
        chat.main.query_one(Prompt).fill(text)


PROVIDERS: frozenset[type[Provider]] = frozenset({Incidents, Approvals, Jobs, Nodes, Playbooks, Panels, Commands})
