"""A script that is given a configuration goes on by a copy of it, in which one key names the checkpoint; the original stays."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import ToolError
from assistant.records import Checkpoint, Job, JobSpec, JobState
from assistant.recover import job_program
from assistant.recover.job_program import programs_of
from assistant.recover.restart import plan_restart, same_run
from assistant.recover.resume import config as resume_config
from assistant.recover.resume.config import config_of
from assistant.recover.resume.script import resume_way
from assistant.recover.trial.trial import trials_of
from assistant.schedulers.slurm_specs import record_differences
from assistant.schedulers.slurm_typed import arguments_digest

CASES = tomllib.loads((Path(__file__).parents[1] / "cases/checkpoints/resume_configs.toml").read_text("utf-8"))
HOME = Path("/nowhere/work")
CHOSEN = Checkpoint(HOME / "out/step_45.pt", 45, "plain", 1, datetime(2026, 3, 1, tzinfo=UTC), True, ())
REAL_MODE = resume_config._mode


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files that stand for those of the job's owner, of mode 640."""
    texts: dict[str, str] = {}
    monkeypatch.setattr(job_program.FileReader, "_read", lambda self, path: texts.get(path))
    monkeypatch.setattr(resume_config, "_mode", lambda path, account: 0o640 if str(path) in texts else None)
    return texts


def laid_out(case: dict[str, Any], files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Job:
    files |= {str(HOME / "train.py"): CASES["programs"][case["program"]], str(HOME / case["config"]): case["text"]}
    files |= {str(HOME / name): text for name, text in case.get("others", {}).items()}
    if not case.get("own", True):
        monkeypatch.setattr(resume_config, "_mode", lambda path, account: None)
    spec = JobSpec("x", f"#!/bin/bash\n{case['script']}", work_dir=HOME, arguments=tuple(case.get("arguments", ())))
    return Job("7", "x", "", JobState.FAILED, "", (), None, HOME, None, None, None, 1, None, spec=spec)


@pytest.mark.parametrize("case", CASES["case"], ids=lambda case: case["name"])
def test_the_key_of_a_configuration_by_which_a_script_goes_on(
    case: dict[str, Any], files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = laid_out(case, files, monkeypatch)
    way = resume_way(job, programs_of(job))
    assert way.config_key == case["key"], way
    if not case["key"]:
        return
    assert way.home_made
    assert [trial.config for trial in trials_of(way)] == [case["key"]], "and a trial start proves it first"
    given = config_of(job, way, CHOSEN)
    before, after = case["text"].splitlines(), given.copy.text.splitlines()
    assert [line for line, other in zip(after, before, strict=True) if line != other] == [case["edited"]]
    assert str(given.copy.path) == case.get("copy", str(HOME / case["config"]).replace(".", ".nightshift-step45.", 1))
    assert given.copy.mode == 0o640
    assert job.spec is not None
    spec = plan_restart(job, job.spec, CHOSEN, attempt=1, tag="t", config=given.words)
    assert spec.arguments == (str(given.copy.path),)
    assert (spec.script, spec.options) == (job.spec.script, job.spec.options)
    if job.spec.arguments:
        assert same_run(job, replace(job, id="8", spec=spec)), "the copy makes no other run of it"


def test_a_checkpoint_whose_path_a_configuration_or_a_shell_would_change_is_not_named(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = laid_out(CASES["case"][0], files, monkeypatch)
    way = resume_way(job, programs_of(job))
    for name in ('a"; rm -rf $HOME; "', "a\nlr: 9", "a b"):
        with pytest.raises(ToolError, match="characters"):
            config_of(job, way, replace(CHOSEN, path=HOME / "out" / name))


def test_only_a_regular_file_of_the_owner_in_a_folder_of_the_owner_is_copied(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "own.json").write_text("{}")
    (folder / "own.json").chmod(0o600)
    assert REAL_MODE(folder / "own.json", "") == 0o600
    (folder / "link.json").symlink_to("own.json")
    (folder / "below").mkdir()
    (folder / "way").symlink_to("below")
    (folder / "below/c.json").write_text("{}")
    assert [REAL_MODE(folder / name, "") for name in ("link.json", "way/c.json", "below", "gone.json")] == [None] * 4
    if os.geteuid() == 0:
        os.chown(folder / "own.json", 3007, 3007)
        assert REAL_MODE(folder / "own.json", "") is None


def test_what_slurm_made_of_other_arguments_is_a_difference_unless_the_restart_means_it() -> None:
    before, after = {"Command": "/w/run.sh c.json"}, {"Command": "/proc/self/fd/6 /w/c.nightshift-step45.json"}
    copied = JobSpec("x", "", arguments=("/w/c.nightshift-step45.json",))
    assert record_differences(before, after, copied, ids=(("7",), ("8",)))
    meant = replace(copied, environment={"NIGHTSHIFT_CONFIG": "/w/c.nightshift-step45.json"})
    assert not record_differences(before, after, meant, ids=(("7",), ("8",)))
    assert record_differences(before, {"Command": "/proc/self/fd/6 c.json"}, meant, ids=(("7",), ("8",)))


def test_other_arguments_of_the_script_are_no_difference_where_the_restart_gave_them() -> None:
    before, after = {"Command": "/w/run.sh"}, {"Command": "/proc/self/fd/6 gpt-711 a"}
    spec = JobSpec("x", "", arguments=("gpt-711", "a"))
    assert record_differences(before, after, spec, ids=(("7",), ("8",)))
    meant = replace(spec, environment={"NIGHTSHIFT_ARGUMENTS": arguments_digest(spec.arguments)})
    assert not record_differences(before, after, meant, ids=(("7",), ("8",)))
    assert record_differences(before, {"Command": "/proc/self/fd/6 gpt-711"}, meant, ids=(("7",), ("8",)))
