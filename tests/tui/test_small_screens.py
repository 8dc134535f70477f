"""The question before a change, the list of keys, a playbook, and the palette that finds things by name."""

from __future__ import annotations

from dataclasses import replace

from textual.command import Command, CommandPalette
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from assistant.records import Verdict
from assistant.tui.commands import COMMANDS
from assistant.tui.frame import DARK, LIGHT
from assistant.tui.messages import OpenApproval, OpenPlaybook
from assistant.tui.screens.changes import ApprovalScreen
from assistant.tui.screens.incident import IncidentScreen
from assistant.tui.screens.main import KeysScreen, PlaybookScreen
from assistant.tui.screens.records import JobScreen, NodesScreen
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.waiting import PAUSE_S, deliberately, seen, until


def text_of(screen: object) -> str:
    return "\n".join(str(one.render()) for one in screen.query(Static))  # type: ignore[attr-defined]


async def found(pilot: Pilot[int], typed: str, wanted: str) -> None:
    """Type into the palette and put its cursor on what is wanted, once it lists that: it lists what it finds as it comes."""
    await pilot.press("ctrl+p")
    await until(pilot, lambda: isinstance(pilot.app.screen, CommandPalette))
    pilot.app.screen.query_one(Input).value = typed
    hits = pilot.app.screen.query_one("CommandList", OptionList)

    def place() -> int:
        options = [option for option in hits.options if isinstance(option, Command)]
        shown = [str(option.hit.text or "") for option in options]
        return next((at for at, text in enumerate(shown) if wanted in text), -1)

    await until(
        pilot,
        lambda: place() >= 0 and not pilot.app.screen.query_one("LoadingIndicator").has_class("--visible"),
        f"{wanted} for {typed!r}",
    )
    hits.highlighted = place()


async def test_the_question_shows_command_why_risk_undo_and_rule(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await pilot.press("f3", "enter")
        await until(pilot, lambda: isinstance(app.screen, ApprovalScreen))
        told = text_of(app.screen)
        for part in (
            "scontrol update NodeName=node02 State=DRAIN",
            "changes something, can be undone",
            "nightshift undo",
            "mode.propose",
        ):
            assert part in told


async def test_a_key_by_habit_allows_nothing(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await pilot.press("f3")
        for key in ("enter", "escape"):
            await pilot.press("enter")
            await seen(pilot, ApprovalScreen, broken.clock)
            await pilot.press("space")
            assert isinstance(app.screen, ApprovalScreen)
            await pilot.press(key)
            broken.clock.sleep(PAUSE_S)
            await pilot.press("escape")
            await until(pilot, lambda: app.screen is app.main, f"the way back by {key}")
        await until(pilot, lambda: not any(lane.busy for name, lane in app.backend._lanes.items() if name == "act"))
        assert broken.engine.store.approval(1).verdict is None
        assert len(broken.cluster.changes) == 1


async def test_y_allows_and_the_incident_goes_on(broken: Scene) -> None:
    async with opened(broken) as (_app, pilot):
        await pilot.press("f3", "enter")
        await deliberately(pilot, ApprovalScreen, "y", broken.clock)
        await until(pilot, lambda: any(change.startswith("cordon") for change in broken.cluster.changes), "the cordon")
        answered = broken.engine.store.approval(1)
        assert (answered.verdict, answered.by) == (Verdict.ALLOW, "chat:alice")


async def test_n_asks_why_and_refuses(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await pilot.press("f3", "enter")
        await deliberately(pilot, ApprovalScreen, "n", broken.clock)
        assert isinstance(app.screen.focused, Input)
        await pilot.press("m", "i", "n", "e", "enter")
        await until(pilot, lambda: broken.engine.store.approval(1).verdict is Verdict.DENY, "the refusal")
        assert broken.engine.store.approval(1).answer_why == "mine"


async def test_i_shows_the_incident_first(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await pilot.press("f3", "enter")
        await deliberately(pilot, ApprovalScreen, "i", broken.clock)
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen))
        assert broken.engine.store.approval(1).verdict is None


async def test_a_question_that_is_answered_elsewhere_closes(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await pilot.press("f3", "enter")
        await until(pilot, lambda: isinstance(app.screen, ApprovalScreen))
        other = broken.store()
        assert other.answer(1, Verdict.DENY, "cli:bob")
        other.close()
        await until(pilot, lambda: not isinstance(app.screen, ApprovalScreen), "the question to close")


async def test_a_question_that_waits_no_more_is_said(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        app.post_message(OpenApproval(77))
        await until(pilot, lambda: any("waits no more" in one.message for one in app._notifications))


async def test_a_question_younger_than_what_was_read_of_the_store_is_asked(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        assert app.store_snapshot is not None
        app.store_snapshot = replace(app.store_snapshot, approvals=())
        app.post_message(OpenApproval(1))
        await until(pilot, lambda: isinstance(app.screen, ApprovalScreen), "the question")
        assert [one.approval.id for one in app.store_snapshot.approvals] == [1]


async def test_the_keys_of_the_screen_below_are_listed(broken: Scene) -> None:
    async with opened(broken, (120, 60)) as (app, pilot):
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, KeysScreen))
        told = text_of(app.screen)
        assert "Waiting" in told
        assert all(f"/{command.name}" in told for command in COMMANDS)
        await pilot.press("j", "k", "escape")
        await until(pilot, lambda: app.screen is app.main)


async def test_every_playbook_can_be_read(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await until(pilot, app.playbooks)
        for name, book in app.playbooks().items():
            app.post_message(OpenPlaybook(name))
            await until(pilot, lambda: isinstance(app.screen, PlaybookScreen), name)
            told = text_of(app.screen)
            assert all(step.use in told for step in book.step)
            assert all(check.use in told for check in book.verify)
            await pilot.press("j", "k", "escape")
            await until(pilot, lambda: app.screen is app.main)


FOUND = (
    ("incident 1 job 1 ecc", "incident 1 job 1 ecc_error", IncidentScreen),
    ("approval 1", "approval 1:", ApprovalScreen),
    ("job 1 llm", "job 1 llm", JobScreen),
    ("node node03", "node node03", NodesScreen),
    ("playbook faulty", "playbook faulty_node", PlaybookScreen),
)


async def test_the_palette_finds_records_by_name_and_leads_to_a_panel(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await until(pilot, app.playbooks)
        for typed, wanted, screen in FOUND:
            await found(pilot, typed, wanted)
            await pilot.press("enter")
            await until(pilot, lambda screen=screen: isinstance(app.screen, screen), typed)  # type: ignore[misc]
            await pilot.press("escape")
            await until(pilot, lambda: app.screen is app.main, "the way back")
        await found(pilot, "show what happened", "show what happened")
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main and app.main.query_one("#panel-happened").has_focus_within, "the panel")


async def test_ctrl_t_changes_between_dark_and_light(scene: Scene) -> None:
    async with opened(scene) as (app, pilot):
        assert app.theme == DARK.name
        await pilot.press("ctrl+t")
        assert app.theme == LIGHT.name
        await pilot.press("ctrl+t")
        assert app.theme == DARK.name
