"""Lists are filtered, sorted and copied from; what their cells cut can be read whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from assistant.records import NodeState, Verdict
from assistant.tui.app import ChatApp
from assistant.tui.frame import Plain
from assistant.tui.messages import OpenJob, OpenNodes
from assistant.tui.screens.changes import ApprovalScreen
from assistant.tui.screens.incident import IncidentScreen
from assistant.tui.screens.text import TextScreen
from assistant.tui.widgets.happened import HappenedPanel
from assistant.tui.widgets.node_list import NodeList, chosen_groups
from assistant.tui.widgets.panels import ApprovalsPanel, JobsPanel
from assistant.tui.widgets.rows import Cell, Rows, TableRow, arranged
from assistant.tui.widgets.whole_rows import whole_row
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.test_news import park
from tests.tui.typing_in import prompt
from tests.tui.waiting import until

ROWS = [
    TableRow("1", ("✗", Cell("job 10", "error"), "failed", "5h", "node[001-064]")),
    TableRow("2", ("▸", Cell("job 9"), "running", "42s", "node02")),
    TableRow("3", ("·", Cell("job 1,200"), "pending", "12d", "")),
]
FILTERS: tuple[tuple[str, list[str]], ...] = (
    ("", ["1", "2", "3"]),
    ("failed", ["1"]),
    ("RUN node02", ["2"]),
    ("node02 run", ["2"]),
    ("job", ["1", "2", "3"]),
    ("failed running", []),
    ("secret part", ["3"]),
)
ORDERS = (
    (None, ["1", "2", "3"]),
    (1, ["2", "1", "3"]),  # by the value of numbers
    (2, ["1", "3", "2"]),
    (3, ["2", "1", "3"]),  # by the length of ages
    (4, ["2", "1", "3"]),  # an empty cell is last
)


@pytest.mark.parametrize(("text", "keys"), FILTERS, ids=[text for text, _ in FILTERS])
def test_a_filter_lets_through_what_has_all_its_words(text: str, keys: list[str]) -> None:
    whole = {"3": "its secret part"}
    assert [row.key for row in arranged(ROWS, text, None, lambda key: whole.get(key, ""))] == keys


@pytest.mark.parametrize(("column", "keys"), ORDERS, ids=[str(column) for column, _ in ORDERS])
def test_a_column_is_sorted_as_a_person_sorts(column: int | None, keys: list[str]) -> None:
    assert [row.key for row in arranged(ROWS, "", column)] == keys


GROUPS = {(NodeState.DOWN, "fan"): ("node09", "node02"), (NodeState.IDLE, ""): ("node01", "node03", "node04")}


def test_nodes_are_filtered_one_by_one_and_sorted_by_groups() -> None:
    assert chosen_groups(GROUPS, "", None) == GROUPS
    assert chosen_groups(GROUPS, "node03", None) == {(NodeState.IDLE, ""): ("node03",)}
    assert chosen_groups(GROUPS, "fan", None) == {(NodeState.DOWN, "fan"): ("node09", "node02")}
    assert chosen_groups(GROUPS, "nothing", None) == {}
    assert [key[0] for key in chosen_groups(GROUPS, "", 0)] == [NodeState.IDLE, NodeState.DOWN]
    assert [key[0] for key in chosen_groups(GROUPS, "", 1)] == [NodeState.DOWN, NodeState.IDLE]
    assert [key[0] for key in chosen_groups(GROUPS, "", 2)] == [NodeState.IDLE, NodeState.DOWN]


def keys_of(rows: Rows) -> list[str]:
    return [str(row.key.value) for row in rows.ordered_rows]


def edge(rows: Any) -> str:
    return str(rows.border_subtitle)


async def waiting(scene: Scene, app: ChatApp, pilot: Pilot[int], *nodes: str) -> Rows:
    """Let changes of nodes wait, and go to the list of them."""
    for node in nodes:
        park(scene, node)
    await until(pilot, lambda: app.store_snapshot and len(app.store_snapshot.approvals) == len(nodes), "all of them")
    await pilot.press("f3")
    rows = app.main.query_one(ApprovalsPanel).table
    await until(pilot, lambda: rows.has_focus and rows.row_count == len(nodes), "the list")
    return rows


@pytest.mark.slow
async def test_a_list_is_filtered_while_one_types_and_escape_shows_all(scene: Scene) -> None:
    async with opened(scene) as (app, pilot):
        rows = await waiting(scene, app, pilot, "node03", "node05", "node07")
        await pilot.press("slash", *"node05")
        assert keys_of(rows) == ["2"]
        assert "/node05" in edge(rows)
        assert "1 of 3" in edge(rows)
        assert prompt(app).text == ""
        park(scene, "node01")  # what comes meanwhile is hidden as well
        await until(pilot, lambda: "1 of 4" in edge(rows), "the new one")
        await pilot.press("enter")
        assert app.screen is app.main
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ApprovalScreen), "the one that is left")
        assert "node05" in str(app.screen.query_one("#approval-change").render())
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main, "the way back")
        rows.focus()
        await pilot.press("escape")
        assert keys_of(rows) == ["1", "2", "3", "4"]
        assert edge(rows) == ""
        assert rows.has_focus
        await pilot.press("escape")
        await until(pilot, lambda: prompt(app).has_focus, "the conversation")


@pytest.mark.slow
async def test_a_filter_can_be_corrected_pasted_and_matches_nothing_without_harm(scene: Scene) -> None:
    async with opened(scene) as (app, pilot):
        rows = await waiting(scene, app, pilot, "node03", "node05")
        await pilot.press("slash", *"nodex", "backspace")
        assert rows.row_count == 2
        rows.post_message(events.Paste("05\n"))
        await until(pilot, lambda: keys_of(rows) == ["2"], "the paste in the filter")
        await pilot.press(*"zzz")
        assert rows.row_count == 0
        await pilot.press("enter", "enter", "y")
        assert app.screen is app.main
        assert prompt(app).text == ""
        await pilot.press("escape")
        assert rows.row_count == 2


@pytest.mark.slow
async def test_a_command_typed_in_a_list_gets_to_the_prompt_and_is_not_run(scene: Scene) -> None:
    async with opened(scene) as (app, pilot):
        await waiting(scene, app, pilot, "node03")
        await pilot.press("slash", *"stop", "enter")
        await until(pilot, lambda: prompt(app).has_focus and prompt(app).text == "/stop", "the command")
        assert not (scene.folder / "stop").exists()
        await pilot.press("enter")
        await until(pilot, (scene.folder / "stop").exists, "the stop that a second Enter wants")


@pytest.mark.slow
@pytest.mark.parametrize("sentence", ["stop job 12", "yes do it", "kill 4821", "just look", "why node2", "go on"])
async def test_a_sentence_typed_in_a_list_is_whole_in_the_prompt(scene: Scene, sentence: str) -> None:
    async with opened(scene) as (app, pilot):
        await waiting(scene, app, pilot, "node03", "node05")
        await pilot.press(*sentence)
        assert prompt(app).text == sentence


@pytest.mark.slow
async def test_who_moves_in_a_list_and_then_types_gets_no_letters_of_the_list(scene: Scene) -> None:
    async with opened(scene) as (app, pilot):
        await waiting(scene, app, pilot, "node03", "node05")
        await pilot.press("j", "k", "j", "j", "w", "h", "y")
        assert prompt(app).text == "why"


@pytest.mark.slow
async def test_s_sorts_by_the_next_column_and_says_so(scene: Scene) -> None:
    async with opened(scene) as (app, pilot):
        rows = await waiting(scene, app, pilot, "node07", "node03", "node05")
        await pilot.press("s")
        assert "by id" in edge(rows)
        assert keys_of(rows) == ["1", "2", "3"]
        await pilot.press("s", "s")
        assert "by change" in edge(rows)
        assert keys_of(rows) == ["2", "3", "1"]
        for _ in range(4):
            await pilot.press("s")
        assert edge(rows) == ""
        assert keys_of(rows) == ["1", "2", "3"]


@pytest.mark.slow
async def test_y_copies_the_row_with_the_whole_command(scene: Scene) -> None:
    async with opened(scene, (80, 24)) as (app, pilot):
        rows = await waiting(scene, app, pilot, "node07")
        command = f"scontrol update NodeName=node07 State=DRAIN Reason={'x' * 300}"
        entry = app.store_snapshot.approvals[0] if app.store_snapshot else None
        assert entry is not None
        await pilot.press("y")
        assert app.clipboard == (
            "approval 1: scontrol update NodeName=node07 State=DRAIN; why: its fan; risk: changes something, can be undone; "
            "undo: nightshift undo 1"
        )
        long = whole_row("approvals", "1", _with_command(app, command), None)
        assert command in long
        assert rows.cursor_key == "1"


def _with_command(app: ChatApp, command: str) -> Any:
    from dataclasses import replace

    store = app.store_snapshot
    assert store is not None
    entry = store.approvals[0]
    return replace(store, approvals=(replace(entry, call=replace(entry.call, preview=command)),))


@pytest.mark.slow
async def test_a_row_of_what_happened_is_read_whole_where_it_leads_nowhere(scene: Scene) -> None:
    reason = "a very long reason " * 20
    store, now = scene.engine.store, scene.clock.now()
    async with opened(scene, (80, 24)) as (app, pilot):
        from assistant.records import Call, CallStatus, Decision

        preview = f"scontrol update NodeName=node07 State=DRAIN Reason='{reason}'"
        call = Call(0, None, "cordon_node", {"node": "node07"}, "its fan", "engine", now, CallStatus.PENDING, preview=preview)
        written = store.write_call(call, kind="cordon_node")
        number = store.park(written.id, Decision(Verdict.ASK, "mode.propose", "policy", now), now + timedelta(days=3))
        assert store.answer(number, Verdict.DENY, "cli:bob", why="no")
        await until(pilot, lambda: app.store_snapshot and app.store_snapshot.happened, "what happened")
        await pilot.press("f4")
        rows = app.main.query_one(HappenedPanel).table
        await until(pilot, lambda: rows.has_focus and rows.row_count, "the list")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen), "the whole row")
        assert preview.strip() in app.screen.query_one(Plain).text
        await pilot.press("y")
        assert preview.strip() in app.clipboard
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main, "the way back")
        await pilot.press("y")
        assert preview.strip() in app.clipboard


@pytest.mark.slow
async def test_a_row_of_what_happened_still_leads_to_its_incident(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await pilot.press("f4")
        rows = app.main.query_one(HappenedPanel).table
        await until(pilot, lambda: rows.has_focus and rows.row_count, "the list")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen), "the incident")


@pytest.mark.slow
async def test_jobs_and_nodes_are_filtered_and_copied_as_well(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await pilot.press("f5")
        jobs = app.main.query_one(JobsPanel).table
        await until(pilot, lambda: jobs.has_focus and jobs.row_count, "the jobs")
        await pilot.press("slash", *"no such job", "escape", "y")
        assert app.clipboard.startswith("job 1: llm; failed")
        await pilot.press("f6")
        tree = app.main.query_one(NodeList)._tree
        await until(pilot, lambda: tree.has_focus and tree.root.children, "the nodes")
        await pilot.press("slash", *"node03")
        assert tree.counts == (1, 8)
        assert "1 of 8" in edge(tree)
        assert [str(line.label) for line in tree.root.children] == ["· 1 idle  node03"]
        await pilot.press("enter", "y")
        assert app.clipboard.startswith("node03  idle")
        await pilot.press("escape")
        assert tree.counts == (8, 8)


@pytest.mark.slow
async def test_tables_of_other_screens_are_filtered_too(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        app.post_message(OpenNodes("node[01-08]"))
        await until(pilot, lambda: getattr(app.screen, "snapshot", None), "the nodes")
        rows = app.screen.query(Rows).first()
        await until(pilot, lambda: rows.row_count == 8, "all of them")
        rows.focus()
        await pilot.press("slash", *"node02")
        assert keys_of(rows) == ["node02"]
        await pilot.press("escape")
        assert rows.row_count == 8
        assert app.screen is not app.main
        app.post_message(OpenJob("1"))
        await until(pilot, lambda: type(app.screen).__name__ == "JobScreen" and getattr(app.screen, "snapshot", None), "the job")
        await pilot.press("slash", *"quit", "enter")
        await until(pilot, lambda: app.screen is app.main and prompt(app).text == "/quit", "the command in the prompt")
        assert app.is_running
