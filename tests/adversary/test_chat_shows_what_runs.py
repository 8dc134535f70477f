"""What a person of the chat is shown is what is stored and what runs: undos, plans, the agent's words; no name hides buttons."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from assistant.agent.semantic import SemanticAgent
from assistant.cli.changes import settle_call
from assistant.cli.output import Exit
from assistant.errors import ChangesStopped, Denied, NightshiftError, Parked, UsageError
from assistant.gate.targets import AnswersFrom
from assistant.policy import Mode
from assistant.records import CallStatus, Outcome, Verdict
from assistant.store.calls import SHORT_DIGEST
from assistant.tooling import PENDING_TAG
from assistant.tui.backend import ChatBackend
from assistant.tui.screens.changes import ApprovalScreen, RecoveryScreen, UndoScreen
from assistant.tui.screens.consent import ConsentScreen
from assistant.tui.snapshot import UndoSnapshot, leave_undo, take_back, undo_of
from assistant.tui.words import hindrance
from tests.adversary.typed_keys import drawn
from tests.scenarios.scene import Scene
from tests.tui.conftest import OnScene, opened
from tests.tui.typing_in import say, seen_text
from tests.tui.waiting import deliberately, seen, until

ALICE, BOB = "chat:alice", "chat:bob"
NUMBERED_TAG = re.compile(r"nightshift:[0-9a-z]*:?\d+:\d+")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A job has died of a GPU; the cordon of its node waits for a yes as approval 1."""
    scene = Scene(tmp_path, mode=Mode.PROPOSE)
    scene.cluster.submit(scene.spec)
    scene.watch(120)
    return scene


def cordoned(scene: Scene) -> int:
    """Make the cordon that waits, and return its call."""
    cordon = scene.engine.store.approval(1).call
    assert scene.engine.store.answer(1, Verdict.ALLOW, "cli:bob")
    assert scene.engine.gate.go_on(cordon).ok
    return cordon


async def test_the_undo_that_is_shown_is_the_one_that_is_stored_and_runs(scene: Scene) -> None:
    cordon, store = cordoned(scene), scene.engine.store
    async with opened(scene) as (app, pilot):
        await say(pilot, f"/undo {cordon}")
        await seen(pilot, UndoScreen, scene.clock)
        undo = store.undone_by(cordon)
        assert undo is not None
        assert undo.status is CallStatus.PENDING
        assert str(app.screen.query_one(".asks-change").render()) == undo.preview
        assert undo.digest[:SHORT_DIGEST] in "".join(str(one.render()) for one in app.screen.query("Static"))
        changes = len(scene.cluster.changes)
        await deliberately(pilot, UndoScreen, "y", scene.clock, name="node02")
        await until(pilot, lambda: store.call(cordon).status is CallStatus.UNDONE, "the way back")
        assert len(scene.cluster.changes) == changes + 1
        assert [one.id for one in store.calls() if one.tool == undo.tool] == [undo.id]
        assert store.call(undo.id).preview == undo.preview


async def test_an_undo_whose_commands_changed_while_it_was_shown_is_not_made(scene: Scene) -> None:
    cordon, store = cordoned(scene), scene.engine.store
    async with opened(scene) as (_app, pilot):
        await say(pilot, f"/undo {cordon}")
        await seen(pilot, UndoScreen, scene.clock)
        undo = store.undone_by(cordon)
        assert undo is not None
        other = "scontrol update NodeName=node07 State=RESUME"
        store.freeze(undo, other, [other])
        changes = list(scene.cluster.changes)
        await deliberately(pilot, UndoScreen, "y", scene.clock, name="node02")
        await until(pilot, lambda: "not what was shown" in seen_text(_app), "why not")
        assert list(scene.cluster.changes) == changes
        assert store.call(cordon).status is CallStatus.DONE


def left_by(scene: Scene, cordon: int, *, viewer: str, leaver: str) -> CallStatus:
    engine = scene.engine
    shown = undo_of(engine, cordon, viewer)
    leave_undo(engine, undo_of(engine, cordon, leaver), leaver)
    assert shown.undo is not None
    return engine.store.call(shown.undo.id).status


