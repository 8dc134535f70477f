"""A line on top of every screen while the kill switch is set: that nothing is changed, who said so, since when and why."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from assistant.tui.snapshot import KillSwitchSeen
from assistant.tui.words import short

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

    def _show(self, snapshot: KillSwitchSeen | None) -> None:
        if snapshot is not None:
            note = f"{snapshot.note} · " if snapshot.note else ""
            self.update(Content(short(f"■ STOPPED, nothing is changed · {note}{snapshot.path} · /stop --lift", MOST_CHARACTERS)))
        self.set_class(snapshot is not None, "-set")
