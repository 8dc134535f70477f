"""Where the ranks of a job stand: dumps as files, classes of them, and the script on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assistant.tools import stacks
from assistant.tools.stacks import NodeStacks, merged, node_stacks
from assistant.watch.witness import BUSY_SHARE, WitnessVote, stack_vote

CASES = sorted((Path(__file__).parents[1] / "cases" / "stacks").glob("*.toml"))


def said(case: dict[str, Any]) -> dict[str, NodeStacks]:
    """Return what the nodes of a case printed: the dumps are named, and each rank has one, or one for each look."""
    nodes: dict[str, NodeStacks] = {}
    for node in case["node"]:
        ranks = node.get("ranks", {})
        listed = " ".join(f"{100 + int(rank)}:{rank}:{case['world']}" for rank in ranks)
        parts = [f"Welcome to {node['name']}", f"{stacks.LISTED} {listed}", node.get("says", "")]
        for rank, dumps in ranks.items():
            looks = dumps if isinstance(dumps, list) else [dumps, dumps]
            for number, name in enumerate(looks, 1):
                parts += [f"{stacks.BEGIN} {rank} {100 + int(rank)} {number} {node.get('state', 'S')}", case["dump"].get(name, "")]
        nodes[node["name"]] = node_stacks(node["name"], "\n".join(parts)) if "why" not in node else NodeStacks((), why=node["why"])
    return nodes


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_ranks_are_merged_into_classes(path: Path) -> None:
    case = tomllib.loads(path.read_text())
    found = merged(said(case))
    assert found["text"] == case["text"]
    assert [one["rank"] for one in found["odd"]] == case.get("odd", [])
    assert stack_vote(found) is WitnessVote(case["vote"])


def test_numbers_of_ranks_are_folded() -> None:
    assert stacks.numbers([3, 0, 1, 2, 7, 9, 8]) == "0-3,7-9"


def test_an_answer_that_is_cut_off_says_nothing() -> None:
    assert node_stacks("node01", "Last login: today\n").why == "its answer is cut off"


@pytest.fixture
def ranks() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two ranks of job 77, each with a worker that inherits its environment, and one of another job."""
    sleeper = "import subprocess,sys,time; subprocess.Popen([sys.executable,'-c','import time; time.sleep(30)']); time.sleep(30)"
    started = []
    for job, rank in (("77", "0"), ("77", "1"), ("778", "2")):
        environment = {**os.environ, "SLURM_JOB_ID": job, "RANK": rank, "WORLD_SIZE": "2"}
        started.append(subprocess.Popen([sys.executable, "-c", sleeper], env=environment, start_new_session=True))
    yield started
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()


def _run(job: str, py_spy: tuple[str, ...]) -> NodeStacks:
    done = subprocess.run(stacks.command(job, py_spy), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return node_stacks("here", done.stdout)


def test_the_script_finds_the_ranks_and_not_their_workers(ranks: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text(
        '#!/bin/sh\necho "Process $4: python train.py"\necho "Python v3.11.2 (/usr/bin/python3)"\necho\n'
        'echo "Thread $4 (idle): \\"MainThread\\""\necho "    all_reduce (torch/distributed/distributed_c10d.py:2501)"\n'
    )
    program.chmod(0o755)
    found = NodeStacks(())
    for _ in range(20):  # the processes may still be on their way to their environment
        found = _run("77", (str(program),))
        if len(found.stacks) == 2:
            break
        time.sleep(0.1)
    assert [stack.rank for stack in found.stacks] == [0, 1]
    assert (found.world, found.why) == (2, "")
    assert {stacks.place_of(stack.frames) for stack in found.stacks} == {("all_reduce", True)}


SHUFFLES = "import time\nwhile True: sum(n * n for n in range(200000)); time.sleep(0.02)"
SLEEPS = "import time; time.sleep(30)"


@pytest.fixture
def tasks() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Tasks of srun and of MPI alone: one of job 781 works on the CPU; a helper of its batch script sleeps beside it."""
    started = []
    for code, variables in (
        (SHUFFLES, {"SLURM_JOB_ID": "781", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}),
        (SLEEPS, {"SLURM_JOB_ID": "781", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}),
        (SLEEPS, {"SLURM_JOB_ID": "781", "SLURM_PROCID": "0"}),
        (SLEEPS, {"SLURM_JOB_ID": "782", "SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"}),
    ):
        kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
        started.append(subprocess.Popen([sys.executable, "-c", code], env={**kept, **variables}, start_new_session=True))
    yield started
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()


@pytest.mark.parametrize(("job", "numbers", "world", "works"), [("781", (0, 1), 2, True), ("782", (5,), 8, False)])
def test_ranks_of_srun_and_mpi_are_found_and_their_cpu_time_is_read_without_py_spy(
    tasks: list[subprocess.Popen[bytes]], job: str, numbers: tuple[int, ...], world: int, works: bool
) -> None:
    found = NodeStacks(())
    for _ in range(10):  # the processes may still be on their way to their environment
        found = _run(job, ("no-such-py-spy",))
        if found.undumped == numbers and found.cpu_share is not None and (found.cpu_share >= BUSY_SHARE) is works:
            break
    assert (found.undumped, found.world) == (numbers, world)
    assert found.cpu_share is not None
    assert (found.cpu_share >= BUSY_SHARE) is works


def test_a_node_without_py_spy_says_so(ranks: list[subprocess.Popen[bytes]]) -> None:
    found = _run("77", ("no-such-py-spy",))
    assert found.why == "no-such-py-spy is not there; install it (pip install py-spy)"
    assert found.undumped == (0, 1)


def test_a_job_that_is_not_there_has_no_ranks() -> None:
    assert _run("999999", ("true",)).why == "no rank of the job was found, or its processes may not be looked at"