def test_who_leaves_an_undo_withdraws_their_own_and_nobody_elses(scene: Scene) -> None:
    cordon, engine = cordoned(scene), scene.engine
    assert left_by(scene, cordon, viewer=ALICE, leaver=ALICE) is CallStatus.DENIED
    assert left_by(scene, cordon, viewer=ALICE, leaver=BOB) is CallStatus.PENDING
    shown = undo_of(engine, cordon, ALICE)
    assert take_back(engine, shown, ALICE).ok
    leave_undo(engine, shown, ALICE)
    assert engine.store.call(cordon).status is CallStatus.UNDONE
    assert undo_of(engine, cordon, ALICE).text == ""
    with pytest.raises(NightshiftError, match="cannot be taken back"):
        take_back(engine, undo_of(engine, cordon, ALICE), ALICE)


@pytest.mark.parametrize("digest", ["", "0" * 64])
def test_a_yes_to_other_commands_takes_nothing_back(scene: Scene, digest: str) -> None:
    cordon, engine = cordoned(scene), scene.engine
    shown = undo_of(engine, cordon, ALICE)
    assert shown.undo is not None
    forged = replace(shown, undo=replace(shown.undo, digest=digest))
    with pytest.raises(UsageError, match="not what was shown"):
        take_back(engine, forged, ALICE)
    assert engine.store.call(cordon).status is CallStatus.DONE


def test_an_undo_that_waits_in_the_inbox_is_answered_there_and_survives_who_leaves_it(scene: Scene) -> None:
    cordon, engine = cordoned(scene), scene.engine
    with pytest.raises(Parked) as parked:
        engine.gate.undo(cordon, ALICE)
    shown = undo_of(engine, cordon, ALICE)
    assert shown.why == f"its undo waits as approval {parked.value.approval} already"
    undo = engine.store.undone_by(cordon)
    assert undo is not None
    engine.gate.withdraw(undo.id, ALICE)
    leave_undo(engine, UndoSnapshot(shown.call, undo, shown.risk, shown.verdict, "", ""), ALICE)
    assert engine.store.call(undo.id).status is CallStatus.PENDING
    assert engine.store.answer(parked.value.approval, Verdict.ALLOW, BOB)
    assert engine.gate.go_on(undo.id).ok


@pytest.mark.parametrize("question", ["cordon node03", "resubmit job 1", "cordon node03 and node04"])
def test_the_agent_says_the_stored_command_and_its_digest(scene: Scene, question: str) -> None:
    engine = scene.engine
    for _ in range(2):  # the second time the same change stands in the inbox already
        answer = SemanticAgent(engine.gate, engine.clock).ask(question)
        for proposal in answer.proposals:
            if proposal.approval is None:
                continue
            approval = engine.store.approval(proposal.approval)
            stored = engine.store.call(approval.call)
            assert (proposal.preview, proposal.digest) == (stored.preview, approval.digest[:SHORT_DIGEST])
            assert stored.preview in answer.text
            assert f"digest {proposal.digest}" in answer.text
    if "node" in question:
        assert answer.proposals
        assert "…" not in answer.text


