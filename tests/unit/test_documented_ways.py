"""What README, Makefile and launching scripts say on how a run is carried on is told to people, and nothing is run by it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.job_program import FileReader, programs_of
from assistant.recover.resume.documented import documented_way
from assistant.recover.resume.script import resume_way
from assistant.recover.source.settings import value_templates

CASES = tomllib.loads((Path(__file__).parents[1] / "cases/checkpoints/documented_ways.toml").read_text("utf-8"))["case"]
SCRIPT = "#!/bin/bash\n#SBATCH -n 2\nsrun python3 x.py\n"


def job_in(folder: Path, script: str = SCRIPT) -> Job:
    (folder / "run.sh").write_text(script)
    spec = JobSpec("x", script, work_dir=folder)
    return Job("7", "x", "", JobState.FAILED, "", (), None, folder, None, None, None, 1, None, spec=spec)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_lines_that_tell_are_quoted_with_their_place(case: dict[str, Any], tmp_path: Path) -> None:
    for name, text in case["files"].items():
        (tmp_path / name).write_text(text)
    documented = documented_way(job_in(tmp_path), FileReader(""))
    assert all(part in documented.usage for part in case["usage"]), documented.usage
    assert bool(documented.usage) is bool(case["usage"])
    assert list(documented.variables) == case.get("variables", [])


def test_a_link_or_a_book_without_end_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("to resume: make resume\n")
    (tmp_path / "README").symlink_to("elsewhere")
    (tmp_path / "README.md").write_text("to resume: make resume\n" * 10_000)
    assert documented_way(job_in(tmp_path), FileReader("")).usage == ""


def test_a_documented_way_is_told_and_tried_where_reading_leaves_it_open(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("import torch, store\nstate = store.read()\ntorch.load(state)\ntorch.save({}, 'out/a_1.pt')\n")
    (tmp_path / "README").write_text("To continue: FROM=out/a_1.pt sbatch run.sh\n")
    job = job_in(tmp_path)
    way = resume_way(job, programs_of(job))
    assert "README:1 says: To continue" in way.usage
    assert way.trial_variables[:1] == ("FROM={checkpoint}",)


@pytest.mark.parametrize(
    ("declaration", "option", "first"),
    [
        ('add_argument("--restore_step", type=int)', "restore_step", "{step}"),
        ('add_argument("--load-tag", help="a tag below --load")', "load_tag", "{name}"),
        ('add_argument("--resume", help="path of a checkpoint")', "resume", "{checkpoint}"),
        ('add_argument("--resume-from", help="the step to go on from")', "resume_from", "{step}"),
        ('add_argument("--resume")', "resume", "{checkpoint}"),
    ],
)
def test_what_an_option_takes_is_told_by_its_declaration(declaration: str, option: str, first: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(f"import argparse\np = argparse.ArgumentParser()\np.{declaration}\n")
    assert value_templates(programs_of(job_in(tmp_path)), option, "X")[0] == first


def test_what_a_program_makes_of_a_variable_tells_what_it_takes(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text('import os\nn = int(os.environ.get("BEGIN", 0))\n')
    assert value_templates(programs_of(job_in(tmp_path)), "", "BEGIN") == ("{step}",)
    assert value_templates(programs_of(job_in(tmp_path)), "", "LOAD_TAG")[0] == "{name}"
