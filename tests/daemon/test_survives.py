"""How the watch survives its surroundings: clocks, slow accountings, controllers that restart, ids that come again, a bad store.

Logs that are cut, rotated or written anew: tests/unit/test_logs_tail.py and test_watch.py; names of logs (%j %x %N %t %A %a):
tests/cases/slurm/words.toml; mounts that hang: tests/unit/test_watch_signs.py; kill -9, and two watches as processes:
tests/cli/test_watch_service.py; kill -9 at every write: tests/scenarios and tests/chaos.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.config import Settings
from assistant.daemon.loop import Watchdog, pass_once
from assistant.daemon.pass_result import PassResult
from assistant.engine.ownership import Leader
from assistant.errors import StoreError, Unavailable
from assistant.policy import Mode
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, IncidentState, Job, JobState, Node, NodeState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.store import Store
from assistant.watch import view
from assistant.watch.attempts import KnownIncidents
from assistant.watch.hang import HangLimits
from assistant.watch.progress import SpikeLimits
from assistant.watch.readers import Readers
from assistant.watch.watcher import Watcher
from tests.chaos.watches import Blow, BrittleStore, PassingWatchdog
from tests.daemon.night import NOON
from tests.scenarios.scene import Scene

STEP_S, HANG_S = 60.0, 600.0


@dataclass
class Queue:
    """A scheduler that shows what it is told to show."""

    listed: list[Job] = field(default_factory=list)
    states: dict[str, NodeState] = field(default_factory=dict)
    silent: bool = False
    name: str = "queue"

    def jobs(self) -> Sequence[Job]:
        if self.silent:
            raise Unavailable("squeue did not answer within 30 s")
        return self.listed

    def nodes(self) -> Sequence[Node]:
        if self.silent:
            raise Unavailable("scontrol did not answer within 30 s")
        return [Node(name, state) for name, state in self.states.items()]


class Training:
    """One job that logs a step a minute, and a watcher that looks every ten seconds."""

    def __init__(self, folder: Path, clock: JumpingClock) -> None:
        self.clock, self.log = clock, folder / "job.log"
        self.log.write_text("training ...\n")
        self.job = Job("7", "llm", "alice", JobState.RUNNING, "gpu", ("node01",), self.log, folder, NOON, NOON, None, None, None)
        self.queue = Queue([self.job], {"node01": NodeState.ALLOCATED})
        limits = HangLimits(silent_s=HANG_S, factor=5)
        self.watcher = Watcher(self.queue, clock, hang=limits, spike=SpikeLimits(persist_steps=20), since=NOON)  # type: ignore[arg-type]
        self.step, self.lived_s = 0, 0.0
        self.trains = True

    def shows(self, **changed: object) -> None:
        self.job = replace(self.job, **changed)  # type: ignore[arg-type]
        self.queue.listed = [self.job]

    def look(self, known: KnownIncidents | None = None) -> list[Event]:
        return self.watcher.look(known=known or KnownIncidents({}))

    def lives(self, seconds: float) -> list[Event]:
        found: list[Event] = []
        for _ in range(int(seconds // 10)):
            self.clock.sleep(10)
            self.lived_s += 10
            if self.trains and self.lived_s % STEP_S == 0:
                self.step += 1
                with self.log.open("a") as log:
                    log.write(f"step {self.step} loss {2 + 1 / self.step:.4f}\n")
            found += self.look()
        return found


@pytest.fixture
def training(tmp_path: Path, clock: JumpingClock) -> Training:
    return Training(tmp_path, clock)


@pytest.mark.parametrize("hours", [1, -1, 24, -24])
def test_a_clock_that_is_set_makes_no_running_job_a_hang(training: Training, hours: int) -> None:
    assert training.lives(1_230) == []
    training.clock.set(training.clock.now() + timedelta(hours=hours))
    assert training.look() == []
    assert training.lives(1_200) == []


@pytest.mark.parametrize("hours", [0, 1, -1])
def test_a_hang_is_noticed_after_as_long_whatever_the_clock_was_set_to(training: Training, hours: int) -> None:
    training.lives(1_200)
    training.trains = False
    assert training.lives(300) == []
    training.clock.set(training.clock.now() + timedelta(hours=hours))
    assert training.lives(HANG_S - 320) == []
    (event,) = training.lives(60)
    assert event.kind is EventKind.HANG
    assert HANG_S < event.detail["silent_s"] < HANG_S + 60


@pytest.mark.parametrize("hours", [1, -1, 0], ids=["ahead", "behind", "right"])
def test_another_leads_within_thirty_seconds_whatever_the_clock_of_the_lost_leader_said(tmp_path: Path, hours: int) -> None:
    its, ours = JumpingClock(NOON + timedelta(hours=hours)), JumpingClock(NOON)
    with Store(tmp_path / "n.db", its) as lost, Store(tmp_path / "n.db", ours) as store:
        lost.lead("watch@login1:7.7", 20)
        leader, waited = Leader(store, "watch@login2:1.1", clock=ours), 0.0
        while not leader.seek():
            ours.sleep(5)
            waited += 5
            assert waited <= 30
        leader.resign()


def test_a_leader_on_a_host_whose_clock_is_ahead_goes_on_leading(tmp_path: Path) -> None:
    its, ours = JumpingClock(NOON + timedelta(hours=1)), JumpingClock(NOON)
    with Store(tmp_path / "n.db", its) as there, Store(tmp_path / "n.db", ours) as store:
        leader = Leader(store, "watch@login2:1.1", clock=ours)
        for _ in range(60):
            assert there.lead("watch@login1:7.7", 20) is not None
            assert not leader.seek()
            for clock in (its, ours):
                clock.sleep(5)


def test_an_end_that_the_accounting_tells_late_is_one_failure_dated_to_its_end(training: Training) -> None:
    training.lives(300)
    ended = training.clock.now()
    # the queue has forgotten it, the accounting has it running still, then without its end
    for state in (JobState.RUNNING, JobState.UNKNOWN):
        training.shows(state=state)
        training.trains = False
        assert training.lives(120) == []
    training.shows(state=JobState.FAILED, ended=ended, exit_code=1)
    (event,) = training.look()
    assert (event.kind, event.at) == (EventKind.JOB_ENDED, ended)


def test_a_job_that_completed_although_a_step_failed_is_remarked_once_and_no_failure(training: Training) -> None:
    training.lives(300)
    training.trains = False
    training.shows(state=JobState.COMPLETED, ended=training.clock.now(), exit_code=0, step_exit_code=1)
    assert training.look() == []
    assert [one.text for one in training.watcher.remarks] == ["job 7 completed, but a step of it ended with 1"]
    assert training.look() == []
    assert training.watcher.remarks == ()


def test_a_controller_that_restarts_makes_no_failures(training: Training) -> None:
    training.lives(300)
    training.queue.silent = True
    for _ in range(90):
        training.clock.sleep(10)
        with pytest.raises(Unavailable):
            training.look()
    training.queue.silent = False
    # it knows no job for a moment, and its nodes have not answered it so far
    training.queue.listed, training.queue.states = [], {"node01": NodeState.DOWN}
    assert training.look() == []
    training.queue.listed = [training.job]
    assert training.lives(60) == []
    training.queue.states = {"node01": NodeState.ALLOCATED}
    assert training.lives(1_200) == []


def test_an_id_that_was_given_again_and_a_requeue_of_the_same_id_are_failures_of_their_own(
    training: Training, store: Store, clock: JumpingClock
) -> None:
    opened: list[int] = []

    def fails(**changed: object) -> int:
        clock.sleep(60)
        training.shows(state=JobState.FAILED, ended=clock.now(), exit_code=1, **changed)
        for event in training.look(KnownIncidents.of(store.incidents())):
            opened.append(store.open_incident(event)[0].id)
        assert training.look(KnownIncidents.of(store.incidents())) == []
        return len(opened)

    assert fails() == 1
    store.set_state(1, IncidentState.ESCALATED, note="a person has it")
    assert fails() == 1, "the same end, seen again"
    assert fails(attempt=1) == 2, "Slurm queued it again under the same id"
    clock.sleep(60)
    assert fails(attempt=0, submitted=clock.now()) == 3, "ids began anew, as after a new installation"
    assert opened == [1, 2, 3]


def test_a_failure_that_is_seen_again_and_again_adds_one_row_although_our_clock_is_behind(
    training: Training, store: Store, clock: JumpingClock
) -> None:
    submitted = clock.now() + timedelta(minutes=5)
    training.shows(state=JobState.FAILED, submitted=submitted, ended=submitted + timedelta(seconds=10), exit_code=1)
    for _ in range(5):
        for event in training.look(KnownIncidents.of(store.incidents())):
            store.open_incident(event)
        clock.sleep(2)
    assert len(store.incidents()) == 1
    assert len(store.events(1)) == 1


def test_a_mount_that_hangs_when_a_job_is_first_seen_holds_up_no_look(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, stat = threading.Event(), view._status

    def hanging(path: Path) -> Any:
        if "hung" in path.parts:
            free.wait(20)
        return stat(path)

    monkeypatch.setattr(view, "_status", hanging)
    watcher = Watcher(
        training.queue,  # type: ignore[arg-type]
        training.clock,
        hang=HangLimits(silent_s=HANG_S, factor=5),
        spike=SpikeLimits(persist_steps=20),
        since=NOON,
        readers=Readers(deadline_s=0.1),
    )
    training.queue.listed = [replace(training.job, id=str(number), log=tmp_path / "hung" / f"{number}.log") for number in range(9)]
    training.queue.listed += [training.job]
    began = time.monotonic()
    assert watcher.look(known=KnownIncidents({})) == []
    assert time.monotonic() - began < 5
    assert any("did not answer" in one.text for one in watcher.trouble)
    free.set()


def test_a_log_whose_file_system_fails_when_it_is_first_seen_is_told_and_no_end_of_the_watch(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = view._status

    def failing(path: Path) -> Any:
        if path == training.log:
            raise OSError(5, "Input/output error")
        return stat(path)

    monkeypatch.setattr(view, "_status", failing)
    assert training.look() == []
    assert [one.about for one in training.watcher.trouble] == ["the log of job 7"]
    monkeypatch.setattr(view, "_status", stat)
    assert training.look() == []
    assert training.watcher.trouble == ()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, mode=Mode.ACT)


Dogs = Callable[[Store], PassingWatchdog]


@pytest.fixture
def dogs(scene: Scene) -> Iterator[Dogs]:
    made: list[PassingWatchdog] = []

    def make(store: Store) -> PassingWatchdog:
        scene.store = lambda: store  # type: ignore[method-assign,assignment,return-value]
        made.append(PassingWatchdog(scene.started(), "watch@login1:1.1"))
        return made[-1]

    yield make
    for dog in made:
        dog.close()
        dog.engine.store.close()


def passes(dog: Watchdog, scene: Scene, many: int) -> list[PassResult]:
    made = []
    for _ in range(many):
        scene.clock.sleep(5)
        made.append(dog.look())
    return made


def test_a_store_that_is_locked_is_waited_for_and_no_pass_of_that_time_is_a_sign_of_life(scene: Scene, dogs: Dogs) -> None:
    dog = dogs(Store(scene.folder / "nightshift.db", scene.clock, busy_timeout_s=0.02))
    scene.cluster.submit(scene.spec)
    assert passes(dog, scene, 2)[-1].whole
    with sqlite3.connect(scene.folder / "nightshift.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        made = passes(dog, scene, 20)
        other.execute("ROLLBACK")
    other.close()
    assert not any(one.whole for one in made)
    assert all(one.trouble for one in made)
    passes(dog, scene, 100)
    assert [one.state for one in dog.engine.store.incidents()] == [IncidentState.RECOVERED]
    assert [change.partition(" ")[0] for change in scene.cluster.changes] == ["submit", "cordon", "submit"]


def test_what_could_not_be_written_down_is_noticed_again(scene: Scene, dogs: Dogs) -> None:
    scene.cluster.plan("llm", SimulatedRun(steps=1_000, hangs_at=30))
    store = BrittleStore(scene.folder / "nightshift.db", scene.clock)
    dog = dogs(store)
    scene.cluster.submit(scene.spec)
    opening = store.open_incident
    refused: list[object] = []

    def full(*given: Any, **named: Any) -> Any:
        if len(refused) < 3:
            refused.append(given)
            raise StoreError("the disk is full")
        return opening(*given, **named)

    store.open_incident = full  # type: ignore[method-assign]
    passes(dog, scene, 200)
    assert len(refused) == 3
    assert [one.kind for one in store.incidents()][-1:] == [EventKind.HANG]


@pytest.mark.parametrize("write", range(0, 60, 4))
def test_a_disk_that_is_full_from_any_write_on_delays_the_work_and_repeats_nothing(scene: Scene, dogs: Dogs, write: int) -> None:
    store = BrittleStore(scene.folder / "nightshift.db", scene.clock)
    dog = dogs(store)
    scene.cluster.submit(scene.spec)
    store.hit(Blow.FULL, write, lasts=30)
    made = passes(dog, scene, 200)
    assert not all(one.whole for one in made), "it did not go unnoticed"
    assert made[-1].whole
    assert [one.state for one in store.incidents()] == [IncidentState.RECOVERED]
    assert [change.partition(" ")[0] for change in scene.cluster.changes] == ["submit", "cordon", "submit"]
    assert (store.verify(), dog.bugs) == (None, [])


def test_a_pass_that_cannot_read_one_log_is_no_sign_of_life_until_people_know_of_it(scene: Scene, dogs: Dogs) -> None:
    dog = dogs(Store(scene.folder / "nightshift.db", scene.clock))
    job = scene.cluster.submit(scene.spec)
    listed = scene.cluster.jobs
    # whatever reads a folder gets an error of the file system
    scene.cluster.jobs = lambda: [replace(one, log=scene.folder) for one in listed()]  # type: ignore[method-assign]
    made = passes(dog, scene, 3)
    assert [one.whole for one in made] == [False] * 3
    assert made[0].trouble[0].startswith(f"job {job}: its log cannot be read: ")


def test_a_single_pass_that_cannot_read_one_log_is_no_sign_of_life_either(scene: Scene) -> None:
    scene.cluster.plan("llm", SimulatedRun(steps=1_000))
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(5)
    engine, listed = scene.engine, scene.cluster.jobs
    assert list(pass_once(lambda: engine.tick(owner="once"), Settings(), engine.store, engine)) == []
    (seen,) = engine.store.watches()
    scene.cluster.jobs = lambda: [replace(one, log=scene.folder) for one in listed()]  # type: ignore[method-assign]
    scene.clock.sleep(60)
    pass_once(lambda: engine.tick(owner="once"), Settings(), engine.store, engine)
    (degraded,) = engine.store.watches()
    assert degraded.whole_at == seen.at
    assert "its log cannot be read" in degraded.trouble[0]


def test_what_is_remarked_reaches_the_store(scene: Scene, dogs: Dogs) -> None:
    scene.cluster.plan("llm", SimulatedRun(steps=1_000))
    dog = dogs(Store(scene.folder / "nightshift.db", scene.clock))
    scene.cluster.submit(scene.spec)
    passes(dog, scene, 2)
    scene.cluster.cordon("node01", "firmware, by hand")
    scene.clock.sleep(60)
    dog.look()
    (said,) = dog.engine.store.remarks()
    assert said.text == "node node01: allocated -> draining (firmware, by hand), job 1 runs there"
    assert passes(dog, scene, 1)[0].whole, "it is no trouble"


def test_a_silent_scheduler_is_no_sign_of_life_however_long_it_lasts(scene: Scene, dogs: Dogs) -> None:
    dog = dogs(Store(scene.folder / "nightshift.db", scene.clock))
    scene.cluster.submit(scene.spec)
    scene.cluster.outage = True
    made = passes(dog, scene, 200)
    assert not any(one.whole for one in made)
    assert dog.engine.store.incidents() == []
