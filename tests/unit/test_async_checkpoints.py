"""AsyncCheckpointer with NumPy: what is saved comes back as it was, in the background, by both kinds of writer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.logs.lines import Line
from assistant.logs.metrics import metric_points
from assistant.recover.checkpoints.inventory import inventory, last_healthy
from assistant.training.checkpoints import AsyncCheckpointer
from assistant.training.checkpoints.arrays import ArraySketch
from assistant.training.checkpoints.persist import to_delete
from assistant.training.checkpoints.protocol import HostBuffer
from assistant.training.heartbeat import Heartbeat
from tests.unit.gate_world import START

ROOT = Path(__file__).parents[2]


def state_of(step: int) -> dict[str, Any]:
    return {
        "weights": np.full((30, 40), step, dtype=np.float32),
        "moments": {0: (np.arange(5) * step, np.float64(step)), 1: [np.array([], dtype=np.int8), np.array(7, dtype=">i4")]},
        "phases": np.array([1 + 2j, step]),
        "plain": ["text", 3, 2.5, True, None, b"\x00\xff", {"$odd": 1}, float("inf")],
    }


def same(left: Any, right: Any) -> bool:
    """Tell whether two states are equal in values and kinds."""
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and left.dtype == right.dtype
            and left.shape == right.shape
            and bool((left == right).all())
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@pytest.fixture(params=["process", "thread"])
def checkpoints(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AsyncCheckpointer]:
    with AsyncCheckpointer(tmp_path / "checkpoints", every=2, keep=2, writer=request.param, metrics=None) as made:
        yield made


def steps_in(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("iter_")) for path in folder.glob("iter_*"))


def test_what_is_saved_comes_back_as_it_was(checkpoints: AsyncCheckpointer) -> None:
    assert checkpoints.load_latest() is None
    checkpoints.save(7, state_of(7))
    loaded = checkpoints.load_latest()
    assert loaded is not None
    assert (loaded.step, loaded.refused) == (7, ())
    assert same(loaded.state, state_of(7))


def test_a_snapshot_does_not_change_when_training_goes_on_at_once(checkpoints: AsyncCheckpointer) -> None:
    state = {"weights": np.zeros(2_000_000)}
    for step in range(1, 4):
        state["weights"] += 1
        checkpoints.save(step, state)
        state["weights"] += 0.5
        state["weights"] -= 0.5
    state["weights"] += 100
    loaded = checkpoints.load_latest()
    assert loaded is not None
    assert set(loaded.state["weights"]) == {3.0}


def test_it_saves_each_time_that_is_due_and_keeps_the_last(checkpoints: AsyncCheckpointer) -> None:
    assert [checkpoints.step(step, lambda: {"step": np.array(1)}) for step in range(1, 10)] == [False] * 9
    checkpoints.flush()
    assert steps_in(checkpoints.root) == [6, 8]
    assert checkpoints.saves.count == checkpoints.saves.committed == 4


def test_a_state_of_another_shape_is_laid_out_anew(checkpoints: AsyncCheckpointer) -> None:
    for step, size in enumerate((10, 10, 200_000, 3), 1):
        checkpoints.save(step, {"a": np.full(size, step)})
        loaded = checkpoints.load_latest()
        assert loaded is not None
        assert loaded.state["a"].tolist() == [step] * size


def test_a_step_that_is_saved_again_is_what_counts(checkpoints: AsyncCheckpointer) -> None:
    checkpoints.save(4, {"a": np.array(1)})
    checkpoints.save(4, {"a": np.array(2)})
    loaded = checkpoints.load_latest()
    assert loaded is not None
    assert loaded.state["a"] == 2
    assert len(list(loaded.path.glob("attempt-*"))) == 1


def test_the_recovery_side_knows_verifies_and_chooses_them(checkpoints: AsyncCheckpointer) -> None:
    for step in (2, 4):
        checkpoints.save(step, state_of(step))
    checkpoints.flush()
    (checkpoints.root / "iter_0000006" / "attempt-00000000aa-3").mkdir(parents=True)
    (checkpoints.root / "iter_0000006" / "attempt-00000000aa-3" / "rank00000.safetensors").write_bytes(b"half")
    found = inventory(checkpoints.root, now=START)
    assert [(one.step, one.format, one.healthy) for one in found.checkpoints] == [
        (2, "nightshift", True),
        (4, "nightshift", True),
        (6, "nightshift", False),
    ]
    assert "has no manifest.json" in found.checkpoints[2].problems[0]
    shard = next((checkpoints.root / "iter_0000004").rglob("*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    choice = last_healthy(found, now=START)
    assert choice.checkpoint is not None
    assert choice.checkpoint.step == 2
    assert "is damaged" in choice.refused[1].problems[0]


def test_waiting_for_the_save_before_is_counted(tmp_path: Path) -> None:
    with AsyncCheckpointer(tmp_path, metrics=None) as checkpoints:
        checkpoints.save(1, {"a": np.zeros(10)})
        checkpoints.flush()
        assert (checkpoints.saves.waits, checkpoints.saves.waited_s) == (0, 0.0)
        os.kill(writer_of(checkpoints), signal.SIGSTOP)
        checkpoints.save(2, {"a": np.zeros(10)})
        threading.Timer(0.3, os.kill, (writer_of(checkpoints), signal.SIGCONT)).start()
        blocked_s = checkpoints.save(3, {"a": np.zeros(10)})
        assert checkpoints.saves.waits == 1
        assert 0.1 < checkpoints.saves.waited_s <= blocked_s
    manifest = json.loads((tmp_path / "iter_0000003" / "manifest.json").read_bytes())
    assert manifest["save"]["wait_s"] == pytest.approx(checkpoints.saves.waited_s, abs=0.01)


def writer_of(checkpoints: AsyncCheckpointer) -> int:
    hand: Any = checkpoints._saver._hand
    return int(hand.pid)


def test_a_trainer_that_is_killed_leaves_its_last_snapshot_to_the_writer(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, numpy as np; from assistant.training.checkpoints import AsyncCheckpointer\n"
        f"c = AsyncCheckpointer({str(tmp_path)!r}, metrics=None); c.save(1, {{'a': np.arange(9)}}); c.flush()\n"
        "os.kill(c._saver._hand.pid, signal.SIGSTOP); c.save(2, {'a': np.arange(4_000_000)})\n"
        "print(c._saver._hand.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    # the writer has the trainer's stderr, which would keep a pipe open
    quiet: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    trainer = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, **quiet)
    assert trainer.returncode == -signal.SIGKILL
    assert steps_in(tmp_path) == [1]
    os.kill(int(trainer.stdout), signal.SIGCONT)
    with AsyncCheckpointer(tmp_path, metrics=None) as checkpoints:  # waits for the writer that still writes
        loaded = checkpoints.load_latest()
    assert loaded is not None
    assert loaded.step == 2
    assert loaded.state["a"].sum() == sum(range(4_000_000))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_has_the_next_step_on_the_disk_and_only_sigterm_stops(tmp_path: Path, number: signal.Signals) -> None:
    with AsyncCheckpointer(tmp_path, metrics=None) as checkpoints:
        assert checkpoints.step(1, {"a": np.zeros(3)}) is False
        os.kill(os.getpid(), number)
        stops = checkpoints.step(2, {"a": np.ones(3)})
        assert stops is (number == signal.SIGTERM)
        assert checkpoints.saves.committed == 1
        assert (tmp_path / "iter_0000002" / "manifest.json").exists()
        assert checkpoints.step(3, {"a": np.ones(3)}) is False
    assert signal.getsignal(number) == signal.SIG_DFL


def test_sigterm_without_steps_ends_the_program_with_its_last_save_on_the_disk(tmp_path: Path) -> None:
    program = (
        "import os, signal, time, numpy as np; from assistant.training.checkpoints import AsyncCheckpointer\n"
        f"c = AsyncCheckpointer({str(tmp_path)!r}, metrics=None); c.save(1, {{'a': np.arange(3_000_000)}})\n"
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGTERM, ended.stderr
    assert (tmp_path / "iter_0000001" / "manifest.json").exists()


def test_save_now_and_stop_files_are_obeyed_and_removed(tmp_path: Path) -> None:
    with AsyncCheckpointer(tmp_path, metrics=None) as made:

        def one(step: int) -> bool:
            made._controls._next = 0.0
            return made.step(step, {"a": np.zeros(3)})

        assert not one(1)
        (tmp_path / "save-now").touch()
        assert not one(2)
        assert not (tmp_path / "save-now").exists()
        (tmp_path / "stop").write_text("5\n")
        assert [one(3), one(4), one(5)] == [False, False, True]
        assert not (tmp_path / "stop").exists()
        assert steps_in(tmp_path) == [2, 5]


def test_the_watch_reads_its_metrics_and_its_heartbeat(tmp_path: Path) -> None:
    heart = Heartbeat(tmp_path / "beat.json", "77")
    metrics = tmp_path / "metrics.jsonl"
    with AsyncCheckpointer(tmp_path / "checkpoints", every=2, metrics=metrics, heartbeat=heart) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.step(step, {"a": np.zeros(3)}, loss=10.0 - step, tokens=4096, grad_norm=0.5)
    lines = metrics.read_text().splitlines()
    points = metric_points([Line(number, text) for number, text in enumerate(lines, 1)])
    assert [(point.step, point.loss, point.grad_norm) for point in points] == [(1, 9.0, 0.5), (2, 8.0, 0.5), (3, 7.0, 0.5)]
    said = [json.loads(line) for line in lines]
    assert said[0]["save_s"] == said[2]["save_s"] == 0.0
    assert said[1]["save_s"] > 0
    assert said[0]["tokens_per_s"] > 0
    beat = json.loads((tmp_path / "beat.json").read_text())
    assert (beat["job"], beat["step"], beat["phase"]) == ("77", 2, "training")


def test_ranks_that_share_only_the_folder_commit_together_or_not_at_all(tmp_path: Path) -> None:
    program = (
        "import sys, numpy as np; from assistant.training.checkpoints import AsyncCheckpointer; rank = int(sys.argv[1])\n"
        f"with AsyncCheckpointer({str(tmp_path)!r}, metrics=None, rank=rank, world=3, patience_s=20) as c:\n"
        "    for step in (1, 2, 3): c.save(step, {'own': np.full(4, 10 * step + rank)})\n"
        "    loaded = c.load_latest(); print(loaded.step, loaded.state['own'][0])\n"
    )
    ranks = [
        subprocess.Popen([sys.executable, "-c", program, str(rank)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for rank in range(3)
    ]
    assert [rank.communicate(timeout=60)[0].split() for rank in ranks] == [["3", "30"], ["3", "31"], ["3", "32"]]
    manifest = json.loads((tmp_path / "iter_0000003" / "manifest.json").read_bytes())
    assert manifest["world"] == 3
    assert len(manifest["files"]) == 6
    assert not list(tmp_path.rglob("*.ack"))


def test_a_rank_that_never_comes_leaves_the_checkpoint_before_it(tmp_path: Path) -> None:
    program = (
        "import os, sys, time, numpy as np; from assistant.training.checkpoints import AsyncCheckpointer; r = int(sys.argv[1])\n"
        f"c = AsyncCheckpointer({str(tmp_path)!r}, metrics=None, rank=r, world=2, patience_s=20)\n"
        "c.save(1, {'a': np.zeros(3)}); c.flush(); print('saved', flush=True)\n"
        "if r == 1: os._exit(0)\n"
        "c.save(2, {'a': np.zeros(3)}); os._exit(0)\n"
    )
    ranks = [
        subprocess.Popen([sys.executable, "-c", program, str(rank)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    assert [rank.communicate(timeout=60)[0] for rank in ranks] == ["saved\n", "saved\n"]
    with AsyncCheckpointer(tmp_path, metrics=None, rank=0, world=1) as checkpoints:
        assert steps_in(checkpoints.root) == [1]


@given(
    steps=st.sets(st.integers(0, 60), max_size=12),
    keep=st.none() | st.integers(1, 4),
    keep_every=st.integers(0, 12),
    sick=st.sets(st.integers(0, 60)),
)
@settings(max_examples=60, deadline=None)
def test_retention_keeps_the_last_every_nth_and_one_that_is_healthy(
    steps: set[int], keep: int | None, keep_every: int, sick: set[int]
) -> None:
    gone = to_delete(list(steps), keep=keep, keep_every=keep_every, healthy=lambda step: step not in sick)
    stays = steps - set(gone)
    assert set(gone) <= steps
    assert sorted(steps)[-(keep or 99) :] == sorted(stays)[-min(keep or 99, len(steps)) :]
    assert all(step in stays for step in steps if keep_every and step % keep_every == 0)
    assert not steps - sick or stays - sick
    if keep is not None:
        assert len(stays) <= keep + sum(1 for step in steps if keep_every and step % keep_every == 0) + 1


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text() | st.binary()
ARRAYS = st.builds(
    lambda kind, shape: np.arange(int(np.prod(shape))).reshape(shape).astype(kind),
    st.sampled_from(["f8", "f4", "f2", "i8", "u1", "?", "c16", ">f4", "<M8[s]", "S3", "U2"]),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
)
STATES = st.recursive(
    SCALARS | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(state=STATES)
@settings(max_examples=30, deadline=None)
def test_any_state_of_arrays_and_plain_values_comes_back(state: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    from assistant.training.checkpoints.arrays import read_state
    from assistant.training.checkpoints.files import write_file

    folder = tmp_path_factory.mktemp("state")
    sketch = ArraySketch(0)
    assert sketch.inspect(state)
    layout = sketch.lay_out()
    buffer = HostBuffer(sketch.size_bytes)
    sketch.bind(buffer)
    fresh = sketch.copy("a-1")
    for name, segments in {**layout.files, **{name: [content] for name, content in fresh.items()}}.items():
        write_file(folder / name, segments, buffer.view, "crc32")
    assert same(read_state(folder, 0, "a-1"), state)
    assert not sketch.inspect(state)
    sketch.release()
    buffer.close()


def test_a_closed_checkpointer_leaves_no_process_and_no_lock(tmp_path: Path) -> None:
    with AsyncCheckpointer(tmp_path, metrics=None) as checkpoints:
        pid = writer_of(checkpoints)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    begun = time.monotonic()
    AsyncCheckpointer(tmp_path, metrics=None).close()
    assert time.monotonic() - begun < 4
