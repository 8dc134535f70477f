"""Typing without looking allows no change: every sentence and key sequence of the corpus at every moment of a dialog's life."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import Button, Input

import assistant.tui
from assistant.agent.answer import Answer, AnswerKind, Listener
from assistant.agent.semantic import SemanticAgent
from assistant.engine import Engine
from assistant.gate.consent import AFTER_S, BEFORE_S
from assistant.records import Call, CallStatus, Decision, Verdict
from assistant.tui.app import ChatApp
from assistant.tui.messages import OpenApproval
from assistant.tui.screens.changes import ApprovalScreen
from assistant.tui.screens.consent import TYPING_S, ConsentScreen
from assistant.tui.screens.main import KeysScreen
from assistant.tui.widgets.exchange import ProposalCard
from tests.adversary.typed_keys import PACES_S, Keys, corpus, drawn, is_yes, samples, send
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.typing_in import answered, exchange, prompt, say
from tests.tui.waiting import PAUSE_S, deliberately, seen, until

pytestmark = pytest.mark.slow

ALL = tuple(corpus())
CHANGES_NOTHING = {KeysScreen}
"""Modal screens that lead to no change."""


@pytest.fixture
def broken(tmp_path: Path) -> Scene:
    """A job has died of a GPU; the cordon of its node waits for a yes."""
    from assistant.policy import Mode

    scene = Scene(tmp_path, mode=Mode.PROPOSE)
    scene.cluster.submit(scene.spec)
    scene.watch(120)
    assert scene.engine.store.approvals()
    return scene


class FirstQuestionOnly:
    """Answers the first question as always and all later ones with a word: thousands of sentences are asked."""

    def __init__(self, engine: Engine) -> None:
        self._agent: SemanticAgent | None = SemanticAgent(engine.gate, engine.clock)

    def ask(self, question: str, *, trusted: bool = True, listener: Listener | None = None) -> Answer:
        agent, self._agent = self._agent, None
        return agent.ask(question, listener=listener) if agent is not None else Answer("Noted.", AnswerKind.ANSWER, "semantic")


def park(scene: Scene, tool: str, **arguments: Any) -> int:
    """Let a change wait for a person, and return its approval."""
    from datetime import timedelta

    store, now = scene.engine.store, scene.clock.now()
    call = Call(0, None, tool, arguments, "asked for", "agent", now, CallStatus.PENDING, preview=f"{tool} {arguments}")
    written = store.write_call(call, kind="cancel")
    return store.park(written.id, Decision(Verdict.ASK, "mode.propose", "policy", now), now + timedelta(days=30))


async def dialog_of(app: ChatApp, pilot: Pilot[int], approval: int) -> ApprovalScreen:
    """Open the dialog of an approval and return it once it is drawn."""
    app.post_message(OpenApproval(approval))
    await until(pilot, lambda: isinstance(app.screen, ApprovalScreen), "the dialog")
    dialog = app.screen
    assert isinstance(dialog, ApprovalScreen)
    await drawn(pilot, dialog)
    return dialog


def nothing_was_answered(scene: Scene) -> bool:
    """Tell whether no approval has an answer and no node was touched."""
    approvals = scene.engine.store.approvals(pending_only=False)
    assert [(one.id, one.verdict) for one in approvals if one.verdict is not None] == []
    assert not [change for change in scene.cluster.changes if change.startswith(("cordon", "uncordon", "cancel", "requeue"))]
    return True


# --- dialogs


def test_every_modal_screen_that_can_lead_to_a_change_answers_only_to_a_deliberate_act() -> None:
    found = set()
    for module in pkgutil.walk_packages(assistant.tui.__path__, "assistant.tui."):
        members = vars(importlib.import_module(module.name)).values()
        found |= {
            one for one in members if isinstance(one, type) and issubclass(one, ModalScreen) and one.__module__ == module.name
        }
    assert len(found) >= 6
    assert {one for one in found if not issubclass(one, ConsentScreen)} == CHANGES_NOTHING


async def test_there_is_a_sample_of_every_dialog(broken: Scene) -> None:
    async with opened(broken) as (app, _pilot):
        made = {type(one) for one in samples(broken, app).values()}
    known: set[Any] = set()
    waiting: list[Any] = [ConsentScreen]
    while waiting:
        subclasses = [one for one in waiting.pop().__subclasses__() if one.__module__.startswith("assistant.")]
        known |= set(subclasses)
        waiting += subclasses
    assert made == known


async def back_to_main(app: ChatApp) -> None:
    """Close what lies on the first screen, and empty the prompt."""
    while app.screen is not app.main:
        await app.pop_screen()
    prompt(app).text = ""


async def typed_at(app: ChatApp, pilot: Pilot[int], dialog: ConsentScreen[Any], keys: Keys, pace_s: float) -> list[object]:
    """Show a dialog to somebody who looks at it, then type; return what it was answered with once all pauses are over."""
    clock: Any = app.backend.clock
    results: list[object] = []
    if app.screen is not dialog:
        await back_to_main(app)
        await app.push_screen(dialog, results.append)
    await drawn(pilot, dialog)
    clock.sleep(PAUSE_S)
    send(app, keys, pace_s)
    await pilot.pause()
    clock.sleep(PAUSE_S)
    for _ in range(3):
        if dialog.is_current:
            dialog._look()
    return results


DIALOGS = ("approval", "undo", "undo that is final", "recovery", "recovery that is final", "lift")


async def all_typed_at(scene: Scene, name: str, some: Sequence[Keys]) -> None:
    """Type at a dialog, at paces that take turns."""
    async with opened(scene) as (app, pilot):
        app.animation_level = "none"
        dialog = samples(scene, app)[name]
        for number, keys in enumerate(some):
            if not dialog.is_attached:
                dialog = samples(scene, app)[name]
            results = await typed_at(app, pilot, dialog, keys, PACES_S[number % len(PACES_S)])
            assert not any(map(is_yes, results)), f"{keys} answered {name}"
            assert not dialog._field, f"{keys} led to the last step of {name}"
        assert nothing_was_answered(scene)


@pytest.mark.parametrize("name", DIALOGS)
async def test_no_sentence_answers_a_dialog_that_is_being_looked_at(broken: Scene, name: str) -> None:
    await all_typed_at(broken, name, ALL[DIALOGS.index(name) :: 4 * len(DIALOGS)])


@pytest.mark.parametrize("name", DIALOGS)
async def test_no_sentence_of_all_answers_a_dialog(broken: Scene, name: str) -> None:
    await all_typed_at(broken, name, ALL[DIALOGS.index(name) :: 3])


async def opening(scene: Scene, some: Sequence[Keys]) -> None:
    """Type while a dialog opens."""
    async with opened(scene) as (app, pilot):
        app.animation_level = "none"
        for number, keys in enumerate(some):
            app.post_message(OpenApproval(1))
            send(app, keys, PACES_S[number % len(PACES_S)])
            await pilot.pause()
            scene.clock.sleep(PAUSE_S)
            if isinstance(app.screen, ConsentScreen):
                app.screen._look()
                app.screen._look()
            await back_to_main(app)
        assert nothing_was_answered(scene)


async def test_keys_that_come_while_a_dialog_opens_answer_nothing(broken: Scene) -> None:
    await opening(broken, ALL[::31])


async def test_no_keys_of_all_that_come_while_a_dialog_opens_answer_it(broken: Scene) -> None:
    await opening(broken, ALL[::6])


# --- the card in the conversation


@asynccontextmanager
async def proposed(scene: Scene) -> AsyncIterator[tuple[ChatApp, Pilot[int], Button]]:
    """A card of the agent waits in the conversation; its button `Allow...` has the focus."""
    async with opened(scene, agent=FirstQuestionOnly) as (app, pilot):
        app.animation_level = "none"
        await say(pilot, "cordon node03")
        await answered(pilot, 1)
        button = exchange(app, 1).query_one(ProposalCard).query_one(".allow", Button)
        await until(pilot, lambda: app.store_snapshot and len(app.store_snapshot.approvals) == 2, "both approvals")
        yield app, pilot, button


MOMENTS = ("focused", "opened", "closed", "reopened", "list")


async def typed_around_a_card(scene: Scene, some: Sequence[tuple[str, Keys]]) -> None:
    """Type at moments around the question of a card."""
    async with proposed(scene) as (app, pilot, button):
        for number, (moment, keys) in enumerate(some):
            if moment == "list":
                app.action_panel("approvals")
            else:
                button.focus()
            if moment in ("opened", "closed", "reopened"):
                send(app, ("enter",))
                await until(pilot, lambda: isinstance(app.screen, ApprovalScreen), "the dialog")
            if moment in ("closed", "reopened"):
                send(app, ("escape",))
                await until(pilot, lambda: app.screen is app.main, "the way back")
                assert prompt(app).has_focus
            if moment == "reopened":
                send(app, ("enter",))
            send(app, keys, PACES_S[number % len(PACES_S)])
            await pilot.pause()
            scene.clock.sleep(PAUSE_S)
            await pilot.pause()
            if isinstance(app.screen, ConsentScreen):
                app.screen._look()
                app.screen._look()
            await back_to_main(app)
            app.main.action_talk()
        assert nothing_was_answered(scene)


async def test_typing_at_a_card_before_in_and_after_its_dialog_allows_nothing(broken: Scene) -> None:
    await typed_around_a_card(broken, [(MOMENTS[number % len(MOMENTS)], keys) for number, keys in enumerate(ALL[5::23])])


@pytest.mark.parametrize("moment", MOMENTS)
async def test_typing_all_at_a_card_allows_nothing(broken: Scene, moment: str) -> None:
    await typed_around_a_card(broken, [(moment, keys) for keys in ALL[MOMENTS.index(moment) :: 9]])


async def test_letters_on_a_card_go_to_the_prompt(broken: Scene) -> None:
    async with proposed(broken) as (app, pilot, button):
        button.focus()
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ApprovalScreen), "the dialog")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main, "the way back")
        assert prompt(app).has_focus
        for focus in (button, app.main.query_one("#panel-approvals").query_one("Rows"), None):
            prompt(app).text = ""
            app.main.set_focus(focus)
            await pilot.press(*"why node2")
            assert prompt(app).text == "why node2"
        button.focus()
        prompt(app).text = ""
        app.post_message(events.Paste("y\nyes\n"))
        await until(pilot, lambda: prompt(app).text == "y\nyes\n", "the paste in the prompt")


# --- pastes and the mouse


async def test_a_paste_answers_nothing(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        for text in ("y", "y\n", "yes\n", "node02\n"):
            app.post_message(OpenApproval(1))
            await seen(pilot, ApprovalScreen, broken.clock)
            app.post_message(events.Paste(text))
            await pilot.pause()
            broken.clock.sleep(PAUSE_S)
            await pilot.pause(0.15)
            assert isinstance(app.screen, ApprovalScreen)
            await back_to_main(app)
        assert nothing_was_answered(broken)


async def test_clicks_answer_only_alone_after_a_look_and_on_the_button(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        dialog = await dialog_of(app, pilot, 1)
        await pilot.click("#yes")  # before it can have been read
        assert dialog.guard.pending is None
        broken.clock.sleep(PAUSE_S)
        await pilot.click("#yes", times=2)  # a double click
        assert dialog.guard.pending is None
        for place in product(range(0, 120, 23), range(0, 40, 9)):
            if dialog.query_one("#yes").region.contains(*place) or dialog.query_one("#leave").region.contains(*place):
                continue
            broken.clock.sleep(PAUSE_S)
            await pilot.click(offset=place)
            assert dialog.guard.pending in (None, "no"), place
            dialog.guard.draw(broken.clock.ticks())
        for button in (2, 3):  # the middle one pastes in terminals, the right one opens a menu
            broken.clock.sleep(PAUSE_S)
            await pilot.click("#yes", button=button)
            assert dialog.guard.pending is None
        broken.clock.sleep(PAUSE_S)
        await pilot.click("#yes")
        await until(
            pilot,
            lambda: dialog.guard.pending == "yes",
            f"one click alone: {dialog.hinted!r} {dialog.is_current} {dialog._field} {vars(dialog.guard)}",
        )
        assert nothing_was_answered(broken)
        broken.clock.sleep(AFTER_S + 0.01)
        await until(pilot, lambda: broken.engine.store.approval(1).verdict is Verdict.ALLOW, "the answer")


# --- what is meant is done


async def test_a_key_that_is_meant_is_obeyed_within_its_pauses(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        dialog = await dialog_of(app, pilot, 1)
        broken.clock.sleep(BEFORE_S + 0.2)
        await pilot.press("y")
        await until(pilot, lambda: dialog.guard.pending == "yes", f"y: {dialog.hinted}")
        broken.clock.sleep(AFTER_S + 0.05)
        await until(pilot, lambda: broken.engine.store.approval(1).verdict is Verdict.ALLOW, "the answer")
        assert broken.engine.store.approval(1).by == "chat:alice"


async def test_a_terminal_too_small_to_read_a_command_allows_nothing(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        dialog = await dialog_of(app, pilot, 1)
        await pilot.resize_terminal(20, 6)
        await until(pilot, lambda: "too small" in dialog.obstacle, "the new size")
        broken.clock.sleep(BEFORE_S + TYPING_S)
        await pilot.press("y")
        await until(pilot, lambda: "too small" in dialog.hinted, "why not")
        broken.clock.sleep(AFTER_S + 0.05)
        await pilot.pause(0.1)
        assert broken.engine.store.approval(1).verdict is None
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: not dialog.obstacle, "the old size")
        broken.clock.sleep(BEFORE_S + TYPING_S)
        await pilot.press("y")
        await until(pilot, lambda: dialog.guard.pending == "yes", f"y: {dialog.hinted}")


async def refused_as_pasted(pilot: Pilot[int], dialog: ConsentScreen[Any], keys: Keys) -> None:
    """Send keys that end with Enter, and wait until the dialog says that the name was pasted."""
    dialog.hint()
    send(pilot.app, keys)
    await until(pilot, lambda: "by hand" in dialog.hinted, "why not")
    assert dialog.query_one("#consent-name", Input).value == ""
    assert dialog.guard.pending is None


async def test_what_cannot_be_undone_asks_for_its_name_typed_by_hand(broken: Scene) -> None:
    number = park(broken, "cancel_job", job="4821")
    async with opened(broken) as (app, pilot):
        app.post_message(OpenApproval(number))
        await deliberately(pilot, ApprovalScreen, "y", broken.clock)
        dialog = app.screen
        assert isinstance(dialog, ApprovalScreen)
        field = dialog.query_one("#consent-name", Input)
        assert field.has_focus
        for wrong in (("enter",), (*"482", "enter"), (*"yes", "enter"), (*"why 4821", "enter")):
            for key in wrong:
                broken.clock.sleep(0.2)
                await pilot.press(key)
            assert dialog.guard.pending is None
            assert field.value == ""
        app.post_message(events.Paste("4821"))
        app.copy_to_clipboard("4821")
        await pilot.press("ctrl+v")
        assert field.value == ""
        # pastes that the terminal sends as keys: with Enter, and with Enter after a while, also where something was typed before
        await refused_as_pasted(pilot, dialog, (*"4821", "enter"))
        for before in ((), (*"xx", "backspace", "backspace")):
            for key in before:
                broken.clock.sleep(0.2)
                await pilot.press(key)
            broken.clock.sleep(0.2)
            send(app, tuple("4821"))
            await until(pilot, lambda: field.value == "4821", "the paste")
            broken.clock.sleep(PAUSE_S)
            await refused_as_pasted(pilot, dialog, ("enter",))
        for key in (*"4821", "enter"):
            broken.clock.sleep(0.2)
            await pilot.press(key)
        await until(pilot, lambda: dialog.guard.pending == "name", f"the name: {dialog.hinted}")
        broken.clock.sleep(PAUSE_S)
        await until(pilot, lambda: broken.engine.store.approval(number).verdict is Verdict.ALLOW, "the answer")


# --- several approvals, and other commands


async def test_a_double_enter_opens_one_dialog_and_a_new_approval_replaces_none(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await pilot.press("f3")
        send(app, ("enter", "enter"))
        await until(pilot, lambda: isinstance(app.screen, ApprovalScreen), "the dialog")
        app.post_message(OpenApproval(1))
        second = park(broken, "cordon_node", node="node05", reason="x")
        await until(pilot, lambda: app.store_snapshot and len(app.store_snapshot.approvals) == 2, "the second approval")
        app.post_message(OpenApproval(second))
        await pilot.pause()
        assert [type(one) for one in app.screen_stack].count(ApprovalScreen) == 1
        await deliberately(pilot, ApprovalScreen, "y", broken.clock)
        await until(pilot, lambda: broken.engine.store.approval(1).verdict is Verdict.ALLOW, "the one that was shown")
        assert broken.engine.store.approval(second).verdict is None


async def test_the_cursor_stays_on_its_approval_while_others_come_and_go(broken: Scene) -> None:
    numbers = [1, *(park(broken, "cordon_node", node=f"node0{place}", reason="x") for place in (4, 5, 6))]
    async with opened(broken) as (app, pilot):
        await pilot.press("f3", "down", "down")
        rows: Any = app.main.query_one("#panel-approvals").query_one("Rows")
        assert rows.cursor_key == str(numbers[2])
        assert broken.engine.store.answer(1, Verdict.DENY, "cli:bob")
        park(broken, "cordon_node", node="node07", reason="x")
        await until(
            pilot,
            lambda: app.store_snapshot and [one.approval.id for one in app.store_snapshot.approvals] == [*numbers[1:], 5],
            "the list",
        )
        await pilot.pause()
        assert rows.cursor_key == str(numbers[2])


async def test_a_command_that_changed_while_its_dialog_was_open_is_not_allowed(broken: Scene) -> None:
    store = broken.engine.store
    async with opened(broken) as (app, pilot):
        app.post_message(OpenApproval(1))
        await seen(pilot, ApprovalScreen, broken.clock)
        call = store.approval(1).call
        shown = app.store_snapshot.approvals[0] if app.store_snapshot else None
        with store.transaction() as connection:
            connection.execute("UPDATE calls SET preview = 'scontrol update NodeName=node07 State=DRAIN' WHERE id = ?", [call])
        app.backend.look_again()
        dialog = app.screen
        assert isinstance(dialog, ApprovalScreen)
        await until(pilot, lambda: "another one now" in dialog.obstacle, "the dialog to say so")
        await seen(pilot, ApprovalScreen, broken.clock)
        await pilot.press("y")
        broken.clock.sleep(PAUSE_S)
        await pilot.pause(0.15)
        assert dialog.is_current
        app.backend.settle(1, Verdict.ALLOW, snapshot=shown)  # and where the dialog could not see it in time
        await until(pilot, lambda: any("another command now" in one.message for one in app._notifications), "a word about it")
        assert store.approval(1).verdict is None
        if shown is not None and shown.approval.digest:
            other = replace(shown, approval=replace(shown.approval, digest="0" * 64), call=store.call(call))
            app.backend.settle(1, Verdict.ALLOW, snapshot=other)
            await until(pilot, lambda: any("not answered" in one.message for one in app._notifications), "another digest")
            assert store.approval(1).verdict is None
