"""How a scheduler other than Slurm says that a job ended decides: not fine behind a bad last event, fine behind a good one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.ranked import RankerOpinion
from assistant.diagnose.verdict import diagnose

FOLDER = Path(__file__).parents[1] / "cases" / "scheduler_ends"
CASES = [case for file in sorted(FOLDER.glob("*.toml")) for case in tomllib.loads(file.read_text())["case"]]


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_last_record_of_a_scheduler_tells_how_its_job_ended(case: dict[str, Any], tmp_path: Path, knowledge: Knowledge) -> None:
    (tmp_path / "job.log").write_text(case["log"].removeprefix("\n"))
    diagnosis = diagnose(Case.from_path(tmp_path), knowledge, (RankerOpinion(),))
    reasons = [case["reason"]] if isinstance(case["reason"], str) else case["reason"]
    shown = f"{diagnosis.reason} {diagnosis.confidence} {diagnosis.action} {diagnosis.summary} // {diagnosis.advice}"
    assert diagnosis.reason in reasons, shown
    assert str(diagnosis.action) == case.get("action", str(diagnosis.action)), shown
    assert [word for word in case.get("advice", ()) if word not in diagnosis.advice] == [], shown
    assert [host for host in case.get("hosts", ()) if host not in f"{diagnosis.summary} {diagnosis.advice}"] == [], shown
    assert [node.node for node in diagnosis.nodes] == case.get("nodes", [node.node for node in diagnosis.nodes]), shown
    first = diagnosis.root_cause[0].text if diagnosis.root_cause else ""
    assert case.get("first", "") in first, shown
