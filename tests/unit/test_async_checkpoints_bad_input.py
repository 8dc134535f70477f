"""AsyncCheckpointer in bad surroundings: an error that says what to do, and nothing that was saved is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assistant.recover.checkpoints.inventory import inventory
from assistant.training.checkpoints import (
    AsyncCheckpointer,
    CheckpointError,
    Damaged,
    FolderInUse,
    NewerManifest,
    OtherLayout,
    SaveFailed,
    UnsupportedState,
)
from assistant.training.checkpoints.persist import LOCK_NAME
from tests.unit.gate_world import START

ROOT = Path(__file__).parents[2]


def state(step: int) -> dict[str, Any]:
    return {"a": np.full(1000, step), "step": step}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with the checkpoints of steps 1 to 3."""
    folder = tmp_path / "checkpoints"
    with AsyncCheckpointer(folder, metrics=None, writer="thread") as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, state(step))
    return folder


@pytest.fixture(params=["process", "thread"])
def checkpoints(request: pytest.FixtureRequest, saved: Path) -> Iterator[AsyncCheckpointer]:
    made = AsyncCheckpointer(saved, keep=None, writer=request.param, metrics=None, patience_s=30)
    yield made
    made._saver._under_way = None
    made.close()


def loaded_from(folder: Path) -> tuple[int, list[str]]:
    with AsyncCheckpointer(folder, metrics=None, writer="thread", patience_s=10) as checkpoints:
        loaded = checkpoints.load_latest()
    assert loaded is not None
    assert set(loaded.state["a"]) == {loaded.step}
    return loaded.step, [refusal.reason for refusal in loaded.refused]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 4
    path.write_bytes(content)


def become_a_list(path: Path) -> None:
    path.write_text("[]")


DAMAGES: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "a shard is cut short": ("*.safetensors", cut, "bytes, its manifest says"),
    "one bit of a shard is flipped": ("*.safetensors", flip_a_bit, "is damaged: its "),
    "one bit of the tree is flipped": ("rank*.json", flip_a_bit, "is damaged: its "),
    "a shard is gone": ("*.safetensors", Path.unlink, "is missing"),
    "the manifest is cut short": ("manifest.json", cut, "cannot be understood"),
    "the manifest is empty": ("manifest.json", lambda path: os.truncate(path, 0), "cannot be understood"),
    "the manifest is a list": ("manifest.json", become_a_list, "cannot be understood"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_with_the_reason(saved: Path, what: str) -> None:
    pattern, damage, reason = DAMAGES[what]
    damage(next((saved / "iter_0000003").rglob(pattern)))
    step, reasons = loaded_from(saved)
    assert step == 2
    assert len(reasons) == 1
    assert reason in reasons[0]


def test_no_whole_checkpoint_is_an_error_and_no_fresh_start(saved: Path) -> None:
    for shard in saved.rglob("*.safetensors"):
        cut(shard)
    with pytest.raises(Damaged, match=r"no checkpoint in .* is whole: step 3: .*step 1: "):
        loaded_from(saved)


def test_a_manifest_of_a_newer_version_is_refused_here_and_by_the_recovery_side(saved: Path) -> None:
    path = saved / "iter_0000003" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "version": 3}))
    with pytest.raises(NewerManifest, match=r"is of version 3, this program knows 2: update assistant\.training"):
        loaded_from(saved)
    newest = inventory(saved, now=START).checkpoints[-1]
    assert newest.problems == ("manifest.json is of version 3, known is 2: update Nightshift, or load it with what saved it",)


def test_another_number_of_ranks_is_refused(saved: Path) -> None:
    path = saved / "iter_0000003" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "world": 4}))
    with pytest.raises(OtherLayout, match="was saved by 4 ranks and this job has 1"):
        loaded_from(saved)


@pytest.mark.parametrize(
    ("key", "value", "says"), [("layout", "zarr", "has the layout 'zarr'"), ("layout", None, "was not written by")]
)
def test_another_layout_is_refused(saved: Path, key: str, value: str | None, says: str) -> None:
    path = saved / "iter_0000003" / "manifest.json"
    said = {**json.loads(path.read_bytes()), key: value}
    path.write_text(json.dumps({name: about for name, about in said.items() if about is not None}))
    with pytest.raises(OtherLayout, match=says):
        loaded_from(saved)


