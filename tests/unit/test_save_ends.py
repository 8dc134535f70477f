"""What a job shows of its last save where no reader knows the form: log, steps, renames, and what people are told."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.errors import ToolError
from assistant.records import Job, JobState
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.checkpoints import choose_checkpoint, list_checkpoints
from assistant.tools.report import saved_state
from assistant.tools.resubmit import resubmit_job
from tests.unit.failed_job import World
from tests.unit.logged_job import START, job_in, write
from tests.unit.test_saved_state import ENDED, context

OWN = b"OWNFORM\x01"
RENAMED = """
import os, pickle
def save(path, state):
    with open(path + ".tmp", "wb") as out:
        out.write(encode(state))
    os.replace(path + ".tmp", path)
for step in range(100):
    save(f"out/step_{step}.pt", model)
"""
IN_PLACE = RENAMED.replace('path + ".tmp", "wb"', 'path, "wb"').replace('    os.replace(path + ".tmp", path)\n', "")
BESIDE = RENAMED + "\ndef export(path):\n    open(path, 'wb').write(model)\n"


def own_forms(folder: Path, source: str, log: str, *, quiet_s: float = 300, log_quiet_s: float = 0) -> Job:
    """Return a job that saved steps 10, 20 and 30 in a form of its own, the last so long before it ended."""
    write(folder / "train.py", source)
    write(folder / "slurm-812.out", log, ENDED - timedelta(seconds=log_quiet_s))
    for step in (10, 20, 30):
        path = write(folder / f"out/step_{step}.pt", "")
        path.write_bytes(OWN + os.urandom(9000))
        at = (ENDED - timedelta(seconds=quiet_s + 30 - step)).timestamp()
        os.utime(path, (at, at))
    job = job_in(folder, f"#NIGHTSHIFT checkpoints={folder}/out\npython train.py", state=JobState.FAILED, ended=ENDED)
    assert job.spec is not None
    return replace(job, spec=replace(job.spec, work_dir=folder))


def newest_of(job: Job) -> tuple[bool, str]:
    log = job.work_dir / "slurm-812.out" if job.work_dir is not None else Path()
    found = search_checkpoints(job, {}, log.read_text().splitlines(), now=ENDED + timedelta(minutes=1)).inventory
    assert found is not None
    newest = found.checkpoints[-1]
    assert newest.unread
    return newest.healthy, "; ".join((*newest.grounds, *newest.problems))


@pytest.mark.parametrize(
    ("source", "log", "quiet_s", "log_quiet_s", "words"),
    [
        (IN_PLACE, "step 29 loss 2.1\nsaved out/step_30.pt\n", 300, 0, "says that it was saved"),
        (IN_PLACE, "step 30 loss 2.1\nsaving out/step_30.pt\n", 300, 0, ""),
        (IN_PLACE, "step 30 loss 2.1\ncould not write: out/step_30.pt was not saved\n", 300, 0, ""),
        (IN_PLACE, "step 30 loss 2.1\nstep 35 loss 2.0\nstep 40 loss 2.0\n", 300, 0, "went on behind it to step 40"),
        (IN_PLACE, "step 29 loss 2.1\nstep 30 loss 2.0\n", 300, 0, ""),
        (IN_PLACE, "step 30 loss 2.1\nstep 40 loss 2.0\n", 3, 0, ""),  # it may have written when it was killed
        (IN_PLACE, "step 30 loss 2.1\nstep 40 loss 2.0\n", 300, 299, ""),  # its node died, which the scheduler noticed later
        (RENAMED, "step 29 loss 2.1\n", 300, 0, "by a rename"),
        (RENAMED, "step 29 loss 2.1\n", 30, 0, ""),
        (BESIDE, "step 29 loss 2.1\n", 300, 0, ""),
    ],
)
def test_that_the_last_save_had_ended_is_told_by_log_steps_and_renames(
    source: str, log: str, quiet_s: float, log_quiet_s: float, words: str, tmp_path: Path
) -> None:
    healthy, said = newest_of(own_forms(tmp_path, source, log, quiet_s=quiet_s, log_quiet_s=log_quiet_s))
    assert healthy is bool(words), said
    assert (words or "nothing shows that its save had ended") in said


def test_people_are_told_what_was_not_judged_and_what_speaks_for_it(tmp_path: Path) -> None:
    job = own_forms(tmp_path, IN_PLACE, "step 30 loss 2.1\nstep 40 loss 2.0\n")
    said = saved_state(context(job), job)
    assert "The newest checkpoint, which was not judged but for which others of its series speak, is" in said
    assert "not to be loaded" not in said


def test_a_lone_file_of_no_known_form_is_neither_whole_nor_refused(tmp_path: Path) -> None:
    world = World(tmp_path, SimulatedRun(fails_at=10), SimulatedRun()).passes(30)
    (world.saved / "step_10.pt").write_bytes(OWN + os.urandom(9000))
    chosen = choose_checkpoint(world.context, world.job)
    assert chosen["restart_from"] == ""
    assert "none of 1 checkpoints" in chosen["note"]
    assert "can be judged; a person who knows the program says which of them is whole" in chosen["note"]
    assert "refused" not in chosen["note"]
    listed = list_checkpoints(world.context, world.job)["checkpoints"]
    assert [(row["healthy"], row["undecided"]) for row in listed] == [(False, True)]
    job = world.cluster.job(world.job)
    assert "Whether a checkpoint of it is whole is not known" in saved_state(world.context, job)
    with pytest.raises(ToolError, match="can be judged"):
        resubmit_job(world.context, world.job)
    with pytest.raises(ToolError, match="it would start at 0 over the 1 checkpoints"):
        resubmit_job(world.context, world.job, checkpoint="none")


def test_the_choice_names_what_stands_for_a_form_that_nobody_knows(tmp_path: Path) -> None:
    world = World(tmp_path, SimulatedRun(fails_at=10), SimulatedRun()).passes(30)
    for place, step in enumerate((5, 6, 7)):
        path = world.saved / f"step_{step}.pt"
        path.write_bytes(OWN + os.urandom(9000))
        at = (START + timedelta(minutes=place)).timestamp()
        os.utime(path, (at, at))
    chosen = choose_checkpoint(world.context, world.job)
    assert chosen["step"] == 6
    assert "which was not judged: step_6.pt begins with" in chosen["note"]
    assert "for it speaks that 2 others of its series begin as it does" in chosen["note"]
    assert "a later one was saved behind it" in chosen["note"]
    assert "step_7.pt cannot be judged" in chosen["note"]
