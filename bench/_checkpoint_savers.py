"""Measured by bench/checkpoints.py in a Python that has torch: how long each way of saving holds up a training loop.

One state of tensors, as many ways as there are, one after the other on the same disk; prints a JSON object a line.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from assistant.training.checkpoints import AsyncCheckpointer

TENSOR_BYTES = 16 << 20
State = dict[str, torch.Tensor]
Save = Callable[[int], None]


def made(size: int) -> State:
    """Return a state of about a size, in tensors of 16 MiB as a transformer's are."""
    torch.manual_seed(0)
    return {f"layer{number}.weight": torch.rand(TENSOR_BYTES // 4096, 1024) for number in range(max(1, size // TENSOR_BYTES))}


def say(**what: Any) -> None:
    """Print a result for the driver."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def dd(folder: Path, size: int) -> float:
    """Return how many bytes a second dd brings to the disk, its fsync included."""
    path = folder / "dd.bin"
    source = Path("/dev/shm") / f"nightshift-bench-{os.getpid()}"  # random bytes: some disks shorten zeros
    try:
        with source.open("wb") as stream:
            stream.write(os.urandom(64 << 20))
        begun = time.perf_counter()
        with path.open("wb") as target:
            blocks = size // (64 << 20)
            command = (
                f"for i in $(seq {blocks}); do cat {source}; done | dd of=/dev/stdout bs=4M iflag=fullblock conv=fsync,notrunc"
            )
            subprocess.run(command, shell=True, check=True, stdout=target, stderr=subprocess.DEVNULL)
        return blocks * (64 << 20) / (time.perf_counter() - begun)
    finally:
        path.unlink(missing_ok=True)
        source.unlink(missing_ok=True)


@contextmanager
def torch_save(folder: Path, state: State) -> Iterator[Save]:
    """torch.save into one file, then fsync."""

    def save(step: int) -> None:
        with (folder / f"{step}.pt").open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())

    yield save


@contextmanager
def dcp_sync(folder: Path, state: State) -> Iterator[Save]:
    """torch.distributed.checkpoint.save."""
    yield lambda step: void(dcp.save(state, checkpoint_id=folder / str(step)))


def dcp_async(kind: AsyncCheckpointerType) -> Callable[[Path, State], Any]:
    """torch.distributed.checkpoint.async_save with staging into shared or pinned buffers that are kept."""

    @contextmanager
    def run(folder: Path, state: State) -> Iterator[Save]:
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        shared = kind is AsyncCheckpointerType.PROCESS
        stager = DefaultStager(StagingOptions(torch.cuda.is_available(), shared, False, torch.cuda.is_available()))
        under_way: list[Any] = []

        def save(step: int) -> None:
            if under_way:
                under_way.pop().result()
            writer = dcp.FileSystemWriter(folder / str(step))
            answer: Any = dcp.async_save(state, storage_writer=writer, async_checkpointer_type=kind, async_stager=stager)
            under_way.append(getattr(answer, "upload_completion", answer))

        yield save
        while under_way:
            under_way.pop().result()
        stager.close()

    return run


def ours(writer: str, *, overlap: bool = False) -> Callable[[Path, State], Any]:
    """AsyncCheckpointer with one of its writers."""
    name = f"ours, {writer}, overlap" if overlap else f"ours, {writer}"

    @contextmanager
    def run(folder: Path, state: State) -> Iterator[Save]:
        whole = {"model": state, "optimizer": stepper(state)}
        with AsyncCheckpointer(folder, keep=None, writer=writer, metrics=None, overlap=overlap) as checkpoints:
            yield lambda step: void(checkpoints.save(step, whole))
            checkpoints.flush()
            say(persisted=name, bytes_s=checkpoints.saves.size_bytes / checkpoints.saves.persist_s)

    return run


WAYS = {
    "torch.save": torch_save,
    "DCP synchronous": dcp_sync,
    "DCP asynchronous, thread": dcp_async(AsyncCheckpointerType.THREAD),
    "DCP asynchronous, process": dcp_async(AsyncCheckpointerType.PROCESS),
    "ours, thread": ours("thread"),
    "ours, process": ours("process"),
    "ours, process, overlap": ours("process", overlap=True),
}


def void(_: object) -> None:
    """Forget a value."""


STEP_S = 0.5
_STEPPERS: dict[int, torch.optim.Optimizer] = {}


def stepper(state: State) -> torch.optim.Optimizer:
    """Return the optimiser of a state; its step changes nothing, so that only what waits in it takes time."""
    if id(state) not in _STEPPERS:
        _STEPPERS[id(state)] = torch.optim.SGD(list(state.values()))
    return _STEPPERS[id(state)]


class Trained(NamedTuple):
    """What some seconds of training came to."""

    products: int
    """Of matrices."""
    waited_s: float
    """In steps of the optimiser."""


def train(state: State, work: torch.Tensor, seconds: float) -> Trained:
    """Compute for some seconds, with a step of the optimiser each half a second."""
    until, count, waited_s = time.perf_counter() + seconds, 0, 0.0
    while (now := time.perf_counter()) < until:
        end = min(until, now + STEP_S)
        while time.perf_counter() < end:
            torch.mm(work, work)
            count += 1
        begun = time.perf_counter()
        stepper(state).step()
        waited_s += time.perf_counter() - begun
    return Trained(count, waited_s)


def blocked(name: str, root: Path, state: State, saves: int, work: torch.Tensor) -> None:
    """Measure one way: seconds that each save holds up the loop; the first, which takes memory, is told apart."""
    folder = root / "run"
    folder.mkdir()
    took = []
    with WAYS[name](folder, state) as save:
        for step in range(saves + 1):
            begun = time.perf_counter()
            save(step)
            took.append(time.perf_counter() - begun + train(state, work, STEP_S).waited_s)
            # until the disk is quiet: what a save has to wait for the one before is measured by the intervals
            size = sum(tensor.nbytes for tensor in state.values())
            deadline = time.perf_counter() + 120
            while _written(folder, step) < size and time.perf_counter() < deadline:
                train(state, work, 0.1)
            os.sync()
            _forget(folder, step)
    say(way=name, first_s=took[0], blocked_s=median(took[1:]), worst_s=max(took[1:]))
    shutil.rmtree(folder)


def slowdown(name: str, root: Path, state: State, interval_s: float, work: torch.Tensor) -> None:
    """Measure one way with saves at an interval: the share of the computing that is lost against none."""
    folder = root / "run"
    folder.mkdir()
    rounds = 4
    begun = time.perf_counter()
    alone = train(state, work, interval_s * 2).products / (time.perf_counter() - begun)
    with WAYS[name](folder, state) as save:
        save(0)
        train(state, work, interval_s)
        begun, done = time.perf_counter(), 0
        for step in range(1, rounds + 1):
            save(step)
            done += train(state, work, interval_s).products
            _forget(folder, step - 1)
        spent = time.perf_counter() - begun
    say(way=name, interval_s=interval_s, lost_share=max(0.0, 1 - done / spent / alone))
    shutil.rmtree(folder)


def _step_paths(folder: Path, step: int) -> list[Path]:
    return [path for path in (folder / f"{step}.pt", folder / str(step), folder / f"iter_{step:07d}") if path.exists()]


def _written(folder: Path, step: int) -> int:
    paths = _step_paths(folder, step)
    done = [path for path in paths if path.is_file() or (path / ".metadata").exists() or (path / "manifest.json").exists()]
    return sum(
        inner.stat().st_size for path in done for inner in ([path] if path.is_file() else path.rglob("*")) if inner.is_file()
    )


def _forget(folder: Path, step: int) -> None:
    for path in _step_paths(folder, step):
        if path.is_file():
            path.unlink()
        elif (path / ".metadata").exists() or (path / "manifest.json").exists():
            shutil.rmtree(path, ignore_errors=True)


def main(root: Path, gigabytes: float, saves: int, intervals: list[float]) -> None:
    """Measure all ways, and dd before and after."""
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{root}/rendezvous", rank=0, world_size=1)
    state = made(int(gigabytes * 1e9))
    size = sum(tensor.nbytes for tensor in state.values())
    work = torch.rand(512, 512)
    say(state_bytes=size, threads=torch.get_num_threads())
    for name in WAYS:
        dist.barrier()
        say(dd_bytes_s=dd(root, size))
        blocked(name, root, state, saves, work)
    say(dd_bytes_s=dd(root, size))
    for interval_s in intervals:
        for name in ("torch.save", "DCP asynchronous, process", "ours, thread", "ours, process", "ours, process, overlap"):
            slowdown(name, root, state, interval_s, work)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), [float(text) for text in sys.argv[4].split(",") if text])
