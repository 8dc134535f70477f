"""By which number of a checkpoint a program goes on, and what is not proven of it."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Checkpoint, Job, JobSpec, JobState
from assistant.recover import job_program
from assistant.recover.job_program import programs_of
from assistant.recover.restart import plan_restart
from assistant.recover.resume.means import ResumeMeans
from assistant.recover.resume.plan import resume_plan
from assistant.recover.resume.script import program_way, resume_way
from assistant.recover.resume.variable import variable_problem

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "cases" / "checkpoints" / "resume_numbers.toml").read_text("utf-8")
)["case"]
PROVEN = [case for case in CASES if "loads" in case]
NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files that stand for those of the job's owner, also where they are read a second time."""
    texts: dict[str, str] = {}
    monkeypatch.setattr(job_program.FileReader, "__call__", lambda self, path: texts.get(path))
    return texts


def laid_out(case: dict[str, Any], files: dict[str, str]) -> Job:
    files[f"/work/{case.get('at', 'train.py')}"] = case["program"]
    spec = JobSpec("gpt", f"#!/bin/bash\n{case['script']}", work_dir=Path("/work"))
    return Job("7", "gpt", "", JobState.FAILED, "", (), None, Path("/work"), None, None, None, 1, None, spec=spec)


def saved(case: dict[str, Any], step: int) -> Checkpoint:
    number = str(step).zfill(case.get("padded", 0))
    return Checkpoint(Path(case["loads"].format(step=number)), step, "plain", 1, NOW, True, ())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_number_by_which_a_program_goes_on_is_proven_or_not_used(case: dict[str, Any], files: dict[str, str]) -> None:
    job = laid_out(case, files)
    way = resume_way(job, programs_of(job))
    assert (way.argument, way.variable) == (case.get("argument", ""), case.get("variable", "")), way
    assert (way.means is ResumeMeans.ARGUMENT) is ("loads" in case), way.sentence


@pytest.mark.parametrize("case", PROVEN, ids=lambda case: case["name"])
def test_a_restart_is_told_the_number_of_the_chosen_checkpoint_again_and_again(
    case: dict[str, Any], files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "assistant.recover.resume.script_variable.file_test", lambda account, hidden, letter, path: letter in ("f", "e", "r", "s")
    )
    job = laid_out(case, files)
    for attempt, step in ((1, 40), (2, 80)):
        assert job.spec is not None
        way, chosen = resume_way(job, programs_of(job)), saved(case, step)
        assert way.means is ResumeMeans.ARGUMENT, way.sentence
        assert resume_plan(way, None, chosen).ready, resume_plan(way, None, chosen).refusal
        assert not variable_problem(job, way, chosen, program_way)
        spec = plan_restart(job, job.spec, chosen, attempt=attempt, tag="t", resume=way.argument, variable=way.variable)
        name, _, _ = case.get("variable", "NIGHTSHIFT_ARGS=").partition("=")
        assert spec.environment[name] == case.get("argument", "{step}").format(step=step)
        job = Job(str(7 + attempt), "gpt", "", JobState.FAILED, "", (), None, Path("/work"), NOW, NOW, NOW, 1, None, spec=spec)


@pytest.mark.parametrize("case", PROVEN, ids=lambda case: case["name"])
def test_a_checkpoint_that_the_number_does_not_lead_to_is_not_gone_on_from(case: dict[str, Any], files: dict[str, str]) -> None:
    job = laid_out(case, files)
    way = resume_way(job, programs_of(job))
    right = saved(case, 40)
    for path in (
        right.path.parent / "other" / right.path.name,
        right.path.with_name(f"best_{right.path.name}"),
        Path("/else/x.pt"),
    ):
        wrong = Checkpoint(path, 40, "plain", 1, NOW, True, ())
        assert not resume_plan(way, None, wrong).ready or variable_problem(job, way, wrong, program_way)
    assert not resume_plan(way, None, Checkpoint(right.path, 41, "plain", 1, NOW, True, ())).ready
