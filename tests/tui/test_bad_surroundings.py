"""What goes wrong around the chat: storms of resizes, a locked, newer or vanished store, a watch that dies, an old locale."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest
from textual.notifications import Notification

from assistant.records import IncidentState, Verdict
from assistant.tui.app import ChatApp
from assistant.tui.frame import StatusBar
from assistant.tui.widgets.panels import ApprovalsPanel, IncidentsPanel
from bench._terminal import Terminal
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.waiting import until


def told(app: ChatApp) -> list[Notification]:
    return list(app._notifications)


@pytest.mark.slow
async def test_a_storm_of_resizes_leaves_it_whole(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await pilot.press("f2", "enter")
        for number in range(60):
            await pilot.resize_terminal(20 + number * 7 % 200, 5 + number * 5 % 55)
        await pilot.resize_terminal(120, 40)
        await pilot.press("escape", "f3")
        await until(pilot, lambda: app.main.query_one(ApprovalsPanel).region.width > 20)


async def test_a_locked_store_is_told_and_the_answer_can_be_given_again(broken: Scene) -> None:
    store = broken.engine.store
    store._busy_timeout_s = 0.2
    async with opened(broken) as (app, pilot):
        holder = sqlite3.connect(store.path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        app.backend.settle(1, Verdict.ALLOW)
        await until(pilot, lambda: any("another process held the store" in one.message for one in told(app)), "the trouble")
        assert app.main.query_one(ApprovalsPanel).table.row_count == 1
        holder.execute("ROLLBACK")
        holder.close()
        app.backend.settle(1, Verdict.ALLOW)
        await until(pilot, lambda: store.approval(1).verdict is Verdict.ALLOW, "the answer")


async def test_a_store_that_a_newer_nightshift_migrates_is_told_and_what_was_seen_stays(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        other = sqlite3.connect(broken.engine.store.path)
        with other:
            other.execute("CREATE TABLE of_the_future (id INTEGER)")
            row = ("nightshift", "m9999_future", "2027-01-01")
            other.execute("INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES (?, ?, ?)", row)
        other.close()
        await until(pilot, lambda: "newer Nightshift" in app.main.query_one(StatusBar).trouble, "the trouble")
        assert app.main.query_one(IncidentsPanel).table.row_count == 1


async def test_a_store_that_vanishes_is_told(broken: Scene, tmp_path: Path) -> None:
    async with opened(broken) as (app, pilot):
        path = broken.engine.store.path
        path.rename(tmp_path / "elsewhere.db")
        await until(pilot, lambda: "the store is gone" in app.main.query_one(StatusBar).trouble, "the trouble")
        (tmp_path / "elsewhere.db").rename(path)
        await until(pilot, lambda: not app.main.query_one(StatusBar).trouble, "the store again")


async def test_a_scheduler_that_falls_silent_is_told_with_what_was_seen_last(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        broken.cluster.outage = True
        await until(pilot, lambda: "scheduler silent" in str(app.main.query_one(StatusBar).render()), "the silence")
        assert app.cluster_snapshot is not None
        assert app.cluster_snapshot.jobs
        broken.cluster.outage = False
        await until(pilot, lambda: "scheduler silent" not in str(app.main.query_one(StatusBar).render()), "its answer")


async def test_the_chat_takes_over_from_a_watch_that_dies_while_it_holds_the_incident(broken: Scene) -> None:
    store = broken.engine.store
    assert store.claim(1, "watch@elsewhere:77.1", 60)
    async with opened(broken) as (app, pilot):
        app.backend.again_s = 0.2
        app.backend.settle(1, Verdict.ALLOW)
        await until(pilot, lambda: store.approval(1).verdict is Verdict.ALLOW, "the answer")
        assert store.incident(1).state is IncidentState.WAITING
        assert not any(change.startswith("cordon") for change in broken.cluster.changes)
        # the watch renews no more
        broken.clock.sleep(61)
        await until(pilot, lambda: any(change.startswith("cordon") for change in broken.cluster.changes), "the cordon")
        assert [change for change in broken.cluster.changes if change.startswith("cordon")] == broken.cluster.changes[1:2]


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.ISO-8859-1"])
def test_a_locale_without_utf8_does_not_keep_it_from_starting(tmp_path: Path, locale: str) -> None:
    own = {
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "LC_ALL": locale,
        "LANG": locale,
    }
    own |= {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "", "LINES": ""}
    with Terminal([sys.executable, "-m", "assistant", "chat"], environment=own) as terminal:
        terminal.wait_for("commands", 60)
        terminal.key("\x11")
        assert terminal.ended(30) == 0
        assert b"Traceback" not in terminal.written


@pytest.mark.slow
def test_without_a_mouse_and_with_few_colours_it_starts(tmp_path: Path) -> None:
    own = {
        **{name: str(tmp_path) for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")},
        "TERM": "vt100",
        "COLORTERM": "",
        "NO_COLOR": "1",
    }
    with Terminal(
        [sys.executable, "-m", "assistant", "chat"], columns=80, rows=24, environment={**own, "COLUMNS": "", "LINES": ""}
    ) as terminal:
        terminal.wait_for("commands", 60)
        terminal.key("\x11")
        assert terminal.ended(30) == 0
