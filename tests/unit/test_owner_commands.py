"""Commands by which owners carry their runs on: which are taken for such, and what is made of what they would submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.ports import Reply
from assistant.records import Checkpoint, Job, JobSpec, JobState
from assistant.recover.checkpoints.entry import Format
from assistant.recover.job_program import FileReader
from assistant.recover.restart import hidden_variable, plan_restart
from assistant.recover.resume.documented import owner_commands, said_commands
from assistant.recover.resume.means import OwnerCommand, ResumeMeans, ResumeWay
from assistant.recover.resume.plan import resume_plan
from assistant.recover.trial.recorded import RecordedSubmission, recorded_submission
from assistant.recover.trial.trial import TrialWay, program_text, proven_trial, spec_digest, trials_of
from assistant.tools.checkpoints import resume_of
from tests.unit.test_trial import SAVED, made

CASES = tomllib.loads((Path(__file__).parents[1] / "cases/checkpoints/owner_commands.toml").read_text("utf-8"))["case"]
SUBMISSIONS = tomllib.loads((Path(__file__).parents[1] / "cases/recorded.toml").read_text("utf-8"))["case"]
SCRIPT = "#!/bin/bash\n#SBATCH -n 2\nsrun python3 x.py\n"
GO = OwnerCommand(("./go.sh",), "README:1", "/w/go.sh")
FORTY = Checkpoint(Path("/w/ckpt/step_40"), 40, Format.PLAIN, 3000, SAVED, healthy=True, problems=())


def job_in(folder: Path, script: str = SCRIPT) -> Job:
    spec = JobSpec("lab-blue", script, work_dir=folder, environment={"RUN": "blue"})
    return Job("7", "lab-blue", "", JobState.FAILED, "", (), None, folder, None, None, None, 1, None, spec=spec)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_command_that_carries_a_run_on(case: dict[str, Any], tmp_path: Path) -> None:
    for name, text in case["files"].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    commands = owner_commands(job_in(tmp_path, case.get("script", SCRIPT)), FileReader(""))
    assert [f"{' '.join(command.words)} @ {command.place}" for command in commands] == case["commands"]


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: os.chown(folder / "README", 4711, 4711),
        lambda folder: os.chown(folder / "go.sh", 4711, 4711),
        lambda folder: (folder / "README").chmod(0o666),
        lambda folder: (folder / "go.sh").chmod(0o777),
        lambda folder: folder.chmod(0o777),
        lambda folder: (folder / "go.sh").rename(folder / "real") and (folder / "go.sh").symlink_to("real"),
    ],
)
def test_what_somebody_else_may_have_written_is_no_command(harm: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "README").write_text("resume: `./go.sh`\n")
    (tmp_path / "go.sh").write_text("#!/bin/sh\nsbatch run.sh\n")
    assert owner_commands(job_in(tmp_path), FileReader(""))
    if os.geteuid() != 0 and "chown" in harm.__code__.co_names:
        pytest.skip("only root gives files away")
    harm(tmp_path)
    assert owner_commands(job_in(tmp_path), FileReader("")) == ()


def test_a_program_names_the_command_itself(tmp_path: Path) -> None:
    (tmp_path / "go.sh").write_text("#!/bin/sh\nsbatch run.sh\n")
    output = "step 1\nERROR: out is not empty; use `./go.sh RUN` to resume, or `./other.sh`\n"
    assert [command.words for command in said_commands(job_in(tmp_path), output, "its output")] == []
    output = "ERROR: out is not empty; use `./go.sh RUN` to resume\nuse `./gone.sh` to resume\n"
    assert [command.words for command in said_commands(job_in(tmp_path), output, "its output")] == [("./go.sh", "blue")]


def reply_of(case: dict[str, Any]) -> Reply:
    """Return what a node answers about a command that asked for something."""
    calls = [{"name": "sbatch", "folder": "/w", "texts": {"run.sh": SCRIPT}, "stdin": "", **call} for call in case.get("calls", [])]
    for number, call in enumerate(calls):
        call["environment"] = {"RUN": "blue", "PATH": "/usr/bin", **call.get("environment", {})}
        call["at"] = number
    value = {
        "status": "ran", "exit": case.get("exit", 0), "seconds": 1.0, "opened": [], "changed": case.get("changed", []),
        "removed": case.get("removed", []), "output": case.get("output", ""), "logs": {},
        "records": [*map(json.dumps, calls), *case.get("records", [])],
    }  # fmt: skip
    if case.get("unended"):
        value["exit"] = None
    return Reply("n1", True, 0, f"NIGHTSHIFT-TRIAL {json.dumps(value)}\n", "")


@pytest.mark.parametrize("case", SUBMISSIONS, ids=lambda case: case["name"])
def test_only_one_job_of_the_same_run_is_repeated(case: dict[str, Any]) -> None:
    job = job_in(Path("/w"))
    assert job.spec is not None
    spec = replace(job.spec, options=tuple(case.get("options", ())), log=case.get("log"))
    outcome = recorded_submission(replace(job, spec=spec), GO, reply_of(case))
    if "why" in case:
        assert isinstance(outcome, str), outcome
        assert case["why"] in outcome
        return
    assert isinstance(outcome, RecordedSubmission), outcome
    assert list(outcome.assignments) == case.get("assignments", [])
    assert (list(outcome.arguments) if outcome.arguments is not None else None) == case.get("arguments")
    assert outcome.left_out == case.get("left_out", "")


def test_what_was_recorded_is_what_is_submitted_for_that_checkpoint_alone() -> None:
    job = job_in(Path("/w"))
    assert job.spec is not None
    spec = replace(job.spec, options=("--export=ALL,RUN=blue,STEP=-1", "--mem=0"), environment={"RUN": "blue", "STEP": "-1"})
    way = proven_trial({"variable": "STEP=40 MODE=on", "arguments": ["--more"], "bound": str(FORTY.path)}).way("tried")
    assert (way.means, way.tried, way.arguments) == (ResumeMeans.ARGUMENT, True, ("--more",))
    planned = plan_restart(job, spec, FORTY, attempt=1, tag="t", variable=way.variable, arguments=way.arguments)
    assert (planned.environment["STEP"], planned.environment["MODE"], planned.arguments) == ("40", "on", ("--more",))
    assert planned.options == ("--export=ALL,RUN=blue,STEP=40", "--mem=0")
    assert hidden_variable(planned, ("sbatch STEP=40",)) != ""
    assert hidden_variable(planned, ("sbatch STEP=40 MODE=on",)) == ""
    assert resume_plan(way, None, FORTY).ready
    other = replace(FORTY, path=Path("/w/ckpt/step_60"), step=60)
    assert "was tried for /w/ckpt/step_40" in resume_plan(way, None, other).refusal


def test_a_proven_command_outranks_what_home_made_source_seems_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    read = ResumeWay(ResumeMeans.NEWEST, "listdir() in x.py", home_made=True)
    monkeypatch.setattr("assistant.tools.checkpoints.read_way", lambda job, search: read)
    job = job_in(Path("/w"))
    search: Any = None
    assert job.spec is not None
    value = {"proven": "yes", "submission": spec_digest(job.spec), "note": "tried", "variable": "STEP=40", "arguments": None}
    for bound, means in ((str(FORTY.path), ResumeMeans.ARGUMENT), ("", ResumeMeans.NEWEST)):
        context: Any = SimpleNamespace(incident=1, history=made({**value, "bound": bound}))
        assert resume_of(context, job, search).means is means


def test_commands_are_asked_before_anything_is_guessed() -> None:
    way = ResumeWay(ResumeMeans.UNKNOWN, "?", trial_variables=("A={checkpoint}",), commands=(GO,))
    assert [trial.label for trial in trials_of(way)] == ["`./go.sh` as it would submit", "as it is", "A={checkpoint}"]
    assert trials_of(ResumeWay(ResumeMeans.NONE, "begins at the start", commands=(GO,))) == (TrialWay(command=GO),)


@pytest.mark.parametrize(
    ("name", "words", "status", "output"),
    [
        ("sbatch", ["--parsable", "run.sh", "a b"], 0, "67043327\n"),
        ("sbatch", [], 0, "Submitted batch job 67043327\n"),
        ("squeue", ["-h"], 0, ""),
        ("scancel", ["7"], 0, ""),
        ("scontrol", ["update", "JobId=7"], 1, ""),
    ],
)
def test_the_recorder_writes_down_and_does_nothing(tmp_path: Path, name: str, words: list[str], status: int, output: str) -> None:
    (tmp_path / "run.sh").write_text(SCRIPT)
    (tmp_path / "records").mkdir()
    program = tmp_path / name
    program.write_text(f"#!{sys.executable} -I\n{program_text('recorder_program').replace('@FOLDER@', str(tmp_path / 'records'))}")
    program.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "STEP": "40"}
    done = subprocess.run(
        [program, *words], env=environment, cwd=tmp_path, input="text", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (status, output), done.stderr
    [path] = (tmp_path / "records").glob("record-*.json")
    record = json.loads(path.read_text())
    assert (record["name"], record["words"], record["folder"]) == (name, words, str(tmp_path))
    assert record["environment"]["STEP"] == "40"
    assert record["texts"] == ({"run.sh": SCRIPT} if "run.sh" in words else {})
    assert record["stdin"] == ("text" if name == "sbatch" and not record["texts"] else "")
