"""What the watch notices, and what it must not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.errors import Unavailable
from assistant.logs.tail import LogFollower
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, JobSpec, JobState
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.watch.hang import HangLimits
from assistant.watch.progress import SpikeLimits
from assistant.watch.watcher import Watcher

START = datetime(2026, 1, 5, 2, 0, tzinfo=UTC)
LIMITS = HangLimits(silent_s=600, factor=5)
Watched = tuple[SimulatedCluster, Watcher, JumpingClock]


@pytest.fixture
def watched(tmp_path: Path) -> Callable[..., Watched]:
    def make(*runs: SimulatedRun) -> Watched:
        clock = JumpingClock(START)
        cluster = SimulatedCluster(clock, tmp_path, nodes=4)
        cluster.plan("llm", *runs)
        cluster.submit(JobSpec("llm", "srun train", nodes=2, work_dir=tmp_path))
        watcher = Watcher(cluster, clock, hang=LIMITS, spike=SpikeLimits(persist_steps=20), since=START)
        return cluster, watcher, clock

    return make


def looks(watched: Watched, seconds: int, every: int = 10) -> list[EventKind]:
    _, watcher, clock = watched
    found: list[EventKind] = []
    for _ in range(seconds // every):
        clock.sleep(every)
        found += [event.kind for event in watcher.look(known=())]
    return found


def test_a_job_that_stands_still_is_noticed_once(watched: Callable[..., Watched]) -> None:
    assert looks(watched(SimulatedRun(steps=1000, hangs_at=60)), 2000) == [EventKind.HANG]


def test_a_hang_is_dated_to_the_last_output(watched: Callable[..., Watched]) -> None:
    _, watcher, clock = watched(SimulatedRun(steps=1000, hangs_at=60))
    events: Sequence[Event] = []
    while not events:
        clock.sleep(10)
        events = watcher.look(known=())
    (event,) = events
    assert START + timedelta(seconds=60) <= event.at <= START + timedelta(seconds=80)
    assert event.detail["step"] == 60


def test_a_healthy_job_brings_nothing(watched: Callable[..., Watched]) -> None:
    assert looks(watched(SimulatedRun(steps=300)), 600) == []


def test_a_loss_that_runs_away_is_noticed_while_the_job_runs(watched: Callable[..., Watched]) -> None:
    scene = watched(SimulatedRun(steps=1000, spikes_at=100))
    assert looks(scene, 300) == [EventKind.LOSS_SPIKE]
    assert scene[0].job("1").state is JobState.RUNNING


def test_a_failure_is_noticed_until_it_has_an_incident(watched: Callable[..., Watched]) -> None:
    _, watcher, clock = watched(SimulatedRun(fails_at=5))
    clock.sleep(60)
    assert [event.kind for event in watcher.look(known=())] == [EventKind.JOB_ENDED]
    assert watcher.look(known=[("1", 0)]) == []


def test_a_cancelled_job_is_left_alone(watched: Callable[..., Watched]) -> None:
    cluster, watcher, clock = watched(SimulatedRun(steps=1000))
    clock.sleep(30)
    cluster.cancel("1")
    assert watcher.look(known=()) == []


def test_a_scheduler_that_does_not_answer_makes_the_look_blind(watched: Callable[..., Watched]) -> None:
    cluster, watcher, _ = watched(SimulatedRun())
    cluster.outage = True
    with pytest.raises(Unavailable):
        watcher.look(known=())


def test_a_watcher_that_starts_late_reads_only_the_end(watched: Callable[..., Watched], tmp_path: Path) -> None:
    cluster, _, clock = watched(SimulatedRun(steps=100_000, spikes_at=2_000))
    clock.sleep(2_200)
    late = Watcher(cluster, clock, hang=LIMITS, spike=SpikeLimits(persist_steps=20), since=START)
    assert [event.kind for event in late.look(known=())] == [EventKind.LOSS_SPIKE]


def test_a_log_that_is_cut_and_one_that_is_written_anew_are_followed(watched: Callable[..., Watched], tmp_path: Path) -> None:
    scene = watched(SimulatedRun(steps=1000, hangs_at=400))
    cluster = scene[0]
    assert looks(scene, 100) == []
    log = cluster.job("1").log
    assert log is not None
    log.write_text("")
    assert looks(scene, 100) == []
    log.rename(log.with_suffix(".log.1"))
    assert looks(scene, 100) == []
    assert looks(scene, 2000) == [EventKind.HANG]


def test_a_job_whose_state_is_unknown_for_a_while_is_neither_gone_nor_forgotten(watched: Callable[..., Watched]) -> None:
    scene = watched(SimulatedRun(steps=1000, hangs_at=60))
    cluster, watcher, clock = scene
    assert looks(scene, 500) == []
    shown = cluster.jobs
    cluster.jobs = lambda: [replace(job, state=JobState.UNKNOWN) for job in shown()]  # type: ignore[method-assign]
    assert looks(scene, 100) == []
    cluster.jobs = shown  # type: ignore[method-assign]
    clock.sleep(100)
    (event,) = watcher.look(known=())
    assert event.kind is EventKind.HANG
    assert event.detail["silent_s"] > 600


def test_a_requeued_job_begins_with_fresh_eyes(watched: Callable[..., Watched]) -> None:
    scene = watched(SimulatedRun(steps=1000, hangs_at=60), SimulatedRun(steps=1000))
    cluster, watcher, _ = scene
    assert looks(scene, 400) == []
    cluster.cancel("1")
    cluster.set_requeued("1")
    assert looks(scene, 900) == []
    assert watcher.view("1") is None
    assert watcher.view("1", 1) is not None


def test_an_id_that_is_used_again_is_another_job(watched: Callable[..., Watched]) -> None:
    scene = watched(SimulatedRun(steps=100_000))
    cluster, watcher, clock = scene
    assert looks(scene, 400) == []
    before = watcher.view("1")
    shown = cluster.jobs
    later = clock.now()
    cluster.jobs = lambda: [replace(job, submitted=later) for job in shown()]  # type: ignore[method-assign]
    clock.sleep(10)
    watcher.look(known=())
    assert watcher.view("1") is not before


def test_one_query_of_the_scheduler_a_look(watched: Callable[..., Watched]) -> None:
    scene = watched(SimulatedRun(steps=1000))
    cluster = scene[0]
    asked: list[str] = []
    jobs, job = cluster.jobs, cluster.job
    cluster.jobs = lambda: asked.append("jobs") or jobs()  # type: ignore[method-assign,func-returns-value]
    cluster.job = lambda job_id: asked.append("job") or job(job_id)  # type: ignore[method-assign,func-returns-value]
    looks(scene, 100)
    assert asked == ["jobs"] * 10


def test_a_look_reads_only_the_logs_that_changed(
    watched: Callable[..., Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, watcher, clock = watched(SimulatedRun(steps=1000))
    logs = [tmp_path / f"{number}.log" for number in range(200)]
    for log in logs:
        log.write_text("step 1 loss 2.0\n")
    one = cluster.job("1")
    cluster.jobs = lambda: [replace(one, id=log.stem, log=log, state=JobState.RUNNING) for log in logs]  # type: ignore[method-assign]
    watcher.look(known=())
    read: list[str] = []
    news = LogFollower.news
    monkeypatch.setattr(LogFollower, "news", lambda self: read.append(self.path.name) or news(self))  # type: ignore[func-returns-value]
    clock.sleep(10)
    watcher.look(known=())
    assert read == []
    for log in logs[5:8]:
        with log.open("a") as file:
            file.write("step 2 loss 1.9\n")
    clock.sleep(10)
    watcher.look(known=())
    assert sorted(read) == ["5.log", "6.log", "7.log"]


def test_a_log_without_steps_that_is_silent_gets_twice_the_time(watched: Callable[..., Watched], tmp_path: Path) -> None:
    scene = watched(SimulatedRun(steps=1000, launch_s=100_000))
    assert looks(scene, 1190) == []
    assert looks(scene, 100) == [EventKind.HANG]


def test_a_job_that_prints_nothing_is_never_called_hung_by_itself(watched: Callable[..., Watched]) -> None:
    scene = watched(SimulatedRun(steps=1000, launch_s=10_000_000))
    log = scene[0].job("1").log
    assert log is not None
    log.write_text("")
    assert looks(scene, 86_400, every=600) == []


ROWS = {
    "a simulation with checksums": "[{clock}] step {step:4d} of 9000  Ekin 0.3{step}  trace {digest}",
    "sweeps of a solver": "sweep {step}: residual 1.{step}e-03 after 4 inner",
    "iterations without a loss": "it {step} energy -12.{step}",
}
STILL = {
    "ranks that wait for one another": "rank 0: still waiting for sum of rank 1 (node002), {seconds} s",
    "a heartbeat of a thread": "[{clock}] alive, {seconds} s since the start",
}


def told(scene: Watched, log: Path, row: str, still: str, *, moving_s: int, still_s: int) -> list[EventKind]:
    """Let a job write rows for a time, and then only lines of one form, and return what is noticed."""
    _, watcher, clock = scene
    events: list[EventKind] = []
    for look in range((moving_s + still_s) // 10):
        clock.sleep(10)
        seconds, step = look * 10, look * 5
        digest = f"{(step * 2654435761) % (1 << 32):08x}"
        form = row if seconds < moving_s else still
        with log.open("a") as file:
            file.write(form.format(step=step, seconds=seconds, clock=f"{clock.now():%H:%M:%S}", digest=digest) + "\n")
        events += [event.kind for event in watcher.look(known=())]
    return events


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("still", STILL)
def test_a_log_of_no_known_form_whose_steps_stop_is_a_hang_though_it_goes_on(
    row: str, still: str, watched: Callable[..., Watched], tmp_path: Path
) -> None:
    scene = watched(SimulatedRun(steps=9000, hangs_at=0, lines=()))
    log = scene[0].jobs()[0].log
    assert log is not None
    assert told(scene, log, ROWS[row], STILL[still], moving_s=400, still_s=900) == [EventKind.HANG]


def test_rows_that_go_on_are_no_hang_and_neither_is_work_of_another_kind(watched: Callable[..., Watched], tmp_path: Path) -> None:
    scene = watched(SimulatedRun(steps=9000, hangs_at=0, lines=()))
    log = scene[0].jobs()[0].log
    assert log is not None
    assert told(scene, log, ROWS["sweeps of a solver"], "", moving_s=2000, still_s=0) == []
    assert told(scene, log, "copied part {step} of 9000 to the disk", "", moving_s=2000, still_s=0) == []
