"""An application that shows logs and nothing else, and how to wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textual.app import App
from textual.geometry import Region
from textual.pilot import Pilot

from assistant.tui.frame import THEMES
from assistant.tui.logs.rows import LogCitation
from assistant.tui.logs.view import LogView
from assistant.tui.screens.log import LogScreen
from tests.tui.waiting import until


class LogApp(App[None]):
    """Shows a log screen on top of an empty one."""

    def __init__(
        self, *sources: Path, cited: Sequence[LogCitation] = (), line: int | None = None, source: int | None = None
    ) -> None:
        super().__init__()
        self.log_screen = LogScreen(sources, title="job 4821", cited=cited, line=line, source=source)

    def on_mount(self) -> None:
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = THEMES[0].name
        self.push_screen(self.log_screen)

    @property
    def view(self) -> LogView:
        return self.log_screen.query_one(LogView)

    @property
    def rows(self) -> list[str]:
        """The text of the log's rows as they stand on the screen."""
        crop = Region(0, 0, *self.view.size)
        return [strip.text.rstrip() for strip in self.view.render_lines(crop)]

    @property
    def number(self) -> int:
        """The number of the line under the cursor; 0 while it is not known."""
        row = self.view.row
        return row.place.number if row is not None else 0

    def words(self, name: str) -> str:
        """What stands in a part of the screen: head, foot or trouble."""
        return str(self.log_screen.query_one(f"#log-{name}").render())


async def ready(pilot: Pilot[None], app: LogApp) -> None:
    """Wait until every line has its number, everything was read and the cursor's row is there."""
    await until(pilot, lambda: app.log_screen.is_mounted and app.view.state.numbered, "line numbers")
    await until(pilot, lambda: not app.view.state.doing and app.view.row is not None, "the end of reading")
