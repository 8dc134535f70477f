"""Files that are written in turn are held against one another where the log shows that they are; no log, no turns."""

from __future__ import annotations

import os
import random
import tomllib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.recover.checkpoints.inventory import last_healthy
from assistant.recover.checkpoints.search import SaveState, search_checkpoints
from assistant.recover.checkpoints.slots import former_of, groups_of
from tests.unit.test_strangers_runs import BEGAN, ENDED, job

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "cases" / "checkpoints" / "slots.toml").read_text("utf-8")
)["case"]


def write(folder: Path, name: str, size: int, minutes: float, begin: str = "LJRST01\n", end: str = "", zeros: int = 0) -> None:
    """Write a file of a program's own form as if so many minutes after the job began."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    chance = random.Random(name)
    body = begin.encode() + bytes(chance.randint(1, 255) for _ in range(size - len(begin) - len(end) - zeros))
    path.write_bytes(body + bytes(zeros) + end.encode())
    at = (BEGAN + timedelta(minutes=minutes)).timestamp()
    os.utime(path, (at, at))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_slots_are_judged_by_each_other(case: dict[str, Any], tmp_path: Path) -> None:
    for file in case["files"]:
        write(tmp_path, *file)
    shown = replace(job(tmp_path, "./md input"), dated_logs=True)
    search = search_checkpoints(shown, {}, case["log"], now=ENDED)
    if search.inventory is None:
        assert not case["chosen"], search.note
        assert search.state is not SaveState.NEVER_SAVED
        return
    choice = last_healthy(search.inventory, now=ENDED)
    assert (choice.checkpoint.path.name if choice.checkpoint is not None else "") == case["chosen"], search.inventory.checkpoints
    if choice.checkpoint is not None:
        assert choice.checkpoint.step == case["step"]
        assert case["why"] in "; ".join(choice.refused[0].problems)


@pytest.mark.parametrize(
    ("name", "main"),
    [("md.chk.bak", "md.chk"), ("state_prev.cpt", "state.cpt"), ("old-restart.dat", "restart.dat"), ("x.rst~", "x.rst"),
     ("bak", ""), ("restart.A", ""), ("older", ""), ("restart_last.dat", "")],
)  # fmt: skip
def test_a_former_one_is_told_by_its_word(name: str, main: str) -> None:
    assert former_of(name) == main


def test_names_that_differ_in_more_than_a_slot_are_no_group() -> None:
    assert groups_of(["restart.A", "restart.B", "wave.A", "mesh.h5"]) == [["restart.A", "restart.B"]]
    assert groups_of(["restartA.dat", "restartB.dat"]) == [["restartA.dat", "restartB.dat"]]
    assert groups_of([f"chk.{letter}" for letter in "abcd0"]) == []
