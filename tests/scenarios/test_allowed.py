"""What a person allows is made, whichever door they said it in, also when that door did not go on with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.errors import Parked
from assistant.policy import Mode
from assistant.records import CallStatus, IncidentState, Verdict
from tests.scenarios.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A job was brought back, and the incident is over; from now on every change is asked about."""
    scene = Scene(tmp_path, mode=Mode.ACT)
    scene.cluster.submit(scene.spec)
    assert [one.state for one in scene.watch(3600)] == [IncidentState.RECOVERED]
    scene.mode = Mode.PROPOSE
    scene.started()
    return scene


def cordon_of(scene: Scene) -> int:
    return next(call.id for call in scene.engine.store.calls(1) if call.tool == "cordon_node")


def test_an_undo_of_an_ended_incident_is_made_by_the_next_pass_once_it_is_allowed(scene: Scene) -> None:
    store, gate, cordon = scene.engine.store, scene.engine.gate, cordon_of(scene)
    with pytest.raises(Parked) as parked:
        gate.undo(cordon, "cli:alice")
    scene.engine.tick(owner="watch")
    assert "uncordon node02" not in " ".join(scene.cluster.changes)
    assert store.answer(parked.value.approval, Verdict.ALLOW, "mail:bob")
    scene.engine.tick(owner="watch")
    assert scene.cluster.changes[-1].startswith("uncordon")
    assert store.call(cordon).status is CallStatus.UNDONE
    done = list(scene.cluster.changes)
    scene.engine.tick(owner="watch")
    assert scene.cluster.changes == done
    assert store.verify() is None


def test_what_was_refused_or_has_lapsed_is_never_made(scene: Scene) -> None:
    store, gate = scene.engine.store, scene.engine.gate
    done = list(scene.cluster.changes)
    with pytest.raises(Parked) as parked:
        gate.undo(cordon_of(scene), "cli:alice")
    assert store.answer(parked.value.approval, Verdict.DENY, "cli:bob")
    scene.engine.tick(owner="watch")
    with pytest.raises(Parked) as again:
        gate.undo(cordon_of(scene), "cli:alice")
    assert store.answer(again.value.approval, Verdict.ALLOW, "cli:bob")
    scene.clock.sleep(8 * 86_400)
    assert store.allowed() == []
    scene.engine.tick(owner="watch")
    assert scene.cluster.changes == done