async def test_a_plan_whose_calls_do_not_exist_yet_shows_no_number(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(120)
    async with opened(scene) as (app, pilot):
        await say(pilot, "/recover 1")
        await seen(pilot, RecoveryScreen, scene.clock)
        assert isinstance(app.screen, RecoveryScreen)
        planned = [step.preview for step in app.screen.snapshot.plan.steps if step.change]
        assert planned
        assert any("nightshift:…" in text for text in planned)
        assert not [text for text in planned if NUMBERED_TAG.search(text)]
        await deliberately(pilot, RecoveryScreen, "y", scene.clock)
        await until(pilot, lambda: len(scene.cluster.jobs()) == 2, "the restart")
        made = [one.preview for one in scene.engine.store.calls(1) if one.preview]
        # a plan is a forecast: of its commands the tags, and what counts from the moment of the change, are not known yet
        for text, plan in zip(made, planned, strict=False):
            assert forecast(text) == forecast(plan), f"\n{text}\n{plan}"


def forecast(command: str) -> str:
    tagged = NUMBERED_TAG.sub("nightshift:…", command).replace("'nightshift:…'", "nightshift:…")  # a shell quotes the dots
    return re.sub(r"until=\S+", "until=…", tagged)


def test_a_change_that_is_allowed_at_once_is_told_as_it_is_stored_and_ran(scene: Scene) -> None:
    engine = scene.engine
    gate = engine.gate.on(engine.store, AnswersFrom([Verdict.ALLOW], by=ALICE))
    answer = SemanticAgent(gate, engine.clock).ask("cordon node03")
    call = next(one for one in reversed(engine.store.calls()) if one.tool == "cordon_node")
    assert call.status is CallStatus.DONE
    assert f"Done, after {ALICE} said yes: {call.preview}" in answer.text
    assert PENDING_TAG not in answer.text
    assert [one.digest for one in answer.proposals] == [call.digest[:SHORT_DIGEST]]


@pytest.mark.parametrize(
    ("error", "prefix"), [(ChangesStopped("stopped for now by kill_switch: x"), "waits: "), (Denied("no"), "")]
)
def test_the_command_line_says_waits_of_what_only_waits(
    scene: Scene, capsys: pytest.CaptureFixture[str], error: NightshiftError, prefix: str
) -> None:
    def call() -> Outcome:
        raise error

    assert settle_call(call, scene.engine, as_json=False) is Exit.REFUSED
    assert capsys.readouterr().err == f"nightshift: {prefix}{error}\n"


def settled_with(scene: Scene, raised: NightshiftError, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what a chat says of an approval whose change then meets an obstacle."""

    def go_on(*_: object, **__: object) -> None:
        raise raised

    told: list[Any] = []
    monkeypatch.setattr(scene.engine.gate, "go_on", go_on)
    ChatBackend(OnScene(scene), told.append, by=ALICE, owner="x", clock=scene.clock)._settle(2, Verdict.ALLOW, "", None)
    return told


@pytest.mark.parametrize(
    ("error", "says", "waits"),
    [
        (ChangesStopped("stopped for now by kill_switch: x"), "waits: ", True),
        (Parked("asked anew", 3), "waits: ", True),
        (Denied("refused by caps: x"), "allowed, not done: ", False),
    ],
)
def test_what_only_waits_is_not_called_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, error: NightshiftError, says: str, waits: bool
) -> None:
    SemanticAgent(scene.engine.gate, scene.engine.clock).ask("cordon node03")
    *_, last = settled_with(scene, error, monkeypatch)
    assert (last.text.startswith(says), last.waits, last.won) == (True, waits, False)
    assert hindrance(error, "not done").startswith("waits: ") is waits


def test_an_allowed_change_that_meets_a_kill_switch_says_that_it_waits(scene: Scene) -> None:
    call = scene.engine.store.approval(1).call
    assert scene.engine.store.answer(1, Verdict.ALLOW, BOB)
    (scene.folder / "stop").write_text("by root")
    with pytest.raises(ChangesStopped, match="stopped for now by kill_switch") as stopped:
        scene.engine.gate.go_on(call)
    assert "refused" not in hindrance(stopped.value)
    (scene.folder / "stop").unlink()
    assert scene.engine.gate.go_on(call).ok


NAMES = ("llm " * 2_500, "x" * 10_000, "a\n" * 5_000, "深" * 5_000)


@pytest.mark.parametrize("size", [pytest.param((80, 24), marks=pytest.mark.slow), (60, 15)])
async def test_a_name_of_10_kb_leaves_the_dialog_usable(scene: Scene, size: tuple[int, int]) -> None:
    async with opened(scene, size=size) as (app, pilot):
        assert app.store_snapshot is not None
        waits = app.store_snapshot.approvals[0]
        for place, name in enumerate(NAMES):
            call = replace(waits.call, preview=f"scancel 1  # {name!r}", why=name, arguments={"job": name})
            undo = UndoSnapshot(call, replace(call, digest="0" * 64), waits.risk, Verdict.ALLOW, "mode.act", name, "node02")
            dialog: ConsentScreen[Any] = (
                UndoScreen(undo) if place % 2 else ApprovalScreen(replace(waits, call=call, undo=""), scene.clock.now())
            )
            app.push_screen(dialog)
            await drawn(pilot, dialog)
            await is_usable(pilot, dialog)
            await pilot.press("escape")
            await until(pilot, lambda dialog=dialog: app.screen is not dialog, "the way back")  # type: ignore[misc]


async def is_usable(pilot: Pilot[int], dialog: ConsentScreen[Any]) -> None:
    """Check that the buttons can be seen and clicked, and that the text can be read to its end by keys."""
    shown = dialog.size.region
    for button in dialog.query("AnswerButton"):
        assert button.region.height
        assert shown.contains_region(button.region), (button.id, button.region, shown)
    text = dialog.query_one("VerticalScroll")
    assert text.region.height >= 3
    assert text.max_scroll_y > 0
    await pilot.press("end")
    await until(pilot, lambda: text.scroll_y == text.max_scroll_y, "the end of the text")
