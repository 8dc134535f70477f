"""A node that fails again after it was put back is known to the ledger."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path

from assistant.engine.node_ledger import known_traits, record_in_ledger
from assistant.records import Call, CallStatus, IncidentState, Outcome, PatternKind
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import ECC, XID, Scene


def test_a_second_failure_of_a_node_names_the_first_one(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    (first,) = scene.watch(600)
    assert first.state is IncidentState.RECOVERED
    found = scene.engine.store.diagnosis(first.id)
    assert found is not None
    assert [one.kind for one in found.patterns if one.kind is PatternKind.REPEAT] == []
    scene.clock.sleep(timedelta(days=3).total_seconds())
    scene.cluster.uncordon("node02")
    again = dataclasses.replace(
        scene.spec, name="llm2", script=scene.spec.script.replace(str(tmp_path / "checkpoints"), str(tmp_path / "saved2"))
    )
    scene.cluster.plan(
        "llm2", SimulatedRun(fails_at=50, lines=ECC, kernel={"node02": XID}, only_on="node02", checkpoints=tmp_path / "saved2")
    )
    scene.cluster.submit(again)
    while len(scene.engine.store.incidents()) < 2:
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
    second = scene.watch(600)[0]
    assert second.id != first.id
    found = scene.engine.store.diagnosis(second.id)
    assert found is not None
    [repeat] = [one for one in found.patterns if one.kind is PatternKind.REPEAT]
    assert (repeat.nodes, repeat.incidents) == (("node02",), (first.id,))
    blamed = {(one.incident, one.node) for one in scene.engine.store.sightings(scene.clock.now() - timedelta(days=9)) if one.blamed}
    assert blamed == {(first.id, "node02"), (second.id, "node02")}


def test_what_the_probes_read_stands_in_the_ledger_and_a_shared_driver_shows(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    (incident,) = scene.watch(600)
    store, found = scene.engine.store, scene.engine.store.diagnosis(incident.id)
    assert found is not None
    nodes = {
        f"node{n:02}": {
            "probes": [
                {"probe": "gpu_temperature", "value": 60.0 + n, "unit": "C"},
                {"probe": "gpu_temperature", "value": 55.0, "unit": "C"},
                {"probe": "inlet", "value": "?", "unit": "C"},
                {"probe": "gpu_driver", "value": "550.54" if n < 2 else "535.129"},
            ]
        }
        for n in (1, 2)
    }
    asked = Call(0, incident.id, "check_nodes", {}, "", "engine", scene.clock.now(), CallStatus.DONE, None, "")
    store.write_outcome(Outcome(store.write_call(asked).id, True, {"nodes": nodes}, "", scene.clock.now()))
    record_in_ledger(store, scene.cluster, incident, found, scene.cluster.job("1"))
    seen = {one.node: one for one in store.sightings(scene.clock.now() - timedelta(days=9))}
    assert (seen["node01"].heat, seen["node01"].traits["driver"]) == ({"gpu": 61.0}, "550.54")
    assert known_traits({"node02": {"rack": "r1"}}, list(seen.values()))["node02"] == {**seen["node02"].traits, "rack": "r1"}


def test_a_bug_of_the_script_is_held_against_no_node(tmp_path: Path) -> None:
    bug = ("[rank0]: Traceback (most recent call last):", '[rank0]:   File "t.py", line 3, in f', "[rank0]: KeyError: 'lr'")
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=bug))
    scene.cluster.submit(scene.spec)
    scene.watch(600)
    assert scene.engine.store.incidents()
    assert scene.engine.store.sightings(scene.clock.now() - timedelta(days=9)) == []
