"""Jobs that end well teach what is routine; the next log of the same task is folded by it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from assistant.engine.outcomes.completed_jobs import STUDY_PAUSE, task_of
from assistant.records import JobState, RuleKind, RuleState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import ECC, XID, Scene

CHATTER = tuple(f"flux ring {n % 7} drained {n * 13} packets in {n}.{n % 10} ms" for n in range(40))


def passes(scene: Scene, seconds: float) -> None:
    for _ in range(int(seconds / 60)):
        scene.clock.sleep(60)
        scene.engine.tick(owner="watch")


def test_a_good_run_teaches_filters_once_and_they_fold_the_next_log_of_the_task(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=60, says_at=10, lines=CHATTER))
    scene.cluster.submit(scene.spec)
    passes(scene, 600)
    store = scene.engine.store
    [learned] = [rule for rule in store.rules(counting=True) if rule.kind is RuleKind.FILTER]
    task = task_of(scene.cluster.job("1"))
    assert (learned.task, learned.state, learned.by, learned.hits) == (task, RuleState.TRIAL, "templates", 0)
    assert store.template_runs(task) == {"1.0"}
    assert store.incidents() == []
    assert [one.text for one in scene.engine.good_runs.taken_remarks()] == [f"job 1 ended well and taught 1 filters: {learned.id}"]
    assert scene.engine.good_runs.taken_remarks() == []

    scene.engine.store.close()
    scene.started()
    passes(scene, 2 * STUDY_PAUSE.total_seconds())
    assert [rule.id for rule in scene.engine.store.rules()] == [learned.id], "studied again after a restart, learned nothing twice"

    scene.cluster.plan("llm", SimulatedRun(fails_at=50, lines=(*CHATTER, *ECC), kernel={"node02": XID}, only_on="node02"))
    scene.cluster.submit(dataclasses.replace(scene.spec, work_dir=tmp_path))
    while not scene.engine.store.incidents():
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
    found = scene.engine.store.diagnosis(1)
    assert found is not None
    assert found.reason == "ecc_error"
    assert scene.engine.store.rule(learned.id).hits == len(CHATTER)


@pytest.mark.parametrize(("step", "taught"), [("nan", 0), ("2.5", 1)])
def test_a_run_whose_loss_was_no_number_at_its_end_teaches_nothing(step: str, taught: int, tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=20, says_at=10, lines=CHATTER))
    job = scene.cluster.submit(scene.spec)
    scene.clock.sleep(100)
    log = scene.cluster.job(job).log
    assert log is not None
    assert scene.cluster.job(job).state is JobState.COMPLETED
    with log.open("a") as stream:
        stream.writelines(f"step {number} loss {step}\n" for number in range(101, 121))
        stream.write("training finished\n")
    passes(scene, 600)
    assert len([rule for rule in scene.engine.store.rules() if rule.kind is RuleKind.FILTER]) == taught


def test_a_failed_run_and_a_run_without_a_log_teach_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=20, lines=(*CHATTER, "KeyError: 'lr'")))
    job = scene.cluster.submit(scene.spec)
    passes(scene, 600)
    assert scene.engine.store.rules() == []
    scene.cluster.plan("llm", SimulatedRun(steps=20, says_at=10, lines=CHATTER))
    job = scene.cluster.submit(scene.spec)
    scene.clock.sleep(100)
    log = scene.cluster.job(job).log
    assert log is not None
    log.unlink()
    passes(scene, 600)
    assert scene.engine.store.rules() == []
