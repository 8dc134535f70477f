"""By which variable of its own script a training goes on, and which are never set."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import ToolError
from assistant.records import Checkpoint, Job, JobSpec, JobState
from assistant.recover import job_program
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.trackers import Tracker
from assistant.recover.job_program import programs_of
from assistant.recover.restart import hidden_variable, plan_restart
from assistant.recover.resume.means import ResumeMeans
from assistant.recover.resume.plan import resume_plan
from assistant.recover.resume.script import program_way, resume_way
from assistant.recover.resume.script_variable import may_be_set
from assistant.recover.resume.variable import variable_problem
from assistant.recover.source.quantities import is_measure
from assistant.recover.source.trainer_source import parse_source
from assistant.rendering import environment_digest

CHECKPOINTS = Path(__file__).parents[1] / "cases" / "checkpoints"
CASES: list[dict[str, Any]] = tomllib.loads((CHECKPOINTS / "resume_variables.toml").read_text("utf-8"))["case"]
PROGRAMS: dict[str, str] = tomllib.loads((CHECKPOINTS / "resume_programs.toml").read_text("utf-8"))["programs"]
HOME = Path("/nowhere/work")
NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files that stand for those of the job's owner, also where they are read a second time."""
    texts: dict[str, str] = {}
    monkeypatch.setattr(job_program.FileReader, "_read", lambda self, path: texts.get(path))
    return texts


def laid_out(case: dict[str, Any], files: dict[str, str]) -> Job:
    if "program" in case:
        files[str(HOME / "train.py")] = PROGRAMS[case["program"]]
    files |= {str(HOME / name): PROGRAMS.get(text, text) for name, text in case.get("called", {}).items()}
    spec = JobSpec("gpt", f"#!/bin/bash\n{case['script']}", work_dir=HOME, environment=case.get("environment", {}))
    spec = replace(spec, environment_lost=case.get("lost", False))
    return Job("7", "gpt", "", JobState.FAILED, "", (), None, HOME, None, None, None, 1, None, spec=spec)


def checkpoint(case: dict[str, Any], step: int) -> Checkpoint:
    name = f"iter_{step:07d}" if "pretrain" in case["script"] else f"step_{step}{'.pt' if case.get('files') else ''}"
    folder = HOME / ("ckpt" if "/ckpt" in case["script"] else "out")
    return Checkpoint(folder / name, step, "plain", 1, NOW, True, ())


def torn(case: dict[str, Any]) -> Inventory | None:
    """Return a folder whose tracker names a checkpoint that is not whole, where a case has one."""
    bad = replace(checkpoint(case, 80), healthy=False, problems=("has 2 data files, every other checkpoint has at least 3",))
    tracker = Tracker(HOME / "out/latest", 80, "step_80")
    return Inventory(HOME / "out", (checkpoint(case, 60), bad), (), tracker) if case.get("astray") else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_variable_by_which_a_script_goes_on_is_proven_or_not_set(case: dict[str, Any], files: dict[str, str]) -> None:
    job = laid_out(case, files)
    way = resume_way(job, programs_of(job), saved=torn(case))
    assert way.variable == case["variable"], way
    assert way.takes_files >= case.get("files", False)
    assert way.takes_folders >= case.get("folders", False)
    assert bool(way.argument) is case.get("argued", False) or "argued" not in case, way
    if way.variable:
        assert str(way.means) == case.get("resumes", "argument"), way.sentence
    assert "removed" not in case or list(way.removed) == case["removed"]
    if "says" in case:
        assert case["says"] in way.hint, way


