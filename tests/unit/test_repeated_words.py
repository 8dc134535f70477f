"""The same last words twice at one place are told, and nothing else is taken for them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.engine.evidence.repeated_words import came_twice, last_words

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "repeated_words" / "cases.toml").read_text())["case"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_only_words_of_an_end_that_came_twice_count(case: dict[str, Any]) -> None:
    ends = last_words(case["log"])
    twice = len(ends) > 1 and came_twice(ends[-2], ends[-1], case["log"], len(ends))
    assert twice is bool(case["words"])
    assert not twice or ends[-1].text == case["words"]


def test_a_huge_line_and_one_without_end_cost_nothing() -> None:
    assert last_words(["x" * 5_000_000, "srun: error: n1: task 0: Exited with exit code 4"])[0].line == 1
