"""Checkpoints of TensorFlow: which there are in a folder, what speaks against them, and what its tracker has to say."""

from __future__ import annotations

import re
import struct
import tarfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.recover.checkpoints.bundles import MAGIC, bundle_prefix, read_index
from assistant.recover.checkpoints.files import crc32c
from assistant.recover.checkpoints.inventory import Inventory, inventory
from assistant.recover.checkpoints.trackers import Tracker, checkpoint_state, state_naming
from assistant.recover.resume_means import ResumeMeans, ResumeWay
from assistant.recover.resume_plan import resume_plan

FOLDER = Path(__file__).parents[1] / "cases" / "checkpoints"
CASES: list[dict[str, Any]] = tomllib.loads((FOLDER / "tensorflow.toml").read_text("utf-8"))["case"]
NOW = datetime(2030, 3, 1, 3, 0, tzinfo=UTC)


def block(content: bytes, packing: int = 0) -> bytes:
    """Return a block of a table with its trailer."""
    crc = crc32c(content + bytes([packing]))
    return content + struct.pack("<BI", packing, ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def table(packing: int) -> bytes:
    """Return a table with one block of one key, packed as told."""
    rows = b"\x00\x03\x03keyrow" + struct.pack("<II", 0, 1)
    first = block(rows, packing)
    handles = b"\x00\x03\x02key" + bytes([0, len(rows)]) + struct.pack("<II", 0, 1)
    second = block(handles)
    footer = bytes([0, 0, len(first), len(handles)])
    return first + second + footer.ljust(40, b"\0") + MAGIC


def content_of(text: str, originals: dict[str, bytes]) -> bytes:
    if text in ("packed", "table"):
        return table(1 if text == "packed" else 0)
    if match := re.fullmatch(r"(?:cut:(\d+))?=(.+)", text):
        return originals[match[2]][: int(match[1]) if match[1] else None]
    return text.encode()


def laid_out(case: dict[str, Any], folder: Path) -> Path:
    root = folder / case.get("archive", "own")
    root.mkdir()
    if "archive" in case:
        with tarfile.open(FOLDER / "real" / f"{case['archive']}.tar.gz") as packed:
            packed.extractall(folder, filter="data")
    originals = {path.name: path.read_bytes() for path in root.iterdir()}
    for name, text in case.get("files", {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content_of(text, originals))
    for name in case.get("gone", ()):
        (root / name).unlink()
    return root


def plan_text(case: dict[str, Any], before: str) -> str:
    """Return a tracker as a case writes it: lines end with a bar, and T1 and T0 are times of the file before."""
    times = re.findall(r"timestamps?: (\S+)", before)
    text = str(case.get("tracker", "")).replace("|", "\n")
    return text.replace("T1", times[0]).replace("T0", times[-1]) if times else text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_folder_of_tensorflow_is_understood(case: dict[str, Any], tmp_path: Path) -> None:
    held = inventory(laid_out(case, tmp_path), now=NOW)
    found = {one.path.name: one for one in held.checkpoints}
    assert sorted(found) == sorted(case["names"])
    assert [found[name].step for name in case["names"]] == case["steps"]
    if "whole" in case:
        assert [one.step for one in held.checkpoints if one.healthy] == case["whole"], held.checkpoints
    if "problem" in case:
        assert any(case["problem"] in problem for problem in held.checkpoints[-1].problems), held.checkpoints
    if "note" in case:
        assert any(case["note"] in note for note in held.notes), held.notes


def planned(case: dict[str, Any], held: Inventory) -> Any:
    way = ResumeWay(ResumeMeans.TRACKER, "its source")
    return resume_plan(way, held, next(one for one in held.checkpoints if one.step == case["chosen"]))


@pytest.mark.parametrize("case", [case for case in CASES if "chosen" in case], ids=lambda case: case["name"])
def test_the_tracker_is_set_to_what_was_chosen(case: dict[str, Any], tmp_path: Path) -> None:
    root = laid_out(case, tmp_path)
    held = inventory(root, now=NOW)
    before = held.tracker.content if held.tracker is not None else ""
    plan = planned(case, held)
    assert case.get("refusal", "") in plan.refusal
    assert bool(plan.refusal) == ("refusal" in case), plan.refusal
    assert plan.ready == case.get("ready", False)
    assert [path.name for path in plan.set_aside] == case.get("aside", [])
    assert plan.tracker_text == plan_text(case, before)
    if plan.tracker is not None:
        plan.tracker.write_text(plan.tracker_text)
        for path in plan.set_aside:
            for file in root.glob(f"{path.name}.*"):
                file.unlink()
        again = inventory(root, now=NOW)
        assert planned(case, again).ready, again.notes


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('model_checkpoint_path: "ckpt-7"', "ckpt-7"),
        ('model_checkpoint_path: "/ckpt/a b/ckpt-7"\nlast_preserved_timestamp: 1.5e9\n', "/ckpt/a b/ckpt-7"),
        ("model_checkpoint_path : 'it\\'s'", "it's"),
        ('model_checkpoint_path: "a\\303\\244\\x41\\\\"', "aäA\\"),
        ('model_checkpoint_path: "a" "b"', "ab"),
        ('model_checkpoint_path: "a" model_checkpoint_path: "b"', "b"),
        ('# ckpt-9\nmodel_checkpoint_path: "a"; all_model_checkpoint_paths: "b",', "a"),
        ("", None),
        ("model_chec", None),
        ('model_checkpoint_path: "ckpt-7', None),
        ("model_checkpoint_path: 3", None),
        ('model_checkpoint_path: ""', None),
        ('model_checkpoint_path: "a"\nunknown: 3', None),
        ('all_model_checkpoint_paths: "a"', None),
        ('{"model_checkpoint_path": "a"}', None),
    ],
)
def test_a_tracker_is_read_as_tensorflow_reads_it(text: str, path: str | None) -> None:
    state = checkpoint_state(text)
    assert (state.path if state is not None else None) == path


