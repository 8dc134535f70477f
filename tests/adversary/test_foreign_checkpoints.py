"""What another account has put among a job's checkpoints is never chosen, whatever step its name claims; nor a name for a shell."""

from __future__ import annotations

import os
import pwd
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from assistant.recover.checkpoints.inventory import examined, inventory, last_healthy
from assistant.untrusted import reading_as
from tests.adversary.test_aside_rights import home

__all__ = ["home"]  # a fixture

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ALICE = "daemon"
OWNER, MALLORY = pwd.getpwnam(ALICE).pw_uid, 4242
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of two accounts are made")
NAMES = ("step_00062-x.npz", "step_00062.x.npz", "step_00062,x,.npz", "step_00080.npz", "step_00062/weights.npz")


def write_npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, w=np.ones(200, np.float32))


def save(path: Path, uid: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o755)
    write_npz(path)
    os.utime(path, (NOW.timestamp() - 600 + len(path.name),) * 2)
    os.chown(path, uid, uid)
    if path.parent.name.startswith("step"):
        os.chown(path.parent, uid, uid)


@AS_ROOT
@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_another_account_is_refused_whatever_its_name(name: str, home: Path) -> None:
    for step in (20, 40, 60):
        save(home / f"step_{step:05}.npz", OWNER)
    save(home / name, MALLORY)
    with reading_as(ALICE):
        listing = inventory(home, now=NOW)
        choice = last_healthy(listing, now=NOW)
        assert choice.checkpoint is not None
        assert choice.checkpoint.step == 60
        (foreign,) = [checkpoint for checkpoint in listing.checkpoints if not checkpoint.healthy]
        assert f"uid {MALLORY}" in foreign.problems[0]
        assert not examined(listing, foreign, now=NOW).healthy, "also when its contents are read"


@AS_ROOT
def test_one_foreign_file_in_a_folder_spoils_that_checkpoint(home: Path) -> None:
    home.chmod(0o755)
    for step in (20, 40):
        save(home / f"step_{step}/weights.npz", OWNER)
    save(home / "step_40/extra.npz", MALLORY)
    with reading_as(ALICE):
        choice = last_healthy(inventory(home, now=NOW), now=NOW)
    assert choice.checkpoint is not None
    assert choice.checkpoint.step == 20


@AS_ROOT
def test_root_and_a_file_server_that_maps_all_to_nobody_are_trusted(home: Path) -> None:
    save(home / "a/step_00020.npz", 0)
    with reading_as(ALICE):
        assert inventory(home / "a", now=NOW).checkpoints[-1].healthy
    save(home / "b/step_00020.npz", 65534)
    with reading_as(ALICE):
        assert not inventory(home / "b", now=NOW).checkpoints[-1].healthy
    os.chown(home / "b", 65534, 65534)
    with reading_as(ALICE):
        assert inventory(home / "b", now=NOW).checkpoints[-1].healthy


@pytest.mark.parametrize("name", ["step_00062;touch x;.npz", "step_00062$(id).npz", "step_00062`id`.npz", "step_00062|x.npz"])
def test_a_name_that_a_shell_would_run_is_refused(name: str, tmp_path: Path) -> None:
    write_npz(tmp_path / "step_00060.npz")
    write_npz(tmp_path / name)
    choice = last_healthy(inventory(tmp_path, now=NOW), now=NOW)
    assert choice.checkpoint is not None
    assert choice.checkpoint.step == 60
