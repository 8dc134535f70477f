"""What a run outlived is not why it ended: logs of our own wording, and near misses in which the same words are the cause."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.diagnose.weighing.survival import level_of

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parents[1] / "cases" / "outlived" / "logs.toml").read_text("utf-8"))[
    "case"
]
REPEATED = re.compile(r"^\*(\d+) (.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def written(log: str) -> str:
    """Return a log with its repeated lines written out."""
    return REPEATED.sub(lambda match: "\n".join(match[2].replace("{i}", str(10 + at)) for at in range(int(match[1]))), log)


@pytest.mark.parametrize("case", CASES, ids=[f"{case['mechanism']}: {case['name']}" for case in CASES])
def test_what_a_run_outlived_is_not_its_cause(case: dict[str, Any], knowledge: Knowledge, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(written(case["log"]), encoding="utf-8")
    assert diagnose(Case.from_path(tmp_path), knowledge).reason in case["reasons"]


def test_each_mechanism_has_near_misses() -> None:
    for mechanism in {case["mechanism"] for case in CASES}:
        own = [case for case in CASES if case["mechanism"] == mechanism]
        assert sum("near_miss" in case for case in own) >= 8 <= sum("near_miss" not in case for case in own)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("WARNING 03-08 20:38:34 [kernels.py:7] default", "warning"),
        ("(WARN)[load.py:3] x", "warning"),
        ("I0211 10:11:12.131 7 context.cc:4] x", "mild"),
        ("c1:7:9 [0] NCCL INFO NET/Plugin: x", "mild"),
        ("2026-01-01 10:00:00,1 - root - ERROR - x", "error"),
        ("F0211 10:11:12.131 7 context.cc:4] x", "error"),
        ("Error: x", ""),
        ("the INFORMATION", ""),
    ],
)
def test_the_level_of_a_line_is_read_from_its_head(text: str, level: str) -> None:
    assert level_of(text) == level
