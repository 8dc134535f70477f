"""Whoever must act on a job reads what it left, what its script does as it is, who else saves there, how long the rest takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.ports import JumpingClock
from assistant.records import Job, JobSpec, JobState
from assistant.records.jobs import OpenFile, ProcessReport
from assistant.tools.report import ONLY_READS, saved_state, tell_owner
from tests.unit.logged_job import START, job_in, write

TRAINER = """
import argparse
from transformers import Trainer, TrainingArguments
p = argparse.ArgumentParser()
p.add_argument("--output_dir"); p.add_argument("--max_steps", type=int); p.add_argument("--resume_from_checkpoint")
a = p.parse_args()
step = 0
while step < a.max_steps:
    step += 1
    save_pretrained(f"{a.output_dir}/checkpoint-{step}")
"""
ENDED = START + timedelta(minutes=10)


def context(*jobs: Job) -> Any:
    listed: Sequence[Job] = jobs
    by_id = {job.id: job for job in jobs}
    scheduler = SimpleNamespace(
        job=lambda job: by_id[job], jobs=lambda: listed, user_jobs=lambda user: [one for one in listed if one.user == user]
    )
    return SimpleNamespace(
        scheduler=scheduler, checkpoint_folders={}, clock=JumpingClock(ENDED + timedelta(minutes=1)), incident=None
    )


def hugging_face(folder: Path, *, user: str = "ada", number: str = "812", state: JobState = JobState.TIMEOUT) -> Job:
    """Return a job that saved every 20 steps up to 140 of 200, the newest torn."""
    (folder / "run_clm.py").write_text(TRAINER)
    script = f"python run_clm.py --max_steps 200 --output_dir {folder}/out"
    log = "".join(f"step {step} loss {4 - step / 100:.4f}\n" for step in range(1, 141))
    log += f"Saving model checkpoint to {folder}/out/checkpoint-140\n"
    write(folder / "slurm-812.out", log, ENDED)
    for step in (100, 120, 140):
        saved = folder / f"out/checkpoint-{step}"
        saved.mkdir(parents=True, exist_ok=True)
        header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
        whole = len(header).to_bytes(8, "little") + header + bytes(16)
        (saved / "model.safetensors").write_bytes(whole if step < 140 else whole[:-8])
        (saved / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
        (saved / "config.json").write_text("{}")
    made = job_in(folder, script, id=number, user=user, state=state, ended=ENDED if state.ended else None)
    return replace(made, spec=JobSpec("llm", f"#!/bin/bash\n{script}\n", work_dir=folder))


def test_a_page_says_that_the_script_begins_at_0_and_which_option_goes_on(tmp_path: Path) -> None:
    job = hugging_face(tmp_path)
    said = saved_state(context(job), job)
    assert f"The newest whole checkpoint is {tmp_path}/out/checkpoint-120 (step 120); not to be loaded: checkpoint-140" in said
    assert "Submitted as it is: this script does not resume: it would start at 0" in said
    assert "Its program knows --resume_from_checkpoint" in said


def test_a_time_limit_says_how_long_the_rest_takes(tmp_path: Path) -> None:
    job = hugging_face(tmp_path)
    told = tell_owner.run(context(job), "812", "time_limit", "Ask for more time.")
    assert "It had made 140 of 200 steps; the rest takes about 4 min more (4.32 s a step)." in told["text"]
    assert "min more" not in tell_owner.run(context(job), "812", "out_of_memory_error", "Lower it.")["text"]


def test_a_job_of_somebody_else_that_saves_into_the_same_folder_is_named(tmp_path: Path) -> None:
    job = hugging_face(tmp_path)
    (tmp_path / "out").chmod(0o777)
    other = replace(hugging_face(tmp_path, user="tom", number="900", state=JobState.RUNNING), name="wmt-big")
    said = saved_state(context(job, other), job)
    assert "Job 900 (wmt-big) of tom (running) saves into the same folder" in said


def test_a_tracker_that_names_a_torn_checkpoint_is_told(tmp_path: Path) -> None:
    (tmp_path / "train_ds.py").write_text(
        "import argparse, deepspeed\np = argparse.ArgumentParser()\np.add_argument('--output_dir')\na = p.parse_args()\n"
        "engine.load_checkpoint(a.output_dir)\nfor step in range(100):\n    engine.save_checkpoint(a.output_dir)\n"
    )
    script = "python train_ds.py --output_dir ds_ckpt"
    lines = "".join(f"step {step} loss {4 - step / 100:.4f}\n" for step in range(1, 41))
    write(tmp_path / "slurm-812.out", lines, ENDED)
    for step in (10, 20, 30, 40):
        saved = tmp_path / f"ds_ckpt/global_step{step}"
        saved.mkdir(parents=True)
        ranks = (0, 1) if step < 40 else (0,)
        for name in ("mp_rank_00_model_states.pt", *(f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in ranks)):
            (saved / name).write_bytes(b"\x80" + bytes(9000))
    (tmp_path / "ds_ckpt/latest").write_text("global_step40")
    made = job_in(tmp_path, script, state=JobState.FAILED, ended=ENDED)
    job = replace(made, spec=JobSpec("llm", f"#!/bin/bash\n{script}\n", work_dir=tmp_path, ranks_per_node=2))
    said = saved_state(context(job), job)
    assert f"The newest whole checkpoint is {tmp_path}/ds_ckpt/global_step30 (step 30)" in said
    assert "global_step40" in said
    assert "latest does not name it, and the script goes by that: 'global_step30' has to stand there" in said


EVALUATION = """
import argparse, os, torch
p = argparse.ArgumentParser()
p.add_argument("--ckpt_dir"); p.add_argument("--out")
a = p.parse_args()
model = torch.nn.Linear(2, 2)
model.load_state_dict(torch.load(os.path.join(a.ckpt_dir, "checkpoint-120", "model.bin")))
open(a.out, "w").write("acc 0.5")
{last}
"""


@pytest.mark.parametrize(("last", "only_reads"), [("", True), ('torch.save(model.state_dict(), f"{a.ckpt_dir}/new.pt")', False)])
def test_nobody_is_told_how_an_evaluation_resumes_that_only_reads_a_checkpoint(last: str, only_reads: bool, tmp_path: Path) -> None:
    job = hugging_face(tmp_path, state=JobState.FAILED)
    (tmp_path / "evaluate.py").write_text(EVALUATION.replace("{last}", last))
    script = f"#!/bin/bash\npython evaluate.py --ckpt_dir {tmp_path}/out --out acc.txt\n"
    evaluation = replace(job, spec=JobSpec("eval", script, work_dir=tmp_path))
    told = saved_state(context(evaluation), evaluation)
    assert "checkpoint-120 (step 120)" in told
    assert (ONLY_READS in told) is only_reads
    assert ("resume" in told) is not only_reads


ASKS = """import json, os
had = set()
if os.path.exists("replies.jsonl"):
    had = {json.loads(line)["n"] for line in open("replies.jsonl")}
