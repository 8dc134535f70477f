"""The small character model of the demo: its network, the data worker that makes its batches, and its checkpoints.

The network has embeddings of the last letters, one hidden layer and AdamW; all is float32 and seeded. The data worker is a real
child process that makes batches ahead of time and hands them over through a pipe. A checkpoint is one folder a step, with a
manifest of sizes and CRC-32s that is written last:

    <checkpoints>/iter_0000040/model.npz             parameters, by rank 0
    <checkpoints>/iter_0000040/optimizer_rank3.npz   each rank's slice of Adam's moments
    <checkpoints>/iter_0000040/manifest.json         {"step", "world", "next_sample", "files": {name: {size, crc32}}, …}
    <checkpoints>/latest_checkpointed_iteration.txt  the newest step, written after the manifest

Shards are written in place, so a crash leaves them cut; without a manifest that fits, a checkpoint is not complete.
"""

from __future__ import annotations

import fcntl
import io
import json
import math
import multiprocessing
import os
import random
import signal
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assistant.training.ring import Ring


@dataclass(frozen=True)
class SampleShare:
    """Which samples a rank gets, step after step."""

    rank: int
    world: int
    per_step: int
    """Samples of a step over all ranks."""
    first: int = 0
    """Number of the first sample of the first step."""
    steps: int = 1
    skipped: Sequence[tuple[int, int]] = field(default=())
    """Half-open ranges of samples that are left out."""
    bad: Sequence[tuple[int, int]] = field(default=())
    """Half-open ranges that the data file has damaged."""


class Loader:
    """Batches in order; start it before any socket is opened, since the child inherits what is open."""

    def __init__(self, share: SampleShare) -> None:
        """Start the child."""
        fork = multiprocessing.get_context("fork")
        self._mine, child_end = fork.Pipe(duplex=False)
        fcntl.fcntl(child_end.fileno(), fcntl.F_SETPIPE_SZ, 4096)  # a page: the child stays a batch or two ahead, no more
        self._child = fork.Process(target=_work, args=(share, self._mine, child_end), daemon=True)
        self._child.start()
        child_end.close()

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid or 0

    def next(self) -> Batch:
        """Return the next batch.

        Raises:
            RuntimeError: The child died; worded as PyTorch's DataLoader does (torch/utils/data/_utils/signal_handling.py).
        """
        if (self._child.exitcode or 0) < 0:
            raise self._died()
        try:
            loaded: Batch = self._mine.recv()
        except (EOFError, OSError):
            self._child.join(5)
            raise self._died() from None
        return loaded

    def _died(self) -> RuntimeError:
        code = self._child.exitcode or 0
        if code >= 0:
            return RuntimeError(f"DataLoader worker (pid {self.pid}) exited unexpectedly with exit code {code}.")
        words = (signal.strsignal(-code) or str(-code)).split(" (")[0]
        return RuntimeError(f"DataLoader worker (pid {self.pid}) is killed by signal: {words}. ")

    def kill(self) -> None:
        """Kill the child as the kernel does when memory is out, and wait until it is dead."""
        self._child.kill()
        self._child.join(5)

    def close(self) -> None:
        """End the child."""
        self._child.terminate()
        self._child.join(5)
        self._mine.close()


def _work(share: SampleShare, parents_end: Connection, end: Connection) -> None:
    parents_end.close()  # or the pipe would never break when the parent dies
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first = share.first
    try:
        for _ in range(share.steps):
            numbers = step_numbers(first, share.per_step, share.skipped)
            samples = batch(numbers, share.rank, share.world, share.bad)
            end.send(samples)
            first = samples.next_sample
    except BrokenPipeError:
        os._exit(0)
    # The parent may still read: a pipe keeps what was sent, so the child can go.


# The training text: sentences of a small grammar, each sample made from its number alone, so that order and resume are exact.

LETTERS = " abcdefghijklmnopqrstuvwxyz."
LENGTH = 48
"""Characters of a sample."""
BAD_WEIGHT = 1000.0
"""Loss weight of a corrupted sample, as if its mask had not been normalised: the gradient explodes and Adam's second moment with
it, so the model is thrown off and cannot come back for hundreds of steps. That is how a spike stays."""

