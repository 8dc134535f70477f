"""The panels of the first screen: what they show, and how one gets there."""

from __future__ import annotations

import pytest

from assistant.tui.frame import PANELS
from assistant.tui.widgets.panels import ApprovalsPanel, IncidentsPanel
from assistant.tui.widgets.prompt import Prompt
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.waiting import until

pytestmark = pytest.mark.slow


async def test_a_healthy_cluster_looks_calm(scene: Scene) -> None:
    async with opened(scene) as (app, _pilot):
        assert app.main.query_one(IncidentsPanel).has_class("-empty")
        assert app.main.query_one(ApprovalsPanel).has_class("-empty")
        assert "nothing is wrong" in str(app.main.query_one("#status").render())
        assert app.main.focused is app.main.query_one(Prompt)


async def test_a_failure_shows_what_is_wrong_and_what_waits(broken: Scene) -> None:
    async with opened(broken) as (app, _pilot):
        panel = app.main.query_one(IncidentsPanel)
        assert panel.table.row_count == 1
        cells = " ".join(str(cell) for cell in panel.table.get_row_at(0))
        assert "ecc_error" in cells
        assert "waiting (1)" in cells
        assert app.main.query_one(ApprovalsPanel).table.row_count == 1


async def test_what_another_door_does_is_shown(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        other = broken.store()
        try:
            from assistant.records import Verdict

            assert other.answer(other.approvals()[0].id, Verdict.DENY, "cli:bob", why="no")
        finally:
            other.close()
        await until(pilot, lambda: app.store_snapshot and not app.store_snapshot.approvals, "the answer of the other door")
        assert app.main.query_one(ApprovalsPanel).has_class("-empty")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_each_panel_is_one_key_away_and_escape_leads_back(broken: Scene, size: tuple[int, int]) -> None:
    async with opened(broken, size) as (app, pilot):
        for key, name, _ in PANELS:
            await pilot.press(key)
            await pilot.pause()
            focused = app.main.focused
            assert focused is not None
            assert any(one.id == f"panel-{name}" for one in focused.ancestors), key
            assert app.main.alone == (name if size[0] < 100 else "")
            await pilot.press("escape")
            assert app.main.alone == ""
            assert app.main.focused is app.main.query_one(Prompt)


async def test_no_size_breaks_it(broken: Scene) -> None:
    async with opened(broken, (20, 5)) as (app, pilot):
        for size in ((20, 5), (40, 10), (80, 24), (200, 60), (300, 20), (1, 1), (20, 5)):
            await pilot.resize_terminal(*size)
            for key in ("f2", "f3", "f4", "f5", "f6", "escape", "escape"):
                await pilot.press(key)
            assert app.main.alone == ""
            assert app.main.region.size == size


async def test_what_waits_is_told_with_why_risk_and_undo_below_the_list(broken: Scene) -> None:
    async with opened(broken, (80, 24)) as (app, pilot):
        await pilot.press("f3")
        panel = app.main.query_one(ApprovalsPanel)
        await until(pilot, lambda: panel.detail.region.height > 3, "the detail")
        told = str(panel.detail.render())
        assert broken.engine.store.call(broken.engine.store.approval(1).call).preview in told
        assert "why  node02 is named by dmesg.log" in told
        assert "changes something, can be undone" in told
        assert "undo nightshift undo 4" in told


async def test_on_a_wide_screen_why_risk_and_undo_are_columns(broken: Scene) -> None:
    async with opened(broken, (200, 60)) as (app, pilot):
        await pilot.press("f3", "f3")
        panel = app.main.query_one(ApprovalsPanel)
        await until(pilot, lambda: panel.has_class("-columns"), "the columns")
        cells = [str(cell).strip() for cell in panel.table.get_row_at(0)]
        assert cells[4:6] == ["changes", "nightshift undo 4"]
        assert cells[6].startswith("node02 is named by dmesg.log")
        assert panel.table.virtual_size.width <= panel.table.size.width
