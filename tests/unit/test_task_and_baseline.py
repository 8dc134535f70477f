"""The key of a task, and what is new against its good runs."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.logs.templates import Baseline, Miner, novelty, steady_name, task_key
from assistant.records import Job, JobSpec, JobState

NAMES = tomllib.loads((Path(__file__).parent.parent / "cases" / "tasks" / "names.toml").read_text(encoding="utf-8"))["name"]
SCRIPT = "#!/bin/bash\n#SBATCH -N 4\nsource env.sh\nsrun torchrun --nproc 8 /lustre/ada/Megatron-LM/pretrain_gpt.py --lr 3e-4\n"
JOB = Job(
    "7", "llama-70b_run12", "ada", JobState.FAILED, "gpu", (), None, None, None, None, None, None, None, spec=JobSpec("x", SCRIPT)
)


@pytest.mark.parametrize(("run", "task"), [(run, case["task"]) for case in NAMES for run in case["runs"]])
def test_runs_of_one_task_have_one_name(run: str, task: str) -> None:
    assert steady_name(run) == task


def test_the_key_holds_user_name_framework_and_script() -> None:
    assert task_key(JOB) == "ada/llama-70b/megatron/pretrain_gpt.py"
    again = replace(JOB, id="8", name="llama-70b_run13", spec=JobSpec("x", SCRIPT.replace("3e-4", "1e-4")))
    assert task_key(again) == task_key(JOB)
    assert task_key(replace(JOB, user="bob")) != task_key(JOB)


def test_a_log_alone_tells_framework_and_script() -> None:
    lines = [
        "+ python train_sft.py --x 1",
        "[2026-01-01 00:00:00,000] [INFO] [real_accelerator.py:203] Setting ds_accelerator to cuda",
    ]
    assert task_key(None, lines) == "-/-/deepspeed/train_sft.py"
    assert task_key(None) == "-/-/-/-"


def state(*lines: str) -> dict[str, object]:
    miner = Miner()
    miner.add(lines)
    return json.loads(json.dumps(miner.to_json()))  # type: ignore[no-any-return]


def test_what_no_good_run_had_is_new() -> None:
    baseline = Baseline.of([state("step 1 ok", "warm cache of 3"), state("step 2 ok")])
    assert novelty(["step 77 ok", "warm cache of 9", "flux lost", ""], baseline) == [0.0, 0.5, 1.0, 0.0]


def test_without_a_good_run_nothing_is_new() -> None:
    assert novelty(["flux lost"], Baseline.of([])) == [0.0]
    assert novelty(["flux lost"], Baseline.of([{"version": 99}])) == [0.0]