_SUBJECTS = ("the node", "a rank", "the link", "one job", "the queue", "a probe", "the clock", "this shard")
_VERBS = ("waits for", "talks to", "looks at", "follows", "copies", "checks", "moves past")
_OBJECTS = ("the next step", "its neighbour", "the old log", "a new checkpoint", "the night shift", "every loss", "the same data")


class Batch(NamedTuple):
    """What one rank learns from in one step."""

    ids: NDArray[np.int64]
    """Shape (samples, LENGTH): places in LETTERS."""
    weights: NDArray[np.float32]
    """Shape (samples,): how much each sample counts; 1 for a sound one."""
    next_sample: int
    """Number of the first sample of the step after this one, over all ranks."""


def sample(number: int) -> list[int]:
    """Return the letters of a sample as places in LETTERS."""
    chooser = random.Random(number)
    text = ""
    while len(text) < LENGTH:
        text += f"{chooser.choice(_SUBJECTS)} {chooser.choice(_VERBS)} {chooser.choice(_OBJECTS)}. "
    return [LETTERS.index(letter) for letter in text[:LENGTH]]


def corrupted(number: int) -> list[int]:
    """Return what a damaged data file gives for a sample: noise."""
    chooser = random.Random(f"bad {number}")
    return [chooser.randrange(len(LETTERS)) for _ in range(LENGTH)]


def step_numbers(first: int, count: int, skipped: Sequence[tuple[int, int]]) -> list[int]:
    """Return the numbers of the samples of one step.

    Args:
        first: Where to begin.
        count: Samples of the step over all ranks.
        skipped: Half-open ranges of numbers that are left out.
    """
    numbers: list[int] = []
    number = first
    while len(numbers) < count:
        jump = next((last for begin, last in skipped if begin <= number < last), None)
        if jump is not None:
            number = jump
            continue
        numbers.append(number)
        number += 1
    return numbers


def batch(numbers: Sequence[int], rank: int, world: int, bad: Sequence[tuple[int, int]] = ()) -> Batch:
    """Return one rank's share of a step.

    Args:
        numbers: Samples of the step over all ranks.
        rank: Whose share.
        world: How many ranks share them, in turn.
        bad: Half-open ranges of numbers that the data file has damaged.
    """
    own = list(numbers[rank::world])
    spoilt = [any(begin <= number < last for begin, last in bad) for number in own]
    ids = [corrupted(number) if is_bad else sample(number) for number, is_bad in zip(own, spoilt, strict=True)]
    weights = [BAD_WEIGHT if is_bad else 1.0 for is_bad in spoilt]
    return Batch(np.array(ids, dtype=np.int64), np.array(weights, dtype=np.float32), numbers[-1] + 1)


Floats = NDArray[np.float32]

CONTEXT = 8
"""Letters that the model sees."""
WIDTH = 12
"""Size of an embedding."""
HIDDEN_UNITS = 96

SHAPES: dict[str, tuple[int, ...]] = {
    "embedding": (len(LETTERS), WIDTH),
    "hidden.weight": (CONTEXT * WIDTH, HIDDEN_UNITS),
    "hidden.bias": (HIDDEN_UNITS,),
    "output.weight": (HIDDEN_UNITS, len(LETTERS)),
    "output.bias": (len(LETTERS),),
}
SIZE = sum(math.prod(shape) for shape in SHAPES.values())
"""How many parameters there are."""


def new_parameters(seed: int) -> Floats:
    """Return fresh parameters, all in one vector of length SIZE."""
    generator = np.random.default_rng(seed)
    parts = []
    for name, shape in SHAPES.items():
        scale = 0.0 if name.endswith("bias") else 1.0 / math.sqrt(shape[0])
        parts.append(generator.normal(0.0, 1.0, shape).ravel() * scale)
    return np.concatenate(parts).astype(np.float32)


