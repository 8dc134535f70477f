"""An evaluation on real Slurm nodes: one read of the model a node, metrics without GPUs, nothing left in a node's memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.evaluation.coordinator import Coordinator
from assistant.evaluation.files import Journal
from tests.live.conftest import DevCluster
from tests.scenarios.evaluating import World

pytestmark = pytest.mark.live
MEMORY = "/run/nightshift-test"
ALL = {"a": 20.0, "b": 10.0, "c": 5.0}


@pytest.fixture
def world(devcluster: DevCluster, request: pytest.FixtureRequest) -> Iterator[World]:
    devcluster.settle()
    root = Path(devcluster.shared) / f"evaluation-{abs(hash(request.node.name))}"
    root.mkdir()
    made = World(root, nodes=2, scheduler=devcluster.scheduler(), memory=MEMORY)
    made.ask(nodes=2, partition="", options=("--cpus-per-task=1",))
    yield made
    devcluster.settle()
    for node in devcluster.nodes:
        devcluster.on(node, "rm", "-rf", MEMORY)


def memory_of(devcluster: DevCluster, node: str) -> list[str]:
    return devcluster.on(node, "sh", "-c", f"find {MEMORY} 2>/dev/null || true").split()


def test_datasets_are_scored_by_real_jobs_and_no_node_keeps_the_model(world: World, devcluster: DevCluster) -> None:
    run = world.coordinator()
    run.run(poll_s=0.5)
    assert world.scores() == ALL
    assert run.uncleaned == ()
    assert set(world.times("fetch").values()) == {1}
    assert len(world.times("fetch")) == 2
    assert all(count == 1 for count in world.times("infer").values())
    assert [memory_of(devcluster, node) for node in devcluster.nodes] == [[]] * len(devcluster.nodes)


def test_trials_hold_a_gpu_and_metrics_hold_none(world: World, devcluster: DevCluster) -> None:
    gpus: dict[str, str] = {}

    def look(run: Coordinator) -> None:
        for line in devcluster.run("squeue", "-h", "-o", "%j %b").splitlines():
            name, asked = line.split()[:2]
            gpus[name] = asked

    for name in ALL:
        world.let(f"slow.{name}", 1.5)
    world.coordinator().run(poll_s=0.3, look=look)
    assert gpus["evaluate-trial"] == "gres:gpu:1"
    assert "gpu" not in gpus.get("evaluate-metric", "") + gpus.get("evaluate-stage", "")


def test_the_work_of_a_node_that_dies_goes_to_another(world: World, devcluster: DevCluster) -> None:
    world.let("slow.a", 4)
    killed: list[str] = []

    def look(run: Coordinator) -> None:
        first = next((words for words in world.ran("infer") if words[0] == "a"), None)
        if first is not None and not killed:
            killed.append(first[3])
            devcluster.fault(first[3], "power")

    run = world.coordinator()
    try:
        run.run(poll_s=0.5, look=look)
    finally:
        for node in killed:
            devcluster.heal(node)
    assert world.scores() == ALL
    assert {words[3] for words in world.ran("infer") if words[0] == "a" and words[1] == "0"} > set(killed)
    assert set(run.uncleaned) <= set(killed)


def test_another_coordinator_finds_the_jobs_of_the_last_one_by_their_comment(world: World, devcluster: DevCluster) -> None:
    world.let("slow.a", 2)
    first = world.coordinator()
    for _ in range(200):
        first.step()
        if world.ran("infer"):
            break
        first.clock.sleep(0.2)
    numbers = len(Journal(world.folder).state.jobs)
    world.coordinator().run(poll_s=0.5)
    assert world.scores() == ALL
    assert all(count == 1 for count in world.times("infer").values())
    assert len(Journal(world.folder).state.jobs) > numbers
