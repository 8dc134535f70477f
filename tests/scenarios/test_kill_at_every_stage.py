"""kill -9 at every write of an incident, then a new process: no action runs twice and none is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.records import CallStatus, IncidentState
from tests.scenarios.scene import Killed, Scene

WRITES = 100
"""More than one incident needs; the test below fails when that is no longer true. Beyond them nothing would be killed."""


def moments() -> Iterator[object]:
    """Yield every write with the side of its commit on which the process dies; every sixth is among the fast tests."""
    for write in range(1, WRITES):
        for commits_last in (False, True):
            fast = write % 6 == 3 * commits_last
            name = f"{write}-{'after' if commits_last else 'before'}-commit"
            yield pytest.param(write, commits_last, id=name, marks=[] if fast else pytest.mark.slow)


def undisturbed(folder: Path) -> Scene:
    scene = Scene(folder)
    scene.cluster.submit(scene.spec)
    scene.watch(600)
    return scene


def test_an_undisturbed_incident_ends_recovered(tmp_path: Path) -> None:
    scene = undisturbed(tmp_path)
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert scene.cluster.changes == ["submit 1", "cordon node02", "submit 2"]
    assert 20 < scene.writes < WRITES
    restarted = scene.cluster.job("2")
    assert restarted.spec is not None
    assert restarted.spec.environment["NIGHTSHIFT_STEP"] == "20", "the checkpoint of step 40 was cut short"
    assert "node02" not in restarted.nodes
    assert scene.engine.store.verify() is None


@pytest.mark.parametrize(("write", "commits_last"), list(moments()))
def test_a_killed_engine_goes_on_where_it_was(tmp_path: Path, write: int, commits_last: bool) -> None:
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    scene.die_at(write, commits_last=commits_last)
    try:
        scene.watch(600)
    except Killed:
        scene.engine.store.close()
        scene.started()
        scene.clock.sleep(600)  # the lease of the dead process runs out
        scene.watch(1200, owner="another")
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert Counter(scene.cluster.changes) == Counter(["submit 1", "cordon node02", "submit 2"])
    assert not scene.engine.store.calls(status=CallStatus.INTENT)
    assert scene.engine.store.verify() is None
