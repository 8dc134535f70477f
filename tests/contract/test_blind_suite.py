"""The blind suites, once written without sight of the signatures, stay diagnosed, and none of them ever costs a healthy node."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from assistant.diagnose.knowledge import Knowledge
from bench.blind import Figures, measure, suites

LEAST = 0.97
"""A bit under what was reached when each suite became regression data."""


@cache
def figures(suite: Path) -> Figures:
    return measure(suite, Knowledge.load())


@pytest.mark.parametrize("suite", suites(), ids=lambda path: path.name)
def test_a_blind_suite_stays_diagnosed(suite: Path) -> None:
    got = figures(suite)
    assert min(got.reason, got.action, got.line) >= LEAST, got.wrong


@pytest.mark.parametrize("suite", suites(), ids=lambda path: path.name)
def test_no_answer_would_cordon_a_node_that_is_not_to_blame(suite: Path) -> None:
    assert figures(suite).harmful == ()


@pytest.mark.parametrize("suite", suites(), ids=lambda path: path.name)
def test_healthy_logs_stay_healthy(suite: Path) -> None:
    assert [name for name in figures(suite).wrong if "/no_failure_" in name] == []
