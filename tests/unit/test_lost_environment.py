"""Variables that a program reads itself, of a job whose submission's environment Slurm did not keep."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.engine.retry_policy import as_the_same_job
from assistant.records import Job, JobSpec, JobState
from assistant.recover.playbook import Wanted
from assistant.recover.source.settings import repeat_problem
from assistant.schedulers.slurm_spec import job_spec
from assistant.schedulers.slurm_typed import TypedSubmission

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)


def lost_job(folder: Path, script: str = "srun python3 train.py --config conf.yaml") -> Job:
    spec = JobSpec("llm", f"#!/bin/bash\n{script}\n", work_dir=folder, environment_lost=True)
    return Job("7", "llm", "ada", JobState.FAILED, "gpu", ("n1",), folder / "7.log", folder, NOW, NOW, NOW, 1, None, spec=spec)


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ('import os\nlr = float(os.environ["LR"])', "LR (train.py)"),
        ('import os\nlr = os.environ.get("LR", 1e-3)', "LR (train.py)"),
        ('from os import getenv\nlr = getenv("LR")', "LR (train.py)"),
        ('import os\nlr = 3e-4 if "FAST" in os.environ else 1e-3', "FAST (train.py)"),
        ('import os\nenv = os.environ\nlr = env["LR"]', "LR (train.py)"),
        ('import os\nenv = dict(os.environ)\nlr = env.get("LR")', "LR (train.py)"),
        ('import os\nNAME = "LR"\nlr = os.environ[NAME]', "LR (train.py)"),
        ('import os, sys\nlr = os.environ["MODEL_" + sys.argv[9]]', "whose names it makes itself"),
        ('import os\nos.environ.setdefault("STAGE", "sft")', "STAGE (train.py)"),
        ('import os\nif "LR" not in os.environ:\n    os.environ["LR"] = "1"\nlr = os.environ["LR"]', "LR (train.py)"),
        ("import options", "BETA (options.py)"),
        ('import os\nos.environ["LR"] = "1"\nlr = os.environ["LR"]', ""),
        ('import os\nrank = int(os.environ["RANK"]); job = os.environ["SLURM_JOB_ID"]; home = os.getenv("HF_HOME")', ""),
        ('settings = {"LR": 1}\nlr = settings["LR"]', ""),
        ("this is no python: at all(", ""),
    ],
)
def test_variables_that_the_program_reads_are_doubted(tmp_path: Path, program: str, named: str) -> None:
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "options.py").write_text('import os\nbeta = os.getenv("BETA")')
    problem = repeat_problem(lost_job(tmp_path))
    assert (named in problem) if named else problem == "", problem


@pytest.mark.parametrize(
    ("script", "doubted"),
    [
        ("export LR=3e-4\nsrun python3 train.py", False),
        ("LR=3e-4 srun python3 train.py", False),
        ("srun env LR=3e-4 python3 train.py", False),
        ("srun python3 train.py", True),
        ("bash inner.sh", True),
    ],
)
def test_what_the_script_sets_is_no_doubt(tmp_path: Path, script: str, doubted: bool) -> None:
    (tmp_path / "train.py").write_text('import os\nlr = os.environ["LR"]')
    (tmp_path / "inner.sh").write_text("#!/bin/bash\npython3 train.py --lr ${LR:-1e-3}\n")
    assert bool(repeat_problem(lost_job(tmp_path, script))) is doubted


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ("optim:\n  lr: ${oc.env:LR}\n", "LR (conf.yaml)"),
        ("optim:\n  lr: ${oc.env:LR,1e-3}\n", "LR (conf.yaml)"),
        ("data: ${DATA_DIR}/train\n", "DATA_DIR (conf.yaml)"),
        ("data: ${HOME}/train\nlr: ${optim.lr}\noptim: {lr: 1}\n", ""),
        ("# lr: ${oc.env:LR}\nlr: 1\n", ""),
    ],
)
def test_configurations_that_take_variables_are_doubted(tmp_path: Path, config: str, named: str) -> None:
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / "conf.yaml").write_text(config)
    problem = repeat_problem(lost_job(tmp_path))
    assert (named in problem) if named else problem == "", problem


def test_what_the_log_printed_is_told_and_not_used(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text('import os\nlr = os.environ["LR"]')
    (tmp_path / "7.log").write_text("Namespace(lr=0.0003, seed=1)\nstep 1 loss 2.0\n")
    problem = repeat_problem(replace(lost_job(tmp_path), state=JobState.RUNNING, started=None))
    assert "its log says LR=0.0003, which nobody has checked" in problem


class _Requeuing:
    def __init__(self, job: Job) -> None:
        self.shown = job

    def job(self, _: str) -> Job:
        return self.shown

    def requeue(self, *_: Any, **__: Any) -> None:
        raise AssertionError


def test_such_a_job_is_queued_again_under_its_own_id_and_never_submitted_anew(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text('import os\nlr = os.environ["LR"]')
    wanted = Wanted("again", "resubmit_job", {"job": "7", "checkpoint": "/ckpt/step_40"}, "")
    scheduler: Any = _Requeuing(lost_job(tmp_path))
    assert as_the_same_job(scheduler, wanted).tool == "requeue_ended_job"
    kept = replace(scheduler.shown, spec=replace(scheduler.shown.spec, environment_lost=False))
    assert as_the_same_job(_Requeuing(kept), wanted).tool == "resubmit_job"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "options", "environment", "stored", "lost"),
    [
        ("", (), {}, False, True),
        ("", (), {}, True, False),
        ("", (), {"LR": "1"}, False, False),
        ("#SBATCH --export=NONE", (), {}, False, False),
        ("", ("--export=NONE",), {}, False, False),
        ("#SBATCH --export=LR", (), {}, False, True),
        ("#SBATCH --export=LR=3e-4", (), {}, False, False),
    ],
)
def test_an_environment_is_lost_only_where_one_was_given_and_none_was_kept(
    line: str, options: tuple[str, ...], environment: dict[str, str], stored: bool, lost: bool
) -> None:
    job = Job("7", "llm", "ada", JobState.FAILED, "gpu", ("n1",), None, Path("/w"), NOW, NOW, NOW, 1, None)
    typed = TypedSubmission(options)
    spec = job_spec(
        job, {}, f"#!/bin/bash\n{line}\ntrue\n", pattern="", typed=typed, environment=environment, environment_stored=stored
    )
    assert spec is not None
    assert spec.environment_lost is lost
