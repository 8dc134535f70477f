"""The frame of every screen: themes, common keys, the status bar, and text as it is.

One theme is dark, for the night, and one is light. With NO_COLOR set Textual draws either without colour. The status bar shows
the state of cluster and store, who answers, the mode, and a kill switch that is set. In plain text nothing is markup, indents
stay, what it cites can be opened, and a long one shows its beginning first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.theme import Theme
from textual.widget import Widget
from textual.widgets import Static

from assistant.display import block, line
from assistant.records import JobState, NodeState
from assistant.tui.snapshot import ClusterSnapshot, KillSwitchSnapshot, StoreSnapshot
from assistant.tui.words import clock, short

DARK = Theme(
    name="nightshift",
    primary="#7aa2c9",
    secondary="#9d8fc7",
    accent="#d9a860",
    foreground="#d3d7de",
    background="#12151b",
    surface="#181c24",
    panel="#20252f",
    success="#7fb685",
    warning="#d9b35c",
    error="#e0707a",
    dark=True,
    variables={"footer-key-foreground": "#d9a860", "border-blurred": "#2c333f"},
)
LIGHT = Theme(
    name="nightshift-light",
    primary="#2a5f91",
    secondary="#66519c",
    accent="#96610d",
    foreground="#20252c",
    background="#f6f5f1",
    surface="#fdfcfa",
    panel="#e9e7e0",
    success="#2f7a3d",
    warning="#8a6100",
    error="#b3303c",
    dark=False,
    variables={"footer-key-foreground": "#96610d", "border-blurred": "#cfccc2"},
)
THEMES = (DARK, LIGHT)


PANELS = (
    ("f2", "incidents", "Wrong"),
    ("f3", "approvals", "Waiting"),
    ("f4", "happened", "Happened"),
    ("f5", "jobs", "Jobs"),
    ("f6", "nodes", "Nodes"),
)
"""Key, name and short title of each panel of the first screen."""


def panel_keys(of: str = "", *, show: bool) -> list[BindingType]:
    """Return the keys that lead to the panels; `of` is what has the action: `app.`, or empty for the screen itself."""
    return [Binding(key, f"{of}panel('{name}')", title, show=show) for key, name, title in PANELS]


def vi_keys(**actions: str) -> list[BindingType]:
    """Return the keys of vi for a list, by the actions that it has: `down`, `up`, `first`, `last`, `page_down`, `page_up`."""
    keys = {"down": "j", "up": "k", "first": "g", "last": "G", "page_down": "ctrl+d", "page_up": "ctrl+u"}
    return [Binding(keys[move], action, show=False) for move, action in actions.items()]


def is_covered(widget: Widget) -> bool:
    """Tell whether another screen, other than a question, hides that of a widget.

    What nobody sees waits until its screen comes back: Textual draws all of the upper screen anew whenever the lower one changes.
    """
    return widget.app.screen is not widget.screen and not widget.app.screen.is_modal


MOST_LINES, MOST_CHARACTERS = 40, 8_000
"""Shown before somebody asks for all of it."""
ALL_LINES, ALL_CHARACTERS = 2_000, 200_000
"""Shown at most."""
FEW = 6
"""Lines more than that which nobody has to ask for."""
MUTED = "$foreground 60%"
DEEPEST = 12
"""Cells of an indent that are kept where a line is wrapped."""
_CITED = re.compile(r"\[(\d{1,4})\]")
_LINK = "underline $primary"


class Plain(Widget):
    """Shows a text; a line that is too long goes on below itself, further in."""

    class Cited(Message):
        """The person wants to see a source."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, text: str, *, cites: bool = False, most: int = MOST_LINES, classes: str | None = None) -> None:
        """Show a text.

        Args:
            text: Whatever others wrote.
            cites: Whether `[1]` in it leads to a source.
            most: Lines that are shown before somebody asks for all of it.
            classes: For the style.
        """
        super().__init__(classes=classes)
        self.text = block(text).expandtabs(4)
        self._cites, self._most = cites, most
        self.whole = False
        self._laid_out: tuple[int, Content] = (0, Content(""))

    def render(self) -> Content:
        """Return the text, wrapped."""
        return self._wrapped(self.size.width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return how many lines the text has at a width."""
        return self._wrapped(width).plain.count("\n") + 1

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Return how wide the text is when nothing is wrapped."""
        return min(container.width, max(map(len, self.text.split("\n")), default=0))

    def action_cite(self, number: int) -> None:
        """Lead to a source."""
        self.post_message(self.Cited(number))

    def action_all(self) -> None:
        """Show all of it."""
        self.whole = True
        self._laid_out = (0, Content(""))
        self.refresh(layout=True)

    def _wrapped(self, width: int) -> Content:
        if self._laid_out[0] != width and width > 0:
            lines = [part for content in self._lines() for part in hanging(content, width)]
            self._laid_out = (width, Content("\n").join(lines))
        return self._laid_out[1]

    def _lines(self) -> list[Content]:
        lines = self.text.split("\n")
        most, characters = (ALL_LINES, ALL_CHARACTERS) if self.whole else (self._most, MOST_CHARACTERS)
        if len(lines) <= most + FEW:
            most = len(lines)
        clipped = "\n".join(lines[:most])[:characters]
        contents = [cited(text) if self._cites else Content(line(text)) for text in clipped.split("\n")]
        if len(clipped) < len(self.text):
            hidden_lines = len(lines) - len(contents)
            remainder = f"{hidden_lines:,} more lines" if hidden_lines > 0 else f"{len(self.text) - len(clipped):,} more characters"
            contents.append(Content.styled(line(f"… {remainder}"), MUTED) if self.whole else link(f"… show {remainder}", "all"))
        return contents


def hanging(content: Content, width: int) -> list[Content]:
    """Return one line as the lines that it takes at a width; what goes on stands two cells further in than it began."""
    if content.cell_length <= width:
        return [content]
    plain = content.plain
    indent = min(len(plain) - len(plain.lstrip(" ")), DEEPEST, max(0, width // 3))
    body = content[len(plain) - len(plain.lstrip(" ")) :]
    further = indent + 2 if width >= indent + 12 else indent
    first, *more = body.wrap(max(4, width - further))
    return [first.pad_left(indent), *(part.pad_left(further) for part in more)]


def link(text: str, action: str, *arguments: Any) -> Content:
    """Return text that does something when it is clicked."""
    call = f"{action}({', '.join(map(repr, arguments))})"
    # the text is handed over beside the markup: nothing in it is read as markup
    return Content.from_markup(f"[{_LINK} @click={call}]$text[/]", text=line(text))


def cited(text: str) -> Content:
    """Return text whose citations lead to their sources."""
    parts, end = [], 0
    for match in _CITED.finditer(text):
        parts += [Content(line(text[end : match.start()])), link(match.group(), "cite", int(match.group(1)))]
        end = match.end()
    return Content("").join([*parts, Content(line(text[end:]))])


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

_STATUS_CHARACTERS = 300


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
            self.update(Content(short(f"■ STOPPED, nothing is changed · {note}{snapshot.path} · /stop --lift", _STATUS_CHARACTERS)))
        self.set_class(snapshot is not None, "-set")
