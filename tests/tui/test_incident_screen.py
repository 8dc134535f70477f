"""The screen of one incident: what each tab shows, what opens from it, and what its keys do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from assistant.policy import Mode
from assistant.records import CallStatus, Event, EventKind, IncidentState, NodeState, Rival, Verdict
from assistant.tui.app import ChatApp
from assistant.tui.citations import rival_place
from assistant.tui.curves import CurvesView
from assistant.tui.messages import OpenIncident
from assistant.tui.screens.changes import ApprovalScreen, RecoveryScreen, UndoScreen
from assistant.tui.screens.incident import IncidentScreen
from assistant.tui.screens.log import LogScreen
from assistant.tui.screens.main import ReportScreen
from assistant.tui.widgets.tables import Openable, item
from tests.scenarios.scene import START, Scene
from tests.tui.conftest import opened
from tests.tui.waiting import PAUSE_S, deliberately, seen, until

pytestmark = pytest.mark.slow


@pytest.fixture
def recovered(tmp_path: Path) -> Scene:
    """The same failure, answered by Nightshift itself: the node is cordoned and the job has gone on."""
    scene = Scene(tmp_path, mode=Mode.ACT)
    scene.cluster.submit(scene.spec)
    scene.watch(2_000)
    assert scene.engine.store.incident(1).state is IncidentState.RECOVERED
    return scene


@asynccontextmanager
async def shown(
    scene: Scene, incident: int = 1, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[ChatApp, Pilot[int], IncidentScreen]]:
    """Open the screen of an incident and wait until it was read."""
    async with opened(scene, size) as (app, pilot):
        app.post_message(OpenIncident(incident))
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen) and app.screen.snapshot, "the incident")
        assert isinstance(app.screen, IncidentScreen)
        yield app, pilot, app.screen


def text_of(screen: IncidentScreen, tab: str) -> str:
    """Return all that a tab of items says."""
    pane = screen.pane(tab)
    assert isinstance(pane, Openable)
    return "\n".join(
        "".join(part.text for part in (one.label, *(part for line in one.lines for part in line))) for one in pane._items
    )


def head_of(screen: IncidentScreen) -> str:
    return str(screen.query_one("#head", Static).render())


async def choose(pilot: Pilot[int], pane: Openable, key: str) -> None:
    """Move the cursor to an item and press Enter."""
    await pilot.press("g")
    for _ in range(len(pane._items)):
        if pane.key_at_cursor == key:
            break
        await pilot.press("j")
    assert pane.key_at_cursor == key
    await pilot.press("enter")


async def test_the_head_says_what_it_is_and_how_it_stands(broken: Scene) -> None:
    async with shown(broken) as (_app, _pilot, screen):
        head = head_of(screen)
        for told in ("incident 1", "job 1", "waiting", "ecc_error", "infrastructure", "to blame: node02", "faulty_node"):
            assert told in head
        assert "waits for you: press a" in head


async def test_the_verdict_cites_lines_with_file_number_and_role(broken: Scene) -> None:
    async with shown(broken) as (_app, _pilot, screen):
        told = text_of(screen, "verdict")
        for one in broken.engine.store.diagnosis(1).root_cause:  # type: ignore[union-attr]
            assert f"{one.file}:{one.line}" in told
            assert one.text.strip() in told
            assert one.role in told
        assert "nccl_remote_error" in told
        assert "would decide" in told


async def test_each_tab_has_a_number_and_a_letter(broken: Scene) -> None:
    async with shown(broken) as (_app, pilot, screen):
        numbers = [(str(at), name) for at, (name, _) in enumerate(IncidentScreen.PANES, 1)]
        letters = [("v", "verdict"), ("t", "timeline"), ("e", "evidence"), ("c", "curves"), ("p", "playbook"), ("d", "changes")]
        for key, tab in [*numbers, *letters]:
            await pilot.press(key)
            assert screen.current_tab == tab
            assert [one.id for one in screen.query(".pane") if one.display] == [f"pane-{tab}"]
            assert screen.focused is not None
            assert screen.pane(tab) in screen.focused.ancestors_with_self


async def test_brackets_turn_the_tabs_and_a_click_chooses_one(broken: Scene) -> None:
    async with shown(broken) as (_app, pilot, screen):
        await pilot.press("left_square_bracket")
        assert screen.current_tab == "changes"
        await pilot.press("right_square_bracket", "right_square_bracket")
        assert screen.current_tab == "timeline"
        await pilot.click("#tab-playbook")
        await until(pilot, lambda: screen.current_tab == "playbook", "the playbook")


async def test_a_cited_line_opens_the_log_at_that_very_line(broken: Scene) -> None:
    async with shown(broken) as (app, pilot, screen):
        cited = broken.engine.store.diagnosis(1).root_cause  # type: ignore[union-attr]
        number, line = next((at, one) for at, one in enumerate(cited) if one.file == "job.log")
        pane = screen.pane("verdict")
        assert isinstance(pane, Openable)
        await choose(pilot, pane, f"cite:{number}")
        await until(pilot, lambda: isinstance(app.screen, LogScreen), "the log")
        assert isinstance(app.screen, LogScreen)
        view = app.screen._view
        await until(pilot, lambda: view.row is not None and view.row.place.number == line.line, f"line {line.line}")


async def test_a_kernel_line_opens_the_text_that_was_gathered(broken: Scene) -> None:
    async with shown(broken) as (app, pilot, screen):
        cited = broken.engine.store.diagnosis(1).root_cause  # type: ignore[union-attr]
        number = next(at for at, one in enumerate(cited) if one.file == "dmesg.log")
        pane = screen.pane("verdict")
        assert isinstance(pane, Openable)
        await choose(pilot, pane, f"cite:{number}")
        await until(pilot, lambda: isinstance(app.screen, LogScreen), "the kernel log")
        texts = list(Path(screen._texts.name).iterdir())
        assert [path.name for path in texts] == ["incident-1-dmesg.log"]
        assert cited[number].text in texts[0].read_text().splitlines()[cited[number].line - 1]
        assert texts[0].parent.stat().st_mode & 0o077 == 0
        await pilot.press("escape", "escape", "escape")
        await until(pilot, lambda: not texts[0].exists(), "the text to be thrown away")


async def test_a_rival_opens_the_line_that_speaks_for_it_or_what_would_decide(broken: Scene) -> None:
    store = broken.engine.store
    diagnosis = store.diagnosis(1)
    assert diagnosis is not None
    unplaced = Rival("network_error", 0.05, "a broken link shows like this", "the job prints no link error", "ibstat on the node")
    store.add_diagnosis(1, replace(diagnosis, rivals=(*diagnosis.rivals, unplaced)))
    async with shown(broken) as (app, pilot, screen):
        rivals = store.diagnosis(1).rivals  # type: ignore[union-attr]
        pane = screen.pane("verdict")
        assert isinstance(pane, Openable)
        for number, rival in enumerate(rivals):
            cited = rival_place(rival)
            await choose(pilot, pane, f"rival:{number}")
            await until(pilot, lambda: isinstance(app.screen, LogScreen), "what it rests on")
            assert isinstance(app.screen, LogScreen)
            view, wanted = app.screen._view, cited.line if cited is not None else 1
            await until(pilot, lambda view=view, wanted=wanted: view.row and view.row.place.number >= wanted)  # type: ignore[misc]
            await pilot.press("escape")
            await until(pilot, lambda: app.screen is screen, "the incident")
        assert {rival_place(rival) is None for rival in rivals} == {True, False}


async def test_enter_on_the_curves_opens_the_line_of_the_step_that_is_marked(broken: Scene) -> None:
    async with shown(broken) as (app, pilot, screen):
        await pilot.press("4")
        view = screen.query_one(CurvesView)
        await until(pilot, lambda: view.snapshot is not None and view.snapshot.runs[0].points, "the curves")
        assert view.snapshot is not None
        last = view.snapshot.runs[0].points[-1]
        view.focus()
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, LogScreen), "the log")
        assert isinstance(app.screen, LogScreen)
        log = app.screen._view
        await until(pilot, lambda: log.row is not None and log.row.place.number == last.line, f"line {last.line}")


async def test_l_opens_the_log_at_the_verdicts_line(broken: Scene) -> None:
    async with shown(broken) as (app, pilot, _screen):
        await pilot.press("l")
        await until(pilot, lambda: isinstance(app.screen, LogScreen), "the log")
        assert isinstance(app.screen, LogScreen)
        assert app.screen.log_title in ("log of job 1", "dmesg.log")


async def test_a_log_that_is_gone_is_said(broken: Scene) -> None:
    broken.cluster.job("1").log.unlink()  # type: ignore[union-attr]
    async with shown(broken) as (app, pilot, screen):
        await pilot.press("l")
        await until(pilot, lambda: any("is gone" in one.message for one in app._notifications), "the reason")
        await pilot.press("c")
        await until(pilot, lambda: screen.query_one(CurvesView).snapshot, "the curves")
        assert "there is no such file" in str(screen.query_one("#curves-marks", Static).render())


async def test_the_timeline_tells_what_each_stage_took(recovered: Scene) -> None:
    async with shown(recovered) as (_app, pilot, screen):
        await pilot.press("t")
        told = text_of(screen, "timeline")
        for stage in ("detected", "diagnosed", "resubmitted", "recovered", "lost"):
            assert stage in told
        assert "steps: restarted from step 20" in told


async def test_evidence_opens_whole(broken: Scene) -> None:
    async with shown(broken) as (app, pilot, screen):
        await pilot.press("e")
        one = next(one for one in broken.engine.store.evidence(1) if one.source == "dmesg.log")
        pane = screen.pane("evidence")
        assert isinstance(pane, Openable)
        await choose(pilot, pane, f"evidence:{one.id}")
        await until(pilot, lambda: isinstance(app.screen, LogScreen), "the evidence")
        assert (Path(screen._texts.name) / "dmesg.log").read_text() == one.text


async def test_curves_mark_the_failure_and_the_restart(recovered: Scene) -> None:
    async with shown(recovered) as (_app, pilot, screen):
        await pilot.press("c")
        view = screen.query_one(CurvesView)
        await until(pilot, lambda: view.snapshot, "the curves")
        assert view.snapshot is not None
        assert [run.name for run in view.snapshot.runs] == ["job 1", "job 2"]
        told = str(screen.query_one("#curves-marks", Static).render())
        assert "failed 50" in told
        assert "restarted from 20" in told
        await pilot.press("y")
        assert view.logarithmic


async def test_on_a_low_terminal_m_goes_from_curve_to_curve(broken: Scene) -> None:
    async with shown(broken, size=(80, 24)) as (_app, pilot, screen):
        await pilot.press("c")
        view = screen.query_one(CurvesView)
        await until(pilot, lambda: view.snapshot, "the curves")
        for metric in ("loss", "grad_norm", "seconds"):
            assert [one.id for one in screen.query(".curve") if one.display] == [f"curve-{metric}"]
            await pilot.press("m")


async def test_the_playbook_shows_where_it_stands(broken: Scene) -> None:
    async with shown(broken) as (_app, pilot, screen):
        await pilot.press("p")
        told = text_of(screen, "playbook").splitlines()
        assert any(line.startswith("? isolate") and "waits for a yes" in line for line in told)
        assert any(line.startswith("– suspects") for line in told)
        assert any(line.startswith("· again") for line in told)
        assert any("restart 1 of 3" in line for line in told)
        assert "{" not in "".join(told)


async def test_a_playbook_that_has_ended_says_what_each_step_found(recovered: Scene) -> None:
    async with shown(recovered) as (_app, pilot, screen):
        await pilot.press("p")
        told = text_of(screen, "playbook").splitlines()
        assert any(line.startswith("✓ good") and "checkpoint of step 20" in line for line in told)
        assert any(line.startswith("✓ progress") for line in told)
        assert any(line.startswith("– lost") and "not taken" in line for line in told)
        assert not any(line.startswith(("▸", "·")) for line in told)
        assert "ended recovered" in told[-1]


async def test_a_change_is_undone_after_its_exact_command_was_shown(recovered: Scene) -> None:
    async with shown(recovered) as (app, pilot, screen):
        await pilot.press("d")
        cordon = next(one for one in recovered.engine.store.calls(1) if one.tool == "cordon_node")
        pane = screen.pane("changes")
        assert isinstance(pane, Openable)
        assert "allowed by policy" in text_of(screen, "changes")
        await until(pilot, lambda: pane.key_at_cursor == f"call:{cordon.id}", "the cursor on the cordon")
        await pilot.press("u")
        await until(pilot, lambda: isinstance(app.screen, UndoScreen), "the question")
        assert isinstance(app.screen, UndoScreen)
        assert app.screen.snapshot.text.startswith("scontrol update NodeName=node02 State=RESUME")
        assert recovered.engine.store.call(cordon.id).status is CallStatus.DONE
        await deliberately(pilot, UndoScreen, "y", recovered.clock, name="node02")
        await until(pilot, lambda: recovered.engine.store.call(cordon.id).status is CallStatus.UNDONE, "the undo")
        assert next(node for node in recovered.cluster.nodes() if node.name == "node02").state is NodeState.IDLE
        await until(pilot, lambda: "taken back" in text_of(screen, "changes"), "the screen to follow")


async def test_an_undo_that_was_not_said_yes_to_is_not_made(recovered: Scene) -> None:
    async with shown(recovered) as (app, pilot, screen):
        await pilot.press("d")
        for key in ("escape", "n", "q"):
            await pilot.press("u")
            await seen(pilot, UndoScreen, recovered.clock)
            await pilot.press("enter")
            recovered.clock.sleep(PAUSE_S)
            await pilot.press(key)
            await pilot.pause()
            recovered.clock.sleep(PAUSE_S)
            await until(pilot, lambda: app.screen is screen, f"the way back by {key}")
        undos = [one for one in recovered.engine.store.calls(1) if one.tool == "uncordon_node"]
        await until(
            pilot,
            lambda: all(recovered.engine.store.call(one.id).status is CallStatus.DENIED for one in undos),
            "the withdrawal of what was shown",
        )
        assert not [one for one in undos if recovered.engine.store.outcome(one.id)]


async def test_u_without_a_change_says_so(broken: Scene) -> None:
    async with shown(broken) as (app, pilot, screen):
        await pilot.press("u")
        await until(pilot, lambda: screen.current_tab == "changes", "the changes")
        await pilot.press("u")
        await until(pilot, lambda: isinstance(app.screen, UndoScreen), "the answer")
        assert isinstance(app.screen, UndoScreen)
        assert not app.screen.possible
        await pilot.press("y", "escape")
        await until(pilot, lambda: app.screen is screen, "the way back")


async def test_a_opens_the_question_that_waits(broken: Scene) -> None:
    async with shown(broken) as (_app, pilot, screen):
        await pilot.press("a")
        await deliberately(pilot, ApprovalScreen, "y", broken.clock)
        await until(pilot, lambda: screen.snapshot and screen.snapshot.changes[0].call.status is CallStatus.DONE, "the cordon")
        assert "✓ isolate" in text_of(screen, "playbook")


async def test_r_goes_on_with_the_incident_at_the_persons_request(scene: Scene) -> None:
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(120)
    scene.engine.open(Event(EventKind.JOB_ENDED, "1", None, scene.clock.now()))
    async with shown(scene) as (app, pilot, screen):
        assert "No diagnosis yet" in text_of(screen, "verdict")
        await pilot.press("r")
        await deliberately(pilot, RecoveryScreen, "y", scene.clock)
        await until(
            pilot,
            lambda: screen.snapshot and screen.snapshot.diagnosis and screen.snapshot.approvals,
            "the diagnosis and its question",
        )
        assert screen.snapshot is not None
        assert screen.snapshot.approvals
        assert "ecc_error" in head_of(screen)
        await pilot.press("r")  # what waits for the person comes first
        await until(pilot, lambda: isinstance(app.screen, ApprovalScreen), "the question")


@pytest.mark.parametrize("key", ["escape", "n", "q"])
async def test_in_act_mode_every_change_is_shown_before_r_makes_any(tmp_path: Path, key: str) -> None:
    scene = Scene(tmp_path)  # the policy would do it all at once
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(120)
    scene.engine.open(Event(EventKind.JOB_ENDED, "1", None, scene.clock.now()))
    async with shown(scene) as (app, pilot, screen):
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, RecoveryScreen), "the plan")
        told = "\n".join(str(one.content) for one in app.screen.query(Static))
        for part in (
            "scontrol update NodeName=node02 State=DRAIN",
            "llm (2 nodes) of",
            "can be undone",
            "nightshift undo",
            "done at once",
        ):
            assert part in told, told
        await seen(pilot, RecoveryScreen, scene.clock)
        await pilot.press("enter")
        scene.clock.sleep(PAUSE_S)
        await pilot.press(key)
        await pilot.pause()
        scene.clock.sleep(PAUSE_S)
        await until(pilot, lambda: app.screen is screen, "the way back")
        assert not scene.engine.store.calls(1)
        assert scene.engine.store.diagnosis(1) is None
        assert [job.id for job in scene.cluster.jobs()] == ["1"]


async def test_a_recovery_that_the_scheduler_cannot_be_asked_about_is_not_begun(scene: Scene) -> None:
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(120)
    scene.engine.open(Event(EventKind.JOB_ENDED, "1", None, scene.clock.now()))
    async with shown(scene) as (app, pilot, screen):
        scene.cluster.outage = True
        await pilot.press("r")
        await until(
            pilot, lambda: any("Unable to contact slurm controller" in one.message for one in app._notifications), "why not"
        )
        assert app.screen is screen
        assert not scene.engine.store.calls(1)


async def test_r_on_an_ended_incident_says_that_nothing_is_left(recovered: Scene) -> None:
    async with shown(recovered) as (app, pilot, _screen):
        await pilot.press("r")
        await until(pilot, lambda: any("nothing to go on with" in one.message for one in app._notifications), "the answer")


async def test_what_another_door_does_is_shown(broken: Scene) -> None:
    async with shown(broken) as (_app, pilot, screen):
        other = broken.store()
        try:
            assert other.answer(other.approvals()[0].id, Verdict.DENY, "cli:bob", why="no")
        finally:
            other.close()
        await until(pilot, lambda: "press a" not in head_of(screen), "the head to follow")


async def test_the_report_is_read_and_written_to_a_file(broken: Scene, tmp_path: Path) -> None:
    async with shown(broken) as (app, pilot, screen):
        await pilot.press("o")
        await until(pilot, lambda: isinstance(app.screen, ReportScreen), "the report")
        await pilot.press("x")
        path = app.screen.query_one("#report-path", Input)
        assert path.has_focus
        path.value = str(tmp_path / "r.md")
        await pilot.press("enter")
        await until(pilot, lambda: (tmp_path / "r.md").exists(), "the file")
        assert (tmp_path / "r.md").read_text().startswith("# Incident 1: ecc_error")
        await pilot.press("x")
        path.value = str(tmp_path / "r.md")
        await pilot.press("enter")
        await until(pilot, lambda: any("exists already" in one.message for one in app._notifications), "the refusal")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: app.screen is screen, "the way back")


async def test_x_asks_for_the_file_at_once(broken: Scene) -> None:
    async with shown(broken) as (app, pilot, _screen):
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, ReportScreen), "the report")
        await until(pilot, lambda: app.screen.query_one("#report-path", Input).has_focus, "the question for the file")


async def test_an_incident_that_does_not_exist_is_said(scene: Scene) -> None:
    async with opened(scene) as (app, pilot):
        app.post_message(OpenIncident(77))
        await until(pilot, lambda: any("77" in one.message for one in app._notifications), "the reason")
        await until(pilot, lambda: app.screen is app.main, "the way back")


async def test_an_incident_of_a_vanished_job_without_diagnosis_is_shown(scene: Scene) -> None:
    scene.engine.store.open_incident(Event(EventKind.JOB_ENDED, "999", None, START))
    async with shown(scene) as (_app, pilot, screen):
        assert "job unknown now" in head_of(screen)
        for key in "123456":
            await pilot.press(key)
        await until(pilot, lambda: screen.current_tab == "changes", "the last tab")
        assert "Nothing was changed" in text_of(screen, "changes")
        assert "No diagnosis yet" in text_of(screen, "playbook")


async def test_text_of_logs_cannot_deceive(scene: Scene) -> None:
    async with opened(scene) as (app, _pilot):
        pane = Openable(label_width=8)
        await app.screen.mount(pane)
        pane.show([item("a", "[b]x", "\x1b[31mred\x1b[0m [link=http://evil]click[/link] \u202eabc")])
        grid = pane._option(pane._items[0], 0).prompt
        drawn = "".join(segment.text for segment in app.console.render(grid))  # type: ignore[arg-type]
        assert "[b]x" in drawn
        assert "[link=http://evil]click[/link]" in drawn
        assert "\x1b" not in drawn
        assert "\u202e" not in drawn


async def test_no_size_breaks_it(recovered: Scene) -> None:
    async with shown(recovered, size=(20, 5)) as (_app, pilot, screen):
        for size in ((20, 5), (40, 10), (80, 24), (200, 60), (300, 20), (1, 1), (20, 5)):
            await pilot.resize_terminal(*size)
            for key in "1654":
                await pilot.press(key, "j", "k")
            assert screen.current_tab == "curves"
            assert screen.region.size == size
        await until(pilot, lambda: screen.query_one(CurvesView).snapshot, "the curves")


async def test_a_very_wide_terminal_shows_the_verdict_beside_the_rest(broken: Scene) -> None:
    async with shown(broken, size=(200, 60)) as (_app, pilot, screen):
        assert [one.id for one in screen.query(".pane") if one.display] == ["pane-verdict", "pane-timeline"]
        await pilot.press("5")
        await until(pilot, lambda: screen.pane("playbook").display, "the playbook")
        assert [one.id for one in screen.query(".pane") if one.display] == ["pane-verdict", "pane-playbook"]


async def test_without_colour_every_tab_is_drawn(recovered: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with shown(recovered) as (app, pilot, screen):
        for key in "123456":
            await pilot.press(key)
        await pilot.press("4")
        await until(pilot, lambda: screen.query_one(CurvesView).snapshot, "the curves")
        await until(pilot, lambda: "restarted from" in app.export_screenshot().replace("&#160;", " "), "the drawing")
