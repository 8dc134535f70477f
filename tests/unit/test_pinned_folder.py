"""A script that names the folder of its run by the job's id: another job begins anew, unless a variable keeps it in that folder."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.engine.outcomes.failed_restarts import WRONG_START
from assistant.records import IncidentState, Job, JobSpec, JobState
from assistant.recover.checkpoints.inventory import last_healthy
from assistant.recover.checkpoints.search import CheckpointSearch, folder_moves, search_checkpoints
from assistant.recover.job_program import programs_now
from assistant.recover.restart import plan_restart
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.plan import resume_plan
from assistant.recover.resume.script import program_way, resume_way
from assistant.recover.resume.variable import variable_problem
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import ECC, XID, Scene

BEGAN = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
ENDED = BEGAN + timedelta(minutes=1)
TRAIN = """import argparse, os
import lightning as L
p = argparse.ArgumentParser()
p.add_argument("--run")
a = p.parse_args()
d = os.path.join("lightning_logs", a.run, "checkpoints")
last = os.path.join(d, "last.ckpt")
tr = L.Trainer(max_epochs=10, dirpath=d)
tr.fit(ckpt_path=last if os.path.exists(last) else None)
"""
SCRIPT = """#!/bin/bash
RUN=${RUN:-run_$SLURM_JOB_ID}
echo "run is $RUN"
srun python3 train.py --run "$RUN"
"""
FIRST = SimulatedRun(fails_at=50, lines=ECC, kernel={"node02": XID}, only_on="node02")
SAVED = "Epoch 0, global step 20: saving model to 'lightning_logs/run_7/checkpoints/epoch=0-step=20.ckpt' as top 1"


def looked_at(folder: Path, script: str, **environment: str) -> tuple[Job, CheckpointSearch, ResumeWay]:
    """Return a job whose run saved into the folder of its id, what was found of it, and how it goes on."""
    (folder / "train.py").write_text(TRAIN)
    saved = folder / "lightning_logs/run_7/checkpoints/epoch=0-step=20.ckpt"
    saved.parent.mkdir(parents=True)
    saved.write_bytes(b"\x80" + bytes(9000))
    os.utime(saved, (ENDED.timestamp() - 5,) * 2)
    spec = JobSpec("unet", script, work_dir=folder, environment=environment)
    job = Job("7", "unet", "", JobState.TIMEOUT, "", ("n1",), None, folder, BEGAN, BEGAN, ENDED, 1, None, spec=spec)
    search = search_checkpoints(job, {}, [SAVED], now=ENDED)
    return job, search, resume_way(job, programs_now(job, search.programs), saved=search.inventory)


def test_the_variable_that_keeps_a_script_in_the_folder_of_its_run_is_set_for_the_restart(tmp_path: Path) -> None:
    job, search, way = looked_at(tmp_path, SCRIPT)
    assert search.inventory is not None
    assert job.spec is not None
    chosen = last_healthy(search.inventory, now=ENDED, live=False).checkpoint
    assert chosen is not None
    assert (way.means, way.variable, way.pins) == (ResumeMeans.NEWEST, "RUN=run_7", True)
    assert folder_moves(job, search)
    assert resume_plan(way, search.inventory, chosen, moves=folder_moves(job, search)).ready
    assert variable_problem(job, way, chosen, program_way) == ""
    planned = plan_restart(job, job.spec, chosen, attempt=1, tag="nightshift:s:1:1", variable=way.variable)
    assert planned.environment["RUN"] == "run_7"


@pytest.mark.parametrize(
    "script",
    [
        'srun python3 train.py --run "run_$SLURM_JOB_ID"\n',  # nothing to set
        'RUN=${RUN:-run_$SLURM_JOB_ID}\nsrun python3 train.py --run "$RUN" --tag "$SLURM_JOB_ID"\n',  # something else differs, too
        'SLURM_RUN=${SLURM_RUN:-run_$SLURM_JOB_ID}\nsrun python3 train.py --run "$SLURM_RUN"\n',  # a name that is not ours to set
    ],
)
def test_without_such_a_variable_a_new_job_would_begin_in_another_folder_and_is_not_submitted(script: str, tmp_path: Path) -> None:
    job, search, way = looked_at(tmp_path, f"#!/bin/bash\n{script}")
    assert search.inventory is not None
    chosen = last_healthy(search.inventory, now=ENDED, live=False).checkpoint
    assert (way.variable, way.pins) == ("", False)
    assert folder_moves(job, search)
    plan = resume_plan(way, search.inventory, chosen, moves=folder_moves(job, search))
    assert "a new job would look elsewhere and start at 0" in plan.refusal


HEREDOC = """#!/bin/bash
mkdir -p states
cat > .sim_$SLURM_JOB_ID.py <<'PY'
import glob, os
first = max(glob.glob("states/*.sim"), key=os.path.getmtime, default=None)
for step in range(100):
    with open(f"states/step_{step:04d}.sim", "wb") as file:
        file.write(bytes(100))
PY
srun python3 .sim_$SLURM_JOB_ID.py
"""


def test_a_program_that_each_start_writes_under_its_id_moves_no_folder_without_it(tmp_path: Path) -> None:
    folder = tmp_path / "cavity"
    (folder / "states").mkdir(parents=True)
    for step in (10, 20, 30):
        save = folder / "states" / f"step_{step:04d}.sim"
        save.write_bytes(bytes(100))
        os.utime(save, (ENDED.timestamp() - 100 + step,) * 2)
    body = HEREDOC.split("<<'PY'\n")[1].split("PY\n", maxsplit=1)[0]
    (folder / ".sim_7.py").write_text(body)
    spec = JobSpec("sim", HEREDOC, work_dir=folder, user="")
    job = Job("7", "sim", "", JobState.TIMEOUT, "", ("n1",), None, folder, BEGAN, BEGAN, ENDED, 1, None, spec=spec)
    search = search_checkpoints(job, {}, ["state -> states/step_0030.sim (step 30)"], now=ENDED)
    assert search.place is not None
    assert search.place.folder == folder / "states"
    assert folder_moves(job, search) == ""


def test_where_the_submission_names_the_run_another_job_goes_on_with_it(tmp_path: Path) -> None:
    job, search, way = looked_at(tmp_path, SCRIPT, RUN="run_7")
    assert not folder_moves(job, search)
    assert way.variable == ""


@pytest.mark.parametrize("wrong", [True, False])
def test_a_restart_that_began_at_a_wrong_place_is_not_repeated_when_it_fails(wrong: bool, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    again = SimulatedRun(fails_at=70, lines=("slurmstepd: error: *** JOB 2 ON node03 CANCELLED DUE TO TIME LIMIT ***",))
    scene.cluster.plan("llm", *(replace(run, checkpoints=tmp_path / "checkpoints") for run in (FIRST, again, SimulatedRun())))
    scene.cluster.submit(scene.spec)
    for _ in range(60):
        scene.watch(10)
        if "submit 2" in scene.cluster.changes:
            break
    if wrong:
        scene.engine.store.mark_stage(1, WRONG_START)
    scene.watch(3600)
    assert ("submit 3" in scene.cluster.changes) is not wrong
    if wrong:
        last = scene.engine.store.incidents()[0]
        assert last.state is IncidentState.ESCALATED
        assert "job 2 was our restart of incident 1 and did not go on from the checkpoint" in last.note
