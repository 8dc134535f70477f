"""Who saves into the folder of a run, by times and owners of what lies there; cases as files."""

from __future__ import annotations

import os
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Job, JobState
from assistant.recover import second_writer
from assistant.recover.second_writer import save_after, save_beside

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