out = open("replies.jsonl", "a")
for n in range(80):
    if n in had:
        continue
    out.write(json.dumps({"n": n, "reply": ask(n)}) + "\\n")
"""


def asking(folder: Path, source: str, began: str) -> Job:
    """Return a job that had 31 replies, and was seen to have them open to append, when it failed."""
    (folder / "ask.py").write_text(source)
    write(folder / "slurm-812.out", "asks\nRuntimeError: HTTP 401: grant is over\n", ENDED)
    write(folder / "replies.jsonl", '{"n": 1}\n' * 31, ENDED)
    made = job_in(folder, f"{began}python3 ask.py", id="812", user="ada", state=JobState.FAILED, ended=ENDED)
    file = OpenFile(folder / "replies.jsonl", "n1", 7, ENDED, 1, 2, 2, appends=True)
    return replace(made, processes=ProcessReport(ENDED, files=(file,)))


def test_an_owner_reads_that_a_start_goes_on_behind_what_is_there_and_not_to_take_it_out(tmp_path: Path) -> None:
    shown = asking(tmp_path, ASKS, "# submit it again: it continues with the open ones\n")
    result = tell_owner(context(shown), "812", "permission_error", "Renew the grant.")
    kept = "replies.jsonl is there (31 lines), and a start reads it first and passes over what stands in it (ask.py:4)."
    assert kept in result["note"]
    assert kept in result["saved"]
    assert 'says: "submit it again: it continues with the open ones"' in result["saved"]
    assert "take that out" not in result["text"]


def test_of_a_program_that_reads_nothing_first_the_repeated_lines_are_told(tmp_path: Path) -> None:
    shown = asking(tmp_path, ASKS.replace("had = {json", "print([json").replace('"replies.jsonl")}', '"replies.jsonl")])'), "")
    result = tell_owner(context(shown), "812", "permission_error", "Renew the grant.")
    assert "a second time what this attempt has written there: take that out" in result["saved"]
    assert "passes over" not in f"{result['note']} {result['saved']}"


def test_what_a_script_takes_away_first_is_not_told_to_be_kept(tmp_path: Path) -> None:
    shown = asking(tmp_path, ASKS, "rm -f replies.jsonl\n")
    result = tell_owner(context(shown), "812", "permission_error", "Renew the grant.")
    assert "A start destroys what lies there" in result["saved"]
    assert "passes over" not in f"{result['note']} {result['saved']}"
