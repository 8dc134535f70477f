"""A training that failed behind exit code 0 is told from all else that leaves an error in the log of a job that ended well."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.weighing.training_failure import how_hidden
from assistant.engine.outcomes.completed_jobs import log_end
from assistant.records import Job, JobSpec, JobState

FILES = sorted((Path(__file__).parents[1] / "cases" / "hidden_failure").glob("*.toml"))
CASES = [case for file in FILES for case in tomllib.loads(file.read_text())["case"]]


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def completed(folder: Path, case: dict[str, Any]) -> Job:
    steps = (case["step"].replace("{n}", str(n)) for n in range(case["first"], case["last"] + 1, case.get("by", 1)))
    log = folder / "job.log"
    log.write_text("\n".join([*steps, case["log"]]))
    at = datetime(2026, 3, 1, tzinfo=UTC)
    spec = JobSpec("llm", case["script"], work_dir=folder)
    job = Job("7", "llm", "ada", JobState.COMPLETED, "p", ("gpu001",), log, folder, at, at, at, 0, None, spec=spec)
    return replace(job, step_exit_code=case.get("step_exit_code"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_only_a_log_that_proves_it_makes_a_completed_training_a_failed_one(
    case: dict[str, Any], tmp_path: Path, knowledge: Knowledge
) -> None:
    failure = log_end(completed(tmp_path, case), knowledge).failure
    assert bool(failure) is case["failed"], failure
    assert case.get("says", "") in failure


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("python a.py | tee log\n", "pipefail"),
        ("set -o pipefail\npython a.py || true\n", "|| true"),
        ("trap 'exit 0' EXIT\npython a.py\n", "trap"),
        ("python a.py\necho done\n", "set -e"),
        ("# a | b\npython a.py || :\n", "|| true"),
    ],
)
def test_it_is_said_what_hides_the_failure(script: str, words: str) -> None:
    assert words in how_hidden(script)
