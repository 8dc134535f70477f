"""Assignments of a submission by which a run may go on, as its script, its owner or its program shows them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.job_program import FileReader, programs_of
from assistant.recover.resume.shown_variables import shown_variables

CASES = tomllib.loads((Path(__file__).parents[1] / "cases/checkpoints/shown_variables.toml").read_text("utf-8"))["case"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_variable_that_is_shown_is_a_way_to_start(case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(case.get("source", "print(1)\n"))
    (tmp_path / "job.sh").write_text(f"#!/bin/bash\n{case['script']}")
    for name in case.get("files", ()):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    spec = JobSpec("x", f"#!/bin/bash\n{case['script']}", work_dir=tmp_path)
    job = Job("7", "x", "", JobState.FAILED, "", ("n1",), None, tmp_path, None, None, None, 1, None, spec=spec)
    assert list(shown_variables(job, programs_of(job), FileReader(""))) == case["shown"]
