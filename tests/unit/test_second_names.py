"""One checkpoint under two names: hard links, copies, links, and the same state saved twice; and names that only look so."""

from __future__ import annotations

import os
import pickle
import shutil
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.recover.checkpoints.inventory import Inventory, inventory, last_healthy
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.plan import resume_plan

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "cases" / "checkpoints" / "second_names.toml").read_text("utf-8")
)["case"]
NOW = datetime(2030, 3, 1, 3, 0, tzinfo=UTC)
WRITTEN = 1_800_000_000


def save(path: Path, text: str) -> None:
    """Write a file as PyTorch does: a zip with a folder that is called as the file."""
    held = {key: int(value) for key, value in (word.split("=") for word in text.split())}
    root = path.name.partition(".")[0]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{root}/data.pkl", pickle.dumps({key: value for key, value in held.items() if key != "seed"}))
        archive.writestr(f"{root}/data/0", bytes([held.get("seed", 0)]) * 4096)
        archive.writestr(f"{root}/.data/serialization_id", root)


def lay_out(case: dict[str, Any], folder: Path) -> Inventory:
    for name, text in case["files"].items():
        path, cut = folder / name, text.startswith("!")
        text = text.removeprefix("!")
        path.parent.mkdir(exist_ok=True)
        if text.startswith(" -> "):
            path.symlink_to(text[4:])
        elif text.startswith("= "):
            path.hardlink_to(folder / text[2:])
        elif text.startswith("~ "):
            shutil.copy2(folder / text[2:], path)
        else:
            save(path, text)
            os.utime(path, (WRITTEN, WRITTEN))
        if cut:
            path.write_bytes(path.read_bytes()[:-30])
    return inventory(folder, now=NOW)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_another_name_of_a_checkpoint_is_told(case: dict[str, Any], tmp_path: Path) -> None:
    held = lay_out(case, tmp_path)
    assert {path.name: own.name for path, own in held.second_names.items()} == case["names"]
    assert [one.step for one in held.checkpoints] == case["steps"]
    if case.get("epochs"):
        assert {one.format for one in held.checkpoints} == {"epochs"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_who_loads_another_name_loads_the_checkpoint(case: dict[str, Any], tmp_path: Path) -> None:
    held = lay_out(case, tmp_path)
    way = ResumeWay(ResumeMeans.NEWEST, "--resume", picks=tuple(str(tmp_path / pick) for pick in case.get("picks", ())))
    if "fixed" in case:
        way = ResumeWay(ResumeMeans.FIXED, "--resume", str(tmp_path / case["fixed"]))
    chosen = last_healthy(held, now=NOW).checkpoint
    assert chosen is not None
    assert chosen.step == case["chosen"]
    assert chosen.path.name not in case["names"]
    plan = resume_plan(way, held, chosen)
    assert plan.ready == case.get("ready", False), plan
    assert case.get("refusal", "") in plan.refusal, plan.refusal
    assert bool(plan.refusal) == ("refusal" in case), plan.refusal
    assert [path.name for path in plan.set_aside] == case.get("aside", [])


def test_a_second_name_tells_the_step_that_the_checkpoint_tells(tmp_path: Path) -> None:
    case = {"files": {"step_40.pt": "seed=4", "step_50.pt": "seed=5", "last.pt": "= step_50.pt"}}
    held = lay_out(case, tmp_path)
    assert [(one.path.name, one.step, one.healthy) for one in held.checkpoints] == [
        ("step_40.pt", 40, True), ("last.pt", 50, True), ("step_50.pt", 50, True)
    ]  # fmt: skip
