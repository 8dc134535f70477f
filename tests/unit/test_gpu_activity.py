"""What GPUs are at, by what `nvidia-smi dmon` prints; cases as files."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from assistant.tools._gpu_activity import activities, queried
from assistant.watch.witness import WitnessVote, gpu_vote, joined

CASES = sorted((Path(__file__).parents[1] / "cases" / "gpu_activity").glob("*.toml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_counters_tell_what_gpus_are_at(path: Path) -> None:
    case = tomllib.loads(path.read_text())
    found = [one.state() for one in (queried(case["query"]) if "query" in case else activities(case["out"]))]
    assert found == case["states"]
    assert gpu_vote({"nodes": {"node01": {"gpus": [{"state": state} for state in found]}}}) is WitnessVote(case["vote"])


def test_witnesses_that_contradict_one_another_leave_it_open() -> None:
    assert joined({"gpus": WitnessVote.HUNG, "stacks": WitnessVote.UNKNOWN}) is WitnessVote.HUNG
    assert joined({"gpus": WitnessVote.HUNG, "stacks": WitnessVote.WORKING}) is WitnessVote.UNKNOWN
    assert joined({}) is WitnessVote.UNKNOWN
