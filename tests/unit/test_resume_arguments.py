"""By which argument a program that would begin anew is made to go on, and what is not proven of it."""

from __future__ import annotations

import tomllib
from dataclasses import replace
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
from assistant.recover.resume.script import resume_way

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "cases" / "checkpoints" / "resume_arguments.toml").read_text("utf-8")
)["case"]
NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
CHOSEN = Checkpoint(Path("/work/out/epoch=1-step=45.ckpt"), 45, "nemo", 1, NOW, True, ())


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files that stand for those of the job's owner, also where they are read a second time."""
    texts: dict[str, str] = {}
    monkeypatch.setattr(job_program.FileReader, "__call__", lambda self, path: texts.get(path))
    return texts


def laid_out(case: dict[str, Any], files: dict[str, str]) -> Job:
    files |= case.get("files", {}) | ({"/work/train.py": case["program"]} if "program" in case else {})
    spec = JobSpec("gpt", f"#!/bin/bash\n{case['script']}", work_dir=Path("/work"), arguments=tuple(case.get("arguments", ())))
    return Job("7", "gpt", "", JobState.FAILED, "", (), None, Path("/work"), None, None, None, 1, None, spec=spec)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_argument_by_which_a_program_goes_on_is_proven_or_not_used(case: dict[str, Any], files: dict[str, str]) -> None:
    job = laid_out(case, files)
    way = resume_way(job, programs_of(job))
    assert way.argument == case["argument"], way
    wanted = case.get("resumes", "argument" if case["argument"] else "")
    assert not wanted or str(way.means) == wanted, way.sentence
    assert way.means is not ResumeMeans.NEWEST
    if "tried" in case:
        assert list(way.trial_arguments) == case["tried"], "a trial start has to prove it"
    if "hint" in case:
        assert way.hint == case["hint"]
        assert str(CHOSEN.path) in resume_plan(way, None, CHOSEN).refusal


@pytest.mark.parametrize("case", [case for case in CASES if case["argument"]], ids=lambda case: case["name"])
def test_a_restart_starts_the_program_with_it_again_and_again(case: dict[str, Any], files: dict[str, str]) -> None:
    job = laid_out(case, files)
    assert job.spec is not None
    for attempt, step in ((1, 45), (2, 60)):
        assert job.spec is not None
        way = resume_way(job, programs_of(job))
        assert way.means is ResumeMeans.ARGUMENT, way.sentence
        chosen = replace(CHOSEN, path=Path(f"/work/out/epoch=1-step={step}.ckpt"), step=step)
        assert resume_plan(way, None, chosen).ready
        spec = plan_restart(job, job.spec, chosen, attempt=attempt, tag="t", resume=way.argument)
        assert spec.environment["NIGHTSHIFT_ARGS"] == case["argument"].format(checkpoint=chosen.path)
        assert spec.arguments == job.spec.arguments
        assert spec.script.count("NIGHTSHIFT_ARGS") == 1
        job = replace(job, id=str(7 + attempt), spec=spec)


def test_a_folder_is_not_handed_to_a_program_that_loads_one_file(files: dict[str, str]) -> None:
    job = laid_out(CASES[2], files)
    way = resume_way(job, programs_of(job))
    folder = replace(CHOSEN, path=Path("/work/out/checkpoint-45"))
    of_ranks = replace(CHOSEN, path=Path("/work/out/ep0-ba45-rank0.pt"))
    assert "must be one file" in resume_plan(way, None, folder).refusal
    assert "must be one file" in resume_plan(way, None, of_ranks).refusal
