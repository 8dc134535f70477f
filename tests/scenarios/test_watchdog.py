"""The watchdog on a simulated cluster: it leads or stands by, hangs on nothing, tells what it could not see, and ends cleanly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from assistant.daemon import loop
from assistant.daemon.loop import Watchdog
from assistant.daemon.pass_result import PassResult
from assistant.errors import Fenced, Unavailable
from assistant.policy import Mode
from assistant.records import IncidentState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import ECC, XID, Scene

PASSES = 400


@dataclass
class Told:
    """A beat that keeps what it is told."""

    passes: list[PassResult] = field(default_factory=list)
    closed: int = 0

    def report(self, passed: PassResult) -> None:
        self.passes.append(passed)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, mode=Mode.ACT)


Dogs = Callable[..., Watchdog]


@pytest.fixture
def dogs(scene: Scene) -> Iterator[Dogs]:
    """Make watchdogs on the scene's cluster and store, each with an engine of its own, and end them."""
    made: list[Watchdog] = []

    def make(owner: str, **more: Any) -> Watchdog:
        made.append(Watchdog(scene.started(), owner, 10.0, **more))
        return made[-1]

    yield make
    for dog in made:
        dog.close()


def passes(dog: Watchdog, scene: Scene, until: Callable[[], bool], most: int = PASSES) -> None:
    for _ in range(most):
        scene.clock.sleep(5)
        dog.look()
        if until():
            return
    raise AssertionError(f"not within {most} passes: {scene.engine.store.incidents()}")


def states(scene: Scene) -> list[IncidentState]:
    return [incident.state for incident in scene.engine.store.incidents()]


def test_it_brings_a_failed_job_back(scene: Scene, dogs: Dogs) -> None:
    told = Told()
    dog = dogs("watch@a:1.1", listeners=[told])
    scene.cluster.submit(scene.spec)
    passes(dog, scene, lambda: states(scene) == [IncidentState.RECOVERED])
    assert sum(bool(passed.opened) for passed in told.passes) == 1
    assert all(passed.whole for passed in told.passes)
    assert [change.partition(" ")[0] for change in scene.cluster.changes] == ["submit", "cordon", "submit"]
    assert scene.engine.store.verify() is None


def test_of_two_one_stands_by_and_takes_over_within_thirty_seconds(scene: Scene, dogs: Dogs) -> None:
    first, second = dogs("watch@a:1.1"), dogs("watch@b:1.1")
    assert first.look().leads
    assert not second.look().leads
    # the first is paused: no renewal reaches the store any more
    first.leader._stopped.set()
    waited = 0.0
    while not second.look().leads:
        scene.clock.sleep(5)
        waited += 5
        assert waited <= 30
    assert not first.look().leads


def test_a_leader_that_slept_acts_no_more(scene: Scene, dogs: Dogs) -> None:
    first, second = dogs("watch@a:1.1"), dogs("watch@b:1.1")
    first.look()
    sleeper = first.engine
    first.leader._stopped.set()
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(600)
    passes(second, scene, lambda: states(scene) == [IncidentState.RECOVERED])
    done = list(scene.cluster.changes)
    # it wakes in the middle of its pass, believing that it leads
    with pytest.raises(Fenced, match="watch@b"):
        sleeper.gate.call("cordon_node", {"node": "node07", "reason": "an old theory"}, why="it slept", by="watch")
    assert sleeper.look() == []
    assert scene.cluster.changes == done
    assert len(scene.engine.store.incidents()) == 1


def test_a_silent_scheduler_is_told_and_nothing_is_concluded(scene: Scene, dogs: Dogs) -> None:
    told = Told()
    dog = dogs("watch@a:1.1", listeners=[told])
    scene.cluster.submit(scene.spec)
    dog.look()
    scene.cluster.outage = True
    for _ in range(5):
        scene.clock.sleep(60)
        assert not dog.look().whole
    assert states(scene) == []
    scene.cluster.outage = False
    passes(dog, scene, lambda: states(scene) == [IncidentState.RECOVERED])


