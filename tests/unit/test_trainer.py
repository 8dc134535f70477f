"""The demo's trainer: it learns, resumes exactly, its ring adds up, and no crash leaves a checkpoint that loads and is wrong."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from assistant.training import model
from assistant.training.model import (
    SIZE,
    AdamW,
    Floats,
    Loader,
    SampleShare,
    StorageDown,
    TrainingPosition,
    batch,
    loss_and_gradient,
    new_parameters,
    step_numbers,
)
from assistant.training.ring import CollectiveTimeout, PeerGone, Ring

LINE = re.compile(r"iteration +(\d+)/.*consumed samples: +(\d+) .*lm loss: (\S+)")


def launch(folder: Path, ranks: int, *words: str) -> list[subprocess.Popen[str]]:
    """Start the ranks of one attempt."""
    meeting = folder / f"meeting-{time.monotonic_ns()}"
    meeting.mkdir(parents=True)
    place = {"WORLD_SIZE": str(ranks), "NIGHTSHIFT_RENDEZVOUS": str(meeting), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-m", "assistant.training.numpy_lm", "--checkpoints", str(folder / "ckpt"), "--step-ms", "0"]
    return [
        subprocess.Popen(
            [*program, *words],
            env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]


def train(folder: Path, ranks: int, *words: str) -> dict[int, tuple[int, str]]:
    """Train to the end; return consumed samples and printed loss by step."""
    said = [process.communicate(timeout=60)[0] for process in launch(folder, ranks, *words)]
    assert "after training is done" in said[0], said
    return {int(step): (int(consumed), loss) for step, consumed, loss in LINE.findall(said[0])}


def with_ring(world: int, folder: Path, work: Callable[[Ring], Any], timeout_s: float = 5.0) -> list[Any]:
    """Run a function on every rank of a ring, each in a thread; an exception counts as its result."""
    results: list[Any] = [None] * world

    def run(rank: int) -> None:
        ring = Ring(rank, world, folder, f"node{rank}", timeout_s=timeout_s)
        try:
            results[rank] = work(ring)
        except (PeerGone, CollectiveTimeout) as error:
            results[rank] = error
        finally:
            for name in ("next", "previous"):
                if hasattr(ring, name):
                    getattr(ring, name).close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_the_loss_really_falls(tmp_path: Path) -> None:
    steps = train(tmp_path, 1, "--steps", "80", "--save-interval", "80")
    assert float(steps[1][1]) == pytest.approx(np.log(28), rel=0.05)
    assert float(steps[80][1]) < 0.8


@pytest.mark.slow
def test_a_resumed_run_goes_on_exactly_as_one_that_was_never_interrupted(tmp_path: Path) -> None:
    words = ("--steps", "24", "--save-interval", "8")
    whole = train(tmp_path / "whole", 3, *words)
    train(tmp_path / "part", 3, *words)
    source = tmp_path / "part" / "ckpt" / "iter_0000008"
    resumed = train(tmp_path / "part", 3, *words, "--load", str(source))
    assert sorted(resumed) == list(range(9, 25))
    assert resumed == {step: whole[step] for step in resumed}


def test_a_run_resumed_on_fewer_ranks_goes_on_closely(tmp_path: Path) -> None:
    whole = train(tmp_path, 4, "--steps", "12", "--save-interval", "6")
    fewer = train(tmp_path, 2, "--steps", "12", "--save-interval", "6", "--load", str(tmp_path / "ckpt" / "iter_0000006"))
    assert float(fewer[12][1]) == pytest.approx(float(whole[12][1]), rel=1e-3)


def test_skipped_samples_move_the_data_and_not_the_steps(tmp_path: Path) -> None:
    train(tmp_path, 1, "--steps", "6", "--save-interval", "3")
    words = ("--steps", "6", "--save-interval", "3", "--load", str(tmp_path / "ckpt" / "iter_0000003"))
    skipping = train(tmp_path, 1, *words, "--skip-samples", "128:192")
    assert [skipping[step][0] for step in (4, 5, 6)] == [128, 224, 256]


@pytest.mark.parametrize(
    ("first", "skipped", "wanted"),
    [
        (0, [], [0, 1, 2, 3]),
        (0, [(1, 3)], [0, 3, 4, 5]),
        (2, [(0, 4)], [4, 5, 6, 7]),
        (0, [(0, 2), (2, 4)], [4, 5, 6, 7]),
        (5, [(0, 5)], [5, 6, 7, 8]),
        (0, [(2, 2)], [0, 1, 2, 3]),
    ],
)
def test_the_samples_of_a_step_leave_the_skipped_ones_out(first: int, skipped: list[tuple[int, int]], wanted: list[int]) -> None:
    assert step_numbers(first, 4, skipped) == wanted


def test_the_ranks_share_the_samples_of_a_step_without_overlap() -> None:
    numbers = list(range(100, 132))
    whole = batch(numbers, 0, 1)
    shares = [batch(numbers, rank, 4) for rank in range(4)]
    assert sum(len(share.ids) for share in shares) == 32
    assert (np.stack([share.ids for share in shares], axis=1).reshape(32, -1) == whole.ids).all()
    assert {share.next_sample for share in shares} == {132}


def test_the_gradient_is_that_of_the_loss() -> None:
    flat, chooser = new_parameters(7), random.Random(7)
    sound = batch(range(4), 0, 1)
    _, gradient = loss_and_gradient(flat, sound)
    for place in [chooser.randrange(SIZE) for _ in range(25)]:
        moved = [loss_and_gradient(np.where(np.arange(SIZE) == place, flat + step, flat), sound)[0] for step in (-0.02, 0.02)]
        assert (moved[1] - moved[0]) / 0.04 == pytest.approx(float(gradient[place]), abs=2e-4)


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [1, 7, 1000, 70_000])
def test_the_ring_adds_up_to_the_same_bits_on_every_rank(world: int, size: int, tmp_path: Path) -> None:
    values: list[NDArray[np.float64]] = [np.random.default_rng(rank).normal(size=size) for rank in range(world)]
    sums = with_ring(world, tmp_path, lambda ring: ring.all_reduce(values[ring.rank]))
    assert all((total == sums[0]).all() for total in sums)
    assert sums[0] == pytest.approx(np.sum(values, axis=0))


def test_a_rank_that_leaves_is_felt_by_all_others(tmp_path: Path) -> None:
    def work(ring: Ring) -> str:
        ring.barrier()
        if ring.rank == 1:
            return "left"
        while True:
            ring.barrier()

    results = with_ring(4, tmp_path, work)
    assert results[1] == "left"
    assert all(isinstance(results[rank], PeerGone) for rank in (0, 2, 3))
    assert results[2].node == "node1"


def test_a_link_that_stalls_times_out_on_all_ranks_in_the_same_collective(tmp_path: Path) -> None:
    def work(ring: Ring) -> None:
        ring.barrier()
        ring.stalled = ring.rank == 2
        try:
            ring.barrier()
        except CollectiveTimeout:
            time.sleep(0.5)  # a rank that goes first would break its neighbours' connections
            raise

    results = with_ring(4, tmp_path, work, timeout_s=0.6)
    assert [type(result).__name__ for result in results] == ["CollectiveTimeout"] * 4
    assert {result.number for result in results} == {2}
    assert all(0.6 <= result.waited_s < 2 for result in results)


def test_a_killed_data_worker_is_reported_at_once_in_the_words_of_pytorch() -> None:
    loader = Loader(SampleShare(rank=0, world=1, per_step=4, steps=100))
    assert loader.next().next_sample == 4
    pid = loader.pid
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)  # dead, and not yet waited for
    with pytest.raises(RuntimeError, match=rf"DataLoader worker \(pid {pid}\) is killed by signal: Killed\. "):
        loader.next()
    loader.close()


def test_a_data_worker_hands_over_every_batch_and_goes() -> None:
    loader = Loader(SampleShare(rank=1, world=2, per_step=4, first=8, steps=3, skipped=[(12, 16)], bad=[(8, 10)]))
    made = [loader.next() for _ in range(3)]
    assert [one.next_sample for one in made] == [12, 20, 24]
    assert made[0].weights.tolist() == [1000.0, 1.0]
    with pytest.raises(RuntimeError, match="exited unexpectedly with exit code 0"):
        loader.next()
    loader.close()


def state(seed: int) -> tuple[Floats, AdamW]:
    flat = new_parameters(seed)
    optimizer = AdamW(SIZE)
    optimizer.first[:], optimizer.second[:] = flat + 1, flat + 2
    return flat, optimizer


def same(found: tuple[TrainingPosition, Floats, AdamW], wanted: tuple[Floats, AdamW]) -> bool:
    _, flat, optimizer = found
    parts = ((flat, wanted[0]), (optimizer.first, wanted[1].first), (optimizer.second, wanted[1].second))
    return all((have == want).all() for have, want in parts)


def test_a_checkpoint_comes_back_as_it_was_and_its_manifest_fits(tmp_path: Path) -> None:
    made = state(3)
    with_ring(3, tmp_path / "", lambda ring: model.save(tmp_path / "ckpt", TrainingPosition(40, 1280), made, ring=ring))
    folder = tmp_path / "ckpt" / "iter_0000040"
    found = model.load(folder)
    assert found[0] == TrainingPosition(40, 1280)
    assert same(found, made)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert sorted(manifest["files"]) == ["model.npz", "optimizer_rank0.npz", "optimizer_rank1.npz", "optimizer_rank2.npz"]
    for name, about in manifest["files"].items():
        content = (folder / name).read_bytes()
        assert (len(content), zlib.crc32(content)) == (about["size"], about["crc32"])
    assert (tmp_path / "ckpt" / model.TRACKER).read_text(encoding="utf-8") == "40"


KILLED_SAVE = """
import os, signal, sys
from pathlib import Path
from assistant.training import model, ring
from assistant.training.model import TrainingPosition
from assistant.training.model import SIZE, AdamW, new_parameters
root, moment = Path(sys.argv[1]), sys.argv[2]
die = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
alone = ring.Ring(0, 1, root, "n", timeout_s=5)
model.save(root, TrainingPosition(40, 1), (new_parameters(1), AdamW(SIZE)), ring=alone)
if moment == "agreeing":
    real = alone.all_reduce
    alone.all_reduce = lambda values: die() if len(values) > 1 else real(values)
