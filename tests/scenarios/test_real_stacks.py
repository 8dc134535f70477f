"""Stacks of real processes, dumped by a real py-spy: ranks of a job that hangs are merged into classes, as the watch sees them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.demo.rehearsal import demo_settings
from assistant.engine import Engine
from assistant.ports import SystemClock
from assistant.records import JobSpec
from assistant.schedulers.local import LocalScheduler
from assistant.watch.witness import WitnessVote, stack_vote, witness_of
from assistant.wiring import build, local_folder

PY_SPY = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
TRAIN = """\
import os
from distributed import c10d
from utils.data import dataloader

def train_step():
    if os.environ["RANK"] == "3":
        dataloader.next_batch()
    c10d.all_reduce()

train_step()
"""
SLEEPS = "import time\ndef all_reduce():\n    time.sleep(600)\n"
LOOPS = "def next_batch():\n    while True: pass\n"


def _may_look() -> bool:
    """Tell whether py-spy may look at a process that is not its child: that needs root or a kernel that is not so strict."""
    if PY_SPY is None:
        return False
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as sleeper:
        time.sleep(0.5)
        seen = subprocess.run([PY_SPY, "dump", "--nonblocking", "--pid", str(sleeper.pid)], capture_output=True, check=False)
        sleeper.kill()
    return seen.returncode == 0


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[Engine, str]]:
    """Three of four ranks wait in an all-reduce for the last one, which loops while it reads its data."""
    if PY_SPY is None or not _may_look():
        pytest.skip("there is no py-spy here, or it may not look at other processes (root may)")
    packages = {f"{name}/__init__.py": "" for name in ("distributed", "utils", "utils/data")}
    for path, text in {
        **packages,
        "train.py": TRAIN,
        "distributed/c10d.py": SLEEPS,
        "utils/data/dataloader.py": LOOPS,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    settings = demo_settings(tmp_path / "state")
    settings = replace(settings, commands={**settings.commands, "py_spy": (PY_SPY,)})
    cluster = LocalScheduler(local_folder(settings), SystemClock(), nodes=2)
    engine = build(settings, scheduler=cluster)
    job = cluster.submit(
        JobSpec("llm", f"exec {sys.executable} train.py", nodes=2, ranks_per_node=2, work_dir=tmp_path, log="job.log")
    )
    yield engine, job
    cluster.cancel(job)
    for _ in range(200):
        if cluster.job(job).state.ended:
            break
        time.sleep(0.05)
    engine.store.close()


@pytest.mark.slow
def test_ranks_of_a_real_job_are_merged_into_classes_and_the_odd_one_is_named(hanging: tuple[Engine, str]) -> None:
    engine, job = hanging
    found: dict[str, Any] = {}
    for _ in range(10):  # until all of them have come to where they stay
        outcome = engine.gate.call("stack_classes", {"job": job}, why="it hangs", by="watch")
        assert outcome.ok, outcome.error
        found = dict(outcome.value)
        if found["text"].startswith("3 ranks in all_reduce"):
            break
    assert found["text"] == "3 ranks in all_reduce, rank 3 in the dataloader on node02"
    assert (found["seen"], found["expected"], found["moved"], found["unknown"], found["absent"]) == (4, 4, 0, {}, [])
    waiting, loops = found["classes"]
    assert (waiting["named"], waiting["nodes"], waiting["waits"]) == ("0-2", "node[01-02]", True)
    assert waiting["stack"][0] == "all_reduce (distributed/c10d.py:3)"
    assert waiting["stack"][1].startswith("train_step (")
    assert loops["stack"][0] == "next_batch (data/dataloader.py:2)"
    (odd,) = found["odd"]
    assert (odd["rank"], odd["node"], odd["state"]) == (3, "node02", "R")
    assert (found["busy"], max(found["cpu"].values()) > 0.03) == (1, True)
    assert stack_vote(found) is WitnessVote.UNKNOWN  # a loop without end, or long work: its stack cannot tell
    assert stack_vote({**found, "busy": 0}) is WitnessVote.HUNG
    assert witness_of(None, found).suspects == ("node02",)
