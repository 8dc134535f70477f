"""Folders as frameworks leave them: what is found in them, and what a restart needs so that the chosen checkpoint is loaded."""

from __future__ import annotations

import pickle
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.recover.checkpoints.inventory import Inventory, inventory
from assistant.recover.resume_means import ResumeMeans, ResumeWay
from assistant.recover.resume_plan import resume_plan

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "cases" / "checkpoints" / "layouts.toml").read_text("utf-8")
)["case"]
NOW = datetime(2030, 3, 1, 3, 0, tzinfo=UTC)


def lay_out(case: dict[str, Any], folder: Path) -> Inventory:
    for name, text in case["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text or path.suffix not in (".pt", ".pth", ".safetensors"):
            path.write_text(text or "x")
            continue
        if path.suffix == ".safetensors":
            path.write_bytes(b"\x02\0\0\0\0\0\0\0{}")
            continue
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps({"weights": 1}))
    return inventory(folder, now=NOW)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_folder_of_a_framework_is_understood(case: dict[str, Any], tmp_path: Path) -> None:
    held = lay_out(case, tmp_path)
    assert [one.step for one in held.checkpoints] == case["steps"], held
    if "whole" in case:
        assert [one.step for one in held.checkpoints if one.healthy] == case["whole"], held.checkpoints
    if "problem" in case:
        assert any(case["problem"] in problem for problem in held.checkpoints[-1].problems), held.checkpoints


@pytest.mark.parametrize("case", [case for case in CASES if "means" in case], ids=lambda case: case["name"])
def test_a_restart_over_it_loads_what_was_chosen_or_is_refused(case: dict[str, Any], tmp_path: Path) -> None:
    held = lay_out(case, tmp_path)
    facts = {name: case[name] for name in ("path", "ending", "steered", "destroys") if name in case}
    way = ResumeWay(ResumeMeans(case["means"]), "its options", **facts)
    plan = resume_plan(way, held, next(one for one in held.checkpoints if one.step == case["chosen"]))
    assert case.get("refusal", "") in plan.refusal
    assert bool(plan.refusal) == ("refusal" in case), plan.refusal
    assert plan.ready == case.get("ready", False)
    assert plan.tracker_text == case.get("tracker", "")
    assert [path.name for path in plan.set_aside] == case.get("aside", [])
    if "tracker_file" in case:
        assert plan.tracker == tmp_path / case["tracker_file"]
