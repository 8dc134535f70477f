"""The job of the demo and how a fault is armed against it on the embedded scheduler."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assistant.content.faults import Fault, FaultEffect, Tied
from assistant.records import JobSpec
from assistant.schedulers.local import LocalScheduler
from assistant.schedulers.local_jobs import write_json

BATCH_SIZE = 32
"""Samples of a step over all ranks; skipping counts in samples."""

SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name} --nodes={nodes} --ntasks-per-node={ranks_per_node}
#NIGHTSHIFT checkpoints={checkpoints} format=nightshift
#NIGHTSHIFT resume="--load {{checkpoint}}" skip="--skip-samples {{from}}:{{to}}"
exec {python} -m assistant.training.numpy_lm --checkpoints {checkpoints} \\
  --steps {steps} --save-interval {save_interval} --batch-size {batch_size} --step-ms {step_ms:g} \\
  ${{NIGHTSHIFT_RESUME_FROM:+--load "$NIGHTSHIFT_RESUME_FROM"}} \\
  ${{NIGHTSHIFT_SKIP_FROM:+--skip-samples "$NIGHTSHIFT_SKIP_FROM:$NIGHTSHIFT_SKIP_TO"}}
"""


def demo_job(
    folder: Path,
    *,
    steps: int = 120,
    save_interval: int = 20,
    step_ms: float = 50.0,
    nodes: int = 2,
    ranks_per_node: int = 2,
    name: str = "demo-lm",
) -> JobSpec:
    """Return the demo's training job; it works in `folder`, with checkpoints/ and faults/ in it.

    Args:
        folder: Made when missing.
        steps: Optimiser steps of the whole run.
        save_interval: Steps between checkpoints.
        step_ms: Shortest time of a step.
        nodes: How many.
        ranks_per_node: How many.
        name: Name of the job.
    """
    folder = folder.absolute()
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "faults").mkdir(exist_ok=True)
    script = SCRIPT.format(
        name=name,
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        checkpoints=shlex.quote(str(folder / "checkpoints")),
        python=shlex.quote(sys.executable),
        steps=steps,
        save_interval=save_interval,
        batch_size=BATCH_SIZE,
        step_ms=step_ms,
    )
    environment = {"NIGHTSHIFT_FAULT_DIR": str(folder / "faults")}
    return JobSpec(
        name=name,
        script=script,
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        work_dir=folder,
        environment=environment,
        log="job-%j.log",
    )


def struck_node(fault: Fault, nodes: Sequence[str], ranks_per_node: int) -> str:
    """Return the node of the rank that a fault strikes, the first one when it strikes all.

    Args:
        fault: Which.
        nodes: The nodes on which the first run will be placed, in order.
        ranks_per_node: How many ranks each gets.
    """
    return nodes[min((fault.rank or 0) // ranks_per_node, len(nodes) - 1)]


def arm(fault: Fault, cluster: LocalScheduler, spec: JobSpec) -> str:
    """Let a fault lie in wait for a job that is about to be submitted.

    Args:
        fault: Which.
        cluster: Where the job will run; its first free nodes are taken to be the job's.
        spec: The job, made by `demo_job`.

    Returns:
        The node of the rank that will be struck.
    """
    free = [node.name for node in cluster.nodes() if node.state == "idle" and node.name not in spec.exclude]
    node = struck_node(fault, free[: spec.nodes], spec.ranks_per_node)
    stored = armed(fault)
    folder = Path(spec.environment["NIGHTSHIFT_FAULT_DIR"])
    if fault.tied is Tied.NODE:
        stored |= {"rank": None, "local_rank": (fault.rank or 0) % spec.ranks_per_node}
        folder = cluster.node_folder(node) / "armed"
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{fault.name}.json", stored)
    return node


def armed(fault: Fault) -> dict[str, Any]:
    """Return the file by which the trainer's ranks learn of a fault."""
    keys = ("name", "how", "on", "at_step", "rank", "exception", "message", "prints", "kernel", "damages", "outage_s")
    stored = {key: getattr(fault, key) for key in keys}
    stored |= {"once": fault.tied is Tied.ONCE, "collective_timeout_s": fault.collective_timeout_s}
    if fault.how is FaultEffect.BAD_SAMPLES:
        stored["samples"] = [(step - 1) * BATCH_SIZE for step in fault.bad_steps]
    return stored
