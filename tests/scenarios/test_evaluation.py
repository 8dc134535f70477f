"""An evaluation with real jobs on the embedded scheduler: what goes wrong costs little, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.evaluation.coordinator import Coordinator, Stuck
from assistant.evaluation.files import CLEAN, STAGE, Journal
from assistant.evaluation.model_cache import Shelf
from assistant.evaluation.plan_inputs import planner
from assistant.evaluation.work import Estimate
from assistant.records import JobSpec, JobState
from tests.scenarios.evaluating import World

ALL = {"a": 20.0, "b": 10.0, "c": 5.0}
PIECES = {"a 0 10": 1, "a 10 20": 1, "b 0 10": 1, "c 0 5": 1}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def kinds(world: World) -> list[str]:
    return [note.kind for note in Journal(world.folder).state.jobs.values()]


def test_every_dataset_is_scored_and_each_node_reads_the_model_once(world: World) -> None:
    world.run()
    assert world.scores() == ALL
    assert world.times("infer") == PIECES
    assert world.times("metric") == {"a": 1, "b": 1, "c": 1}
    assert world.times("fetch") == {"node01": 1, "node02": 1}
    assert world.left_in_memory() == []


def test_metrics_ask_for_no_gpu_and_trials_for_one(world: World) -> None:
    world.run()
    asked = {job.name: job.spec.options for job in world.cluster.jobs() if job.spec is not None}
    assert "--gres=none" in asked["evaluate-metric"]
    assert "--gres=gpu:1" in asked["evaluate-trial"]
    assert "--gres=none" in asked["evaluate-stage"]


@pytest.mark.slow
def test_a_run_that_is_finished_submits_nothing_more(world: World) -> None:
    world.run()
    before = len(world.cluster.jobs())
    again = world.coordinator()
    assert again.step()
    assert len(world.cluster.jobs()) == before


def test_one_bad_dataset_is_given_up_after_its_tries_and_the_others_are_scored(world: World) -> None:
    world.let("bad.b")
    run = world.run()
    assert world.scores() == {"a": 20.0, "c": 5.0}
    assert "exit status 3: no such question" in run.state.sunk["b"]
    assert world.times("infer")["b 0 10"] == 3
    assert world.left_in_memory() == []


def test_a_piece_that_failed_on_a_node_is_tried_on_another(world: World) -> None:
    world.let("bad.b.node01")
    world.let("bad.a.node02")
    world.run()
    assert world.scores() == ALL
    places = {(words[0], words[3]) for words in world.ran("infer")}
    assert {("b", "node02"), ("a", "node01")} <= places


@pytest.mark.slow
def test_a_metric_that_fails_is_tried_again_and_then_given_up(world: World) -> None:
    world.let("unscored.c")
    run = world.run()
    assert world.scores() == {"a": 20.0, "b": 10.0}
    assert "its metric" in run.state.sunk["c"]
    assert "exit status 5" in run.state.sunk["c"]
    assert world.times("metric")["c"] == 3
    assert world.times("infer") == PIECES


@pytest.mark.parametrize("closed", [False, True])
def test_a_metric_that_never_ends_and_forks_is_killed_with_all_it_started(world: World, closed: bool) -> None:
    seconds = f"600.{os.getpid()}{int(closed)}"  # like no other sleep of this machine
    world.let("endless.b", seconds)
    world.root.chmod(0o755)
    world.of("b", metric_timeout_s=1.5, sandbox=closed)
    # a program in the sandbox may write nowhere else, so it cannot note that it ran
    if closed:
        world.of("b", metric=f"/bin/sh -c 'sleep {seconds} & setsid sleep {seconds} & sleep {seconds}'")
    run = world.run()
    assert world.scores() == {"a": 20.0, "c": 5.0}
    assert "did not end within" in run.state.sunk["b"]
    assert not sleepers(seconds)


def sleepers(seconds: str) -> list[str]:
    found = subprocess.run(["pgrep", "-fx", f"sleep {seconds}"], capture_output=True, text=True, check=False)
    return found.stdout.split()


def test_a_node_that_dies_while_it_stages_is_replaced_by_another(tmp_path: Path) -> None:
    world = World(tmp_path, nodes=3)
    world.ask(nodes=1)
    world.let("slow.fetch", 1.5)

    def look(run: Coordinator) -> None:
        if world.ran("fetch") == [["node01"]]:
            world.cluster.set_down("node01")

    try:
        world.run(look)
        assert world.scores() == ALL
        assert world.times("fetch")["node02"] == 1
        assert {words[3] for words in world.ran("infer")} == {"node02"}
    finally:
        world.close()


def test_what_a_dead_node_had_not_finished_is_done_elsewhere_and_nothing_else_again(world: World) -> None:
    world.let("slow.a", 0.7)
    killed: list[str] = []

    def look(run: Coordinator) -> None:
        first = next((words for words in world.ran("infer") if words[0] == "a"), None)
        if first is not None and not killed:
            killed.append(first[3])
            world.cluster.set_down(first[3])

    run = world.run(look)
    assert world.scores() == ALL
    again = [words for words in world.ran("infer") if words[0] == "a" and words[1] == "0"]
    assert [words[3] == killed[0] for words in again] == [True, False]
    assert all(count == 1 for piece, count in world.times("infer").items() if piece != "a 0 10")
    assert run.uncleaned == (killed[0],)
    assert all(killed[0] in path for path in world.left_in_memory())


@pytest.mark.slow
def test_the_memory_of_a_node_that_came_back_is_freed_by_the_next_cleaning(world: World) -> None:
    world.let("slow.a", 0.7)
    down: list[str] = []

    def look(run: Coordinator) -> None:
        if world.ran("infer") and not down:
            down.append(world.ran("infer")[0][3])
            world.cluster.set_down(down[0])

    world.run(look)
    world.cluster.set_up(down[0])
    assert world.coordinator().clean(poll_s=0.05) == ()
    assert world.left_in_memory() == []


@pytest.mark.slow
def test_a_node_that_joins_later_takes_part(tmp_path: Path) -> None:
    world = World(tmp_path, items=dict.fromkeys("abcdef", 10))
    for name in "abcdef":
        world.let(f"slow.{name}", 0.3)
    world.cluster.set_down("node02")

    def look(run: Coordinator) -> None:
        if world.ran("infer"):
            world.cluster.set_up("node02")

    try:
        world.run(look)
        assert {words[3] for words in world.ran("infer")} == {"node01", "node02"}
        assert world.times("fetch") == {"node01": 1, "node02": 1}
    finally:
        world.close()


@pytest.mark.slow
def test_a_trial_that_runs_long_hands_over_what_it_has_not_begun(tmp_path: Path) -> None:
    world = World(tmp_path, items={"a": 80, "b": 10})
    world.let("slow.a", 0.9)  # nine times what is expected of it
    try:
        run = world.run()
        assert world.scores() == {"a": 80.0, "b": 10.0}
        assert {words[3] for words in world.ran("infer") if words[0] == "a"} == {"node01", "node02"}
        assert all(count == 1 for count in world.times("infer").values())
        assert any(note.withdrawn for note in run.state.jobs.values())
    finally:
        world.close()


@pytest.mark.slow
def test_priors_wrong_by_a_hundred_either_way_cost_time_and_nothing_else(tmp_path: Path) -> None:
    world = World(tmp_path, items={"a": 60, "b": 20, "c": 20})
    seconds = {"a": 0.01, "b": 40.0, "c": 40.0}
    world.ask(estimates={name: Estimate(0.0, wrong, 0.1) for name, wrong in seconds.items()})
    world.let("slow.a", 0.5)
    try:
        run = world.coordinator(planner)
        run.run(poll_s=0.05)
        assert world.scores() == {"a": 60.0, "b": 20.0, "c": 20.0}
        assert all(count == 1 for count in world.times("infer").values())
        assert run.estimates["b"].infer_s < 4.0
        assert world.left_in_memory() == []
    finally:
        world.close()


def test_a_model_larger_than_node_memory_stops_the_run_with_both_sizes(world: World) -> None:
    world.ask(model=type(run_model(world))(**{**fields(world), "limit_bytes": 200_000}))
    with pytest.raises(Stuck, match=r"293\.0 KiB and 512\.0 MiB to spare.*--from-storage"):
        world.run()
    assert world.ran("infer") == []
    assert world.left_in_memory() == []


def run_model(world: World) -> object:
    return world.coordinator().spec.model


def fields(world: World) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(world.coordinator().spec.model)


@pytest.mark.slow
def test_a_precursor_that_crashed_is_followed_by_another_that_begins_anew(world: World) -> None:
    world.ask(nodes=1)
    world.let("slow.fetch", 2)

    def look(run: Coordinator) -> None:
        if len(world.ran("fetch")) == 1 and (world.root / "slow.fetch").exists():
            (world.root / "slow.fetch").unlink()
            (job,) = [one for one in world.cluster.jobs() if not one.state.ended]
            runner = world.cluster.job_folder(job.id) / "runner.json"
            import json
            import os

            for pid, _ in json.loads(runner.read_text())["groups"]:
                os.killpg(pid, signal.SIGKILL)

    world.run(look)
    assert world.scores() == ALL
    assert kinds(world).count(STAGE) == 2
    assert world.left_in_memory() == []


@pytest.mark.slow
def test_trials_read_from_storage_where_that_is_wanted(world: World) -> None:
    world.ask(from_storage=True)
    world.run()
    assert world.scores() == ALL
    assert world.ran("fetch") == []
    assert STAGE not in kinds(world)
    assert world.left_in_memory() == []


@pytest.mark.slow
@pytest.mark.parametrize("write", [2, 3, 4, 5, 7, 8, 10, 11, 13, 14, 16, 19, 22])
def test_after_a_sigkill_another_coordinator_repeats_nothing_and_submits_nothing_twice(tmp_path: Path, write: int) -> None:
    world = World(tmp_path)
    try:
        assert go_on(tmp_path, write) == -signal.SIGKILL
        assert go_on(tmp_path, 0) == 0
        assert world.scores() == ALL
        assert world.times("infer") == PIECES
        assert world.times("metric") == {"a": 1, "b": 1, "c": 1}
        assert world.times("fetch") == {"node01": 1, "node02": 1}
        assert len(world.cluster.jobs()) == len(kinds(world))
        assert world.left_in_memory() == []
    finally:
        world.close()


def go_on(folder: Path, write: int) -> int:
    command = [sys.executable, "-m", "tests.scenarios.evaluating", str(folder), str(write)]
    return subprocess.run(command, cwd=Path(__file__).parents[2], timeout=100, check=False).returncode


@pytest.mark.slow
def test_what_a_crashed_run_left_in_memory_is_freed_by_the_next_start_of_any_run(world: World) -> None:
    shelf = Shelf(world.root / "memory" / "node01")
    with shelf.lock_folder("abandoned") as folder:
        (folder / "part").mkdir(parents=True)
        (folder / "part" / "weights").write_bytes(b"half")
    assert world.left_in_memory()
    world.ask(nodes=1)
    world.run()
    assert world.left_in_memory() == []


def test_a_coordinator_that_only_cleans_ends_the_jobs_and_frees_the_memory(world: World) -> None:
    world.let("slow.a", 30)
    first = world.coordinator()
    deadline = time.monotonic() + 20
    while not world.ran("infer"):
        assert time.monotonic() < deadline
        first.step()
        time.sleep(0.05)
    assert world.left_in_memory()
    assert world.coordinator().clean(poll_s=0.05) == ()
    assert all(job.state.ended for job in world.cluster.jobs())
    assert world.left_in_memory() == []
    assert CLEAN in kinds(world)


@pytest.mark.slow
def test_work_that_waits_for_a_node_which_others_hold_goes_to_another_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assistant.evaluation.coordinator.PENDING_S", 0.4)
    world = World(tmp_path, items=dict.fromkeys("abcdef", 10))
    for name in "abcdef":
        world.let(f"slow.{name}", 0.3)
    held: list[str] = []
    states: list[JobState] = []

    def look(run: Coordinator) -> None:
        if not held and all(run.state.ready.get(node) for node in ("node01", "node02")):
            spec = JobSpec("other", "#!/bin/sh\nexec sleep 12\n", work_dir=tmp_path, options=("--nodelist=node01",))
            held.append(world.cluster.submit(spec))
        if run.is_done() and not states:
            states.append(world.cluster.job(held[0]).state)

    try:
        run = world.run(look)
        assert world.scores() == dict.fromkeys("abcdef", 10.0)
        assert states == [JobState.RUNNING]
        assert all(count == 1 for count in world.times("infer").values())
        assert run.state.strikes == {}
    finally:
        world.close()
