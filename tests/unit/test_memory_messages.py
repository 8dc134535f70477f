"""Messages about memory: each wording is read with its figures, and what only looks like one is not."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.readers.memory_messages import read_memory_message
from assistant.logs.lines import Line
from assistant.memory_plan.problems import read_problems
from assistant.memory_plan.setup import GIB

FOLDER = Path(__file__).parents[1] / "cases" / "memory_plan"
FILES = ("messages.toml", "host_messages.toml")
CASES = [case for file in FILES for case in tomllib.loads((FOLDER / file).read_text(encoding="utf-8"))["message"]]
SIZES = ("requested", "total", "free", "allocated", "unused", "process_use", "pools", "allowed", "limit")


def test_there_are_enough_wordings() -> None:
    assert len({case["text"] for case in CASES}) == len(CASES) >= 120
    assert sum(not case["kind"] for case in CASES) >= 30


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"][:60])
def test_a_wording_tells_its_problem(case: dict[str, Any]) -> None:
    reading = read_problems([Line(1, "starting"), Line(2, case["text"])])
    kinds = [problem.kind for problem in reading.problems]
    assert kinds[:1] == ([case["kind"]] if case["kind"] else [])
    if not kinds:
        return
    first = reading.problems[0]
    assert first.proof[-1].line == 2
    assert first.place == case.get("spot")
    assert first.cause == case.get("cause", first.cause)


@pytest.mark.parametrize("case", [case for case in CASES if case["kind"]], ids=lambda case: case["text"][:60])
def test_the_figures_of_a_wording_are_read(case: dict[str, Any]) -> None:
    message = read_memory_message(case["text"])
    assert message is not None
    for name in SIZES:
        if name in case:
            assert getattr(message, name) / GIB == pytest.approx(case[name], rel=1e-3), name
    assert [pid for pid, _ in message.foreign_processes] == case.get("others", [])
    for name in ("gpu", "pid", "form"):
        assert getattr(message, name) == case.get(name, getattr(message, name))
