"""What a screen hides does not change until it is seen again: Textual would draw the upper one anew for it."""

from __future__ import annotations

import threading

import pytest
from textual.message import Message

from assistant.records import Verdict
from assistant.tui.frame import StatusBar
from assistant.tui.messages import ActionReport, OpenIncident, OpenJob, OpenNodes, OpenPlaybook
from assistant.tui.screens.changes import RecoveryScreen
from assistant.tui.screens.main import PlaybookScreen
from assistant.tui.widgets.conversation import Welcome
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.typing_in import say
from tests.tui.waiting import until


def refuse(scene: Scene) -> None:
    """Answer what waits, as another door."""
    other = scene.store()
    try:
        assert other.answer(other.approvals()[0].id, Verdict.DENY, "cli:bob", why="no")
    finally:
        other.close()


async def test_the_first_screen_waits_and_catches_up(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        bar, welcome = app.main.query_one(StatusBar), app.main.query_one(Welcome)
        await until(
            pilot, lambda: "1 waits for you" in str(bar.render()) and "what waits for me?" in welcome.examples, "what waits"
        )
        app.post_message(OpenPlaybook(next(iter(app.playbooks()))))
        await until(pilot, lambda: isinstance(app.screen, PlaybookScreen), "a screen on top")
        refuse(broken)
        await until(pilot, lambda: app.store_snapshot and not app.store_snapshot.approvals, "the answer of the other door")
        assert "1 waits for you" in str(bar.render())
        await pilot.press("escape")
        await until(pilot, lambda: "waits for you" not in str(bar.render()), "the first line without what waited")
        assert "what waits for me?" not in welcome.examples


async def test_a_question_on_top_hides_nothing(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        bar = app.main.query_one(StatusBar)
        await until(pilot, lambda: "1 waits for you" in str(bar.render()), "what waits")
        await pilot.press("f1")
        await until(pilot, lambda: app.screen.is_modal, "the keys on top")
        refuse(broken)
        await until(pilot, lambda: "waits for you" not in str(bar.render()), "the first line below it")


@pytest.mark.parametrize("opens", [OpenIncident(1), OpenJob("1"), OpenNodes("node01")], ids=["incident", "job", "nodes"])
async def test_screens_of_incidents_jobs_and_nodes_wait_and_catch_up(broken: Scene, opens: Message) -> None:
    async with opened(broken) as (app, pilot):
        app.post_message(opens)
        await until(pilot, lambda: getattr(app.screen, "snapshot", None), "the screen")
        below = app.screen
        app.post_message(OpenPlaybook(next(iter(app.playbooks()))))
        await until(pilot, lambda: isinstance(app.screen, PlaybookScreen), "a screen on top")
        await until(pilot, lambda: not app.backend._lanes["read"].busy, "what was asked before")
        before = below.snapshot  # type: ignore[attr-defined]
        refuse(broken)
        await until(pilot, lambda: app.store_snapshot and not app.store_snapshot.approvals, "the answer of the other door")
        await pilot.pause(0.3)
        assert below.snapshot is before  # type: ignore[attr-defined]
        await pilot.press("escape")
        await until(pilot, lambda: below.snapshot is not before, "what happened meanwhile")  # type: ignore[attr-defined]


async def test_a_question_does_not_jump_over_a_screen_that_was_opened_meanwhile(broken: Scene) -> None:
    refuse(broken)
    async with opened(broken) as (app, pilot):
        app.post_message(OpenIncident(1))
        await until(pilot, lambda: getattr(app.screen, "snapshot", None), "the screen")
        held = threading.Event()
        app.backend.read("held", lambda _engine: held.wait(20), lambda _: ActionReport("held", ok=True), lane="nodes")
        await pilot.press("r")
        app.post_message(OpenPlaybook(next(iter(app.playbooks()))))
        await until(pilot, lambda: isinstance(app.screen, PlaybookScreen), "a screen on top")
        held.set()
        await until(pilot, lambda: any("ask there again" in one.message for one in app._notifications), "a word about it")
        assert isinstance(app.screen, PlaybookScreen)
        await pilot.press("escape", "r")
        await until(pilot, lambda: isinstance(app.screen, RecoveryScreen), "the question")


async def test_nor_does_one_of_a_command(broken: Scene) -> None:
    refuse(broken)
    async with opened(broken) as (app, pilot):
        held = threading.Event()
        app.backend.read("held", lambda _engine: held.wait(20), lambda _: ActionReport("held", ok=True), lane="nodes")
        await say(pilot, "/recover 1")
        app.post_message(OpenPlaybook(next(iter(app.playbooks()))))
        await until(pilot, lambda: isinstance(app.screen, PlaybookScreen), "a screen on top")
        held.set()
        await until(pilot, lambda: any("ask there again" in one.message for one in app._notifications), "a word about it")
        assert isinstance(app.screen, PlaybookScreen)
        await pilot.press("escape")
        await say(pilot, "/recover 1")
        await until(pilot, lambda: isinstance(app.screen, RecoveryScreen), "the question")
