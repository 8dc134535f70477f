"""By which settings together a program goes on, what of it is proposed to a trial start, and what people are told."""

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
from assistant.recover.job_program import programs_of
from assistant.recover.restart import hidden_variable, plan_restart
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.plan import resume_plan
from assistant.recover.resume.script import resume_way
from assistant.recover.trial.trial import trials_of

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "cases" / "checkpoints" / "joint_settings.toml").read_text("utf-8")
)["case"]
NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
CHOSEN = Checkpoint(Path("/work/out/ckpt_000060.pt"), 60, "plain", 1, NOW, True, ())
LOST = replace(CHOSEN, path=Path("/work/out/ckpt_000080.pt"), step=80, healthy=False, problems=("holds NaN",))
HELD = Inventory(Path("/work/out"), (CHOSEN, LOST), ())
LOOP = """import sys
from ast import literal_eval
for arg in sys.argv[1:]:
    if '=' not in arg:
        exec(open(arg).read())
        continue
    key, val = arg[2:].split('=', 1)
    if key not in globals():
        raise ValueError(key)
"""
CONFIGURATORS = {
    "literal_eval": f"{LOOP}    try:\n        val = literal_eval(val)\n    except ValueError:\n        pass\n"
    "    globals()[key] = val\n",
    "eval": f"{LOOP}    globals()[key] = eval(val)\n",
    "exec": f"{LOOP}    globals()[key] = 0\n    exec(f'{{key}} = {{val}}')\n",
}


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files that stand for those of the job's owner."""
    texts: dict[str, str] = {}
    monkeypatch.setattr(job_program.FileReader, "__call__", lambda self, path: texts.get(path))
    return texts


def laid_out(case: dict[str, Any], files: dict[str, str]) -> tuple[Job, ResumeWay]:
    files |= {"/work/train.py": case["program"], **case.get("files", {})}
    if "configurator" in case:
        files |= {"/work/configurator.py": CONFIGURATORS[case["configurator"]], "/work/conf.py": "max_iters = 9\n"}
    script = case.get("script", 'srun python3 train.py conf.py "$@"\n')
    spec = JobSpec("gpt", f"#!/bin/bash\n{script}", work_dir=Path("/work"))
    job = Job("7", "gpt", "", JobState.FAILED, "", (), None, Path("/work"), None, None, None, 1, None, spec=spec)
    return job, resume_way(job, programs_of(job))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_switch_and_choice_are_tried_together_and_never_the_switch_alone(case: dict[str, Any], files: dict[str, str]) -> None:
    _, way = laid_out(case, files)
    assert way.means in (ResumeMeans.NONE, ResumeMeans.UNKNOWN), way.sentence
    arguments = [trial.argument for trial in trials_of(way) if trial.argument]
    assert arguments[:1] == [case["tried"]] if case["tried"] else all(" " not in text for text in arguments), arguments
    assert way.branch is None or way.branch.switches not in arguments
    variables = [trial.variable for trial in trials_of(way) if trial.variable]
    assert variables[:1] == [case["variables"]] if "variables" in case else not any(" " in text for text in variables), variables
    refusal = resume_plan(way, HELD, CHOSEN).refusal
    assert refusal
    for part in case.get("says", ()):
        assert part in refusal
    if case.get("says"):
        assert "does not resume" not in refusal


@pytest.mark.parametrize("case", [case for case in CASES if case["tried"]], ids=lambda case: case["name"])
def test_a_restart_passes_all_of_them_and_no_path_that_a_shell_would_change(case: dict[str, Any], files: dict[str, str]) -> None:
    job, way = laid_out(case, files)
    assert job.spec is not None
    proven = trials_of(way)[0].way("a trial")
    assert proven.means is ResumeMeans.ARGUMENT
    assert resume_plan(proven, HELD, CHOSEN).ready
    spec = plan_restart(job, job.spec, CHOSEN, attempt=1, tag="t", resume=proven.argument)
    filled = case["tried"].format(checkpoint=CHOSEN.path, name=CHOSEN.path.name, step=60)
    assert spec.environment["NIGHTSHIFT_ARGS"] == filled
    started = programs_of(replace(job, spec=replace(spec, script=spec.script.replace("${NIGHTSHIFT_ARGS:-}", filled))))
    assert started[-1].source is not None
    again = resume_way(replace(job, spec=spec), programs_of(replace(job, spec=spec)))
    assert [trial.argument for trial in trials_of(again)][:1] == [case["tried"]], "a second restart needs them as well"
    if "{step}" not in case["tried"]:
        for name in ("a b.pt", "$(id).pt", "a';import os;'.pt", "a`id`.pt", "a|b.pt"):
            with pytest.raises(ToolError):
                plan_restart(
                    job, job.spec, replace(CHOSEN, path=Path(f"/work/out/{name}")), attempt=1, tag="t", resume=proven.argument
                )


def test_a_restart_sets_all_variables_and_names_them(files: dict[str, str]) -> None:
    job, way = laid_out(next(case for case in CASES if "variables" in case), files)
    assert job.spec is not None
    proven = trials_of(way)[0].way("a trial")
    spec = plan_restart(job, job.spec, CHOSEN, attempt=1, tag="t", variable=proven.variable)
    assert {**spec.environment, "GO_ON": "1", "WARM_CKPT": CHOSEN.path.name} == spec.environment
    assert hidden_variable(spec, ["sbatch --export=ALL,GO_ON=1,WARM_CKPT=ckpt_000060.pt run.sh"]) == ""
    assert "WARM_CKPT" in hidden_variable(spec, ["sbatch --export=ALL,GO_ON=1 run.sh"])
    strange = replace(CHOSEN, path=Path("/work/out/a;b.pt"))
    with pytest.raises(ToolError):
        plan_restart(job, job.spec, strange, attempt=1, tag="t", variable=proven.variable)


def test_what_a_person_is_to_type_is_quoted(files: dict[str, str]) -> None:
    _, way = laid_out(CASES[0], files)
    strange = replace(CHOSEN, path=Path("/work/out/a b$(id).pt"))
    assert "--resume_ckpt='a b$(id).pt'" in resume_plan(way, HELD, strange).refusal


def test_the_switch_is_no_trap_where_the_newest_is_healthy(files: dict[str, str]) -> None:
    _, way = laid_out(CASES[0], files)
    assert "alone may load" not in resume_plan(way, Inventory(Path("/work/out"), (CHOSEN,), ()), CHOSEN).refusal
