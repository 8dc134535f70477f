"""Folders outside of its work folder that a job names: a trial start lets it write there, and only where it really may."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.records import JobState
from assistant.records.jobs import ProcessFolder, ProcessReport
from assistant.recover.trial.named_folders import named_folders
from assistant.recover.trial.sandbox_program import writable_folders
from tests.unit.logged_job import job_in, write


@pytest.mark.parametrize(
    ("script", "path"),
    [
        ('export SPILL=/fast/$USER.$SLURM_JOB_ID\nmkdir -p "$SPILL"\n./solve', "/fast/ada.812"),
        ("./solve --cache-dir=/nvme/cache in.dat", "/nvme/cache"),
        ("CACHE=/nvme/${RUN_OF_NOBODY}/c ./solve", "/nvme"),
        ("./solve > /burst/ada/solve.out", "/burst/ada/solve.out"),
        ("for part in 1 2; do ./solve /burst/parts/$part; done", "/burst/parts/1"),
        ("python3 spill.py", "/ssd/windows"),
    ],
)
def test_a_path_that_script_or_program_names_is_known(script: str, path: str, tmp_path: Path) -> None:
    write(tmp_path / "spill.py", "import pathlib\nplace = pathlib.Path('/ssd/windows')\nplace.mkdir()\n")
    job = replace(job_in(tmp_path, script, state=JobState.FAILED), user="ada")
    assert job.spec is not None
    assert path in named_folders(job, job.spec)


@pytest.mark.parametrize("path", ["/usr/local/lib", "/etc/solve", "/proc/self", "/tmp", "/dev/shm", "/opt/a:/opt/b"])
def test_places_of_the_machine_and_lists_of_folders_are_none(path: str, tmp_path: Path) -> None:
    job = job_in(tmp_path, f"export FIRST={path}\n./solve {path}", state=JobState.FAILED)
    assert job.spec is not None
    assert not {*path.split(":"), path} & {*named_folders(job, job.spec)}


def test_where_its_processes_were_seen_to_write_counts(tmp_path: Path) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    seen = ProcessReport(at, folders=(ProcessFolder(Path("/nvme/run9"), "n1", 71, at),))
    job = replace(job_in(tmp_path, "./solve", state=JobState.FAILED), processes=seen)
    assert job.spec is not None
    assert "/nvme/run9" in named_folders(job, job.spec)


def test_only_what_stands_and_may_be_written_is_taken(tmp_path: Path) -> None:
    for name in ("fast", "work/out", "closed"):
        (tmp_path / name).mkdir(parents=True)
    named = [f"{tmp_path}/fast/ada.7/parts", f"{tmp_path}/work/out", "/proc/self/x", "/nowhere-at-all/x"]
    folders = writable_folders(named, [f"{tmp_path}/work"])
    assert folders == [str(tmp_path)], "what lies in it is seen there"
    assert writable_folders(["/proc/self/x", "/nowhere-at-all/x"], []) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may become another account")
def test_a_folder_of_others_is_left_read_only() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        top = Path(name)
        top.chmod(0o755)
        (top / "closed").mkdir()
        (top / "sticky").mkdir()
        (top / "sticky").chmod(0o1777)
        child = os.fork()
        if child == 0:
            os.setresuid(65534, 65534, 65534)
            folders = writable_folders([f"{top}/closed/a", f"{top}/sticky/b.7"], [])
            os._exit(0 if folders == [f"{top}/sticky"] else 1)
        assert os.waitpid(child, 0)[1] == 0
