"""A heterogeneous job: its script as its owner wrote it, which component decides how it goes on, and what a person is told."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.errors import ToolError
from assistant.ports import JumpingClock
from assistant.records import Checkpoint, Job, JobSpec, JobState
from assistant.recover.directives import together_words
from assistant.recover.job_program import programs_of
from assistant.recover.job_reading import job_of_script
from assistant.recover.resume.means import ResumeMeans
from assistant.recover.resume.script import resume_way
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.slurm_spec import repeat_doubt
from assistant.schedulers.slurm_specs import component_count, leader_of, script_paths, script_with_blank_lines
from assistant.tooling import Context
from assistant.tools.trial import trial_start
from tests.no_history import NoHistory

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
WRITTEN = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH hetjob
#SBATCH --nodes=2

# the trainer, and the samplers that follow its weights
srun --het-group=0 python3 trainer.py &

srun --het-group=1 python3 sampler.py &
wait -n
"""
STORED = "".join(line for line in WRITTEN.splitlines(keepends=True) if line.strip())
TRAINER = """import json, os, torch
step = 0
if os.path.islink("run/latest"):
    step = json.load(open("run/latest/position.json"))["step"]
while step < 1000:
    step += 1
    loss.backward()
    if step % 50 == 0:
        torch.save(model.state_dict(), f"run/step_{step}/model.pt")
        os.symlink(f"step_{step}", "run/.latest")
        os.replace("run/.latest", "run/latest")
"""
SAMPLER = """import json, os, time
step = json.load(open("run/latest/position.json"))["step"] if os.path.islink("run/latest") else 0
while True:
    time.sleep(1)
"""
CLOSED = """import torch
step = torch.load(pick())["step"]
for step in range(step, 1000):
    loss.backward()
    torch.save({"step": step}, f"run/step_{step}.pt")
"""


def submitted_file(folder: Path, text: str, *, changed: timedelta = -timedelta(minutes=5)) -> Path:
    file = folder / "split.sbatch"
    file.write_text(text)
    at = (NOW + changed).timestamp()
    os.utime(file, (at, at))
    return file


@pytest.mark.parametrize(
    ("text", "changed", "is_taken"),
    [
        (WRITTEN, -timedelta(minutes=5), True),
        (WRITTEN, timedelta(minutes=1), False),
        (WRITTEN.replace("sampler.py", "sampler.py --greedy"), -timedelta(minutes=5), False),
    ],
    ids=["the same", "written later", "another"],
)
def test_the_submitted_file_is_the_script_where_only_blank_lines_are_missing(
    text: str, changed: timedelta, is_taken: bool, tmp_path: Path
) -> None:
    submitted_file(tmp_path, text, changed=changed)
    paths = script_paths("", "sbatch --parsable split.sbatch", tmp_path)
    assert script_with_blank_lines(STORED, paths, submitted=NOW, account="") == (WRITTEN if is_taken else STORED)


def test_the_path_that_the_controller_shows_comes_before_the_words_as_typed() -> None:
    paths = list(script_paths("/w/split.sbatch --fast", "sbatch -n1 : -n2 split.sbatch --fast", Path("/w")))
    assert paths[0] == Path("/w/split.sbatch")


@pytest.mark.parametrize(
    ("script", "line", "count"),
    [
        (STORED, "sbatch split.sbatch", 2),
        (STORED.replace("hetjob\n", "packjob\n"), "", 2),
        ("#!/bin/bash\nsrun x\n", "sbatch -n1 : -n2 : -n4 run.sh", 3),
        ("#!/bin/bash\nsrun x\n", "sbatch --time=1:00 run.sh", 1),
    ],
)
def test_components_are_counted_in_the_script_and_in_the_line(script: str, line: str, count: int) -> None:
    assert component_count(script, line) == count


def test_the_first_component_holds_the_script_of_all() -> None:
    assert [leader_of(job) for job in ("12+0", "12+3", "12", "12_3")] == ["12+0", "12+0", "12", "12_3"]


def way_of(folder: Path, **programs: str) -> tuple[ResumeMeans, str]:
    for name, text in programs.items():
        (folder / f"{name}.py").write_text(text)
    job = job_of_script(WRITTEN, name="split", work_dir=folder)
    way = resume_way(job, programs_of(job))
    return way.means, way.by