if moment == "replacing":
    os.fsync, before = die, os.fsync
    model._write_shard = lambda path, tensors, halfway=None: (1, 1)
if moment == "tracking":
    model.write_tracker = die
halfway = die if moment == "halfway" else lambda: None
model.save(root, TrainingPosition(40, 2), (new_parameters(2), AdamW(SIZE)), ring=alone, halfway=halfway)
"""


@pytest.mark.parametrize("moment", ["halfway", "agreeing", "replacing", "tracking"])
def test_a_save_over_an_older_one_that_is_killed_never_leaves_a_wrong_checkpoint_that_loads(moment: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_SAVE, str(tmp_path), moment], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder = tmp_path / "iter_0000040"
    if moment == "tracking":
        position, flat, _ = model.load(folder)
        assert position == TrainingPosition(40, 2)
        assert (flat == new_parameters(2)).all()
    else:
        with pytest.raises(RuntimeError, match=r"is not complete: it has no manifest\.json"):
            model.load(folder)


def test_training_that_is_killed_at_any_moment_leaves_only_whole_checkpoints_with_a_manifest(tmp_path: Path) -> None:
    chooser = random.Random(5)
    for attempt in range(4):
        folder = tmp_path / str(attempt)
        ranks = launch(folder, 2, "--steps", "400", "--save-interval", "1")
        deadline = time.monotonic() + 30
        while not list(folder.glob("ckpt/iter_*/manifest.json")) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chooser.uniform(0.0, 0.3))
        for process in ranks:
            process.kill()
        for process in ranks:
            process.communicate()
        for path in folder.glob("ckpt/iter_*"):
            if (path / "manifest.json").exists():
                position, _, _ = model.load(path)
                assert f"iter_{position.step:07d}" == path.name
        newest = model.newest_complete(folder / "ckpt")
        assert newest is not None
        tracker = int((folder / "ckpt" / model.TRACKER).read_text(encoding="utf-8") or 0) if _tracked(folder) else 0
        assert tracker <= int(newest.name[5:])


def _tracked(folder: Path) -> bool:
    return (folder / "ckpt" / model.TRACKER).exists()


def test_a_cut_shard_does_not_load(tmp_path: Path) -> None:
    model.save(tmp_path, TrainingPosition(1, 32), state(1), ring=Ring(0, 1, tmp_path, "n", timeout_s=1))
    shard = tmp_path / "iter_0000001" / "model.npz"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(zipfile.BadZipFile):
        model.load(shard.parent)


def test_an_outage_of_the_storage_ends_by_itself(tmp_path: Path) -> None:
    ring = Ring(0, 1, tmp_path, "n", timeout_s=1)
    (tmp_path / model.OUTAGE).write_text(str(time.time() + 60), encoding="utf-8")
    with pytest.raises(StorageDown):
        model.save(tmp_path, TrainingPosition(1, 32), state(1), ring=ring)
    (tmp_path / model.OUTAGE).write_text(str(time.time() - 1), encoding="utf-8")
    model.save(tmp_path, TrainingPosition(1, 32), state(1), ring=ring)
    assert model.load(tmp_path / "iter_0000001")[0] == TrainingPosition(1, 32)


@pytest.mark.parametrize("words", [["--skip-samples", "5"], ["--skip-samples", "9:5"], ["--steps", "many"], []])
def test_a_wrong_option_is_a_usage_error(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    from assistant.training.numpy_lm import read_arguments

    with pytest.raises(SystemExit) as error:
        read_arguments([*(["--checkpoints", "x"] if words else []), *words])
    assert error.value.code == 2
    assert "usage: numpy_lm" in capsys.readouterr().err
