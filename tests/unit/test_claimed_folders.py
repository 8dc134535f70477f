"""What is new in a work folder that two jobs share belongs to the one that names it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.claimed_folders import claimant_of
from assistant.tools.checkpoints import choose_checkpoint, search_of
from tests.unit.logged_job import START, job_in, write
from tests.unit.test_saved_state import ENDED, context

SCORER = "python score_daemon.py --policy m --out_log score.txt"
TRAINING = "python -m lab.ppo --weights_to {folder} --steps 400"


def beside(folder: Path, command: str, *, started: timedelta = timedelta(minutes=1), log: str = "up\n", number: str = "813") -> Job:
    write(folder / f"slurm-{number}.out", log)
    made = job_in(folder, command, id=number, raw_id=number, log=folder / f"slurm-{number}.out", state=JobState.RUNNING)
    return replace(made, name="ppo", started=START + started, spec=JobSpec("ppo", f"#!/bin/bash\n{command}\n", work_dir=folder))


def scorer(folder: Path, command: str = SCORER) -> Job:
    """Return a job that cannot be read, in whose work folder a series of folders grew since it began."""
    for number in (10, 20, 30):
        write(folder / f"kept/actor/globalstate{number}/part.bin", "w" * 9000, START + timedelta(minutes=number // 5))
    write(folder / "slurm-812.out", "ready\n")
    made = job_in(folder, command, state=JobState.NODE_FAIL, ended=ENDED)
    return replace(made, spec=JobSpec("score", f"#!/bin/bash\n{command}\n", work_dir=folder))


@pytest.mark.parametrize(
    ("command", "log", "is_named"),
    [
        ("python -m lab.ppo --weights_to kept --steps 400", "up\n", True),
        ("python -m lab.ppo --weights_to=kept/actor --steps 400", "up\n", True),
        ("python -m lab.ppo", "wrote kept/actor/globalstate20\n", True),
        ("python -m lab.ppo --weights_to ./ --steps 400", "up\n", False),
        ("python -m lab.ppo --weights_to elsewhere/actor", "up\n", False),
    ],
    ids=["a folder above it", "itself", "by its log", "the work folder alone", "another folder"],
)
def test_another_job_claims_the_folder_that_it_names(command: str, log: str, is_named: bool, tmp_path: Path) -> None:
    job, other = scorer(tmp_path), beside(tmp_path, command, log=log)
    claimant = claimant_of(context(job, other).scheduler, {}, job, tmp_path / "kept/actor", now=ENDED)
    assert (claimant.id if claimant is not None else None) == ("813" if is_named else None)


def test_a_job_that_began_when_it_was_over_claims_nothing(tmp_path: Path) -> None:
    job, other = scorer(tmp_path), beside(tmp_path, TRAINING.format(folder="kept"), started=timedelta(hours=1))
    assert claimant_of(context(job, other).scheduler, {}, job, tmp_path / "kept/actor", now=ENDED) is None


def test_a_job_that_names_the_folder_itself_keeps_it(tmp_path: Path) -> None:
    job, other = scorer(tmp_path, f"{SCORER} --cache kept/actor"), beside(tmp_path, TRAINING.format(folder="kept"))
    assert claimant_of(context(job, other).scheduler, {}, job, tmp_path / "kept/actor", now=ENDED) is None


def test_the_series_of_another_job_is_not_offered(tmp_path: Path) -> None:
    job = scorer(tmp_path)
    alone = search_of(context(job), job)
    assert "likely its checkpoints are globalstate10 to globalstate30" in alone.note
    shared = context(job, beside(tmp_path, TRAINING.format(folder="kept")))
    assert "likely" not in search_of(shared, job).note
    assert "kept/actor" not in choose_checkpoint(shared, job.id)["note"]
