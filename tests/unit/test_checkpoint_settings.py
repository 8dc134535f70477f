"""A checkpoint that does not fit a job's model: which settings differ, where they stand, and what the owner can do."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.engine.evidence.checkpoint_settings import with_checkpoint_settings
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, Job, JobSpec, JobState
from tests.unit.logged_job import START, job_in, write

MISMATCH = (
    "RuntimeError: Error(s) in loading state_dict for Net: size mismatch for emb.weight: copying a param with shape "
    "torch.Size([256, 96]) from checkpoint, the shape in current model is torch.Size([256, 160])."
)
BEFORE = Diagnosis(
    "model_loading_error", Category.SCRIPT, Action.FIX_AND_RESUBMIT, 0.9, DecidedBy.RULE, (Citation("job.log", 4, MISMATCH, "x"),),
    (), (), "It does not fit.", "Build it as it was.",
)  # fmt: skip
FITS = """import argparse, torch, yaml
p = argparse.ArgumentParser()
p.add_argument("--config")
p.add_argument("--weights")
p.add_argument("--size", default="tiny")
a = p.parse_args()
net.load_state_dict(torch.load(a.weights))
"""
CONFIG = "train:\n  output_dir: out/logs\n  batch_size: 8\nmodel:\n  hidden_size: 160\n  num_hidden_layers: 4\n  vocab_size: 256\n"
SAVED = {"hidden_size": 96, "num_hidden_layers": 2, "vocab_size": 256, "batch_size": 4, "_name_or_path": "x", "dropout": 0.1}


def failed(folder: Path, command: str, log: str) -> Job:
    write(folder / "fit.py", FITS, START - timedelta(days=1))
    write(folder / "slurm-812.out", log, START + timedelta(minutes=1))
    made = job_in(folder, command, state=JobState.FAILED, ended=START + timedelta(minutes=1))
    return replace(made, submitted=START, spec=JobSpec("net", f"#!/bin/bash\n{command}\n", work_dir=folder))


def test_a_checkpoint_of_another_model_in_the_same_folder_is_named_with_both_settings(tmp_path: Path) -> None:
    write(tmp_path / "config.yaml", CONFIG, START - timedelta(seconds=5))
    write(tmp_path / "out/logs/checkpoint-40/config.json", json.dumps(SAVED), START - timedelta(minutes=9))
    job = failed(tmp_path, "python fit.py --config config.yaml", "Loading weights from out/logs/checkpoint-40\n" + MISMATCH)
    advice = with_checkpoint_settings(BEFORE, job).advice
    assert f"The checkpoint {tmp_path}/out/logs/checkpoint-40 was made with hidden_size 96 and num_hidden_layers 2" in advice
    assert f"hidden_size 160 ({tmp_path}/config.yaml:5)" in advice
    assert "before this job was submitted" in advice
    assert f"model.hidden_size to 96 in {tmp_path}/config.yaml" in advice
    assert f"a folder of its own (train.output_dir is out/logs, {tmp_path}/config.yaml:2)" in advice
    assert "batch_size" not in advice
    assert "Build it as it was" not in advice


def test_an_evaluation_is_told_which_argument_fits(tmp_path: Path) -> None:
    write(tmp_path / "ckpts/final/args.json", json.dumps({"size": "large", "lr": 0.1, "steps": 90}), START - timedelta(minutes=9))
    write(tmp_path / "ckpts/final/model.pt", "x", START - timedelta(minutes=9))
    job = failed(tmp_path, "python fit.py --weights ckpts/final/model.pt --size tiny", MISMATCH)
    advice = with_checkpoint_settings(BEFORE, job).advice
    assert f"was made with size large ({tmp_path}/ckpts/final/args.json)" in advice
    assert "builds its model with size tiny (on the command line)" in advice
    assert "set size to large on the command line" in advice
    assert "folder of its own" not in advice


@pytest.mark.parametrize(
    ("saved", "reason", "error"),
    [
        (dict(SAVED, hidden_size=160, num_hidden_layers=4.0), "model_loading_error", MISMATCH),  # nothing of the model differs
        (SAVED, "model_loading_error", "OSError: weights.bin is cut off"),  # it is no misfit
        (SAVED, "cuda_error", MISMATCH),
        ({"steps": 4, "output_dir": "z"}, "model_loading_error", MISMATCH),
    ],
)
def test_nothing_is_said_where_no_setting_of_the_model_differs(
    tmp_path: Path, saved: dict[str, object], reason: str, error: str
) -> None:
    write(tmp_path / "config.yaml", CONFIG, START - timedelta(seconds=5))
    write(tmp_path / "out/logs/checkpoint-40/config.json", json.dumps(saved), START - timedelta(minutes=9))
    job = failed(tmp_path, "python fit.py --config config.yaml", "Loading weights from out/logs/checkpoint-40\n")
    before = replace(BEFORE, reason=reason, root_cause=(Citation("job.log", 4, error, "x"),))
    assert with_checkpoint_settings(before, job) == before


def test_other_configurations_of_the_project_are_no_settings_of_a_checkpoint(tmp_path: Path) -> None:
    write(tmp_path / "conf/big.yaml", CONFIG, START - timedelta(seconds=5))
    write(tmp_path / "conf/small.yaml", CONFIG.replace("160", "96"), START - timedelta(minutes=9))
    write(tmp_path / "config_old.yaml", CONFIG.replace("160", "96"), START - timedelta(minutes=9))
    write(tmp_path / "out/ckpt.pt", "x", START - timedelta(minutes=9))
    job = failed(tmp_path, "python fit.py --config conf/big.yaml --weights out/ckpt.pt", MISMATCH)
    assert with_checkpoint_settings(BEFORE, job) == BEFORE


def test_settings_in_a_folder_of_the_checkpoint_count_as_well(tmp_path: Path) -> None:
    write(tmp_path / "big.yml", "num-layers: 4\nhidden-size: 160\n", START - timedelta(seconds=5))
    saved = tmp_path / "ckpt/global_step60"
    write(saved / "configs/small.yml", '"num-layers": 2\n"hidden-size": 96\n', START - timedelta(minutes=9))
    write(saved / "mp_rank_00_model_states.pt", "x", START - timedelta(minutes=9))
    job = failed(tmp_path, "python fit.py --config big.yml", "Loading checkpoint ckpt/global_step60\n" + MISMATCH)
    advice = with_checkpoint_settings(BEFORE, job).advice
    assert f"was made with num_layers 2 and hidden_size 96 ({saved}/configs/small.yml)" in advice
    assert f"hidden_size 160 ({tmp_path}/big.yml:2)" in advice


def test_a_cut_off_settings_file_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "config.yaml", CONFIG, START - timedelta(seconds=5))
    write(tmp_path / "out/logs/checkpoint-40/config.json", '{"hidden_size": 96, ', START - timedelta(minutes=9))
    job = failed(tmp_path, "python fit.py --config config.yaml", "Loading weights from out/logs/checkpoint-40\n")
    assert with_checkpoint_settings(BEFORE, job) == BEFORE
    assert with_checkpoint_settings(BEFORE, None) == BEFORE
