"""`nightshift demo` as a person runs it; `make drill` runs every fault."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from assistant.content.faults import faults


def demo(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "assistant", "demo", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_the_list_names_every_fault() -> None:
    done = demo("--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(faults())
    assert {"ecc", "nccl_timeout", "oom", "dataloader_killed", "node_failure", "storage", "script_bug", "hang"} <= set(faults())


def test_a_script_bug_ends_with_a_report_for_the_owner(tmp_path: Path) -> None:
    done = demo("--fault", "script_bug", "--folder", str(tmp_path / "run"), "--json")
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert (found["as_expected"], found["reason"], found["state"], found["restarts"]) == (True, "type_error", "escalated", 0)
    assert done.returncode == 0
    assert "must act" in done.stderr


@pytest.mark.slow
def test_a_broken_gpu_is_cordoned_and_the_job_finishes(tmp_path: Path) -> None:
    done = demo("--folder", str(tmp_path / "run"))
    assert done.returncode == 0, done.stdout
    assert "cordon node: scontrol update NodeName=node02 State=DRAIN" in done.stdout
    assert "iter_0000060 refused" in done.stdout
    assert "job 2 completed" in done.stdout
    assert "Figures" in done.stdout


def test_an_unknown_fault_names_the_nearest() -> None:
    done = demo("--fault", "ec")
    assert done.returncode == 2
    assert "did you mean 'ecc'" in done.stderr


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = demo("--folder", str(tmp_path))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert (tmp_path / "mine").exists()
