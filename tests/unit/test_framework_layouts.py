"""Folders as frameworks leave them: what is found in them, and what a restart needs so that the chosen checkpoint is loaded."""

from __future__ import annotations

import pickle
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.recover.checkpoints.forms import file_problem
from assistant.recover.checkpoints.inventory import Inventory, inventory
from assistant.recover.checkpoints.layout import entries
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.plan import resume_plan

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "cases" / "checkpoints" / "layouts.toml").read_text("utf-8")
)["case"]
NOW = datetime(2030, 3, 1, 3, 0, tzinfo=UTC)


def hdf5(size: int, version: int = 0) -> bytes:
    """Return the bytes of an HDF5 file of a size, as its superblock says it."""
    place, width = {0: (40, 13), 1: (44, 13), 2: (28, 9), 3: (28, 9)}[version]
    raw = bytearray(b"\x89HDF\r\n\x1a\n" + bytes([version]) + bytes(size - 9))
    raw[width] = 8
    raw[place : place + 8] = size.to_bytes(8, "little")
    return bytes(raw)


def lay_out(case: dict[str, Any], folder: Path) -> Inventory:
    for name, text in case["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".h5":
            path.write_bytes(hdf5(200)[: int(text or 200)])
            continue
        if text or path.suffix not in (".pt", ".pth", ".ckpt", ".safetensors"):
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
    facts = {name: case[name] for name in ("path", "prefix", "ending", "steered", "destroys", "takes_unfinished") if name in case}
    way = ResumeWay(ResumeMeans(case["means"]), "its options", **facts)
    plan = resume_plan(way, held, next(one for one in held.checkpoints if one.step == case["chosen"]))
    assert case.get("refusal", "") in plan.refusal
    assert bool(plan.refusal) == ("refusal" in case), plan.refusal
    assert plan.ready == case.get("ready", False)
    assert plan.tracker_text == case.get("tracker", "")
    assert [path.name for path in plan.set_aside] == case.get("aside", [])
    if "tracker_file" in case:
        assert plan.tracker == tmp_path / case["tracker_file"]


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize(
    ("left", "part"), [(0, ""), (7, "does not begin"), (40, "cannot hold"), (64, "needs 4,096"), (4095, "needs 4,096")]
)
def test_a_torn_hdf5_file_is_told_by_its_superblock(version: int, left: int, part: str, tmp_path: Path) -> None:
    path = tmp_path / "latest.weights.h5"
    path.write_bytes(hdf5(4096, version)[: left or 4096])
    problem = file_problem(path) or ""
    assert part in problem
    assert bool(problem) == bool(part)


def test_an_hdf5_file_of_an_unknown_version_is_not_accused(tmp_path: Path) -> None:
    path = tmp_path / "latest.weights.h5"
    path.write_bytes(hdf5(4096)[:8] + b"\x09" + bytes(80))
    assert file_problem(path) is None


@pytest.mark.parametrize("name", ["ckpt.pt", "last.ckpt", "model_latest.pth"])
def test_of_a_torn_file_its_damage_is_said_first(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"iter_num": 60}))
        archive.writestr("archive/data/0", bytes(5000))
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:3000])
    (torn,) = inventory(tmp_path, now=NOW).checkpoints
    assert "was cut short" in torn.problems[0]
    assert "tells its step neither" in torn.problems[-1]


OWN_FORMS: tuple[tuple[str, dict[str, bytes], str | None], ...] = (
    ("iter_0000020", {"model.pkl": pickle.dumps({"w": [1.0] * 9}), "COMPLETE": b""}, "plain"),
    ("iter_0000020", {"weights.f64": b"x" * 80, "state.json": b'{"iter": 20}', "COMPLETE": b""}, None),
    ("iter_0000020", {"sample_0.png": b"x"}, None),
    ("checkpoint-20", {"model.bin": pickle.dumps([1.0] * 9), "optimizer.pt": pickle.dumps([1.0])}, "plain"),
    ("checkpoint-20", {"weights.npy": b"x" * 80, "state.json": b'{"step": 20}'}, "plain"),
    ("checkpoint-20", {"model.safetensors": b"x" * 80}, "huggingface"),
    ("checkpoint-20", {"pytorch_model-00001-of-00002.bin": b"x" * 80}, "huggingface"),
    ("iter_0000020", {"mp_rank_00/model_optim_rng.pt": b"x"}, "megatron"),
    ("iter_0000020", {"common.pt": b"x"}, "megatron"),
    ("step-20", {"weights.pt": b"x"}, "plain"),
)


@pytest.mark.parametrize(("name", "files", "layout"), OWN_FORMS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_folder_is_of_a_framework_only_where_one_of_its_files_is(
    name: str, files: dict[str, bytes], layout: str | None, tmp_path: Path
) -> None:
    for inner, content in files.items():
        path = tmp_path / name / inner
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert [entry.format.value for entry in entries(tmp_path)] == ([layout] if layout else [])


@pytest.mark.parametrize(
    ("form", "name", "steps", "layout"),
    [
        ("global_step{}", "zero_pp_rank_{}_mp_rank_00_optim_states.pt", (10, 20, 30), "plain"),
        ("global_step{}", "zero_pp_rank_{}_mp_rank_00_optim_states.pt", (30,), "deepspeed"),
        ("checkpoint-{}", "pytorch_model_{}.bin", (10, 20, 30), "plain"),
        ("checkpoint-{}", "pytorch_model_{}.bin", (20,), "huggingface"),
    ],
)
def test_saves_that_all_lack_what_a_framework_never_leaves_out_are_of_a_program_of_ones_own(
    form: str, name: str, steps: tuple[int, ...], layout: str, tmp_path: Path
) -> None:
    for step in steps:
        for rank in (0, 1):
            path = tmp_path / form.format(step) / name.format(rank)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(pickle.dumps({"step": step, "weights": [0.5 * step] * 50}))
    assert {entry.format.value for entry in entries(tmp_path)} == {layout}
    if layout == "plain":
        torn = tmp_path / form.format(steps[-1]) / name.format(1)
        torn.write_bytes(torn.read_bytes()[:90])
        healthy = [checkpoint.step for checkpoint in inventory(tmp_path, now=NOW, live=False).checkpoints if checkpoint.healthy]
        assert healthy == list(steps[:-1])
