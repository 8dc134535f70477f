"""Checkpoints of TensorFlow: which there are in a folder, what speaks against them, and what its tracker has to say."""

from __future__ import annotations

import re
import shutil
import struct
import tarfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import ToolError
from assistant.records import Event, EventKind, JobSpec
from assistant.recover.checkpoints.bundles import MAGIC, bundle_prefix, read_index
from assistant.recover.checkpoints.files import crc32c
from assistant.recover.checkpoints.inventory import Inventory, inventory
from assistant.recover.checkpoints.trackers import Tracker, checkpoint_state, state_naming
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.plan import resume_plan
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.aside import were_set_aside
from assistant.tools.checkpoints import choose_checkpoint
from assistant.tools.resubmit import resubmit_job
from tests.unit.test_aside import World

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
    root = folder / str(case.get("archive", "own"))
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
    state = checkpoint_state(state_naming(before, Path("/ckpt") / name, 1.0, moved_away=()))
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


PROGRAM = """import tensorflow as tf
step = tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
manager = tf.train.CheckpointManager(checkpoint, "ckpt", max_to_keep=2)
checkpoint.restore(manager.latest_checkpoint)
while step < 1000:
    step.assign_add(1)
    manager.save()
"""


class TensorFlowWorld(World):
    """A job of TensorFlow that failed, whose script goes on by the tracker."""

    def __init__(self, folder: Path, archive: str = "tensorflow") -> None:
        super().__init__(folder, "tracker")
        shutil.rmtree(self.saved)
        with tarfile.open(FOLDER / "real" / f"{archive}.tar.gz") as packed:
            packed.extractall(folder, filter="data")
        (folder / archive).rename(self.saved)
        (folder / "train.py").write_text(PROGRAM)
        self.cluster.plan("tf", SimulatedRun(fails_at=25), SimulatedRun())
        self.job = self.cluster.submit(JobSpec("tf", "#!/bin/bash\nsrun python train.py\n", work_dir=folder))
        self.clock.sleep(3600)
        self.tracker = self.saved / "checkpoint"
        self.incident, _ = self.store.open_incident(Event(EventKind.JOB_ENDED, self.job, None, self.clock.now()))

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.saved)) for path in self.saved.rglob("*") if path.is_file())


def test_a_job_of_tensorflow_goes_on_by_its_tracker(tmp_path: Path) -> None:
    world = TensorFlowWorld(tmp_path)
    choice = choose_checkpoint(world.context(), world.job)
    assert choice["restart_from"] == str(world.saved / "ckpt-2")
    assert (choice["step"], choice["set_aside"], choice["tracker"]) == (20, [], "")
    assert "from the checkpoint that its tracker file names" in choice["resumes"]


def test_a_tracker_that_names_a_cut_off_one_is_set_back_and_all_comes_back_by_undo(tmp_path: Path) -> None:
    world = TensorFlowWorld(tmp_path)
    data = world.saved / "ckpt-2.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:700])
    before, files = world.tracker.read_text(), world.files()
    choice = choose_checkpoint(world.context(), world.job)
    assert (choice["restart_from"], choice["tracker"]) == (str(world.saved / "ckpt-1"), str(world.tracker))
    assert choice["set_aside"] == [str(world.saved / "ckpt-2")]
    aside = world.call("set_aside_checkpoints", paths=choice["set_aside"])
    assert aside.ok, aside.error
    assert [name for name in world.files() if "ckpt-2" in name] == [
        f"nightshift-refused/{data.name}",
        "nightshift-refused/ckpt-2.index",
    ]
    with pytest.raises(ToolError, match="does not name the chosen checkpoint"):
        resubmit_job(world.context(), world.job)
    made = world.call("set_tracker", tracker=choice["tracker"], text=choice["tracker_text"])
    assert made.ok, made.error
    state = checkpoint_state(world.tracker.read_text())
    assert state is not None
    assert (state.path, state.paths, len(state.times)) == ("ckpt-1", ("ckpt-1",), 1)
    again = choose_checkpoint(world.context(), world.job)
    assert (again["set_aside"], again["tracker"], again["restart_from"]) == ([], "", str(world.saved / "ckpt-1"))
    assert resubmit_job(world.context(), world.job)["job"] != world.job
    world.clock.sleep(36_000)
    assert world.gate.undo(made.call, "cli:alice").ok
    assert world.gate.undo(aside.call, "cli:alice").ok
    assert world.tracker.read_text() == before
    assert world.files() == files


def test_a_crash_in_the_middle_of_a_prefix_is_taken_up_again(tmp_path: Path) -> None:
    world = TensorFlowWorld(tmp_path, "tensorflow-saver")
    refused = world.saved / "nightshift-refused"
    refused.mkdir()
    (world.saved / "model.ckpt-20.data-00000-of-00001").rename(refused / "model.ckpt-20.data-00000-of-00001")
    prefix = str(world.saved / "model.ckpt-20")
    assert were_set_aside(world.context(), "", world.job, [prefix]) is None
    assert world.call("set_aside_checkpoints", paths=[prefix]).ok
    assert sorted(path.name for path in refused.iterdir()) == [
        "model.ckpt-20.data-00000-of-00001",
        "model.ckpt-20.index",
        "model.ckpt-20.meta",
    ]
    answer = were_set_aside(world.context(), "", world.job, [prefix])
    assert answer is not None
    assert len(answer["paths"]) == 3


def test_a_second_prefix_of_the_same_name_comes_into_a_folder_of_its_own(tmp_path: Path) -> None:
    world = TensorFlowWorld(tmp_path)
    prefix = str(world.saved / "ckpt-2")
    raw = {path: path.read_bytes() for path in world.saved.glob("ckpt-2.*")}
    assert world.call("set_aside_checkpoints", paths=[prefix]).ok
    (world.saved / "nightshift-refused" / "ckpt-2.index").unlink()
    for path, content in raw.items():
        path.write_bytes(content)
    assert world.call("set_aside_checkpoints", paths=[prefix]).ok
    second = world.saved / "nightshift-refused" / "2"
    assert sorted(path.name for path in second.iterdir()) == ["ckpt-2.data-00000-of-00001", "ckpt-2.index"]


@pytest.mark.parametrize("name", ["ckpt-9", "ckpt", "ckpt-2.index", "checkpoint"])
def test_nothing_but_a_prefix_of_a_checkpoint_is_moved(name: str, tmp_path: Path) -> None:
    world = TensorFlowWorld(tmp_path)
    files = world.files()
    assert not world.call("set_aside_checkpoints", paths=[str(world.saved / name)]).ok
    assert world.files() == files
