"""What a job says about itself, and where its checkpoints are."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.checkpoints.place import checkpoint_place, last_saved
from assistant.recover.directives import Directives, read_directives

CASES = Path(__file__).parents[1] / "cases"
SAID: list[dict[str, Any]] = tomllib.loads((CASES / "directives" / "known.toml").read_text())["case"]
LOGGED: list[dict[str, Any]] = tomllib.loads((CASES / "checkpoints" / "logged.toml").read_text())["case"]


def job(script: str = "", **environment: str) -> Job:
    spec = JobSpec(name="gpt", script=script, environment=environment, work_dir=Path("/work"))
    return Job(
        id="7", name="gpt", user="ada", state=JobState.FAILED, partition="gpu", nodes=("node01",), log=None,
        work_dir=Path("/work"), submitted=None, started=None, ended=None, exit_code=1, signal=None, spec=spec,
    )  # fmt: skip


@pytest.mark.parametrize("case", SAID, ids=lambda case: case["name"])
def test_a_script_says_what_its_lines_mean(case: dict[str, Any]) -> None:
    said = read_directives(case["script"])
    assert said == replace(Directives(**case["says"]), problems=tuple(case.get("problems", ())))


@pytest.mark.parametrize("case", LOGGED, ids=lambda case: case["line"][-50:])
def test_a_log_tells_where_it_saved(case: dict[str, Any]) -> None:
    assert last_saved([case["line"]]) == case.get("folder")


def test_the_last_save_counts() -> None:
    assert last_saved([case["line"] for case in LOGGED]) == "./checkpoints/train"


def test_the_script_outranks_the_settings_the_environment_and_the_log() -> None:
    both = job("#NIGHTSHIFT checkpoints=/script\n", NIGHTSHIFT_CHECKPOINTS="/environment")
    log = ["saving checkpoint at iteration 5 to /log"]
    places = [
        checkpoint_place(both, {"7": Path("/said")}, log),
        checkpoint_place(job(NIGHTSHIFT_CHECKPOINTS="/environment"), {"gp*": Path("/said")}, log),
        checkpoint_place(job(NIGHTSHIFT_CHECKPOINTS="/environment"), {}, log),
        checkpoint_place(job(), {}, log),
        checkpoint_place(job(), {}, []),
    ]
    assert [str(place.folder) if place else None for place in places] == ["/script", "/said", "/environment", "/log", None]


def test_a_relative_folder_is_below_the_working_folder() -> None:
    place = checkpoint_place(job("#NIGHTSHIFT checkpoints=out/ckpt\n"), {})
    assert place is not None
    assert place.folder == Path("/work/out/ckpt")
