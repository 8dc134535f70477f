"""What stands before a line; cases as data."""

from __future__ import annotations

import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.logs.prefix import Prefix, parse

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "prefix" / "prefixes.toml").read_text())["case"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"][:40])
def test_marks_are_parsed(case: dict[str, Any]) -> None:
    at = datetime.fromisoformat(case["at"]) if "at" in case else None
    assert parse(case["text"]) == Prefix(case.get("rank"), case.get("host"), at, case["rest"])