@pytest.mark.slow
def test_an_incident_that_hangs_holds_up_no_other(scene: Scene, dogs: Dogs, monkeypatch: pytest.MonkeyPatch) -> None:
    dog = dogs("watch@a:1.1", patience_s=0.2)
    checkpoints = scene.folder / "checkpoints"
    broken = [
        SimulatedRun(fails_at=50, lines=ECC, kernel={node: XID}, only_on=node, checkpoints=checkpoints)
        for node in ("node02", "node04")
    ]
    scene.cluster.plan("llm", *broken)
    scene.cluster.submit(scene.spec)
    other = scene.cluster.submit(scene.spec)
    free, working = threading.Event(), dog.engine.work

    def hanging(number: int, **more: Any) -> object:
        if scene.engine.store.incident(number).job == "1":
            free.wait(60)
            raise Unavailable("node02 did not answer")
        return working(number, **more)

    monkeypatch.setattr(dog.engine, "work", hanging)
    passes(
        dog,
        scene,
        lambda: any(one.job == other and one.state is IncidentState.RECOVERED for one in scene.engine.store.incidents()),
    )
    assert dog.look().in_flight >= 1
    free.set()
    passes(dog, scene, lambda: any("node02 did not answer" in trouble for trouble in dog.look().trouble))


def test_work_that_never_ends_is_told_of_and_does_not_keep_the_watch_from_ending(
    scene: Scene, dogs: Dogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "HANGS_S", 0.05)
    dog = dogs("watch@a:1.1", patience_s=0.1)
    dog._pool._relief_s = 0.05
    free = threading.Event()
    monkeypatch.setattr(dog.engine, "work", lambda *_, **__: free.wait(30))
    scene.cluster.submit(scene.spec)
    passes(dog, scene, lambda: bool(states(scene)))
    passes(dog, scene, lambda: any("incident 1: in work for 0 min" in one for one in dog.look().troubles))
    began = time.monotonic()
    dog.finish()
    assert time.monotonic() - began < 5
    free.set()


def test_what_is_being_made_is_finished_before_it_ends(scene: Scene, dogs: Dogs, monkeypatch: pytest.MonkeyPatch) -> None:
    dog = dogs("watch@a:1.1", patience_s=0.1)
    begun, finished, working = threading.Event(), [], dog.engine.work

    def slow(number: int, **more: Any) -> object:
        begun.set()
        time.sleep(0.5)
        finished.append(number)
        return working(number, **more)

    monkeypatch.setattr(dog.engine, "work", slow)
    scene.cluster.submit(scene.spec)
    passes(dog, scene, begun.is_set)
    dog.stop()
    dog.finish()
    assert finished == [1]


def test_it_stops_between_two_stages_and_another_goes_on_exactly_there(scene: Scene, dogs: Dogs) -> None:
    told = Told()
    first = dogs("watch@a:1.1", listeners=[told])
    scene.cluster.submit(scene.spec)
    passes(first, scene, lambda: bool(states(scene)))
    first.close()
    assert told.closed == 1
    second = dogs("watch@b:1.1")
    assert second.look().leads
    passes(second, scene, lambda: states(scene) == [IncidentState.RECOVERED])
    assert [change.partition(" ")[0] for change in scene.cluster.changes] == ["submit", "cordon", "submit"]


def test_run_ends_when_it_is_told_to(scene: Scene, dogs: Dogs) -> None:
    told = Told()
    dog = dogs("watch@a:1.1", listeners=[told])
    runs = threading.Thread(target=dog.run)
    runs.start()
    dog.stop()
    runs.join(30)
    assert not runs.is_alive()
    dog.close()
    assert told.closed == 1
    leader = scene.engine.store.leader()
    assert leader is None or leader.until <= scene.clock.now()


def test_a_job_that_died_while_the_scheduler_was_silent_is_no_hang(scene: Scene, dogs: Dogs) -> None:
    dog = dogs("watch@a:1.1")
    scene.cluster.plan("llm", SimulatedRun(steps=2_000, hangs_at=60, checkpoints=scene.folder / "checkpoints"))
    scene.cluster.submit(scene.spec)
    for _ in range(10):
        scene.clock.sleep(10)
        dog.look()
    scene.cluster.outage = True
    scene.clock.sleep(1_200)
    dog.look()
    scene.cluster.outage = False
    # it is silent for longer than any limit, but the scheduler may not know yet that it has ended
    assert dog.look().opened == ()
    scene.clock.sleep(30)
    assert dog.look().opened == ()
    passes(dog, scene, lambda: bool(states(scene)))