@pytest.mark.parametrize("name", ["ckpt-7", 'quo"te-1', "back\\slash-2", "a b-3", "ä-4"])
def test_what_is_written_into_a_tracker_is_read_out_of_it(name: str) -> None:
    before = Tracker(
        Path("/ckpt/checkpoint"), None, "/ckpt/x-1", 'model_checkpoint_path: "/ckpt/x-1"\nall_model_checkpoint_paths: "/ckpt/x-1"\n'
    )
    state = checkpoint_state(state_naming(before, Path("/ckpt") / name, 1.0, gone=()))
    assert state is not None
    assert state.path == f"/ckpt/{name}"
    assert state.paths == ("/ckpt/x-1", f"/ckpt/{name}")


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("ckpt-7.index", "ckpt-7"),
        ("ckpt-7.data-00000-of-00001", "ckpt-7"),
        ("model.ckpt-5000.data-00003-of-00016", "model.ckpt-5000"),
        ("cp-0004.ckpt.index", "cp-0004.ckpt"),
        ("epoch_3.index", "epoch_3"),
        ("ckpt-7.meta", ""),
        ("x.index", ""),
        ("index", ""),
        ("train-00010.index", ""),
        ("variables.index", ""),
        ("data-00000-of-00001.arrow", ""),
        ("train-00000-of-00010", ""),
        ("events.out.tfevents.17.host", ""),
    ],
)
def test_names_of_files_of_a_checkpoint(name: str, prefix: str) -> None:
    assert bundle_prefix(name) == prefix


@pytest.mark.parametrize("seed", range(8))
def test_no_bytes_make_the_reader_of_an_index_fail(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "ckpt-1.index"
    body = bytes((seed * 37 + place * place * 11) & 255 for place in range(200))
    for end in (200, 90, 3):
        path.write_bytes(body[:end] + body[:40] + MAGIC)
        index = read_index(path)
        assert index.damage or index.shards is None
    path.write_bytes(table(0)[:-48] + (b"\xff" * 9 + b"\x7f") * 4 + MAGIC)
    assert read_index(path).damage
