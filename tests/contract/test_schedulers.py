"""The same behaviours for every scheduler that can run here: what an engine may rely on, whatever is behind the port."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.errors import ToolError
from assistant.nodeset import fold
from assistant.ports import JumpingClock, Scheduler, SystemClock
from assistant.records import Job, JobSpec, JobState, NodeState
from assistant.schedulers.local import LocalScheduler
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun

SCRIPTS = {"well": "echo all is well", "badly": "echo oh no; exit 3", "killed": "kill -9 $$", "long": "sleep 60"}
RUNS = {
    "well": SimulatedRun(steps=3),
    "badly": SimulatedRun(fails_at=2, lines=("oh no",), exit_code=3),
    "killed": SimulatedRun(fails_at=2, exit_code=0, signal=9),
    "long": SimulatedRun(steps=10_000),
}


@dataclass
class Bench:
    """A scheduler with four nodes and what a test needs around it."""

    scheduler: Scheduler
    folder: Path
    wait: Callable[[float], None]
    set_down: Callable[[str], None]
    foreign: Callable[[str, str], None]
    nodes: tuple[str, ...] = ("node01", "node02", "node03", "node04")
    scripts: Mapping[str, str] = field(default_factory=lambda: SCRIPTS)

    def submit(self, name: str, **changes: object) -> str:
        """Submit one of the four jobs above."""
        spec = JobSpec(name=name, script=self.scripts[name], work_dir=self.folder, **changes)  # type: ignore[arg-type]
        return self.scheduler.submit(spec)

    def until(self, job_id: str, wanted: Callable[[Job], bool]) -> Job:
        """Wait until a job is as wanted."""
        for _ in range(200):
            job = self.scheduler.job(job_id)
            if wanted(job):
                return job
            self.wait(1.0)
        raise AssertionError(f"job did not get there: {self.scheduler.job(job_id)}")

    def ended(self, job_id: str) -> Job:
        """Wait until a job is over."""
        return self.until(job_id, lambda job: job.state.ended)


def _local(folder: Path) -> Bench:
    cluster = LocalScheduler(folder / "cluster", SystemClock())

    def foreign(node: str, reason: str) -> None:
        text = (folder / "cluster" / "cluster.json").read_text(encoding="utf-8")
        (folder / "cluster" / "cluster.json").write_text(
            text.replace('"cordons": {', f'"cordons": {{"{node}": "{reason}"'), "utf-8"
        )

    return Bench(cluster, folder, lambda _: time.sleep(0.05), cluster.set_down, foreign)


def _simulated(folder: Path) -> Bench:
    clock = JumpingClock(datetime(2026, 1, 1, tzinfo=UTC))
    cluster = SimulatedCluster(clock, folder)
    for name, run in RUNS.items():
        cluster.plan(name, run)
    return Bench(cluster, folder, clock.sleep, cluster.set_down, cluster.set_cordon)


@pytest.fixture(params=[_local, _simulated], ids=["local", "simulated"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made: Bench = request.param(tmp_path)
    yield made
    for job in made.scheduler.jobs():
        made.scheduler.cancel(job.id)
    for job in made.scheduler.jobs():
        made.ended(job.id)


def test_a_job_that_ends_well_is_completed(bench: Bench) -> None:
    job = bench.ended(bench.submit("well"))
    assert (job.state, job.exit_code, job.signal) == (JobState.COMPLETED, 0, None)
    assert job.submitted is not None
    assert job.started is not None
    assert job.ended is not None
    assert job.submitted <= job.started <= job.ended
    assert job.ended.tzinfo is not None


def test_a_job_that_ends_badly_keeps_its_exit_code_and_its_words(bench: Bench) -> None:
    job = bench.ended(bench.submit("badly"))
    assert (job.state, job.exit_code) == (JobState.FAILED, 3)
    assert job.log is not None
    text = job.log.read_text(encoding="utf-8")
    assert "oh no" in text
    assert f"srun: error: {job.nodes[0]}: task 0: Exited with exit code 3" in text


def test_a_job_that_is_killed_keeps_the_signal(bench: Bench) -> None:
    job = bench.ended(bench.submit("killed"))
    assert (job.state, job.signal) == (JobState.FAILED, 9)


def test_ids_increase_and_jobs_come_oldest_first(bench: Bench) -> None:
    ids = [bench.submit("well") for _ in range(3)]
    assert ids == sorted(ids, key=int)
    assert [job.id for job in bench.scheduler.jobs() if job.id in ids] == ids


def test_a_held_job_waits_until_it_is_released(bench: Bench) -> None:
    job_id = bench.submit("well", hold=True)
    bench.wait(2.0)
    waiting = bench.scheduler.job(job_id)
    assert (waiting.state, waiting.held, waiting.started) == (JobState.PENDING, True, None)
    other = bench.submit("well")
    assert bench.ended(other).state is JobState.COMPLETED
    assert {job_id, other} <= {job.id for job in bench.scheduler.user_jobs(waiting.user)}
    assert bench.scheduler.user_jobs("somebody-else") == []
    bench.scheduler.release(job_id)
    bench.scheduler.release(job_id)
    assert bench.ended(job_id).state is JobState.COMPLETED
    with pytest.raises(ToolError, match="cannot be released"):
        bench.scheduler.release(job_id)


def test_a_withdrawal_ends_only_what_has_not_begun(bench: Bench) -> None:
    held, running = bench.submit("well", hold=True), bench.submit("long")
    bench.until(running, lambda job: job.state is JobState.RUNNING)
    for job_id in (held, running):
        bench.scheduler.withdraw(job_id)
    now = bench.scheduler.job(held)
    assert (now.state, now.started, now.nodes) == (JobState.CANCELLED, None, ())
    assert bench.scheduler.job(running).state is JobState.RUNNING
    bench.scheduler.cancel(running)


def test_the_spec_comes_back_as_it_was_submitted(bench: Bench) -> None:
    spec = JobSpec(
        name="well",
        script=SCRIPTS["well"],
        nodes=2,
        ranks_per_node=2,
        work_dir=bench.folder,
        log="logs/out-%j.txt",
        user="alice",
        environment={"A": "b"},
        exclude=(bench.nodes[1],),
        comment="nightshift:7:9",
    )
    job_id = bench.scheduler.submit(spec)
    job = bench.ended(job_id)
    assert job.spec == spec
    assert (job.comment, job.user, job.nodes) == ("nightshift:7:9", "alice", (bench.nodes[0], bench.nodes[2]))
    assert job.log == bench.folder / "logs" / f"out-{job_id}.txt"
    assert job.log.exists()


def test_jobs_wait_for_nodes_first_come_first_served(bench: Bench) -> None:
    first, second, third = bench.submit("long", nodes=3), bench.submit("long", nodes=2), bench.submit("well", nodes=1)
    bench.until(first, lambda job: job.state is JobState.RUNNING)
    states = {job.id: job.state for job in bench.scheduler.jobs() if job.id in (first, second, third)}
    assert states == {first: JobState.RUNNING, second: JobState.PENDING, third: JobState.PENDING}
    bench.scheduler.cancel(first)
    assert bench.until(second, lambda job: job.state is JobState.RUNNING).nodes == (bench.nodes[0], bench.nodes[1])


def test_a_cancelled_job_is_cancelled_once_and_for_all(bench: Bench) -> None:
    job_id = bench.submit("long")
    bench.until(job_id, lambda job: job.state is JobState.RUNNING)
    bench.scheduler.cancel(job_id)
    assert bench.ended(job_id).state is JobState.CANCELLED
    bench.scheduler.cancel(job_id)
    assert bench.scheduler.job(job_id).state is JobState.CANCELLED


def test_cancelling_what_has_ended_changes_nothing(bench: Bench) -> None:
    before = bench.ended(bench.submit("badly"))
    bench.scheduler.cancel(before.id)
    # of the spec, and of the line it was submitted with, a scheduler may know more once its accounting has caught up
    after = bench.scheduler.job(before.id)
    assert replace(after, spec=None, submit_line="") == replace(before, spec=None, submit_line="")


def test_a_pending_job_can_be_cancelled(bench: Bench) -> None:
    bench.submit("long", nodes=4)
    waiting = bench.submit("long")
    bench.scheduler.cancel(waiting)
    assert bench.scheduler.job(waiting).state is JobState.CANCELLED


def test_an_unknown_job_is_an_answer_not_an_outage(bench: Bench) -> None:
    for job_id in ("9999999", "../1", ""):
        with pytest.raises(ToolError, match="unknown"):
            bench.scheduler.job(job_id)
        with pytest.raises(ToolError, match="unknown"):
            bench.scheduler.cancel(job_id)


def test_a_job_that_can_never_run_is_refused(bench: Bench) -> None:
    for changes in ({"nodes": 5}, {"nodes": 0}, {"nodes": 4, "exclude": (bench.nodes[0],)}, {"ranks_per_node": 0}):
        with pytest.raises(ToolError, match="that it may use"):
            bench.submit("well", **changes)
    assert bench.scheduler.jobs() == []


def test_a_running_job_goes_on_while_its_node_is_cordoned(bench: Bench) -> None:
    job_id = bench.submit("long")
    place = bench.nodes.index(bench.until(job_id, lambda job: job.state is JobState.RUNNING).nodes[0])
    bench.scheduler.cordon(bench.nodes[place], "nightshift: incident 1")
    bench.wait(1.0)
    assert bench.scheduler.job(job_id).state is JobState.RUNNING
    node = bench.scheduler.nodes()[place]
    assert (node.name, node.state, node.jobs) == (bench.nodes[place], NodeState.DRAINING, (job_id,))
    assert node.reason == "nightshift: incident 1"
    bench.scheduler.cancel(job_id)
    bench.ended(job_id)
    assert bench.scheduler.nodes()[place].state is NodeState.DRAINED


def test_nothing_starts_on_a_cordoned_node_until_it_is_put_back(bench: Bench) -> None:
    bench.scheduler.cordon(bench.nodes[0], "nightshift: incident 1")
    assert bench.ended(bench.submit("well")).nodes == (bench.nodes[1],)
    waiting = bench.submit("long", nodes=4)
    assert bench.scheduler.job(waiting).state is JobState.PENDING
    bench.scheduler.uncordon(bench.nodes[0])
    assert bench.until(waiting, lambda job: job.state is JobState.RUNNING).nodes[0] == bench.nodes[0]


def test_the_same_cordon_again_changes_nothing_and_our_reason_may_be_renewed(bench: Bench) -> None:
    bench.scheduler.cordon(bench.nodes[1], "nightshift: incident 1")
    bench.scheduler.cordon(bench.nodes[1], "nightshift: incident 1")
    bench.scheduler.cordon(bench.nodes[1], "nightshift: incident 2")
    assert bench.scheduler.nodes()[1].reason == "nightshift: incident 2"


def test_a_cordon_of_somebody_else_is_never_touched(bench: Bench) -> None:
    bench.foreign(bench.nodes[2], "alice: new DIMM on Monday")
    with pytest.raises(ToolError, match="somebody else"):
        bench.scheduler.cordon(bench.nodes[2], "nightshift: incident 1")
    with pytest.raises(ToolError, match="somebody else"):
        bench.scheduler.uncordon(bench.nodes[2])
    assert bench.scheduler.nodes()[2].reason == "alice: new DIMM on Monday"


def test_an_unknown_node_is_refused(bench: Bench) -> None:
    with pytest.raises(ToolError, match=re.escape(f"known: {fold(bench.nodes)}")):
        bench.scheduler.cordon("node77", "nightshift")
    with pytest.raises(ToolError, match=re.escape(f"known: {fold(bench.nodes)}")):
        bench.scheduler.uncordon("node77")


def test_uncordoning_a_node_that_is_not_cordoned_changes_nothing(bench: Bench) -> None:
    bench.scheduler.uncordon(bench.nodes[0])
    assert bench.scheduler.nodes()[0].state is NodeState.IDLE


def test_the_job_on_a_node_that_dies_ends_as_a_node_failure(bench: Bench) -> None:
    job_id = bench.submit("long", nodes=2)
    lost = bench.until(job_id, lambda job: job.state is JobState.RUNNING).nodes[1]
    bench.set_down(lost)
    assert bench.ended(job_id).state is JobState.NODE_FAIL
    job, node = bench.scheduler.job(job_id), bench.scheduler.nodes()[bench.nodes.index(lost)]
    assert (node.state, node.jobs) == (NodeState.DOWN, ())
    assert job.log is not None
    assert f"srun: error: Node failure on {lost}" in job.log.read_text(encoding="utf-8")
    assert lost not in bench.ended(bench.submit("well", nodes=2)).nodes


def test_a_job_that_outlives_its_time_limit_is_timed_out(bench: Bench) -> None:
    job = bench.ended(bench.submit("long", time_limit_s=1))
    assert job.state is JobState.TIMEOUT
    assert job.log is not None
    assert "DUE TO TIME LIMIT ***" in job.log.read_text(encoding="utf-8")