@pytest.mark.parametrize("case", [case for case in CASES if case["variable"]], ids=lambda case: case["name"])
def test_a_restart_sets_it_and_nothing_else_again_and_again(
    case: dict[str, Any], files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "f" if case.get("files") else "d"
    monkeypatch.setattr(
        "assistant.recover.resume.script_variable.file_test", lambda account, hidden, letter, path: letter in (kind, "e", "r", "s")
    )
    job = laid_out(case, files)
    name, _, template = case["variable"].partition("=")
    for attempt, step in ((1, 45), (2, 60)):
        assert job.spec is not None
        way = resume_way(job, programs_of(job), saved=torn(case))
        chosen = checkpoint(case, step)
        if "{" not in template and attempt == 2:  # it says yes already, and is kept
            assert (way.means, way.variable) == (ResumeMeans.NEWEST, "")
            break
        assert way.variable == case["variable"], way
        if way.means is ResumeMeans.ARGUMENT:
            assert resume_plan(way, None, chosen).ready, resume_plan(way, None, chosen).refusal
        assert not variable_problem(job, way, chosen, program_way)
        spec = plan_restart(job, job.spec, chosen, attempt=attempt, tag="t", resume=way.argument, variable=way.variable)
        value = template.format(checkpoint=chosen.path, name=chosen.path.name, step=step, folder=chosen.path.parent)
        assert spec.environment[name] == value
        assert f"{name}={value}" in environment_digest(spec.environment)
        others = {key: text for key, text in spec.environment.items() if key != name and not key.startswith("NIGHTSHIFT_")}
        assert others == {key: text for key, text in case.get("environment", {}).items() if key != name}
        assert (spec.script, spec.arguments, spec.options) == (job.spec.script, job.spec.arguments, job.spec.options)
        job = replace(job, id=str(7 + attempt), spec=spec)


REFUSED = (
    "PATH HOME SHELL USER IFS ENV BASH_ENV BASH_LOADABLES_PATH PS4 LD_PRELOAD LD_LIBRARY_PATH DYLD_INSERT_LIBRARIES PYTHONPATH "
    "PYTHONSTARTUP PYTHONHOME SLURM_RESTART_COUNT SLURM_JOB_START_TIME SLURM_LOAD SBATCH_EXPORT SRUN_EXPORT_ENV NIGHTSHIFT_STEP "
    "CUDA_MODULE_LOADING NCCL_CHECKPOINT GIT_SSH_COMMAND SSH_AUTH_SOCK XDG_STATE_HOME _LMFILES_ LOADEDMODULES MODULES_LOADED "
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD HF_DATASETS_CHECKPOINT WANDB_RESUME RESUMÉ 1RESUME OUTPUT_DIR DATA MODEL ld_preload"
).split()


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_means_something_to_others_is_never_set(name: str, files: dict[str, str]) -> None:
    assert not may_be_set(name)
    script = f'python train.py ${{{name}:+--resume "${name}"}}\n'
    for environment in ({}, {name: "/nowhere/work/out/epoch_1.pt"}):
        job = laid_out({"script": script, "program": "epochs", "environment": environment}, files)
        assert resume_way(job, programs_of(job)).variable == ""


@pytest.mark.parametrize("name", ["RESUME", "LOAD", "CKPT_STEP", "resume_from", "INIT_CKPT", "START_FROM", "CHECKPOINT_PATH"])
def test_names_of_owners_may_be_set(name: str) -> None:
    assert may_be_set(name)


@pytest.mark.parametrize("text", ["$(rm -rf ~)", "`id`", "a b; rm x", "${IFS}", "--resume x", "*", "\n", "x" * 5000])
def test_what_a_hostile_submission_put_into_it_decides_nothing(text: str, files: dict[str, str]) -> None:
    job = laid_out({**CASES[2], "environment": {"RESUME": text}}, files)
    way = resume_way(job, programs_of(job))
    assert way.variable in ("", "RESUME={checkpoint}")
    assert job.spec is not None
    chosen = checkpoint({**CASES[2], "files": True}, 45)
    spec = plan_restart(job, job.spec, chosen, attempt=1, tag="t", resume=way.argument, variable=way.variable)
    assert spec.environment["RESUME"] in (text, str(chosen.path))


def test_a_path_that_a_shell_would_change_is_not_handed_over(files: dict[str, str]) -> None:
    job = laid_out(CASES[2], files)
    way = resume_way(job, programs_of(job))
    chosen = replace(checkpoint({**CASES[2], "files": True}, 45), path=HOME / "my run" / "epoch_4.pt")
    assert "characters that a shell would change" in variable_problem(job, way, chosen, program_way)
    assert job.spec is not None
    with pytest.raises(ToolError, match="characters that a shell would change"):
        plan_restart(job, job.spec, chosen, attempt=1, tag="t", variable=way.variable)


def test_the_script_is_read_once_more_with_the_very_checkpoint(files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that asks for a file does not go on from a folder, and a name leads where the script says and nowhere else."""
    by_name = {case["name"]: case for case in CASES}
    job = laid_out(by_name["a test that the file is there"], files)
    way = resume_way(job, programs_of(job))
    monkeypatch.setattr("assistant.recover.resume.script_variable.file_test", lambda account, hidden, letter, path: letter in "des")
    assert variable_problem(job, way, checkpoint(by_name["a test that the file is there"], 45), program_way)
    job = laid_out(by_name["a name below a folder that the script names"], files)
    way = resume_way(job, programs_of(job))
    here = checkpoint({"script": ""}, 45)
    assert not variable_problem(job, way, here, program_way)
    assert variable_problem(job, way, replace(here, path=Path("/nowhere/other/out/step_45")), program_way)


def test_an_attempt_that_saved_nothing_is_repeated_from_where_it_began(files: dict[str, str]) -> None:
    job = laid_out(CASES[2], files)
    assert job.spec is not None
    first = plan_restart(job, job.spec, checkpoint(CASES[2], 45), attempt=1, tag="t", variable="RESUME={checkpoint}")
    again = plan_restart(replace(job, spec=first), first, None, attempt=2, tag="t")
    assert (again.environment["RESUME"], again.environment["NIGHTSHIFT_VARIABLE"]) == (first.environment["RESUME"], "RESUME")


def test_a_variable_that_the_approved_command_does_not_show_is_not_submitted(files: dict[str, str]) -> None:
    job = laid_out(CASES[2], files)
    assert job.spec is not None
    spec = plan_restart(job, job.spec, checkpoint(CASES[2], 45), attempt=1, tag="t", variable="RESUME={checkpoint}")
    assert not hidden_variable(spec, [f"sbatch --export-file={environment_digest(spec.environment)}"])
    narrowed = {name: text for name, text in spec.environment.items() if name != "RESUME"}
    assert "slurm.job_environment" in hidden_variable(spec, [f"sbatch --export-file={environment_digest(narrowed)}"])


def test_the_page_names_the_line_that_reads_a_variable_which_is_not_set(files: dict[str, str]) -> None:
    script = "python train.py ${LOAD:+--load $LOAD}\n"
    job = laid_out({"script": script, "program": "weights"}, files)
    way = resume_way(job, programs_of(job))
    assert way.sentence.startswith("this script does not resume: it would start at 0")
    assert "LOAD (line 2 of its script) is not set" in way.sentence
    assert "LOAD=/nowhere/work/out/step_45" in resume_plan(way, None, checkpoint({"script": script}, 45)).refusal


def test_a_new_job_with_a_folder_of_its_own_goes_on_in_the_old_one_by_the_variable(files: dict[str, str]) -> None:
    case = next(case for case in CASES if case["name"].startswith("the folder of an older run with"))
    job = laid_out(case, files)
    way = resume_way(job, programs_of(job))
    chosen = checkpoint(case, 45)
    assert "look elsewhere" not in resume_plan(way, None, chosen, moves="its path holds the job's id").refusal, (
        "its tracker file decides"
    )
    assert (
        "a new job would look elsewhere"
        in resume_plan(replace(way, variable=""), None, chosen, moves="its path holds the job's id").refusal
    )


@pytest.mark.parametrize("case", [case for case in CASES if "removed" in case], ids=lambda case: case["name"])
def test_what_a_start_would_remove_is_never_started(case: dict[str, Any], files: dict[str, str]) -> None:
    job = laid_out(case, files)
    refusal = resume_plan(resume_way(job, programs_of(job)), None, checkpoint({**case, "files": True}, 40)).refusal
    assert ("removes" in refusal) is (str(HOME / "out") in case["removed"])


@pytest.mark.parametrize(
    ("comments", "line", "words"),
    [
        ('# to continue it:  EXTRA="--resume" sbatch run.sh', 2, 'to continue it:  EXTRA="--resume" sbatch run.sh'),
        ("# continue with: sbatch run.sh --start-batch N", 2, "continue with: sbatch run.sh --start-batch N"),
        ("# go on from the last checkpoint:\n#   LOAD=ckpt/17 sbatch run.sh", 3, "LOAD=ckpt/17 sbatch run.sh"),
        ("# sbatch run.sh starts the training", 0, ""),
        ("#SBATCH --comment=resume-with-sbatch x", 0, ""),
        ("echo 'to resume: sbatch run.sh'", 0, ""),
        ("# resumes by itself", 0, ""),
    ],
)
def test_what_the_script_says_of_its_own_continuation_is_told_to_people(
    comments: str, line: int, words: str, files: dict[str, str]
) -> None:
    usage = f"line {line} of its script says: {words}" if line else ""
    files[str(HOME / "train.py")] = "import torch\nloss.backward()\ntorch.save({'epoch': 1}, 'out/last.pt')\n"
    spec = JobSpec("gpt", f"#!/bin/bash\n{comments}\npython train.py\n", work_dir=HOME)
    job = Job("7", "gpt", "", JobState.FAILED, "", (), None, HOME, None, None, None, 1, None, spec=spec)
    way = resume_way(job, programs_of(job))
    assert way.usage == usage
    refusal = resume_plan(way, None, checkpoint({"script": "", "files": True}, 40)).refusal
    assert usage in refusal
    assert way.means is ResumeMeans.NONE, "and nothing is done by it"


TAKES = "import os, time\n{line}\nfor step in range(9):\n    time.sleep(held)\n"


@pytest.mark.parametrize(
    ("name", "script", "line", "measures"),
    [
        ("BEGIN_AT", "export BEGIN_AT=0.25\n", "", True),
        ("BEGIN_AT", "export BEGIN_AT=${BEGIN_AT:-1e-3}\n", "", True),
        ("ITER_PAUSE", "", "", True),
        ("LOAD_TIME", "", "held = float(os.environ.get('LOAD_TIME', '0'))", True),
        ("LOAD_TIME", "", "held = int(os.environ['LOAD_TIME'])", True),
        ("LOAD_STEP", "export LOAD_STEP=40\n", "step = int(os.environ['LOAD_STEP']); held = 1", False),
        ("CKPT", "export CKPT=${CKPT:-out/step_4.5}\n", "path = os.environ.get('CKPT'); held = 1", False),
        ("LOAD_STEP", "", "step = int(float(os.environ['LOAD_STEP'])); held = 1", False),
        ("START_FROM", "", "start = os.getenv('START_FROM'); held = 0.5", False),
    ],
)
def test_a_time_or_a_rate_is_no_variable_by_which_a_script_goes_on(name: str, script: str, line: str, *, measures: bool) -> None:
    assert is_measure(name, "", [script], [parse_source(TAKES.format(line=line), path="/nowhere/work/x.py")]) is measures
