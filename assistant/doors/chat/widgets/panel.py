"""A titled box with one kind of record in it, and a calm sentence where there is none."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Static

from assistant.doors.chat.covered import covered
from assistant.doors.chat.seen import ClusterSeen, StoreSeen
from assistant.doors.chat.widgets.rows import Rows

_NOTHING = object()
"""Stands for what a panel has shown before it was told anything."""


class Panel(Vertical):
    """One part of the sidebar; alone it fills the screen."""

    NAME: ClassVar[str]
    TITLE: ClassVar[str]
    CALM: ClassVar[str]
    """Said where there is nothing to list."""
    COLUMNS: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__(id=f"panel-{self.NAME}", classes="panel")
        self.border_title = self.TITLE
        self.table = Rows(self.COLUMNS)
        self.calm = Static(self.CALM, classes="calm")
        self._told: tuple[object, object] = (_NOTHING, _NOTHING)

    def compose(self) -> ComposeResult:
        """Put table and calm sentence into the box; one of them is shown."""
        yield self.calm
        yield self.table

    def on_mount(self) -> None:
        """Follow what the desk reads."""
        self.watch(self.app, "store_seen", self.look, init=False)
        self.watch(self.app, "cluster_seen", self.look, init=False)
        self.look()

    def look(self) -> None:
        """Show what is seen now."""
        if covered(self):
            return
        store: StoreSeen | None = self.app.store_seen  # type: ignore[attr-defined]
        cluster: ClusterSeen | None = self.app.cluster_seen  # type: ignore[attr-defined]
        before, self._told = self._told, (store, cluster)
        if store is not before[0]:
            self.store_read(store)
        if cluster is not before[1]:
            self.cluster_read(cluster)

    @property
    def inner(self) -> Widget:
        """What gets the focus."""
        return self.table

    def store_read(self, seen: StoreSeen | None) -> None:
        """Show what the store says; panels about the store do."""

    def cluster_read(self, seen: ClusterSeen | None) -> None:
        """Show what the scheduler says; panels about the cluster do."""

    def count(self, shown: int, *, of: int | None = None, calm: str = "") -> None:
        """Say how many there are, or the calm sentence where there is none."""
        self.set_class(not shown, "-empty")
        self.calm.update(calm or self.CALM)
        self.border_subtitle = "" if not shown else f"{shown:,} of {of:,}" if of is not None and of != shown else f"{shown:,}"
