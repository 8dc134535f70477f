"""What GPUs are at, by what `nvidia-smi dmon` prints; cases as files."""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.gpu import activities, allotted_command, allotted_gpus, queried_gpus
from assistant.watch.witness import WitnessVote, gpu_vote, joined
from tests.scenarios.scene import Scene

CASES = sorted((Path(__file__).parents[1] / "cases" / "gpu_activity").glob("*.toml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_counters_tell_what_gpus_are_at(path: Path) -> None:
    case = tomllib.loads(path.read_text())
    found = [one.state() for one in (queried_gpus(case["query"]) if "query" in case else activities(case["out"]))]
    assert found == case["states"]
    assert gpu_vote({"nodes": {"node01": {"gpus": [{"state": state} for state in found]}}}) is WitnessVote(case["vote"])


def test_witnesses_that_contradict_one_another_leave_it_open() -> None:
    assert joined({"gpus": WitnessVote.HUNG, "stacks": WitnessVote.UNKNOWN}) is WitnessVote.HUNG
    assert joined({"gpus": WitnessVote.HUNG, "stacks": WitnessVote.WORKING}) is WitnessVote.UNKNOWN
    assert joined({}) is WitnessVote.UNKNOWN


@pytest.mark.parametrize(
    ("text", "first", "numbers"),
    [
        ("SLURM_JOB_GPUS=0,1\nend\n", True, {0, 1}),
        ("SLURM_JOB_GPUS=0,1\nend\n", False, set()),  # inherited from the first node
        ("SLURM_JOB_GPUS=0,1\nSLURM_STEP_GPUS=4-6\nend\n", False, {4, 5, 6}),
        ("SLURM_JOB_GPUS=0,1,2,3\nSLURM_STEP_GPUS=0\nSLURM_STEP_GPUS=3\nend\n", True, {0, 3}),
        ("SLURM_STEP_GPUS=,-,x\nend\n", True, set()),
        ("SLURM_STEP_GPUS=0-999999999\nend\n", True, set(range(65))),
        ("end\n", True, set()),
    ],
)
def test_the_gpus_of_a_job_are_those_that_its_steps_were_given(text: str, first: bool, numbers: set[int]) -> None:
    assert allotted_gpus(text, first=first) == numbers


@pytest.mark.parametrize(
    ("asked", "said", "shown", "unknown"),
    [
        ("--gres=gpu:2", "SLURM_JOB_GPUS=4,5\nend\n", [4, 5], False),
        ("--gres=gpu:2", "end\n", [], True),  # others may compute on the rest
        ("--gres=gpu:8", "end\n", list(range(8)), False),
        ("", "end\n", list(range(8)), False),  # the site shares no GPUs out
    ],
)
def test_only_the_gpus_of_the_job_have_a_vote(asked: str, said: str, shown: list[int], unknown: bool, tmp_path: Path) -> None:
    scene = Scene(tmp_path, nodes=1, run=SimulatedRun(hangs_at=5))
    dmon = "# gpu pwr sm mem rxpci txpci\n" + "".join(f"    {gpu} 400 99 60 900 900\n" for gpu in range(8))
    scene.cluster.answers["nvidia-smi dmon -s put -c 5 -d 2"] = lambda node: Reply(node, True, 0, dmon, "")
    scene.cluster.answers[shlex.join(allotted_command("1"))] = lambda node: Reply(node, True, 0, said, "")
    scene.cluster.submit(replace(scene.spec, nodes=1, script=f"#!/bin/bash\n#SBATCH {asked}\n{scene.spec.script}"))
    scene.clock.sleep(20)
    value = scene.engine.gate.call("gpu_activity", {"job": "1"}, why="test", by="cli:test").value
    assert [gpu["gpu"] for gpu in value["nodes"].get("node01", {}).get("gpus", [])] == shown
    assert bool(value["unknown"]) is unknown
    assert gpu_vote(value) is (WitnessVote.UNKNOWN if unknown else WitnessVote.WORKING)