def test_shards_of_another_save_are_not_taken_for_its_own(saved: Path) -> None:
    """Whoever copies files about and mends the manifest by hand does not get a mixture of two steps."""
    from assistant.training.checkpoints.arrays import read_state

    with pytest.raises(Damaged, match="belongs to another save"):
        read_state(next((saved / "iter_0000003").glob("attempt-*")), 0, "another-1")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (lambda: 1, r"state/model/bad is a builtins\.function"),
        (object(), r"state/model/bad is a builtins\.object"),
        (np.array([{}], dtype=object), "state/model/bad is an array of object"),
        ({1, 2}, r"state/model/bad is a builtins\.set"),
    ],
    ids=["function", "object", "array of objects", "set"],
)
def test_a_state_that_cannot_be_saved_names_the_place_and_writes_nothing(
    checkpoints: AsyncCheckpointer, bad: object, says: str
) -> None:
    with pytest.raises(UnsupportedState, match=says):
        checkpoints.save(4, {"model": {"bad": bad}})
    assert not (checkpoints.root / "iter_0000004").exists()
    checkpoints.save(4, state(4))
    checkpoints.flush()
    assert (checkpoints.root / "iter_0000004" / "manifest.json").exists()


def test_two_writers_of_one_folder_are_refused_with_who_holds_it(checkpoints: AsyncCheckpointer) -> None:
    for writer in ("process", "thread"):
        with pytest.raises(FolderInUse, match=r"is written by pid \d+ on .*: two runs must not save into one folder"):
            AsyncCheckpointer(checkpoints.root, writer=writer, metrics=None, patience_s=0.1)
    checkpoints.save(4, state(4))
    checkpoints.flush()


