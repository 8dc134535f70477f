"""The first line leads to what it counts, in the colours of the theme."""

from __future__ import annotations

from assistant.tui.frame import StatusBar
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.waiting import until


async def test_a_click_on_a_count_leads_to_its_panel(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        bar = app.main.query_one(StatusBar)
        for words, name in (("1 incident", "incidents"), ("1 waits", "approvals"), ("running", "jobs"), ("8 nodes", "nodes")):
            await until(pilot, lambda words=words: words in str(bar.render()), words)  # type: ignore[misc]
            await pilot.click(StatusBar, offset=(str(bar.render()).index(words), 0))
            await pilot.pause()
            focused = app.main.focused
            assert focused is not None
            assert any(one.id == f"panel-{name}" for one in focused.ancestors), words


async def test_rows_take_the_colours_of_another_theme(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        table = app.main.query_one("#panel-incidents").query_one("Rows")
        before = table.get_row_at(0)[0].style  # type: ignore[attr-defined]
        await pilot.press("ctrl+t")
        await until(pilot, lambda: table.get_row_at(0)[0].style != before)  # type: ignore[attr-defined]
