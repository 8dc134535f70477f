"""Write a realistic log of a long Megatron run: set-up, iterations, checkpoints, warnings, and an error at the end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

_NODES, _GPUS = 8, 8
_TOTAL = 5_000_000


def write(path: Path, size_mb: int, seed: int = 7) -> None:
    """Write about `size_mb` million bytes, the same ones for the same seed."""
    rng = random.Random(seed)
    size = size_mb * 1_000_000
    with path.open("w", encoding="utf-8", buffering=1 << 20) as file:
        written = 0
        for text in _setup(rng):
            written += file.write(text)
        iterations = _iterations(rng)
        while written < size:
            written += file.write(next(iterations))
        file.write("".join(_failure()))


def _setup(rng: random.Random) -> Iterator[str]:
    yield "+ export NCCL_DEBUG=INFO\n+ export CUDA_DEVICE_MAX_CONNECTIONS=1\nLoading cuda/12.4\nLoading nccl/2.21.5\n"
    yield f"using world size: {_NODES * _GPUS}, data-parallel size: 8, "
    yield "tensor-model-parallel size: 4, pipeline-model-parallel size: 2\n"
    for name, value in (
        ("adam_beta1", "0.9"),
        ("bf16", "True"),
        ("global_batch_size", "1024"),
        ("hidden_size", "8192"),
        ("lr", "0.0003"),
    ):
        yield f"  {name} {'.' * (48 - len(name))} {value}\n"
    for node in range(_NODES):
        for gpu in range(_GPUS):
            who = f"node{node:03}:{rng.randint(1000, 99999)}:{rng.randint(1000, 99999)} [{gpu}] NCCL INFO"
            yield f"{who} Bootstrap : Using ib0:10.0.{node}.12<0>\n"
            yield f"{who} NET/Plugin : No plugin found (libnccl-net.so), using internal implementation\n"
            for channel in range(16):
                yield f"{who} Channel {channel:02}/0 : {gpu}[{gpu}] -> {(gpu + 1) % 8}[{(gpu + 1) % 8}] via P2P/CUMEM/read\n"
            yield f"{who} Connected all rings\n{who} Connected all trees\n"


def _iterations(rng: random.Random) -> Iterator[str]:
    at = datetime(2026, 2, 11, 7, 0, 0, tzinfo=UTC)
    for step in count(1):
        spent = rng.gauss(2300, 25)
        at += timedelta(milliseconds=spent)
        loss = 1.7 + 8 / (1 + step / 300) + rng.gauss(0, 0.01)
        yield (
            f" [{at:%Y-%m-%d %H:%M:%S}] iteration {step:8}/{_TOTAL:8} | "
            f"consumed samples: {step * 1024:12} | elapsed time per iteration (ms): "
            f"{spent:.1f} | throughput per GPU (TFLOP/s/GPU): {950_000 / spent:.1f} | "
            f"learning rate: {3e-4:.6E} | global batch size:  1024 | "
            f"lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {abs(rng.gauss(0.3, 0.05)):.3f} | "
            f"number of skipped iterations:   0 | "
            f"number of nan iterations:   0 |\n"
        )
        if step % 1000 == 0:
            folder = "/lustre/ckpt/gpt-70b"
            yield f"saving checkpoint at iteration {step:7} to {folder} in torch_dist format\n"
            yield f"  successfully saved checkpoint from iteration {step:7} to {folder} [ t 1/4, p 1/2 ]\n"
            yield "(min, max) time across ranks (ms):\n"
            yield f"    save-checkpoint ................................: ({rng.gauss(9000, 90):.2f}, {rng.gauss(9900, 90):.2f})\n"
        if step % 2500 == 0:
            perplexity = 2.718 ** min(loss, 20)
            yield f"validation loss at iteration {step} | lm loss value: {loss:.6E} | lm loss PPL: {perplexity:.6E} | \n"
        if rng.random() < 0.001:
            rank = rng.randrange(_NODES * _GPUS)
            place = f"/opt/megatron/core/tensor_parallel/layers.py:{rng.randint(200, 900)}"
            yield f"[rank{rank}]: {place}: UserWarning: async grad allreduce is slow here\n"
            yield f"[rank{rank}]:   warnings.warn(\n"
        if rng.random() < 0.0005:
            node, shard = rng.randrange(_NODES), rng.randint(0, 4000)
            yield f"node{node:03}: dataloader prefetch queue at {rng.randint(1, 9)} of 16, shard {shard}\n"


def _failure() -> Iterator[str]:
    for rank in (13, 12, 14, 15):
        yield f"[rank{rank}]: Traceback (most recent call last):\n"
        yield f'[rank{rank}]:   File "/opt/megatron/pretrain_gpt.py", line 264, in <module>\n[rank{rank}]:     pretrain(\n'
        yield (
            f"[rank{rank}]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"
            if rank == 13
            else (
                f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, "
                f"remote process exited or there was a network error\n"
            )
        )
    yield "srun: error: node001: task 13: Exited with exit code 1\n"