@pytest.mark.parametrize(
    ("holder", "how"),
    [
        ({"pid": 1, "boot": "another boot", "host": None}, "this machine was started anew"),
        ({"pid": 2**22 + 1, "boot": "ours", "host": None}, "its process is dead"),
        ({}, "it was given back"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_lock_that_nobody_holds_any_more_is_taken(saved: Path, holder: dict[str, Any], how: str) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    if holder:
        holder = {**holder, "host": os.uname().nodename, "boot": boot if holder["boot"] == "ours" else holder["boot"]}
    (saved / LOCK_NAME).write_text(json.dumps(holder))
    assert loaded_from(saved)[0] == 3, how


def test_another_hosts_lock_counts_while_it_beats(saved: Path) -> None:
    (saved / LOCK_NAME).write_text(json.dumps({"pid": 1, "boot": "elsewhere", "host": "another"}))
    over = threading.Event()

    def beat() -> None:
        while not over.wait(0.05):
            os.utime(saved / LOCK_NAME)

    beating = threading.Thread(target=beat)
    beating.start()
    with pytest.raises(FolderInUse, match="pid 1 on another"):
        AsyncCheckpointer(saved, writer="thread", metrics=None, patience_s=0.2)
    over.set()
    beating.join()


def test_a_folder_that_vanishes_is_an_error_of_the_next_call_with_its_step(checkpoints: AsyncCheckpointer, tmp_path: Path) -> None:
    checkpoints.root.rename(tmp_path / "elsewhere")
    checkpoints.save(4, state(4))
    with pytest.raises(SaveFailed, match=r"checkpoint of step 4 was not saved: .*is gone .*is the file system mounted\?") as failed:
        checkpoints.save(5, state(5))
    assert failed.value.step == 4
    checkpoints.root.mkdir()
    checkpoints.save(5, state(5))
    with pytest.raises(SaveFailed, match="step 5 was not saved"):
        checkpoints.flush()
    assert not list(checkpoints.root.glob("iter_*")), "nothing may be written below a mount point that is empty"
    checkpoints.root.rmdir()
    (tmp_path / "elsewhere").rename(checkpoints.root)
    checkpoints.save(6, state(6))
    checkpoints.flush()
    assert checkpoints.saves.committed == 1


def test_a_storage_that_does_not_answer_is_an_error_and_the_save_still_comes(saved: Path) -> None:
    with AsyncCheckpointer(saved, metrics=None, patience_s=0.3) as checkpoints:
        hand: Any = checkpoints._saver._hand
        os.kill(hand.pid, signal.SIGSTOP)
        checkpoints.save(4, state(4))
        with pytest.raises(
            SaveFailed, match="step 4 was not saved: it is still being written after 0 seconds: the storage does not"
        ):
            checkpoints.save(5, state(5))
        os.kill(hand.pid, signal.SIGCONT)
        refused = []
        for _ in range(100):
            try:
                checkpoints.save(6, state(6))
                break
            except SaveFailed as error:
                refused.append(error.step)
        assert set(refused) <= {4}
    assert loaded_from(saved)[0] == 6
    assert (saved / "iter_0000004").exists()


def test_a_writer_that_is_killed_is_an_error_with_the_step(saved: Path) -> None:
    checkpoints = AsyncCheckpointer(saved, metrics=None)
    hand: Any = checkpoints._saver._hand
    os.kill(hand.pid, signal.SIGSTOP)
    checkpoints.save(4, state(4))
    os.kill(hand.pid, signal.SIGKILL)
    with pytest.raises(SaveFailed, match=r"step 4 was not saved: the writer process \(pid \d+\) is gone"):
        checkpoints.save(5, state(5))
    checkpoints.close()
    assert loaded_from(saved) == (3, [])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", folder], check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("writer", ["process", "thread"])
def test_a_full_disk_refuses_the_new_and_keeps_the_old(small_disk: Path, writer: str) -> None:
    with AsyncCheckpointer(small_disk / "c", keep=1, writer=writer, metrics=None) as checkpoints:
        checkpoints.save(1, {"a": np.full(200_000, 1)})
        checkpoints.save(2, {"a": np.full(400_000, 2)})
        with pytest.raises(
            SaveFailed, match=r"step 2 .* the disk is full: it takes [\d,]+ bytes, .* has [\d,]+; older .* were kept"
        ):
            checkpoints.flush()
        assert [path.name for path in (small_disk / "c").glob("iter_*")] == ["iter_0000001"]
        checkpoints.save(3, {"a": np.full(100, 3)})
        loaded = checkpoints.load_latest()
    assert loaded is not None
    assert loaded.step == 3


def test_a_disk_that_fills_up_while_it_is_written_keeps_the_old(small_disk: Path) -> None:
    with AsyncCheckpointer(small_disk / "c", keep=1, metrics=None) as checkpoints:
        checkpoints.save(1, {"a": np.zeros(10)})
        checkpoints.flush()
        hand: Any = checkpoints._saver._hand
        subprocess.run(["mount", "-o", "remount,nr_inodes=8", small_disk], check=True)
        checkpoints.save(2, {"a": np.zeros(10)})
        with pytest.raises(SaveFailed, match=r"step 2 was not saved: the disk is full \(No space left on device"):
            checkpoints.flush()
        assert hand.pid
        loaded = checkpoints.load_latest()
    assert loaded is not None
    assert loaded.step == 1


@pytest.mark.parametrize(
    "arguments",
    [{"keep": 0}, {"every": -1}, {"keep_every": -1}, {"writer": "fork"}, {"rank": 3, "world": 2}],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"keep is 1 or more|is none of a world"):
        AsyncCheckpointer(tmp_path / "c", **arguments)
    assert not (tmp_path / "c").exists()


def test_a_path_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "c").touch()
    for writer in ("process", "thread"):
        with pytest.raises(CheckpointError, match="File exists"):
            AsyncCheckpointer(tmp_path / "c", writer=writer)


def test_checkpoints_of_other_programs_in_the_folder_are_left_alone(saved: Path) -> None:
    megatron, demo = saved / "iter_0000000", saved / "iter_0000009"
    (megatron / "mp_rank_00").mkdir(parents=True)
    (megatron / "mp_rank_00" / "model_optim_rng.pt").write_bytes(b"x")
    demo.mkdir()
    (demo / "manifest.json").write_text('{"format": "nightshift", "version": 1, "step": 9, "world": 1, "files": {}}')
    with AsyncCheckpointer(saved, keep=1, metrics=None) as checkpoints:
        checkpoints.save(4, state(4))
        checkpoints.flush()
    assert (megatron / "mp_rank_00" / "model_optim_rng.pt").exists()
    assert (demo / "manifest.json").exists()
    assert loaded_from(saved)[0] == 4


def test_the_checkpointer_needs_neither_numpy_nor_torch_nor_anything_of_ours_to_be_imported() -> None:
    program = (
        "import sys; import assistant.training.checkpoints, assistant.training.checkpoints.writer\n"
        "ours = [n for n in sys.modules if n.startswith('assistant') and not n.startswith('assistant.training')]\n"
        "print(ours, [n for n in ('numpy', 'torch', 'xxhash') if n in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said == "['assistant'] []\n"


def test_a_foreign_folder_is_never_emptied(saved: Path) -> None:
    shutil.rmtree(saved / "iter_0000003" / next((saved / "iter_0000003").glob("attempt-*")).name)
    (saved / "iter_0000003" / "manifest.json").write_text("{")
    (saved / "iter_0000003" / "attempt-00000000aa-9").mkdir()
    (saved / "iter_0000003" / "attempt-00000000aa-9" / "rank00000.json").write_text("{}")
    assert loaded_from(saved)[0] == 2
    assert (saved / "iter_0000003" / "attempt-00000000aa-9" / "rank00000.json").exists(), "its manifest may be mended by hand"
