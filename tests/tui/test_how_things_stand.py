"""The chat is honest at a glance: first line, panels and answers are never calm about what is unknown, unwatched or stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from assistant.errors import StoreError
from assistant.records import Event, EventKind, IncidentState, Verdict
from assistant.tui.app import ChatApp
from assistant.tui.backend import name_of
from assistant.tui.frame import StatusBar
from assistant.tui.store_reading import StoreFile, read_happened
from assistant.tui.widgets.conversation import Conversation, Welcome
from assistant.tui.widgets.panels import ApprovalsPanel, IncidentsPanel, JobsPanel, NodesPanel
from assistant.tui.widgets.prompt import Prompt
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened, pass_of_watch
from tests.tui.waiting import until


def line(app: ChatApp) -> str:
    return str(app.main.query_one(StatusBar).render())


def calm(app: ChatApp) -> str:
    return str(app.main.query_one(IncidentsPanel).calm.render())


async def answer(app: ChatApp, pilot: Pilot[int], question: str) -> str:
    """Ask, and return what is answered, or why nothing is."""
    conversation = app.main.query_one(Conversation)
    before = len(conversation.entries)
    app.talk.ask(question)
    await until(pilot, lambda: len(conversation.entries) > before + 1 and not conversation.working, "the answer")
    last = conversation.entries[-1]
    return last.answer.text if last.answer is not None else last.text


def escalate(scene: Scene, *, acknowledged: bool) -> None:
    store = scene.engine.store
    incident, _ = store.open_incident(Event(EventKind.JOB_ENDED, "77", None, scene.clock.now()))
    store.set_state(incident.id, IncidentState.ESCALATED, note="ask its owner")
    if acknowledged:
        store.acknowledge(incident.id, by="cli:ada")


def silence(scene: Scene) -> None:
    scene.cluster.outage = True


def stop(scene: Scene) -> None:
    (scene.folder / "stop").write_text("cli:ada: look\n")


FAULTS: dict[str, tuple[Callable[[Scene], object], str, str]] = {
    "silent": (silence, "! scheduler silent", "The scheduler does not answer"),
    "stopped": (stop, "■ stopped", "The kill switch is set"),
    "blind": (lambda scene: pass_of_watch(scene, ("squeue did not answer",)), "watch degraded", "The last pass was degraded"),
    "dead": (lambda scene: scene.clock.sleep(3600), "! no watch for", "No pass saw everything for"),
}


async def test_a_watched_quiet_cluster_is_calm_and_says_who_watches(scene: Scene) -> None:
    async with opened(scene, (160, 40)) as (app, pilot):
        await until(pilot, lambda: "nothing is wrong" in line(app), "the calm line")
        for words in ("simulated", "alice", "8 nodes", "watch asks first", "policy "):
            assert words in line(app)
        assert calm(app) == "Nothing is wrong."


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_goes_wrong_is_told_by_line_and_panel_and_neither_is_calm(scene: Scene, fault: str) -> None:
    happen, short, sentence = FAULTS[fault]
    async with opened(scene, (160, 40)) as (app, pilot):
        await until(pilot, lambda: "nothing is wrong" in line(app), "the calm line")
        happen(scene)
        await until(pilot, lambda: short in line(app), short)
        await until(pilot, lambda: sentence in calm(app), sentence)
        assert "nothing is wrong" not in line(app)
        assert "Nothing is wrong" not in calm(app)


async def test_without_a_watch_it_is_not_calm(scene: Scene) -> None:
    async with opened(scene, watch=False) as (app, pilot):
        await until(pilot, lambda: "! no watch" in line(app), "the line")
        assert "no watch ever ran" in calm(app)
        pass_of_watch(scene)
        await until(pilot, lambda: "nothing is wrong" in line(app), "the watch")


@pytest.mark.parametrize("acknowledged", [False, True])
async def test_an_escalated_incident_is_told_also_when_somebody_knows_of_it(scene: Scene, acknowledged: bool) -> None:
    escalate(scene, acknowledged=acknowledged)
    async with opened(scene) as (app, pilot):
        await until(pilot, lambda: ("in a person's hands" if acknowledged else "1 handed over") in line(app), "the line")
        assert "nothing is wrong" not in line(app)
        assert "Nothing is wrong" not in await answer(app, pilot, "what is wrong now?")


async def test_of_a_dead_scheduler_the_answer_says_that_first(scene: Scene) -> None:
    async with opened(scene) as (app, pilot):
        silence(scene)
        text = await answer(app, pilot, "what is wrong now?")
        assert text.startswith("The scheduler does not answer")
        assert "Nothing is wrong" not in text


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_store_that_is_moved_away_is_told_by_line_and_answer_and_none_is_made(scene: Scene, replaced: bool) -> None:
    path = scene.engine.store.path
    async with opened(scene) as (app, pilot):
        assert "Nothing is wrong" in await answer(app, pilot, "what is wrong now?")
        path.rename(path.with_name("elsewhere.db"))
        if replaced:
            path.write_bytes(b"")
        words = "the store was replaced" if replaced else "the store is gone"
        await until(pilot, lambda: f"! {words}" in line(app), "the line")
        text = await answer(app, pilot, "what is wrong now?")
        assert words in text
        assert "Nothing is wrong" not in text
        app.backend.settle(1, Verdict.DENY)
        app.backend.read("x", lambda engine: engine.store.incidents(), lambda _: pytest.fail("it was read"))
        await pilot.pause(0.5)
        assert (path.read_bytes() == b"") if replaced else not path.exists()
        await until(pilot, lambda: words in calm(app), "the panel")
        path.with_name("elsewhere.db").rename(path)
        await until(pilot, lambda: "nothing is wrong" in line(app), "the store again")


async def test_everything_can_be_stopped_while_the_store_is_away(scene: Scene) -> None:
    path = scene.engine.store.path
    async with opened(scene) as (app, pilot):
        path.rename(path.with_name("elsewhere.db"))
        app.talk.typed("/stop drill")
        await until(pilot, (scene.folder / "stop").exists, "the kill switch")
        await pilot.pause(0.2)
        assert not path.exists()


def test_a_file_is_known_again_by_what_it_is_not_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(b"x")
    file = StoreFile(path)
    file.must_stand()
    path.rename(tmp_path / "t.db")
    with pytest.raises(StoreError, match="is gone"):
        file.must_stand()
    path.write_bytes(b"x")
    with pytest.raises(StoreError, match="was replaced"):
        file.must_stand()
    (tmp_path / "t.db").replace(path)
    file.must_stand()


async def test_a_fresh_machine_shows_three_steps_and_no_nodes(scene: Scene) -> None:
    async with opened(scene, (160, 45), watch=False, configured=False) as (app, pilot):
        await until(pilot, lambda: "no cluster yet" in line(app), "the line")
        assert "nothing is wrong" not in line(app)
        assert "nodes" not in line(app)
        welcome = str(app.main.query_one(Welcome).render())
        assert "This is no cluster yet: three steps." in welcome
        for step in ("1. ", "2. ", "3. "):
            assert step in welcome
        for panel in (NodesPanel, JobsPanel):
            assert "No cluster yet" in str(app.main.query_one(panel).calm.render())
        assert not app.main.query_one(NodesPanel).branches.root.children
        assert "This is no cluster yet" in calm(app)


async def test_jobs_on_the_embedded_scheduler_are_a_cluster_also_where_nobody_chose_it(scene: Scene) -> None:
    scene.cluster.submit(scene.spec)
    async with opened(scene, configured=False) as (app, pilot):
        await until(pilot, lambda: "8 nodes" in line(app), "the nodes")
        assert "no cluster yet" not in line(app)


async def test_ages_go_on_while_nothing_changes(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        incidents, approvals = app.main.query_one(IncidentsPanel).table, app.main.query_one(ApprovalsPanel).table
        before = (str(incidents.get_row_at(0)[5]), str(approvals.get_row_at(0)[2]))
        seen, broken.clock = app.store_snapshot, broken.clock
        broken.clock.sleep(5 * 3600)
        await until(pilot, lambda: str(incidents.get_row_at(0)[5]).strip() == "5h", "the age of the incident")
        await until(pilot, lambda: str(approvals.get_row_at(0)[2]).strip() == "19h", "what is left for the answer")
        assert app.store_snapshot is seen, "nothing was read anew"
        assert before != (str(incidents.get_row_at(0)[5]), str(approvals.get_row_at(0)[2]))


def test_what_happened_is_not_pushed_out_by_leases(broken: Scene) -> None:
    store = broken.engine.store
    before = [row.id for row in read_happened(store)]
    assert len(before) > 3
    for number in range(1200):
        store.record("incident.claimed" if number % 2 else "incident.released", by="watch@a:1.1", incident=1)
    assert [row.id for row in read_happened(store)] == before
    assert not {row.what for row in read_happened(store)} & {"incident.claimed", "incident.released", "decision", "seal"}


def test_what_happened_is_read_on_from_an_earlier_look(broken: Scene) -> None:
    from assistant.tui.store_reading import read_store

    store, policy = broken.engine.store, broken.engine.gate.in_force.look()
    first = read_store(store, broken.clock.now(), policy)
    assert read_store(store, broken.clock.now(), policy, first).happened == first.happened
    store.record("kill_switch.set", by="cli:ada", why="drill")
    later = read_store(store, broken.clock.now(), policy, first)
    assert later.happened == read_store(store, broken.clock.now(), policy).happened
    assert [row.what for row in later.happened[:1]] == ["kill_switch.set"]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_what_is_notified_covers_neither_the_prompt_nor_what_is_read(scene: Scene, size: tuple[int, int]) -> None:
    from textual.widgets._toast import Toast

    async with opened(scene, size, notifications=True) as (app, pilot):
        for number in range(2):
            app.notify(f"something came of approval {number}", timeout=30)
        await until(pilot, lambda: len(app.screen.query(Toast)) == 2, "the notices")
        await pilot.pause()
        for toast in app.screen.query(Toast):
            assert toast.region.height == 1
            for other in (app.main.query_one(Prompt), app.main.query_one("#conversation"), app.main.query_one("Footer")):
                assert not toast.region.overlaps(other.region), other
        assert app.main.query_one(Prompt).region.height > 0


class ConfiguredScheduler:
    """Has Slurm's configuration at hand, or does not answer."""

    name = "slurm"

    def __init__(self, config: dict[str, str] | None) -> None:
        self._config = config

    def config(self) -> dict[str, str]:
        from assistant.errors import Unavailable

        if self._config is None:
            raise Unavailable("scontrol did not answer")
        return self._config


@pytest.mark.parametrize(("config", "name"), [({"ClusterName": "hpc1"}, "hpc1"), ({}, ""), (None, "")])
def test_a_cluster_is_called_as_slurm_calls_it(config: dict[str, str] | None, name: str) -> None:
    assert name_of(ConfiguredScheduler(config)) == name  # type: ignore[arg-type]


def test_the_embedded_scheduler_has_no_name_of_its_own(scene: Scene) -> None:
    assert name_of(scene.cluster) == ""
