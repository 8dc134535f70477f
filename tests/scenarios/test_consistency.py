"""The rules by which two sentences of a page contradict each other, held against pages that did and that did not."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.consistency import contradictions

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "contradictions.toml").read_text())["case"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_page_that_says_two_opposite_things_is_found(case: dict[str, Any]) -> None:
    assert bool(list(contradictions(case["page"]))) is case["fault"]