def test_the_component_that_writes_the_checkpoints_decides_how_the_job_goes_on(tmp_path: Path) -> None:
    means, by = way_of(tmp_path, trainer=TRAINER, sampler=SAMPLER)
    assert (means, "trainer.py" in by) == (ResumeMeans.TRACKER, True)


def test_a_component_that_only_reads_proves_nothing_of_the_one_that_writes(tmp_path: Path) -> None:
    means, by = way_of(tmp_path, trainer=CLOSED, sampler=SAMPLER)
    assert (means, "trainer.py" in by) == (ResumeMeans.UNKNOWN, True)


def test_a_folder_that_is_written_anew_at_each_save_is_no_link(tmp_path: Path) -> None:
    plain = TRAINER.replace("os.path.islink", "os.path.isdir").replace("    os.symlink", "    pass  #")
    assert way_of(tmp_path, trainer=plain, sampler=SAMPLER.replace("islink", "isdir"))[0] is ResumeMeans.NEWEST


def split_job(line: str = "sbatch --parsable split.sbatch") -> Job:
    job = replace(job_of_script(WRITTEN, name="split", work_dir=Path("/w")), id="41+0", submit_line=line)
    assert job.spec is not None
    return job


def test_a_person_is_told_the_components_the_command_the_checkpoint_and_the_cost() -> None:
    saved = Checkpoint(Path("/w/run/step_150"), 150, "plain", 1000, NOW, True, ())
    assert together_words(split_job(), saved, 188) == (
        "job 41 is a heterogeneous job of 2 components, which have to be started together: `sbatch --parsable split.sbatch` in /w, "
        "from /w/run/step_150 (step 150); 38 steps, 150 to 188, are lost"
    )
    assert together_words(split_job(), saved, None).endswith("from /w/run/step_150 (step 150)")
    assert together_words(split_job(""), None, 188).endswith("started together: `submit job 41+0 again as the first time`")


def test_of_any_other_job_nothing_is_said_of_components() -> None:
    plain = job_of_script("#!/bin/bash\nsrun python3 trainer.py\n", name="plain", work_dir=Path("/w"))
    assert together_words(replace(plain, id="42", submit_line="sbatch --time=1:00 plain.sh"), None, 10) == ""


def test_a_trial_of_it_is_refused_with_the_true_reason(tmp_path: Path) -> None:
    clock = JumpingClock(NOW)
    cluster = SimulatedCluster(clock, tmp_path, nodes=4)
    doubt = repeat_doubt(WRITTEN, heterogeneous=True, array=False)
    job = cluster.submit(JobSpec("split", WRITTEN, nodes=1, work_dir=tmp_path, doubt=doubt))
    context = Context(cluster, cluster, clock, random.Random(1), NoHistory())
    with pytest.raises(ToolError, match="a trial would be of another job: it is a heterogeneous job"):
        trial_start(context, job)


def test_one_task_of_an_array_is_told_with_the_command_that_starts_it_alone(tmp_path: Path) -> None:
    script = '#!/bin/bash\n#SBATCH --array=0-7%2\nRscript sim.R "$SLURM_ARRAY_TASK_ID"\n'
    (tmp_path / "sim.sh").write_text(script)
    spec = JobSpec("sim", script, work_dir=tmp_path)
    task = Job("91_6", "sim", "", JobState.FAILED, "", (), None, tmp_path, None, NOW, NOW, 1, None, spec=spec)
    saved = Checkpoint(tmp_path / "s6" / "state.rds", 40, "plain", 9, NOW, healthy=True, problems=())
    words = together_words(task, saved, 52)
    assert f"`cd {tmp_path} && sbatch --array=6 sim.sh`" in words
    assert "siblings are not touched" in words
    assert "s6/state.rds (step 40); 12 steps, 40 to 52, are lost" in words
    divided = replace(spec, script=script.replace("$SLURM_ARRAY_TASK_ID", "$SLURM_ARRAY_TASK_COUNT"))
    assert together_words(replace(task, spec=divided), saved, 52) == ""
