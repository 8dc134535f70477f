"""The frame of every screen: themes, common keys, the status bar, and text as it is.

One theme is dark, for the night, and one is light. With NO_COLOR set Textual draws either without colour. The status bar shows
the state of cluster and store, who answers, the mode, and a kill switch that is set. In plain text nothing is markup, indents
stay, what it cites can be opened, and a long one shows its beginning first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

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
from assistant.tui.first_line import FirstLine, first_line, overall_state
from assistant.tui.snapshot import KillSwitchSnapshot
from assistant.tui.words import short

if TYPE_CHECKING:
    from assistant.tui.app import ChatApp

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


LOOK_S = 1.0
"""Seconds after which the first line is judged anew: ages go on while nothing is read."""


class StatusBar(Static):
    """One line that is calm when all is well."""

    answers: reactive[str] = reactive("waking up")
    """What answers questions: `words`, `embedded model`, the name of a language model."""
    mode: reactive[str] = reactive("")
    """Of the policy; empty before it is known."""
    trouble: reactive[str] = reactive("")
    """What does not work now."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._line = FirstLine(Content(""), ())

    def on_mount(self) -> None:
        """Follow what the backend reads, and the time."""
        for name in ("store_snapshot", "cluster_snapshot", "kill_switch", "store_trouble"):
            self.watch(self.app, name, self.look, init=False)
        self.set_interval(LOOK_S, self.look)
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
        """Draw the bar anew from what was read last, where it says something else by now."""
        if is_covered(self):
            return
        app: ChatApp = self.app  # type: ignore[assignment]
        now = app.backend.now()
        drawn = first_line(
            overall_state(app, now, app.backend.gap),
            app.cluster_snapshot,
            app.store_snapshot,
            now=now,
            account=app.backend.by.partition(":")[2],
            mode=self.mode,
            answers=self.answers,
            width=self.size.width,
        )
        if drawn.content != self._line.content:
            self.update(drawn.content, layout=False)  # always one line of the whole width
        self._line = drawn

    def on_resize(self) -> None:
        """Fill the line."""
        self.look()

    async def on_click(self, event: events.Click) -> None:
        """Open the panel of what was clicked."""
        for place in self._line.places:
            if place.first <= event.x < place.end:
                await self.app.run_action(f"app.panel('{place.panel}')")


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
