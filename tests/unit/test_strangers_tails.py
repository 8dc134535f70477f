"""The last lines of logs of strangers: how the run stands, which start counts, and the change that the message itself shows."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.ranked import RankerOpinion
from assistant.diagnose.verdict import diagnose

FOLDER = Path(__file__).parents[1] / "cases" / "strangers_tails"
CASES = [case for path in sorted(FOLDER.glob("*.toml")) for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]]


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_the_last_lines_show_is_what_is_said(tmp_path: Path, knowledge: Knowledge, case: dict[str, Any]) -> None:
    (tmp_path / "job.log").write_text(case["log"], encoding="utf-8")
    diagnosis = diagnose(Case.from_path(tmp_path), knowledge, (RankerOpinion(),))
    assert diagnosis.reason == case["reason"], diagnosis.summary
    assert [words for words in case["says"] if words not in diagnosis.advice] == [], diagnosis.advice
    assert [words for words in case["never"] if words in diagnosis.advice] == [], diagnosis.advice
    assert case.get("step", diagnosis.step) == diagnosis.step
    assert case.get("action", diagnosis.action) == diagnosis.action, diagnosis.advice
    assert (
        case.get("cites", diagnosis.root_cause[0].line if diagnosis.root_cause else 0)
        in [cited.line for cited in diagnosis.root_cause[:3]]
        or not diagnosis.root_cause
    )
