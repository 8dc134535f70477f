"""Whoever may start a job again reads what that would destroy: which line, which place, what lies there."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.job_program import programs_of
from assistant.recover.resume.means import ResumeMeans
from assistant.recover.resume.script import resume_way
from assistant.recover.start_costs import loss_words, start_losses
from assistant.tools.checkpoints import choose_checkpoint
from assistant.tools.report import saved_state
from tests.unit.logged_job import START, job_in, write
from tests.unit.test_saved_state import context

ENDED = START + timedelta(minutes=10)
CLEANS = """import configparser, os, shutil
import torch
settings = configparser.ConfigParser()
settings.read("run.ini")
place = settings["run"]["target"]
if os.path.isdir(place):
    print("starting over", len(os.listdir(place)))
    shutil.rmtree(place)
os.makedirs(place)
for tick in range(1, 400):
    if tick % 50 == 0:
        torch.save({"net": 1}, os.path.join(place, "NET_%05d.pt" % tick))
"""


def cleaning(folder: Path, program: str = CLEANS, script: str = "python tool/cycle.py") -> Job:
    """Return a job whose program begins with an empty folder each time, and what its attempt wrote."""
    write(folder / "tool/cycle.py", program)
    write(folder / "run.ini", f"[run]\ntarget = {folder}/elsewhere/now\n")
    saved = folder / "elsewhere/now"
    saved.mkdir(parents=True)
    for tick in (50, 100, 150):
        path = saved / f"NET_{tick:05}.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
            archive.writestr("archive/version", "3\n")
            archive.writestr("archive/data/0", bytes(2000))
        os.utime(path, ((START + timedelta(minutes=tick / 25)).timestamp(),) * 2)
    write(folder / "slurm-812.out", "networks are ready\n", ENDED)
    made = job_in(folder, script, state=JobState.FAILED, ended=ENDED)
    return replace(made, spec=JobSpec("net", f"#!/bin/bash\n{script}\n", work_dir=folder))


def test_a_program_that_saves_and_never_loads_is_called_so_and_what_it_removes_is_named(tmp_path: Path) -> None:
    job = cleaning(tmp_path)
    words = saved_state(context(job), job)
    assert f"The newest whole checkpoint is {tmp_path}/elsewhere/now/NET_00150.pt (step 150)" in words
    assert "cycle.py saves NET_00150.pt and has no way to go on from it" in words
    assert (
        f"{tmp_path}/tool/cycle.py:8 removes {tmp_path}/elsewhere/now when it starts (3 entries lie there now: NET_00050.pt"
        in words
    )
    assert "#NIGHTSHIFT" not in words, "no line makes a program load that holds no call which does"


def test_a_listing_that_is_only_counted_is_no_look_for_a_checkpoint(tmp_path: Path) -> None:
    job = cleaning(tmp_path)
    assert resume_way(job, programs_of(job)).means is ResumeMeans.NONE


def test_a_restart_that_would_remove_the_checkpoints_is_refused_and_says_where(tmp_path: Path) -> None:
    job = cleaning(tmp_path)
    around = context(job)
    around.transport = SimpleNamespace(name="local")
    choice = choose_checkpoint.run(around, "812")
    assert choice["restart_from"] == ""
    assert "cycle.py:8 removes" in choice["note"]
    assert f"checkpoint of step 150 ({tmp_path}/elsewhere/now/NET_00150.pt)" in choice["note"]


@pytest.mark.parametrize(
    ("script", "where"),
    [
        ("rm -rf {here}/elsewhere/now\npython tool/cycle.py", "line 2 of its script removes"),
        ("D={here}/elsewhere/now\nrm -f $D/*.pt\npython tool/cycle.py", "line 3 of its script removes"),
    ],
)
def test_a_removal_of_the_script_is_named_by_its_line(script: str, where: str, tmp_path: Path) -> None:
    program = CLEANS.replace("    shutil.rmtree(place)\n", "")
    job = cleaning(tmp_path, program, script.format(here=tmp_path))
    assert where in loss_words(start_losses(job, programs_of(job)))


def test_what_is_not_there_or_passes_is_no_loss(tmp_path: Path) -> None:
    script = f"rm -rf {tmp_path}/gone {tmp_path}/.cache/x {tmp_path}/empty\npython tool/cycle.py"
    job = cleaning(tmp_path, CLEANS.replace("    shutil.rmtree(place)\n", ""), script)
    (tmp_path / "empty").mkdir()
    (tmp_path / ".cache/x").mkdir(parents=True)
    (tmp_path / ".cache/x/y").write_text("y")
    assert start_losses(job, programs_of(job)) == []


def test_a_pipe_a_link_out_and_a_name_with_a_terminal_code_do_no_harm(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "out").symlink_to("/etc")
    write(tmp_path / "res/a\x1b[2J\n", "x")
    script = f"rm -rf {tmp_path}/pipe {tmp_path}/res\npython tool/cycle.py"
    job = cleaning(tmp_path, CLEANS.replace("    shutil.rmtree(place)\n", ""), script)
    losses = start_losses(job, programs_of(job))
    assert [loss.path for loss in losses] == [f"{tmp_path}/res"]


def test_a_trainer_that_is_handed_no_checkpoint_is_a_dead_end_and_says_which_call(tmp_path: Path) -> None:
    program = (
        "from transformers import Trainer, TrainingArguments\n"
        f"trainer = Trainer(args=TrainingArguments('{tmp_path}/runs'))\ntrainer.train()\n"
    )
    write(tmp_path / "tune.py", program)
    saved = tmp_path / "runs/checkpoint-90"
    write(saved / "trainer_state.json", '{"global_step": 90, "log_history": []}')
    (saved / "model.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")
    write(tmp_path / "slurm-812.out", "begin\n", ENDED)
    made = job_in(tmp_path, "python tune.py", state=JobState.FAILED, ended=ENDED)
    job = replace(made, spec=JobSpec("tune", "#!/bin/bash\npython tune.py\n", work_dir=tmp_path))
    words = saved_state(context(job), job)
    assert "no way to go on from it (train() in tune.py, line 3 is not given resume_from_checkpoint)" in words
    assert "move them away first" in words
    assert "#NIGHTSHIFT" not in words


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        ("http://10.1.2.3:7100/score\n", False),
        ("node17:29400", False),
        ("[fe80::1]:7100\n", False),
        ("epoch: 12\n", True),
        ("the run of Monday:\n8 of 9 done\n", True),
        ("", True),
    ],
)
def test_the_address_that_a_server_left_is_no_loss(text: str, is_lost: bool, tmp_path: Path) -> None:
    write(tmp_path / "where", text)
    write(tmp_path / "serve.py", "import http.server\n")
    script = f"cd {tmp_path}\nrm -f where\npython serve.py"
    job = job_in(tmp_path, script, state=JobState.FAILED, ended=ENDED)
    losses = start_losses(job, programs_of(job))
    assert [loss.path for loss in losses] == ([f"{tmp_path}/where"] if is_lost else [])
