"""A run that its time limit ended: when the same script is submitted again, and when its owner is told instead."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from assistant.records import JobState
from assistant.recover.comparison import training_end, training_goal
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.report import time_limit_outlook
from assistant.tools.resubmit import resubmit_job
from assistant.tools.verification import job_progress, loss_continues
from tests.unit.failed_job import World

LIMIT = SimulatedRun(fails_at=50, state=JobState.TIMEOUT, exit_code=0, steps=200)


def outlook(world: World, auto: str = "") -> tuple[bool, str]:
    said = time_limit_outlook(world.context, world.job, auto=auto)
    return bool(said["goes_on"]), said["note"]


def test_a_run_that_saved_until_its_limit_goes_on(tmp_path: Path) -> None:
    goes_on, note = outlook(World(tmp_path, LIMIT).passes(60))
    assert goes_on
    assert note.startswith("it made progress until its limit and ")


@pytest.mark.parametrize(
    ("directives", "goes_on", "word"),
    [("act=auto", True, "act=auto"), ("act=ask", False, "act=ask"), ("resumes=no", False, "not known to go on by itself")],
)
def test_the_word_of_the_owner_counts_first(directives: str, goes_on: bool, word: str, tmp_path: Path) -> None:
    script = f"#NIGHTSHIFT checkpoints={tmp_path}/ckpt {directives}\nsrun python t.py\n"
    said, note = outlook(World(tmp_path, LIMIT, script=script).passes(60), "yes" if directives == "act=auto" else "")
    assert (said, word in note) == (goes_on, True)


def test_a_run_that_saved_nothing_does_not_go_on(tmp_path: Path) -> None:
    run = SimulatedRun(fails_at=50, state=JobState.TIMEOUT, exit_code=0, save_every=80)
    assert outlook(World(tmp_path, run).passes(60))[0] is False


def test_checkpoints_of_an_attempt_before_are_no_progress_of_this_one(tmp_path: Path) -> None:
    world = World(tmp_path, LIMIT).passes(60)
    started = world.cluster.job(world.job).started
    assert started is not None
    for path in world.saved.rglob("*"):
        os.utime(path, (started.timestamp() - 60,) * 2)
    goes_on, note = outlook(world)
    assert not goes_on
    assert "saved no whole checkpoint of its own" in note


def test_a_run_that_saved_the_same_step_again_made_no_progress(tmp_path: Path) -> None:
    world = World(tmp_path, LIMIT).passes(60)
    started = world.cluster.job(world.job).started
    assert started is not None
    names = sorted(path.name for path in world.saved.iterdir() if path.is_dir())
    later, earlier = (world.saved / name for name in (names[0], names[-1]))
    for path in (earlier, *earlier.rglob("*")):
        os.utime(path, (started.timestamp() - 60,) * 2)
    goes_on, note = outlook(world)
    assert not goes_on, (later, note)


def test_a_run_that_has_made_its_last_step_has_nothing_left(tmp_path: Path) -> None:
    world = World(tmp_path, LIMIT).passes(60)
    log = world.cluster.job(world.job).log
    assert log is not None
    log.write_text(re.sub(r"/(\s*)200\b", r"/\g<1>50", log.read_text()))
    goes_on, note = outlook(world)
    assert not goes_on
    assert "it had come to step 50 of 50: nothing is left to train" in note


def test_a_run_that_stood_still_before_its_limit_does_not_go_on(tmp_path: Path) -> None:
    run = SimulatedRun(hangs_at=50, steps=200)
    world = World(tmp_path, run).passes(3600)
    world.cluster.cancel(world.job)
    job = world.cluster.job(world.job)
    assert job.started is not None
    assert job.log is not None
    for path in (job.log, *world.saved.rglob("*")):
        os.utime(path, (job.started.timestamp() + 60,) * 2)
    goes_on, note = outlook(world)
    assert not goes_on
    assert "had neither saved nor logged anything for" in note


TOKENIZER = """import os, sys
for part in range(50):
    path = f"stream/shard_{part:05d}.npy"
    if os.path.exists(path):
        continue
    with open(path + ".part", "wb") as file:
        file.write(make(part))
    os.replace(path + ".part", path)
    print("wrote", part, flush=True)
