"""A refused number is followed to the key or the line that it comes from, with both values and the time of the change."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.failure_origins import refused_numbers
from assistant.tools.report import tell_owner
from tests.unit.logged_job import START, job_in, write
from tests.unit.test_saved_state import context

ENDED = START + timedelta(minutes=10)
LOADS = """import os, torch, yaml
HERE = os.path.dirname(os.path.abspath(__file__))
opts = yaml.safe_load(open(HERE + "/net/shape.yaml"))
print("opts", opts)
net = Net(width=opts["hidden_width"])
if os.path.exists("w/last.pt"):
    net.load_state_dict(torch.load("w/last.pt"))
torch.save(net, "w/last.pt")
"""
PLANS = """import tomllib, torch
cfg = tomllib.load(open("plan.toml", "rb"))
rounds = cfg["fit"]["rounds"]
plan = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-3, total_steps=rounds * (cfg["data"]["items"] // 64))
plan.load_state_dict(torch.load("w/last.pt")["plan"])
plan.step()
"""


def failed(folder: Path, program: str, log: str) -> Job:
    write(folder / "fit.py", program, START - timedelta(days=1))
    write(folder / "slurm-812.out", log, ENDED)
    made = job_in(folder, "python fit.py", state=JobState.FAILED, ended=ENDED)
    return replace(made, spec=JobSpec("net", "#!/bin/bash\npython fit.py\n", work_dir=folder))


def test_a_width_that_was_changed_since_the_run_began_is_named_with_both_values(tmp_path: Path) -> None:
    job = failed(tmp_path, LOADS, "opts {'hidden_width': 384, 'layers': 12}\nstep 1 loss 3.0\n")
    write(tmp_path / "net/shape.yaml", "layers: 12\nhidden_width: 640   # wider\n", START + timedelta(minutes=4))
    line = (
        "size mismatch for enc.w: copying a param with shape torch.Size([384]) from checkpoint, "
        "the shape in current model is torch.Size([640])."
    )
    message = tell_owner.run(context(job), "812", "model_loading_error", "Build the model as it was saved.", f"job.log:9: {line}")
    for text in (message["text"], message["note"]):
        assert (
            f"hidden_width is 640 ({tmp_path}/net/shape.yaml:2, which was changed at 2026-03-01 12:04:00 UTC, "
            "after its run first began at 2026-03-01 12:00:00)" in text
        )
        assert f"and was 384 when the log begins; {tmp_path}/fit.py:5 takes it in." in text


def test_the_line_that_makes_a_refused_number_is_named_with_its_settings(tmp_path: Path) -> None:
    job = failed(tmp_path, PLANS, "begin\n")
    write(tmp_path / "plan.toml", "[fit]\nrounds = 40\n[data]\nitems = 300\n", START - timedelta(days=1))
    line = "job.log:50: ValueError: Tried to step 161 times. The specified number of total steps is 160"
    note = tell_owner.run(context(job), "812", "value_error", "A restart alone does not help.", line)["note"]
    assert f"{tmp_path}/fit.py:4 makes it: OneCycleLR(total_steps=rounds * (cfg['data']['items'] // 64))" in note
    assert "data.items = 300" in note
    assert "fit.rounds = 40" in note
    assert "(plan.toml)" in note
    assert "line 5 loads it from the checkpoint as well" in note


@pytest.mark.parametrize(
    ("error", "numbers"),
    [
        ('  File "/x/a.py", line 88, in f', ()),
        ("2026-03-01 12:04:00 a.py:77: expected 1024, got 768 at 0x7f00", ("1024", "768")),
        ("mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)", ()),
        ("[E] size torch.Size([10, 33])", ("10", "33")),
        (
            "size mismatch for e.w: copying a param with shape torch.Size([256, 64]) from checkpoint, "
            "the shape in current model is torch.Size([256, 128]).",
            ("64", "128"),
        ),
    ],
)
def test_numbers_of_lines_and_times_are_no_values(error: str, numbers: tuple[str, ...]) -> None:
    assert refused_numbers(error) == numbers


def test_an_owner_of_whom_nothing_is_known_is_told_as_before(tmp_path: Path) -> None:
    job = failed(tmp_path, "print(1)\n", "begin\n")
    note = tell_owner.run(context(job), "812", "value_error", "Mend it.", "job.log:5: ValueError: 4711")["note"]
    assert note == "ada must act: Mend it."


def test_a_configuration_that_is_a_pipe_or_leads_out_is_not_read(tmp_path: Path) -> None:
    job = failed(tmp_path, PLANS.replace("plan.toml", "pipe.toml"), "begin\n")
    (tmp_path / "pipe.toml").symlink_to("/dev/zero")
    note = tell_owner.run(context(job), "812", "value_error", "Mend it.", "job.log:5: ValueError: total steps is 160")["note"]
    assert "pipe.toml" not in note


def test_a_source_that_was_changed_since_the_run_began_is_named_with_the_line_that_holds_the_number(tmp_path: Path) -> None:
    job = failed(tmp_path, "import torch\nfrom shape import build\nnet = build()\ntorch.save(net, 'w/last.pt')\n", "begin\n")
    write(tmp_path / "shape.py", "def build():\n    return Layer(width=640)\n", START + timedelta(minutes=5))
    note = tell_owner.run(
        context(job), "812", "model_loading_error", "Build it as before.", "job.log:9: size mismatch: 384 and 640"
    )["note"]
    assert (
        f"{tmp_path}/shape.py:2, which holds 640, was changed at 2026-03-01 12:05:00 UTC, "
        "after its run first began at 2026-03-01 12:00:00." in note
    )
    assert "fit.py" not in note
    write(tmp_path / "shape.py", "def build():\n    return Layer(width=640)\n", START + timedelta(seconds=0.7))
    note = tell_owner.run(
        context(job), "812", "model_loading_error", "Build it as before.", "job.log:9: size mismatch: 384 and 640"
    )["note"]
    assert "was changed" not in note, "within the second that Slurm calls the start"
