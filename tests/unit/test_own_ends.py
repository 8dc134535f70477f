"""A rank that ended by a signal of its own is the cause of what its peers say, in whatever order the lines stand."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.records import Action, Diagnosis

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "own_ends" / "cases.toml").read_text())["case"]
STEPS = "".join(f" iteration {n:8d}/ 1000 | consumed samples: {n * 8} | lm loss: {3 - n / 100:.4E} |\n" for n in range(1, 44))


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def told(folder: Path, case: dict[str, Any], knowledge: Knowledge) -> Diagnosis:
    (folder / "job.log").write_text(STEPS * case.get("steps", True) + case["log"])
    return diagnose(Case.from_path(folder), knowledge)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_signal_is_the_cause_unless_it_follows_from_something_else(
    case: dict[str, Any], tmp_path: Path, knowledge: Knowledge
) -> None:
    found = told(tmp_path, case, knowledge)
    assert found.reason == case["reason"], found.summary
    assert not (case["signal"] and found.action is Action.CORDON_AND_RESTART)
    assert "action" not in case or str(found.action) == case["action"]


def test_the_peers_words_are_a_rival_with_why_they_are_none(tmp_path: Path, knowledge: Knowledge) -> None:
    found = told(tmp_path, CASES[0], knowledge)
    rival = next(rival for rival in found.rivals if rival.reason == "nccl_remote_error")
    assert rival.speaks_against.startswith("it only lost a peer that ended by a signal")
