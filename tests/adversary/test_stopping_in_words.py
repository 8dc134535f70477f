"""Words that stop everything do so at once; words about anything else never do, and going on is always asked."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from assistant.policy import Mode
from assistant.records import Verdict
from assistant.tui.frame import KillSwitchBanner
from assistant.tui.messages import OpenApproval, OpenIncident, OpenJob, OpenNodes
from assistant.tui.screens.changes import ApprovalScreen, LiftScreen
from assistant.tui.talk import StopWish, stop_wish
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.typing_in import prompt, say, seen_text
from tests.tui.waiting import PAUSE_S, deliberately, seen, until

WORDS = tomllib.loads((Path(__file__).parents[1] / "cases" / "adversary" / "stopping.toml").read_text(encoding="utf-8"))


@pytest.fixture
def broken(tmp_path: Path) -> Scene:
    """A job has died of a GPU; the cordon of its node waits for a yes."""
    scene = Scene(tmp_path, mode=Mode.PROPOSE)
    scene.cluster.submit(scene.spec)
    scene.watch(120)
    return scene


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        *((text, StopWish.SET) for text in WORDS["stops"]),
        *((text, StopWish.LIFT) for text in WORDS["goes_on"]),
        *((text, None) for text in WORDS["neither"]),
    ],
)
def test_a_line_is_understood_as_a_whole(text: str, wanted: StopWish | None) -> None:
    assert stop_wish(text) is wanted
    assert stop_wish(f"  {text.upper()} ") is wanted


@pytest.mark.slow
async def test_the_kill_switch_shows_on_every_screen_keeps_approvals_and_is_lifted_by_a_deliberate_yes(broken: Scene) -> None:
    switch = broken.folder / "stop"
    async with opened(broken) as (app, pilot):
        await say(pilot, "stop everything, please")
        await until(pilot, lambda: app.kill_switch is not None, "the kill switch")
        assert switch.is_file()
        await until(pilot, lambda: "Stopped" in seen_text(app), "what came of it")
        for message in (None, OpenIncident(1), OpenJob("1"), OpenNodes("node02")):
            if message is not None:
                app.post_message(message)
            await until(pilot, lambda: app.screen.query("KillSwitchBanner.-set"), f"the line on top at {message}")
            told = str(app.screen.query_one(KillSwitchBanner).render())
            assert "chat:alice" in told
            assert "stop everything" in told
            while app.screen is not app.main:
                await app.pop_screen()
        app.post_message(OpenApproval(1))
        await seen(pilot, ApprovalScreen, broken.clock)
        dialog = app.screen
        assert isinstance(dialog, ApprovalScreen)
        assert dialog.query_one("#yes").disabled
        await until(pilot, lambda: dialog.query("KillSwitchBanner.-set"), "the line above the dialog")
        await pilot.press("y")
        await until(pilot, lambda: "stopped by" in dialog.hinted, "why not")
        broken.clock.sleep(PAUSE_S)
        await pilot.pause(0.15)
        await pilot.press("escape")
        app.backend.settle(1, Verdict.ALLOW)  # another way to the same answer
        await until(pilot, lambda: any("was kept" in one.message for one in app._notifications), "a word about it")
        assert broken.engine.store.approval(1).verdict is None

        await say(pilot, "go on")
        await seen(pilot, LiftScreen, broken.clock)
        await pilot.press("enter", "escape")
        await until(pilot, lambda: "stays set" in seen_text(app), "that it stays")
        assert switch.is_file()
        await say(pilot, "/stop --lift")
        await deliberately(pilot, LiftScreen, "y", broken.clock)
        await until(pilot, lambda: app.kill_switch is None, "the end of it")
        assert not switch.exists()
        app.post_message(OpenApproval(1))
        await deliberately(pilot, ApprovalScreen, "y", broken.clock)
        await until(pilot, lambda: broken.engine.store.approval(1).verdict is Verdict.ALLOW, "the answer that was kept")


async def test_a_slip_behind_stop_stops_nothing_and_says_so(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await say(pilot, "/stop --lfit")
        await until(pilot, lambda: any("--lift" in one.message for one in app._notifications), "a word about it")
        assert prompt(app).text == "/stop --lfit"
        assert not (broken.folder / "stop").exists()


async def test_a_switch_that_another_set_shows_while_a_dialog_is_open(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        app.post_message(OpenApproval(1))
        await seen(pilot, ApprovalScreen, broken.clock)
        await pilot.press("y")
        (broken.folder / "stop").write_text("2026-01-05T02:00:00Z cli:root: fire \x1b[2J\n")
        await until(pilot, lambda: app.kill_switch is not None, "the kill switch")
        broken.clock.sleep(PAUSE_S)
        await pilot.pause(0.15)
        assert broken.engine.store.approval(1).verdict is None
        told = str(app.screen.query_one(KillSwitchBanner).render())
        assert "cli:root: fire" in told
        assert "\x1b" not in told
