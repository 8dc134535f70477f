"""Who saves into the folder of a run, by times and owners of what lies there; cases as files."""

from __future__ import annotations

import os
import subprocess
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Checkpoint, Job, JobState
from assistant.recover import wrong_start as second_writer
from assistant.recover.wrong_start import change_between, files_in, lock_after, open_in, save_after, save_beside

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
ALICE, BOB = 2101, 2102
CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "second_writer" / "saves.toml").read_text())["case"]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_save_of_somebody_else_is_seen(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners: dict[Path, int] = {}
    for name, (begun, changed, owner) in case["saves"].items():
        folder = tmp_path / name
        (folder / "mp_rank_00").mkdir(parents=True)
        file = folder / "mp_rank_00" / "model_optim_rng.pt"
        file.write_bytes(b"x" * 64)
        os.utime(file, (at(changed).timestamp(),) * 2)
        os.utime(folder, (at(begun).timestamp(),) * 2)
        owners[folder] = {"alice": ALICE, "bob": BOB, "squashed": 65_533}[owner]
    monkeypatch.setattr(second_writer, "uid_of", {"alice": ALICE}.get)
    monkeypatch.setattr(second_writer, "_owner", owners.get)
    state = JobState.FAILED
    failed = Job("33", "llm", "alice", state, "gpu", ("n1",), None, None, START, at(0), at(600), 1, None)
    restart = Job("37", "llm", "alice", JobState.RUNNING, "gpu", ("n1",), None, None, START, at(700), None, None, None)
    after = save_after(failed, tmp_path, ended=at(600), now=at(800))
    beside = save_beside(restart, tmp_path, before=failed, now=at(800))
    found = [text.partition(" was saved ")[0].rpartition("/")[2] for text in (after, beside)]
    assert found == [case["after"], case["beside"]]


def _save(folder: Path, name: str) -> Checkpoint:
    return Checkpoint(folder / name, 10, "torch", 64, at(0), healthy=True, problems=())


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("step_40/model.pt", True),
        ("step_40.tmp/model.pt", True),
        ("step_20/optimizer.pt", True),
        (".lock", True),
        ("train.lock", True),
        ("run.pid", True),
        ("locked.pt", False),
        ("slurm-99.out", False),
        ("eval_results.json", False),
        ("other-run_step_40/model.pt", False),  # another run's names, in a folder that several share
    ],
)
def test_what_a_writer_without_a_job_leaves_is_seen_between_two_looks(name: str, seen: bool, tmp_path: Path) -> None:
    saves = [_save(tmp_path, "step_10"), _save(tmp_path, "step_20")]
    for one in ("step_10", "step_20"):
        (tmp_path / one).mkdir()
        (tmp_path / one / "model.pt").write_bytes(b"x")
    before = files_in(tmp_path, saves)
    assert not change_between(before, files_in(tmp_path, saves))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    with (tmp_path / name).open("wb") as file:
        file.write(b"y" * 9)
        change = change_between(before, files_in(tmp_path, saves))
        assert (str(tmp_path / name) in change) is seen
        # the process that holds it is this one, which counts for nothing: another one inherits it
        with subprocess.Popen(["sleep", "60"], pass_fds=[file.fileno()], stdout=subprocess.DEVNULL) as other:
            held = open_in(tmp_path, saves)
            other.kill()
        assert (f"process {other.pid} (sleep)" in held) is seen
    assert not open_in(tmp_path, saves)


def test_a_file_that_is_only_read_is_no_sign_of_a_writer(tmp_path: Path) -> None:
    saves = [_save(tmp_path, "step_10")]
    (tmp_path / "step_10").write_bytes(b"x")
    with (tmp_path / "step_10").open("rb") as file, subprocess.Popen(["sleep", "60"], pass_fds=[file.fileno()]) as other:
        held = open_in(tmp_path, saves)
        other.kill()
    assert not held


def test_a_container_that_calls_a_folder_of_its_own_the_same_is_no_writer(tmp_path: Path) -> None:
    saves = [_save(tmp_path, "step_10")]
    script = 'mount -t tmpfs none "$1" && exec 3> "$1/step_10" && echo ready && exec sleep 60'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as container:
        ready = container.stdout.readline() if container.stdout is not None else ""
        held = open_in(tmp_path, saves)
        container.kill()
    if not ready:
        pytest.skip("no mount namespace can be made here")
    assert not held


@pytest.mark.parametrize(("changed", "seen"), [(590, False), (610, True), (90_000, False)])
def test_a_lock_counts_when_it_is_later_than_the_end_of_the_attempt(changed: int, seen: bool, tmp_path: Path) -> None:
    (tmp_path / "train.lock").touch()
    os.utime(tmp_path / "train.lock", (at(changed).timestamp(),) * 2)
    assert bool(lock_after(files_in(tmp_path, []), ended=at(600), now=at(700))) is seen