def views(flat: Floats) -> dict[str, Floats]:
    """Return the named tensors inside a vector, without copying."""
    tensors, start = {}, 0
    for name, shape in SHAPES.items():
        size = math.prod(shape)
        tensors[name] = flat[start : start + size].reshape(shape)
        start += size
    return tensors


def loss_and_gradient(flat: Floats, batch: Batch) -> tuple[float, Floats]:
    """Return the mean loss in nats a letter, unweighted, and the gradient of the weighted one, shape (SIZE,)."""
    tensors = views(flat)
    windows = np.lib.stride_tricks.sliding_window_view(batch.ids, CONTEXT + 1, axis=1).reshape(-1, CONTEXT + 1)
    context, targets = windows[:, :CONTEXT], windows[:, CONTEXT]
    count = len(targets)
    inputs = tensors["embedding"][context].reshape(count, CONTEXT * WIDTH)
    activations = np.tanh(inputs @ tensors["hidden.weight"] + tensors["hidden.bias"])
    logits = activations @ tensors["output.weight"] + tensors["output.bias"]
    logits -= logits.max(axis=1, keepdims=True)
    chances = np.exp(logits)
    chances /= chances.sum(axis=1, keepdims=True)
    loss = float(-np.log(np.maximum(chances[np.arange(count), targets], 1e-30)).mean())

    chances[np.arange(count), targets] -= 1.0
    chances *= np.repeat(batch.weights, count // len(batch.weights))[:, None] / count
    gradient = np.zeros_like(flat)
    parts = views(gradient)
    parts["output.weight"][:] = activations.T @ chances
    parts["output.bias"][:] = chances.sum(axis=0)
    hidden_gradient = (chances @ tensors["output.weight"].T) * (1.0 - activations * activations)
    parts["hidden.weight"][:] = inputs.T @ hidden_gradient
    parts["hidden.bias"][:] = hidden_gradient.sum(axis=0)
    np.add.at(parts["embedding"], context, (hidden_gradient @ tensors["hidden.weight"].T).reshape(count, CONTEXT, WIDTH))
    return loss, gradient


class AdamW:
    """The optimiser (Loshchilov and Hutter, 2019) over one vector, without gradient clipping."""

    def __init__(self, size: int, *, decay: float = 0.01) -> None:
        """Begin with empty moments for `size` parameters."""
        self.first: Floats = np.zeros(size, dtype=np.float32)
        self.second: Floats = np.zeros(size, dtype=np.float32)
        self.decay = decay

    def update(self, flat: Floats, gradient: Floats, *, step: int, rate: float) -> None:
        """Move the parameters in place; `step` counts from 1."""
        self.first += 0.1 * (gradient - self.first)
        self.second += 0.001 * (gradient * gradient - self.second)
        first, second = self.first / (1 - 0.9**step), self.second / (1 - 0.999**step)
        flat -= np.float32(rate) * (first / (np.sqrt(second) + 1e-8) + self.decay * flat)


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Return the rate of a step: ten steps of warm-up, then half a cosine down to a tenth."""
    if step <= 10:
        return peak * step / 10
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - 10) / max(1, steps - 10))))


TRACKER = "latest_checkpointed_iteration.txt"
MANIFEST = "manifest.json"
OUTAGE = "storage_down_until"
"""File in the checkpoint folder that stands for a storage outage: seconds since 1970 at which it is over."""


class StorageDown(Exception):
    """The storage does not take or give anything now."""


class TrainingPosition(NamedTuple):
    """How far training has come."""

    step: int
    next_sample: int


def folder_of(root: Path, step: int) -> Path:
    """Return the folder of a step."""
    return root / f"iter_{step:07d}"


def write_tracker(root: Path, step: int) -> None:
    """Name the newest checkpoint."""
    _replace(root / TRACKER, str(step))


def check_storage(root: Path) -> None:
    """Raise when the storage is down.

    Raises:
        StorageDown: It is.
    """
    try:
        until = float((root / OUTAGE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return
    if time.time() < until:
        raise StorageDown(str(root))


def save(
    root: Path,
    position: TrainingPosition,
    state: tuple[Floats, AdamW],
    *,
    ring: Ring,
    halfway: Callable[[], None] = lambda: None,
) -> None:
    """Write a checkpoint together with all other ranks.

    Args:
        root: The folder of all checkpoints.
        position: Where training stands.
        state: Parameters and optimiser; all ranks have the same, each writes its share.
        ring: To agree on the files.
        halfway: Called when half of this rank's last shard is written.

    Raises:
        StorageDown: The storage takes nothing.
        OSError: A real one.
    """
    folder = folder_of(root, position.step)
    folder.mkdir(parents=True, exist_ok=True)
    if ring.rank == 0:
        (folder / MANIFEST).unlink(missing_ok=True)
    ring.barrier()
    flat, optimizer = state
    checksums = np.zeros((ring.world + 1, 2), dtype=np.float64)
    if ring.rank == 0:
        checksums[-1] = _write_shard(folder / "model.npz", views(flat))
    own = slice(*_slice(len(flat), ring.rank, ring.world))
    moments = {"first": optimizer.first[own], "second": optimizer.second[own]}
    checksums[ring.rank] = _write_shard(folder / f"optimizer_rank{ring.rank}.npz", moments, halfway)
    agreed = ring.all_reduce(checksums.ravel()).reshape(-1, 2)
    if ring.rank == 0:
        names = [*(f"optimizer_rank{rank}.npz" for rank in range(ring.world)), "model.npz"]
        files = {name: {"size": int(row[0]), "crc32": int(row[1])} for name, row in zip(names, agreed.tolist(), strict=True)}
        about = {"format": "nightshift", "version": 1, "step": position.step, "world": ring.world}
        _replace(folder / MANIFEST, json.dumps({**about, "next_sample": position.next_sample, "files": files}, indent=1))
        write_tracker(root, position.step)


def load(folder: Path) -> tuple[TrainingPosition, Floats, AdamW]:
    """Read a checkpoint; the number of ranks may differ from the one that wrote it.

    Raises:
        RuntimeError: It has no manifest: the save did not finish.
        zipfile.BadZipFile: A shard is cut or damaged.
        StorageDown: The storage gives nothing.
    """
    check_storage(folder.parent)
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise RuntimeError(f"checkpoint {folder} is not complete: it has no {MANIFEST}") from None
    with (folder / "model.npz").open("rb") as file, np.load(file) as archive:
        flat = np.concatenate([archive[name].ravel() for name in archive.files])
    optimizer = AdamW(len(flat))
    for rank in range(manifest["world"]):
        own = slice(*_slice(len(flat), rank, manifest["world"]))
        with (folder / f"optimizer_rank{rank}.npz").open("rb") as file, np.load(file) as archive:
            optimizer.first[own], optimizer.second[own] = archive["first"], archive["second"]
    return TrainingPosition(manifest["step"], manifest["next_sample"]), flat, optimizer


def newest_complete(root: Path) -> Path | None:
    """Return the newest checkpoint that has a manifest."""
    return max((path.parent for path in root.glob(f"iter_*/{MANIFEST}")), default=None)


def _slice(size: int, rank: int, world: int) -> tuple[int, int]:
    return size * rank // world, size * (rank + 1) // world


def _write_shard(path: Path, tensors: dict[str, Floats], halfway: Callable[[], None] = lambda: None) -> tuple[int, int]:
    """Write a shard in two pieces and return its size and CRC-32."""
    check_storage(path.parent.parent)
    buffer = io.BytesIO()
    np.savez(buffer, **tensors)  # type: ignore[arg-type]
    content = buffer.getvalue()
    with path.open("wb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
        halfway()
        file.write(content[len(content) // 2 :])
        file.flush()
        os.fsync(file.fileno())
    return len(content), zlib.crc32(content)


def _replace(path: Path, text: str) -> None:
    part_path = path.with_name(f".{path.name}.{os.getpid()}")
    with part_path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part_path.replace(path)
