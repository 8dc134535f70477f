"""Write the checkpoints of `real/*.tar.gz` with the libraries themselves; run by hand, in an environment that has them.

    python write.py orbax zarr           # jax, orbax-checkpoint
    python write.py dcp megatron composer nocrc   # torch, megatron-core, mosaicml
    python write.py tensorflow tensorflow-saver tensorflow-shards   # tensorflow-cpu

Each archive holds a folder with the checkpoints of steps 10 and 20, and VERSION: the libraries that wrote it. With megatron-core
before 0.13 `python write.py megatron-zarr` writes the older format (zarr < 3, tensorstore).
"""

# mypy: ignore-errors
# these libraries are not among those that the project is checked with

from __future__ import annotations

import importlib.metadata
import io
import os
import socket
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = (10, 20)


def orbax(folder: Path, **options: Any) -> None:
    """Write with Orbax's CheckpointManager, into OCDBT."""
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)) if options else None
    manager = ocp.CheckpointManager(folder, checkpointer)
    for step in STEPS:
        state = {"w": jnp.arange(64, dtype=jnp.float32).reshape(8, 8) * step, "step": step}
        manager.save(step, state) if options else manager.save(step, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
    manager.close()


def zarr(folder: Path) -> None:
    """Write with Orbax without OCDBT: one Zarr array a folder."""
    orbax(folder, use_ocdbt=False)


def _gloo(rank: int = 0) -> None:
    import torch
    import torch.distributed as dist

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=1)


def dcp(folder: Path, **options: Any) -> None:
    """Write with torch.distributed.checkpoint, in torchtitan's names."""
    import torch
    import torch.distributed.checkpoint

    _gloo()
    for step in STEPS:
        state = {"model": {"w": torch.full((64,), float(step)), "b": torch.zeros(8)}, "step": step}
        writer = torch.distributed.checkpoint.FileSystemWriter(folder / f"step-{step}", **options)
        torch.distributed.checkpoint.save({**state, "objects": b"object"}, storage_writer=writer)


def dcp_safetensors(folder: Path) -> None:
    """Write with torch.distributed.checkpoint, tensors as safetensors, objects as before."""
    from torch.distributed.checkpoint.filesystem import SerializationFormat

    dcp(folder, serialization_format=SerializationFormat.SAFETENSORS)


def megatron(folder: Path, strategy: str = "torch_dist") -> None:
    """Write with Megatron-Core's dist_checkpointing, and its tracker as Megatron-LM does."""
    import torch
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.mapping import ShardedTensor

    _gloo()
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *_: None
    for step in STEPS:
        path = folder / f"iter_{step:07}"
        path.mkdir()
        state = {"w": ShardedTensor.from_rank_offsets("w", torch.full((8, 8), float(step))), "iteration": step}
        dist_checkpointing.save(state, str(path), (strategy, 1))
        (folder / "latest_checkpointed_iteration.txt").write_text(str(step))


def megatron_zarr(folder: Path) -> None:
    """Write with the older format of Megatron-Core."""
    megatron(folder, "zarr")


def composer(folder: Path) -> None:
    """Train with Composer for 20 batches."""
    import torch
    from composer import ComposerModel, Trainer

    class Model(ComposerModel):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, batch: Any) -> Any:
            return self.layer(batch)

        def loss(self, outputs: Any, batch: Any) -> Any:
            return outputs.square().mean()

    model = Model()
    data = torch.utils.data.DataLoader([torch.randn(4) for _ in range(16)], batch_size=2)
    Trainer(
        model=model, train_dataloader=data, max_duration="20ba", optimizers=torch.optim.SGD(model.parameters(), 0.1), device="cpu",
        progress_bar=False, save_folder=str(folder), save_interval="10ba",
    ).fit()  # fmt: skip


def nocrc(folder: Path) -> None:
    """Write with torch.save where checksums are switched off."""
    import torch

    torch.serialization.set_crc32_options(False)
    for step in STEPS:
        torch.save({"model": {"w": torch.full((64,), float(step))}, "step": step}, folder / f"step_{step}.pt")


def tensorflow(folder: Path) -> None:
    """Write with TensorFlow's CheckpointManager, whose names count saves; the step stands inside."""
    import tensorflow as tf

    model = tf.Module()
    model.w, model.b, step = tf.Variable(tf.zeros((8, 8))), tf.Variable(tf.ones(8)), tf.Variable(0, dtype=tf.int64)
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build([model.w, model.b])
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model, optimizer=optimizer, step=step), folder, max_to_keep=2)
    for number in STEPS:
        step.assign(number)
        model.w.assign(tf.fill((8, 8), float(number)))
        manager.save()


def tensorflow_saver(folder: Path) -> None:
    """Write as Estimator does, with the saver of TensorFlow 1."""
    import tensorflow as tf

    graph, old = tf.Graph(), tf.compat.v1
    with graph.as_default():
        step, weights = old.train.get_or_create_global_step(), old.get_variable("w", (8, 8))
        saver = old.train.Saver(save_relative_paths=True)
        with old.Session() as session:
            for number in STEPS:
                session.run([old.assign(step, number), old.assign(weights, tf.fill((8, 8), float(number)))])
                saver.save(session, str(folder / "model.ckpt"), global_step=step)


def tensorflow_shards(folder: Path) -> None:
    """Write with TensorFlow as two hosts do: each its part, then one index of both."""
    import tensorflow as tf

    for number in STEPS:
        parts = [str(folder / f"step-{number}_temp" / f"part-{part}") for part in (0, 1)]
        for part, prefix in enumerate(parts):
            tensors = [tf.fill((8, 8), float(number))]
            tf.raw_ops.SaveV2(prefix=prefix, tensor_names=[f"w{part}"], shape_and_slices=[""], tensors=tensors)
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(folder / f"step-{number}"))


WRITERS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "orbax": (orbax, ("orbax-checkpoint", "jax")),
    "zarr": (zarr, ("orbax-checkpoint", "jax")),
    "dcp": (dcp, ("torch",)),
    "dcp-safetensors": (dcp_safetensors, ("torch", "safetensors")),
    "megatron": (megatron, ("megatron-core", "torch")),
    "megatron-zarr": (megatron_zarr, ("megatron-core", "zarr", "torch")),
    "composer": (composer, ("mosaicml", "torch")),
    "tensorflow": (tensorflow, ("tensorflow-cpu",)),
    "tensorflow-saver": (tensorflow_saver, ("tensorflow-cpu",)),
    "tensorflow-shards": (tensorflow_shards, ("tensorflow-cpu",)),
    "nocrc": (nocrc, ("torch",)),
}


def main() -> None:
    """Write the archives that the command line names."""
    for name in sys.argv[1:]:
        writer, libraries = WRITERS[name]
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / name
            folder.mkdir()
            writer(folder)
            version = "\n".join(f"{one} {importlib.metadata.version(one)}" for one in libraries).encode()
            with tarfile.open(Path(__file__).with_name(f"{name}.tar.gz"), "w:gz") as archive:
                archive.add(folder, name)
                about = tarfile.TarInfo("VERSION")
                about.size = len(version)
                archive.addfile(about, io.BytesIO(version))


if __name__ == "__main__":
    main()
