"""What the commands that begin with a slash do: answers, panels, screens, and changes that are shown before they are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.policy import Mode
from assistant.records import Verdict
from assistant.tui.app import ChatApp
from assistant.tui.commands import Takes
from assistant.tui.screens.changes import RecoveryScreen, UndoScreen
from assistant.tui.widgets.exchange import Exchange
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.typing_in import answered, conversation, prompt, say, seen_text
from tests.tui.waiting import deliberately, until

ANSWERED = (
    ("/explain 1", "Incident 1: ecc_error"),
    ("/explain 99", "incident 99 is unknown"),
    ("/model", "Without a language model"),
    ("/mode", "a person says yes to every change"),
    ("/recover 1", "Waits for you"),
    ("/recover 77", "77' is unknown"),
    ("/undo 99", "99"),
)


async def test_a_command_is_answered_in_the_conversation(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await until(pilot, lambda: app.talk.answers, "who answers")
        for number, (line, sees) in enumerate(ANSWERED, 1):
            await say(pilot, line)
            await until(
                pilot,
                lambda number=number, line=line, sees=sees: sees in seen_text(app, number).removeprefix(f"› {line}"),  # type: ignore[misc]
                f"{sees} for {line}; seen:\n{seen_text(app)}",
            )


async def test_recover_shows_every_change_and_begins_once_the_person_says_yes(tmp_path: Path) -> None:
    scene = Scene(tmp_path)  # in act mode: nothing else would ask
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(120)
    async with opened(scene) as (app, pilot):
        await say(pilot, "/recover 1")
        await until(pilot, lambda: isinstance(app.screen, RecoveryScreen), "the plan")
        await pilot.press("escape")
        await until(pilot, lambda: "was left as it is" in seen_text(app), "what came of it")
        assert not scene.engine.store.incidents()
        await say(pilot, "/recover 1")
        await deliberately(pilot, RecoveryScreen, "y", scene.clock)
        await until(pilot, lambda: "is at work on job" in seen_text(app), "the work")
        await until(pilot, lambda: len(scene.cluster.jobs()) == 2, "the restart")
        assert "cordon node02" in " ".join(scene.cluster.changes)


LEADS = (
    ("/incidents", "panel-incidents"),
    ("/waiting", "panel-approvals"),
    ("/happened", "panel-happened"),
    ("/jobs", "panel-jobs"),
    ("/nodes", "panel-nodes"),
    ("/approve 1", "ApprovalScreen"),
    ("/help", "KeysScreen"),
    ("/log 1", "LogScreen"),
    ("/incident 1", "IncidentScreen"),
    ("/job 1", "JobScreen"),
    ("/node node02", "NodesScreen"),
)


async def test_a_command_leads_to_a_panel_or_opens_a_screen(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        for line, wanted in LEADS:
            await say(pilot, line)
            await until(pilot, lambda wanted=wanted: wanted in places(app), wanted)  # type: ignore[misc]
            if "Screen" in wanted:
                shown = app.screen
                subject = {"IncidentScreen": "incident", "JobScreen": "job", "NodesScreen": "names"}.get(wanted)
                assert subject is None or getattr(shown, subject) in (1, "1", ("node02",))
                await pilot.press("escape")
                await until(pilot, lambda shown=shown: app.screen is not shown, "the way back")  # type: ignore[misc]
            await pilot.press("escape")


def places(app: ChatApp) -> set[str]:
    """Return the screen that is open and the panel that has the focus."""
    focused = app.main.focused
    panels = {one.id for one in focused.ancestors if one.id} if focused is not None else set()
    return {type(app.screen).__name__, *(panels if app.screen is app.main else ())}


@pytest.mark.parametrize("mode", [Mode.PROPOSE, Mode.ACT])
async def test_an_undo_shows_its_command_before_and_is_done_after_a_yes(broken: Scene, mode: Mode) -> None:
    cordon = broken.engine.store.approval(1).call
    assert broken.engine.store.answer(1, Verdict.ALLOW, "cli:bob")
    assert broken.engine.gate.go_on(cordon).ok
    broken.mode = mode  # in act mode nothing else would ask
    broken.started()
    async with opened(broken) as (app, pilot):
        await until(
            pilot,
            lambda: [one.name for one in app.talk._commands.existing_values(Takes.CALL)] == [str(cordon)],
            "what can be taken back",
        )
        await say(pilot, f"/undo {cordon}")
        await until(pilot, lambda: isinstance(app.screen, UndoScreen), "the question")
        assert "State=RESUME" in str(app.screen.query_one(".asks-change").render())
        await pilot.press("escape")
        await until(pilot, lambda: "was left as it is" in seen_text(app), "what came of it")
        assert broken.engine.store.call(cordon).status == "done"
        await say(pilot, f"/undo {cordon}")
        await deliberately(pilot, UndoScreen, "y", broken.clock, name="node02")
        await until(pilot, lambda: broken.engine.store.call(cordon).status == "undone", "the way back")


async def test_a_slip_in_a_command_stays_at_the_prompt(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await say(pilot, "/incidnet 1")
        await until(pilot, lambda: any("did you mean /incident" in one.message for one in app._notifications), "the nearest")
        assert prompt(app).text == "/incidnet 1"
        assert list(conversation(app).query(Exchange)) == []


async def test_colours_are_changed_and_the_screen_is_cleared(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await say(pilot, "/theme nightshift-light")
        await until(pilot, lambda: app.theme == "nightshift-light", "the theme")
        await say(pilot, "/theme nightshfit")
        assert app.theme == "nightshift-light"
        await pilot.press("ctrl+c")
        await say(pilot, "what is wrong now?")
        await answered(pilot, 1)
        await say(pilot, "/clear")
        await until(pilot, lambda: not conversation(app).query(Exchange), "the empty screen")
        assert len(conversation(app).entries) == 2
        assert "1 earlier" in seen_text(app)
        await say(pilot, "/quit")
    assert app.return_code == 0
