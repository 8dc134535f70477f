"""A bus error and what it is not; data files that others write while a job reads them; what a task of an array met in a race."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose

FOLDER = Path(__file__).parents[1] / "cases" / "changed_files"
BUS_ERRORS = tomllib.loads((FOLDER / "bus_errors.toml").read_text(encoding="utf-8"))["case"]
STEPS = "".join(f" iteration {n:8d}/ 1000 | consumed samples: {n * 8} | lm loss: {3 - n / 100:.4E} |\n" for n in range(1, 44))


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.mark.parametrize("case", BUS_ERRORS, ids=lambda case: case["name"])
def test_a_bus_error_is_the_loaders_only_where_the_loader_says_so(
    case: dict[str, Any], tmp_path: Path, knowledge: Knowledge
) -> None:
    (tmp_path / "job.log").write_text(STEPS + case["log"].strip() + "\n")
    found = diagnose(Case.from_path(tmp_path), knowledge)
    words = f"{found.summary} {found.advice}"
    assert found.reason == case.get("reason", found.reason), words
    assert str(found.action) == case.get("action", str(found.action))
    assert [text for text in case.get("says", ()) if text not in words] == [], words
    assert [text for text in case.get("never", ()) if text in words] == [], words
    if case["log"].startswith("srun") and "reason" in case:
        assert not found.faulty_nodes
