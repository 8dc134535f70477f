"""The screens of one job and of nodes: what they show, what opens from them, what their keys do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.message import Message
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Static

from assistant.errors import Unavailable
from assistant.policy import Mode
from assistant.tui.app import ChatApp
from assistant.tui.curves import CurvesView
from assistant.tui.messages import OpenJob, OpenNodes
from assistant.tui.screens.incident import IncidentScreen
from assistant.tui.screens.log import LogScreen
from assistant.tui.screens.records import HealthTable, NodesScreen
from assistant.tui.widgets.panels import IncidentList
from assistant.tui.widgets.tables import CheckpointsTable, NodeTable, Rows
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.waiting import until

pytestmark = pytest.mark.slow


@asynccontextmanager
async def shown(
    scene: Scene, what: Message, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[ChatApp, Pilot[int], Screen[object]]]:
    """Open a screen and wait until it was read."""
    async with opened(scene, size) as (app, pilot):
        app.post_message(what)
        await until(pilot, lambda: getattr(app.screen, "snapshot", None), "the screen")
        yield app, pilot, app.screen


def rows_of(table: Rows) -> list[str]:
    return [" ".join(" ".join(str(cell) for cell in table.get_row_at(at)).split()) for at in range(table.row_count)]


def told(screen: Screen[object], selector: str = "#head") -> str:
    return str(screen.query_one(selector, Static).render())


def said(app: ChatApp) -> str:
    return "\n".join(one.message for one in app._notifications)


async def test_a_job_tells_its_state_nodes_log_and_incidents(broken: Scene) -> None:
    async with shown(broken, OpenJob("1")) as (app, pilot, screen):
        for word in ("job 1", "llm", "failed", "node[01-02]", "job-1.log", "exit code 1"):
            assert word in told(screen)
        rows = rows_of(screen.query_one(IncidentList).table)
        assert len(rows) == 1
        assert "ecc_error" in rows[0]
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen), "the incident")


async def test_a_jobs_checkpoints_say_what_speaks_against_them(broken: Scene) -> None:
    async with shown(broken, OpenJob("1")) as (_app, pilot, screen):
        await pilot.press("s")
        table = screen.query_one(CheckpointsTable).table
        await until(pilot, lambda: table.row_count == 2, "the checkpoints")
        newest, before = rows_of(table)
        assert "✗ 40" in newest
        assert "manifest" in newest
        assert "✓ 20" in before
        assert "healthy" in before


async def test_a_jobs_curves_mark_its_last_healthy_checkpoint(broken: Scene) -> None:
    async with shown(broken, OpenJob("1")) as (_app, pilot, screen):
        await pilot.press("c")
        await until(pilot, lambda: "last checkpoint 20" in told(screen, "#curves-marks"), "the mark")
        seen = screen.query_one(CurvesView).snapshot
        assert seen is not None
        assert seen.runs[0].points[-1].step == 50


async def test_l_opens_a_jobs_log_and_w_asks_why_it_failed(broken: Scene) -> None:
    async with shown(broken, OpenJob("1")) as (app, pilot, screen):
        await pilot.press("l")
        await until(pilot, lambda: isinstance(app.screen, LogScreen), "the log")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen, "the job")
        await pilot.press("w")
        await until(pilot, lambda: app.screen is app.main, "the conversation")
        await until(pilot, lambda: "why did job 1 fail" in _text(app), "the question")


def _text(app: ChatApp) -> str:
    return "\n".join(str(one.render()) for one in app.main.query(Static))


async def test_n_opens_a_jobs_nodes(broken: Scene) -> None:
    async with shown(broken, OpenJob("1")) as (app, pilot, _screen):
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, NodesScreen) and app.screen.names == ("node01", "node02"), "the nodes")


async def test_a_job_that_the_scheduler_does_not_know_is_said(broken: Scene) -> None:
    async with shown(broken, OpenJob("4711")) as (app, pilot, screen):
        assert "4711" in told(screen)
        assert "unknown" in told(screen) or "no such" in told(screen) or "knows no" in told(screen)
        await pilot.press("s")
        await until(pilot, lambda: "not known" in told(screen, "CheckpointsTable .note"), "the reason")
        for key, reason in (("l", "not known"), ("n", "has no nodes")):
            await pilot.press(key)
            await until(pilot, lambda reason=reason: reason in said(app), reason)  # type: ignore[misc]


async def test_nodes_tell_state_ledger_and_whose_cordon_it_is(tmp_path: Path) -> None:
    scene = Scene(tmp_path, mode=Mode.ACT)
    scene.cluster.submit(scene.spec)
    scene.watch(2_000)
    scene.cluster.cordon("node05", "bad fan, ask bob")
    async with shown(scene, OpenNodes("node[02,05,07,99]")) as (app, pilot, screen):
        two, five, seven, none = rows_of(screen.query_one(NodeTable).table)
        assert "drained" in two
        assert "1.00" in two
        assert "us (playbook:faulty_node)" in two
        assert "left" in two
        assert "somebody else" in five
        assert "bad fan, ask bob" in five
        assert "idle" in seven
        assert "no such node" in none
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is not screen and getattr(app.screen, "snapshot", None), "one node")
        assert "our cordon until" in told(app.screen)
        await pilot.press("i")
        assert "ecc_error" in rows_of(app.screen.query_one(IncidentList).table)[0]
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen), "the incident")


async def test_h_asks_the_probes_and_shows_what_each_said(broken: Scene) -> None:
    async with shown(broken, OpenNodes("node[01-02]")) as (_app, pilot, screen):
        assert "Press h" in told(screen, "HealthTable .note")
        await pilot.press("h")
        table = screen.query_one(HealthTable)
        await until(pilot, lambda: table.table.row_count and not table.busy, "the answers")
        assert {row.split()[1] for row in rows_of(table.table)} == {"node01", "node02"}
        assert "unknown" in told(screen, "HealthTable .note")


async def test_d_opens_the_kernel_log(broken: Scene) -> None:
    async with shown(broken, OpenNodes("node02")) as (app, pilot, screen):
        assert isinstance(screen, NodesScreen)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, LogScreen), "the kernel log")
        text = next(Path(screen._texts.name).iterdir()).read_text()
        assert text.startswith("# node02\n")
        assert "Xid" in text


async def test_what_cannot_be_read_of_nodes_is_said_to_be_unknown(broken: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shown(broken, OpenNodes("node02")) as (app, pilot, screen):

        def silent(*_: object, **__: object) -> None:
            raise Unavailable("no node answers")

        monkeypatch.setattr(broken.cluster, "run", silent)
        await pilot.press("d")
        await until(pilot, lambda: "no node answers" in said(app), "the reason")
        await pilot.press("h")
        await until(pilot, lambda: "Unknown: no node answers" in told(screen, "HealthTable .note"), "the reason")


async def test_a_set_that_is_none_is_said(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        app.post_message(OpenNodes("node[3-"))
        await until(pilot, lambda: said(app), "the reason")
        assert app.screen is app.main


@pytest.mark.parametrize(
    ("what", "last"), [(OpenJob("1"), "checkpoints"), (OpenNodes("node[01-08]"), "health")], ids=["job", "nodes"]
)
async def test_no_size_breaks_them(broken: Scene, what: Message, last: str) -> None:
    async with shown(broken, what, (20, 5)) as (_app, pilot, screen):
        for size in ((20, 5), (40, 10), (80, 24), (200, 60), (1, 1), (20, 5)):
            await pilot.resize_terminal(*size)
            await pilot.press("1", "2", "3", "j", "k")
            assert screen.current_tab == last  # type: ignore[attr-defined]
            assert screen.region.size == size
