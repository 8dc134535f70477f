"""What jobs die of in the chaos suite, and how each run goes on when it is started again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

from assistant.records import JobState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import ECC, XID

SLOWDOWN = (
    "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation "
    "(reached max retries: 4): Please reduce your request rate.",
)
NCCL = (
    "[rank1]:[E105 02:01:11.12 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=51, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600097 milliseconds before "
    "timing out.",
)
BUG = (
    "Traceback (most recent call last):",
    '  File "/opt/train/pretrain.py", line 88, in main',
    "    loss = model(batch) + None",
    "TypeError: unsupported operand type(s) for +: 'float' and 'NoneType'",
)
MEMORY = (
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.11 GiB "
    "of which 1.12 GiB is free.",
)
WORKER = ("RuntimeError: DataLoader worker (pid 41873) is killed by signal: Killed.",)
NVLINK = ("[rank3]: RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",)
"""Of a machine; which one nobody says."""
PREEMPTED = ("slurmstepd: error: *** STEP 1.0 ON node01 CANCELLED AT 2026-01-05T02:00:55 DUE TO PREEMPTION ***",)

KINDS = (
    "ecc",
    "dead node",
    "nccl",
    "bug",
    "memory",
    "worker",
    "storage",
    "preempted",
    "hang",
    "spike",
    "wordless",
    "nvlink",
    "named",
    "well",
)


def runs_of(kind: str, random: Random, nodes: list[str], checkpoints: Path) -> list[SimulatedRun]:
    """Return the runs of a job: the one that fails, and what comes after it.

    Args:
        kind: One of KINDS.
        random: Chooses steps and nodes, and whether the second run fails as well.
        nodes: Of the cluster.
        checkpoints: The job's folder.
    """
    at, node = random.choice((25, 50, 70)), random.choice(nodes)
    early = nodes[nodes.index(node) % 4]  # one of those that jobs get first
    cut = (40,) if random.random() < 0.2 else ()
    well = SimulatedRun(checkpoints=checkpoints)
    dying = replace(well, fails_at=at, cut=cut)
    first = {
        "ecc": replace(dying, lines=ECC, kernel={node: XID}, only_on=node),
        "dead node": replace(dying, downs=node, only_on=node),
        "nccl": replace(dying, lines=NCCL),
        "bug": replace(dying, lines=BUG),
        "memory": replace(dying, lines=MEMORY),
        "worker": replace(dying, lines=WORKER),
        "storage": replace(dying, lines=SLOWDOWN),
        "preempted": replace(dying, lines=PREEMPTED, state=JobState.PREEMPTED),
        "hang": replace(well, hangs_at=at),
        "spike": replace(well, spikes_at=at, steps=200),
        "wordless": dying,
        "nvlink": replace(dying, lines=NVLINK),
        "named": replace(dying, lines=(f"srun: error: Node failure on {early}",), only_on=early),
        "well": well,
    }[kind]
    if random.random() < 0.25:
        return [first]  # it fails the same way again and again
    return [first, first, well] if random.random() < 0.3 else [first, well]