"""
NO_TEST = TOKENIZER.replace("    if os.path.exists(path):\n        continue\n", "")


@pytest.mark.parametrize(
    ("program", "pieces", "goes_on", "word"),
    [
        (TOKENIZER, 12, True, "it wrote 12 files like"),
        (TOKENIZER, 1, False, "its limit may be too short for one"),
        (NO_TEST, 12, False, "not known to go on by itself"),
    ],
)
def test_work_in_pieces_goes_on_where_it_passes_over_finished_ones(
    program: str, pieces: int, goes_on: bool, word: str, tmp_path: Path
) -> None:
    (tmp_path / "tokenize_stream.py").write_text(program)
    run = SimulatedRun(fails_at=50, state=JobState.TIMEOUT, exit_code=0, save_every=80)
    script = "#!/bin/bash\npython tokenize_stream.py stream 50\n"
    world = World(tmp_path, run, script=script).passes(60)
    started = world.cluster.job(world.job).started
    assert started is not None
    (tmp_path / "stream").mkdir()
    for part in range(pieces):
        path = tmp_path / "stream" / f"shard_{part:05d}.npy"
        path.write_bytes(b"tokens")
        os.utime(path, (started.timestamp() + 2 * part,) * 2)
    assert outlook(world)[0] is goes_on
    assert word in outlook(world)[1]


@pytest.mark.parametrize(
    ("options", "text", "goal"),
    [
        ([("max_duration", "300ba")], "", 300),
        ([("trainer.max_duration", "3ep")], "", None),
        ([], "[batch=5/300]:\n\t Train loss/train/total: 9.2", 300),
        ([], " iteration        5/     160 | consumed samples: 2560 |", 160),
        ([], "epoch 1 iteration 5/160 done", None),
        ([("max_steps", "120")], "step 3/9", 120),
    ],
)
def test_the_goal_of_a_training(options: list[tuple[str, str]], text: str, goal: int | None) -> None:
    assert training_goal(options, text.splitlines()) == goal


@pytest.mark.parametrize(
    ("text", "over"),
    [
        ("I1127 t.py:77] Done. Reached 200 train steps.", True),
        ("I1127 t.py:77] reached 200 train steps, evaluating", False),
        ("Done. Reached 200 train steps.\nstep 201 loss 2.0", False),
    ],
)
def test_the_words_of_a_goal_that_was_reached_are_an_end(text: str, over: bool) -> None:
    assert (training_end(text.splitlines()) is not None) == over


def flax(first: int, last: int, loss: float = 3.0) -> str:
    return "".join(
        f"I1127 04:13:27.1 155 t.py:77] [{step}] loss={loss / step:.5f}, up={step}\n" for step in range(first, last + 1, 10)
    )


@pytest.mark.parametrize(
    ("after", "progress", "loss"),
    [
        (flax(50, 100), "past_restart_step", "continues"),
        (flax(50, 100, 90.0), "past_restart_step", "jumped"),
        ("Restoring\nReached 100 rows\n", "past_restart_step", "continues"),  # it completed: judged as a whole at the end
    ],
)
def test_a_restart_is_verified_by_what_both_logs_count_in_a_form_of_their_own(
    after: str, progress: str, loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path).passes(60)
    old = world.cluster.job(world.job).log
    made = resubmit_job(world.context, world.job)
    world.passes(120)
    new = world.cluster.job(made["job"]).log
    assert old is not None
    assert new is not None
    old.write_text(flax(10, 50))
    new.write_text(after)
    incidents = [SimpleNamespace(id=3, job=world.job)]
    monkeypatch.setattr(world.context.history, "incidents", lambda **_: incidents)
    assert job_progress(world.context, made["job"], restart_step=40, timeout_s=0)["status"] == progress
    seen = loss_continues(world.context, made["job"], world.job, restart_step=40, timeout_s=0)
    assert seen["status"] == loss, seen["note"]
