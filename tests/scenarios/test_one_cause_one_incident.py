"""A node that goes away, the job on it that hangs, and its end: one incident, whichever is seen first."""

from __future__ import annotations

import shlex
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.daemon.notifications import notices
from assistant.engine import Engine
from assistant.policy import Mode
from assistant.ports import Reply
from assistant.records import Event, EventKind, IncidentState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.gpu import DMON_COMMAND
from tests.scenarios.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path, mode=Mode.OBSERVE, run=SimulatedRun(steps=1000))
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(30)
    return scene


def down(scene: Scene, *jobs: str) -> Event:
    return Event(
        EventKind.NODE_DOWN,
        None,
        "node02",
        scene.clock.now(),
        {"nodes": ["node02"], "jobs": list(jobs), "reason": "Not responding"},
    )


def hang(scene: Scene, job: str = "1") -> Event:
    return Event(EventKind.HANG, job, None, scene.clock.now(), {"step": 20, "how": "silent"})


def end(scene: Scene, job: str = "1") -> Event:
    return Event(EventKind.JOB_ENDED, job, None, scene.clock.now(), {"state": "node_fail"})


def standing(engine: Engine) -> list[tuple[EventKind, int]]:
    store = engine.store
    return [(one.kind, len(store.events(one.id))) for one in reversed(store.incidents()) if one.state is not IncidentState.CLOSED]


ORDERS = {
    "hang, node": ([hang, down], [(EventKind.HANG, 2)]),
    "node, hang": ([down, hang], [(EventKind.HANG, 2)]),
    "node, end": ([down, end], [(EventKind.JOB_ENDED, 2)]),
    "end, node": ([end, down], [(EventKind.JOB_ENDED, 2)]),
    "hang, end": ([hang, end], [(EventKind.HANG, 2)]),
    "hang, node, end": ([hang, down, end], [(EventKind.HANG, 3)]),
    "node, hang, end": ([down, hang, end], [(EventKind.HANG, 3)]),
    "node twice": ([down, down], [(EventKind.NODE_DOWN, 2)]),
}


@pytest.mark.parametrize(("signs", "left"), ORDERS.values(), ids=ORDERS)
def test_signs_of_one_cause_make_one_incident_in_any_order(signs: list, left: list, scene: Scene) -> None:  # type: ignore[type-arg]
    for sign in signs:
        scene.engine.open(sign(scene) if sign is not down else down(scene, "1"))
        scene.clock.sleep(40)
    if signs == [down, down]:
        assert [kind for kind, _ in standing(scene.engine)] == [EventKind.NODE_DOWN] * len(standing(scene.engine))
        return
    assert standing(scene.engine) == left


@pytest.mark.parametrize(
    ("later_s", "jobs", "kinds"),
    [
        (3600, ("1",), [EventKind.HANG, EventKind.NODE_DOWN]),  # long after: another cause
        (40, ("9",), [EventKind.HANG, EventKind.NODE_DOWN]),  # under another job
        (40, ("1", "9"), [EventKind.HANG, EventKind.NODE_DOWN]),  # also under one that nobody has told of
    ],
)
def test_what_may_have_another_cause_is_an_incident_of_its_own(
    later_s: int, jobs: tuple[str, ...], kinds: list[EventKind], scene: Scene
) -> None:
    scene.engine.open(hang(scene))
    scene.clock.sleep(later_s)
    scene.engine.open(down(scene, *jobs))
    assert [kind for kind, _ in standing(scene.engine)] == kinds


def test_a_node_that_joined_is_named_in_the_message_about_the_job(scene: Scene) -> None:
    incident = scene.engine.open(hang(scene))
    scene.engine.open(down(scene, "1"))
    scene.engine.store.set_state(incident.id, IncidentState.ESCALATED, note="stands still")
    found = [one for one in notices(scene.engine.store.audit_after(0, 1000), scene.engine.store) if one.about == "escalated"]
    assert len(found) == 1
    assert "also: node node02 is down (Not responding)" in found[0].text


def test_a_job_that_ends_after_a_person_was_asked_about_its_hang_is_brought_back_under_the_same_incident(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=1000, hangs_at=60))
    job = scene.cluster.submit(scene.spec)
    scene.cluster.answers[shlex.join(DMON_COMMAND)] = lambda node: Reply(node, True, 127, "", "")
    for _ in range(30):
        scene.clock.sleep(30)
        scene.engine.tick(owner="watch")
    (asked,) = scene.engine.store.incidents()
    assert asked.state is IncidentState.ESCALATED
    assert "left running" in asked.note
    scene.cluster.plan("llm", SimulatedRun(steps=1000, checkpoints=tmp_path / "checkpoints"))
    scene.cluster.set_down("node02")
    scene.engine.open(
        Event(
            EventKind.JOB_ENDED, job, None, scene.clock.now() - timedelta(seconds=5), {"state": str(scene.cluster.job(job).state)}
        )
    )
    assert scene.engine.store.incident(asked.id).state is IncidentState.OPEN
    for _ in range(4):
        scene.clock.sleep(30)
        scene.engine.tick(owner="watch")
    incident = scene.engine.store.incident(asked.id)
    assert len([one for one in scene.engine.store.incidents() if one.job == job]) == 1
    assert "left running" not in incident.note
    assert scene.cluster.changes[-1] == "submit 2", incident.note
