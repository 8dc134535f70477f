"""The job of the demo on the embedded scheduler: how a fault is armed against it, and the watch over it beside a chat.

The watch is a process of its own, as on a real cluster: the chat only shares its store and its scheduler. So may any other shell,
with `nightshift --config FOLDER/config.toml`.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assistant import processes
from assistant.config import Settings, load
from assistant.content.faults import Fault, FaultEffect, Tied, find_fault
from assistant.content.reading import shipped
from assistant.display import line
from assistant.engine.ownership import owner_name
from assistant.errors import NightshiftError
from assistant.ports import SystemClock
from assistant.records import JobSpec
from assistant.schedulers.local import LocalScheduler
from assistant.schedulers.local_jobs import write_json
from assistant.wiring import build, local_folder

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


NODES = 6
"""Virtual nodes; the job takes two, so there are spares."""
STEPS = 120
"""Optimiser steps of a run, where the fault does not need more."""
POLL_S = 0.2
"""Seconds between two looks."""
SIGN_S = 5.0
"""Seconds between two passes that are written down, by which the chat sees that a watch lives."""
ENDS_S = 20.0
"""How long the watch may take to end what it began."""
CONFIG = """\
scheduler = "local"
state_folder = "{folder}/state"
store = "{folder}/state/nightshift.db"
content = "{folder}/site"

[commands]
kernel_log = ["cat", "kernel.log"]

[watch]
poll_s = {poll_s}
hang_after_s = 8.0
hang_factor = 6.0
spike_patience_steps = 8
"""


def prepare(folder: Path) -> Settings:
    """Write the settings of a night into an empty folder, with a policy that asks before each change, and return them."""
    (folder / "site" / "knowledge").mkdir(parents=True)
    terms = (shipped("knowledge") / "policy.toml").read_text(encoding="utf-8")
    asking = terms.replace('mode = "observe"', 'mode = "propose"', 1)
    (folder / "site" / "knowledge" / "policy.toml").write_text(asking, encoding="utf-8")
    config = folder / "config.toml"
    config.write_text(CONFIG.format(folder=folder, poll_s=POLL_S), encoding="utf-8")
    return load({"HOME": str(folder)}, config=config).settings


@contextlib.contextmanager
def watched(fault: Fault, folder: Path) -> Iterator[None]:
    """Keep a job and the watch over it running beside the block; afterwards nothing runs any more."""
    command = [sys.executable, "-m", "assistant.demo.job", fault.name, str(folder)]
    errors = (folder / "watch.log").open("wb")
    started = processes.start(
        command, environment=processes.own_environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
    )
    with errors, started as watch:
        try:
            yield
        finally:
            if watch.stdin is not None:
                watch.stdin.close()
            try:
                watch.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                watch.kill()


def keep_watch(fault: Fault, settings: Settings, run: Path, ended: threading.Event) -> None:
    """Submit the job that fails and look after it until `ended`; then end every job."""
    clock = SystemClock()
    cluster = LocalScheduler(local_folder(settings), clock, nodes=NODES)
    engine = build(settings, clock=clock, since=clock.now())
    spec = demo_job(run, steps=fault.steps or STEPS)
    arm(fault, cluster, spec)
    _ = engine.knowledge
    cluster.submit(spec)
    owner, written = owner_name("demo"), 0.0
    try:
        while not ended.wait(POLL_S):
            at, trouble = clock.now(), tuple[str, ...]()
            try:
                engine.tick(owner=owner)
            except NightshiftError as error:
                print(line(error), file=sys.stderr, flush=True)  # noqa: T201 - its stderr is a file of the demo's folder
                trouble = (str(error),)
            if time.monotonic() - written > SIGN_S or trouble:
                written = time.monotonic()
                with contextlib.suppress(NightshiftError):
                    engine.store.keep_pass(owner, at=at, seconds=0.0, leads=True, whole=not trouble, trouble=trouble)
    finally:
        for job in cluster.jobs():
            if not job.state.ended:
                cluster.cancel(job.id)
        engine.store.close()


def main(fault: str, folder: Path) -> None:
    """Be the watch until standard input ends."""
    ended = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    settings = load({"HOME": str(folder)}, config=folder / "config.toml").settings
    keep_watch(find_fault(fault), settings, folder / "run", ended)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
