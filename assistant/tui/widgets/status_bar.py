"""The first lines of every screen: the state of cluster and store, who answers, the mode, and a kill switch that is set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from assistant.display import line
from assistant.records import JobState, NodeState
from assistant.tui.screen_basics import is_covered
from assistant.tui.snapshot import ClusterSnapshot, KillSwitchSnapshot, StoreSnapshot
from assistant.tui.words import clock, short

GAP = "  "
_OUT = (NodeState.DOWN, NodeState.DRAINED, NodeState.DRAINING)


class StatusBar(Static):
    """One line that is calm when all is well."""

    MODES: ClassVar[dict[str, str]] = {"observe": "observes", "propose": "asks first", "act": "acts"}

    answers: reactive[str] = reactive("waking up")
    """What answers questions: `words`, `embedded model`, the name of a language model."""
    mode: reactive[str] = reactive("")
    """Of the policy; empty before it is known."""
    trouble: reactive[str] = reactive("")
    """What does not work now."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._places: list[tuple[int, int, str]] = []

    def on_mount(self) -> None:
        """Follow what the backend reads."""
        self.watch(self.app, "store_snapshot", self.look, init=False)
        self.watch(self.app, "cluster_snapshot", self.look, init=False)
        self.look()

    def watch_answers(self) -> None:
        """Draw who answers."""
        self.look()

    def watch_mode(self) -> None:
        """Draw the mode."""
        self.look()

    def watch_trouble(self) -> None:
        """Draw the trouble."""
        self.look()

    def look(self) -> None:
        """Draw the bar anew from the latest snapshot."""
        if is_covered(self):
            return
        store: StoreSnapshot | None = self.app.store_snapshot  # type: ignore[attr-defined]
        cluster: ClusterSnapshot | None = self.app.cluster_snapshot  # type: ignore[attr-defined]
        parts = [StatusPart(" Nightshift ", "$primary bold")]
        if self.trouble:
            parts.append(StatusPart(f"! {self.trouble}", "$error bold"))
        parts += _store_parts(store) + _cluster_parts(cluster)
        self._places = _places_of(parts)
        right = [Content.styled(line(text), "$text-muted") for text in (self.answers, self.MODES.get(self.mode, self.mode)) if text]
        content = Content(GAP).join(Content.styled(line(part.text), part.style) for part in parts)
        self.update(
            _spread(content, Content(" · ").join(right), self.size.width), layout=False
        )  # always one line of the whole width

    def on_resize(self) -> None:
        """Fill the line."""
        self.look()

    async def on_click(self, event: events.Click) -> None:
        """Open the panel of what was clicked."""
        for first, end, panel in self._places:
            if first <= event.x < end:
                await self.app.run_action(f"app.panel('{panel}')")


class StatusPart(NamedTuple):
    """A few words of the line."""

    text: str
    style: str
    panel: str = ""
    """Which a click opens."""


def _places_of(parts: Sequence[StatusPart]) -> list[tuple[int, int, str]]:
    """Return from where to where the parts with a panel stand, in cells."""
    places, at = [], 0
    for part in parts:
        end = at + cell_len(part.text)
        if part.panel:
            places.append((at, end, part.panel))
        at = end + len(GAP)
    return places


def _store_parts(snapshot: StoreSnapshot | None) -> list[StatusPart]:
    if snapshot is None:
        return [StatusPart("opening the store…", "$text-muted")]
    parts = [StatusPart("! breaker open: nightshift breaker", "$error bold", "happened")] if snapshot.breaker else []
    if not (snapshot.unfinished or snapshot.approvals or snapshot.handed_over):
        return parts or [StatusPart("nothing is wrong", "$success")]
    if snapshot.unfinished:
        parts.append(StatusPart(f"{snapshot.unfinished} incident{'s' * (snapshot.unfinished > 1)}", "$error bold", "incidents"))
    if snapshot.approvals:
        count = len(snapshot.approvals)
        parts.append(StatusPart(f"{count} wait{'s' * (count == 1)} for you", "$accent bold", "approvals"))
    if snapshot.handed_over:
        parts.append(StatusPart(f"{snapshot.handed_over} handed over", "$warning", "incidents"))
    return parts


def _cluster_parts(snapshot: ClusterSnapshot | None) -> list[StatusPart]:
    if snapshot is None or (snapshot.at is None and not snapshot.trouble):
        return [StatusPart("asking the scheduler…", "$text-muted")]
    if snapshot.trouble:
        since_text = f" since {clock(snapshot.at, snapshot.at)}" if snapshot.at is not None else ""
        return [StatusPart(f"! scheduler silent{since_text}", "$warning", "jobs")]
    parts = [StatusPart(f"{snapshot.states.get(JobState.RUNNING, 0):,} running", "$text-muted", "jobs")]
    if snapshot.out:
        parts.append(StatusPart(f"{snapshot.out:,} of {len(snapshot.nodes):,} nodes out", "$warning", "nodes"))
    else:
        parts.append(StatusPart(f"{len(snapshot.nodes):,} nodes", "$text-muted", "nodes"))
    return parts


def _spread(first: Content, right: Content, width: int) -> Content:
    """Put one text to the left and one to the right; the right one goes first where there is no room."""
    gap = width - first.cell_length - right.cell_length - 1
    return first + Content(" " * gap) + right if gap >= 2 else first


# A line on top of every screen while the kill switch is set: that nothing is changed, who said so, since when and why.

MOST_CHARACTERS = 300


class KillSwitchBanner(Static):
    """Not there while no kill switch is set."""

    DEFAULT_CSS = """
    KillSwitchBanner { dock: top; display: none; width: 100%; height: auto; max-height: 2; padding: 0 1;
        background: $error; color: $background; text-style: bold; }
    KillSwitchBanner.-set { display: block; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)

    def on_mount(self) -> None:
        """Follow the kill switch."""
        self.watch(self.app, "kill_switch", self._show)

    def _show(self, snapshot: KillSwitchSnapshot | None) -> None:
        if snapshot is not None:
            note = f"{snapshot.note} · " if snapshot.note else ""
            self.update(Content(short(f"■ STOPPED, nothing is changed · {note}{snapshot.path} · /stop --lift", MOST_CHARACTERS)))
        self.set_class(snapshot is not None, "-set")
