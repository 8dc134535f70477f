"""The step at which a loss went off of which the log tells the epoch alone, by what the checkpoints of the run hold."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.engine.evidence.loss_divergence import named_step, with_spike_step
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, Job, JobSpec
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.recover.saved_progress import points_by_epoch
from assistant.tools.checkpoints import lost_from
from assistant.untrusted import reading_as
from tests.unit.logged_job import START, job_in, write

LINE = "{'loss': '0', 'grad_norm': 'nan', 'learning_rate': '0.0004', 'epoch': '0.2578'}"
BEFORE = Diagnosis(
    "loss_spike", Category.FRAMEWORK, Action.ROLLBACK_AND_SKIP_DATA, 0.9, DecidedBy.RULE, (Citation("job.log", 3, LINE, "x"),),
    (), (), "It is off.", "Go back.",
)  # fmt: skip
ENGINE: Any = SimpleNamespace(checkpoint_folders={}, clock=SimpleNamespace(now=lambda: START + timedelta(minutes=9)))


def saving(folder: Path, *states: str) -> Job:
    for number, state in enumerate(states, 1):
        checkpoint = folder / f"out/checkpoint-{number * 40}"
        write(checkpoint / "trainer_state.json", state, START + timedelta(minutes=number))
        write(checkpoint / "config.json", "{}", START + timedelta(minutes=number))
        write(checkpoint / "model.safetensors", "x", START + timedelta(minutes=number))
    write(folder / "slurm-812.out", f"{LINE}\n", START + timedelta(minutes=8))
    job = job_in(folder, "python fit.py --output_dir out")
    return replace(job, spec=JobSpec("fit", "#!/bin/bash\npython fit.py --output_dir out\n", work_dir=folder))


def state(step: object, epoch: object) -> str:
    return json.dumps({"global_step": step, "epoch": epoch, "log_history": []})


def test_an_epoch_is_the_step_that_the_checkpoints_tell(tmp_path: Path) -> None:
    after = with_spike_step(ENGINE, BEFORE, saving(tmp_path, state(40, 0.0625), state(80, 0.125)))
    assert after.spike_step == 165  # 640 steps an epoch
    assert "checkpoint-80 is of step 80 and epoch 0.125" in after.summary


def test_of_a_rounded_epoch_the_lowest_step_counts(tmp_path: Path) -> None:
    rounded = replace(BEFORE, root_cause=(Citation("job.log", 3, LINE.replace("'0.2578'", "0.3"), "x"),))
    assert with_spike_step(ENGINE, rounded, saving(tmp_path, state(40, 0.0625))).spike_step == 160


def test_a_newer_state_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    after = with_spike_step(ENGINE, BEFORE, saving(tmp_path, state(40, 0.0625), '{"global_step": 80, "epo'))
    assert after.spike_step == 165


@pytest.mark.parametrize("states", [(), (state(0, 0.0),), (state(40, "nan"),), (state("40", None),), ("[]",)])
def test_without_a_state_that_holds_both_nothing_is_said(tmp_path: Path, states: tuple[str, ...]) -> None:
    assert with_spike_step(ENGINE, BEFORE, saving(tmp_path, *states)) == BEFORE


def test_a_known_step_and_other_reasons_stay(tmp_path: Path) -> None:
    job = saving(tmp_path, state(40, 0.0625))
    for before in (replace(BEFORE, spike_step=7), replace(BEFORE, reason="hang"), replace(BEFORE, root_cause=())):
        assert with_spike_step(ENGINE, before, job) == before
    assert with_spike_step(ENGINE, BEFORE, None) == BEFORE


def test_lost_weights_are_seen_where_the_log_gives_epochs_alone(tmp_path: Path) -> None:
    job = saving(tmp_path, state(40, 0.0625), state(80, 0.125))
    good = [f"{{'loss': '0.{9 - n}', 'grad_norm': '1.5', 'learning_rate': '0.0004', 'epoch': '{n / 64:.4f}'}}" for n in range(1, 8)]
    bad = [f"{{'loss': '0', 'grad_norm': 'nan', 'learning_rate': '0.0004', 'epoch': '{n / 64:.4f}'}}" for n in range(8, 16)]
    write(tmp_path / "slurm-812.out", "\n".join([*good, *bad, ""]), START + timedelta(minutes=8))
    with reading_as(job.account):
        saves = search_checkpoints(job, {}, [], now=START + timedelta(minutes=9)).inventory
    assert saves is not None
    assert [point.step for point in points_by_epoch(job, saves)][:3] == [10, 20, 30]
    assert lost_from(job, lambda: saves) == 80
    assert lost_from(job) is None


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("FloatingPointError: loss is nan since global_step 71 (now in part-7)", 71),
        ("ValueError: Loss is NaN at step 1200, stopping", 1200),
        ("RuntimeError: non-finite loss detected in iteration 340", 340),
        ("AssertionError: inf loss from update 18 on", 18),
        ("RuntimeError: loss is nan", None),
        ("RuntimeError: loss is nan for 10 steps", None),
        ("nan at step 70 and at step 90", None),
        ("step 71 loss 2.30", None),
        ("KeyError: missing at step 71", None),
    ],
)
def test_a_program_that_stops_itself_names_the_step_of_its_loss(text: str, step: int | None) -> None:
    assert named_step(text) == step
