"""Files of a job that were edited since its run last worked: named with the time, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.engine.evidence.edited_files import with_edits
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, Job, JobSpec, JobState, NodeFinding
from tests.unit.logged_job import START, job_in, write

LINE = "ValueError: d_model has to be divisible by n_heads"
BEFORE = Diagnosis(
    "value_error", Category.SCRIPT, Action.FIX_AND_RESUBMIT, 0.9, DecidedBy.RULE, (Citation("job.log", 4, LINE, "x"),),
    (), (), "It does not fit.", "Correct it.",
)  # fmt: skip
PROGRAM = "import argparse, layers\np = argparse.ArgumentParser()\np.add_argument('--config')\np.add_argument('--output_dir')\n"
COMMAND = "python fit.py --config conf/net.yaml --output_dir out"
HOUR = timedelta(hours=1)


def failed(folder: Path) -> Job:
    """Return a job whose files are older than all it saved."""
    for name, text in (("fit.py", PROGRAM), ("layers.py", "width = 64\n"), ("conf/net.yaml", "heads: 7\n")):
        write(folder / name, text, START - 9 * HOUR)
    write(folder / "slurm-812.out", LINE, START + timedelta(minutes=1))
    made = job_in(folder, COMMAND, state=JobState.FAILED, ended=START + timedelta(minutes=1))
    return replace(made, spec=JobSpec("llm", f"#!/bin/bash\n{COMMAND}\n", work_dir=folder))


def advice(job: Job, earlier: tuple[Job, ...] = (), diagnosis: Diagnosis = BEFORE) -> str:
    scheduler: Any = SimpleNamespace(user_jobs=lambda user: [*earlier, job])
    return with_edits(diagnosis, job, scheduler, {}, START + HOUR).advice


def saves(folder: Path, step: int) -> None:
    write(folder / f"out/checkpoint-{step}/trainer_state.json", json.dumps({"global_step": step}), START - 4 * HOUR)
    write(folder / f"out/checkpoint-{step}/model.safetensors", "x" * 64, START - 4 * HOUR)


@pytest.mark.parametrize("name", ["fit.py", "layers.py", "conf/net.yaml"])
def test_a_file_that_was_edited_behind_the_newest_checkpoint_is_named_with_the_time(name: str, tmp_path: Path) -> None:
    job = failed(tmp_path)
    saves(tmp_path, 150)
    assert advice(job) == "Correct it."
    path = tmp_path / name
    write(path, path.read_text(), START - HOUR)
    assert advice(job) == (
        f"Correct it. Changed since checkpoint-150 was saved (2026-03-01 08:00 UTC): {path} at 2026-03-01 11:00 UTC. "
        "Look first at what was changed there."
    )


def test_a_job_of_the_same_name_and_folder_that_completed_is_a_success_as_well(tmp_path: Path) -> None:
    job = failed(tmp_path)
    write(tmp_path / "conf/net.yaml", "heads: 8\n", START - HOUR)
    earlier = replace(job, id="800", state=JobState.COMPLETED, started=START - 3 * HOUR, ended=START - 2 * HOUR)
    assert "Changed since job 800 of the same name completed (2026-03-01 10:00 UTC)" in advice(job, (earlier,))
    for other in (
        replace(earlier, state=JobState.FAILED),
        replace(earlier, name="eval"),
        replace(earlier, work_dir=tmp_path / "elsewhere"),
        replace(earlier, ended=START - timedelta(minutes=5)),
    ):
        assert advice(job, (other,)) == "Correct it."


def test_of_a_run_that_never_worked_of_what_it_writes_itself_and_of_what_came_later_nothing_is_said(tmp_path: Path) -> None:
    job = failed(tmp_path)
    write(tmp_path / "conf/net.yaml", "heads: 8\n", START - HOUR)
    assert advice(job) == "Correct it.", "nothing was saved before"
    saves(tmp_path, 150)
    write(tmp_path / "conf/net.yaml", "heads: 8\n", START + timedelta(seconds=30))
    assert advice(job) == "Correct it.", "the attempt had read it by then"
    own = replace(job, spec=JobSpec("llm", COMMAND.replace("conf/", "out/"), work_dir=tmp_path))
    write(tmp_path / "out/net.yaml", "heads: 7\n", START - HOUR)
    assert advice(own) == "Correct it.", "a run keeps its settings beside its checkpoints"
    (tmp_path / "out/net.yaml").rename(tmp_path / "net.yaml")
    outside = replace(job, spec=JobSpec("llm", COMMAND.replace("conf/", ""), work_dir=tmp_path))
    assert f"{tmp_path}/net.yaml at 2026-03-01 11:00 UTC" in advice(outside)


def test_a_failure_that_no_edit_brings_about_is_left_as_it_is(tmp_path: Path) -> None:
    job = failed(tmp_path)
    saves(tmp_path, 150)
    write(tmp_path / "conf/net.yaml", "heads: 8\n", START - HOUR)
    for diagnosis in (
        replace(BEFORE, action=Action.RESTART_SAME_NODES),
        replace(BEFORE, reason="time_limit"),
        replace(BEFORE, nodes=(NodeFinding("gpu001", "it said so", ()),)),
    ):
        assert advice(job, diagnosis=diagnosis) == "Correct it."
