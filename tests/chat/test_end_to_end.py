"""A whole night in a real terminal: a job dies, the operator looks and allows, the job comes back. Real processes train."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chat.in_tmux import TMUX, Screen

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(TMUX is None, reason="tmux is not installed: make deps-chat"),
    pytest.mark.timeout(240),
]


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    opened = Screen(tmp_path, sys.executable, "-m", "assistant", "demo", "--chat", "--folder", str(tmp_path / "night"))
    yield opened
    opened.close()


def test_a_job_dies_and_comes_back_by_the_hands_of_the_operator(screen: Screen) -> None:
    screen.until("Nothing is wrong")
    screen.until(lambda text: re.search(r"waiting \(1\)\s+ecc_error", text))

    # the incident, and the line that proves its verdict
    screen.keys("F2", "Enter")
    screen.until("to blame: node02")
    screen.keys("l")
    screen.until(lambda text: "Per rank" in text and re.search(r"Xid|uncorrectable ECC error", text))
    screen.keys("Escape")
    screen.until("to blame: node02")
    screen.keys("Escape")
    screen.until("Waiting for you")

    # the cordon, then the restart: each with its exact command, and only after a yes
    screen.keys("F3", "Enter")
    asked = screen.until("Approval 1")
    assert "scontrol update NodeName=node02 State=DRAIN" in asked
    assert "nightshift undo" in asked
    screen.answer("y")
    screen.until(lambda text: re.search(r"\? 2 .*submit demo-lm", text))
    screen.keys("F3")
    screen.until(lambda text: "submit demo-lm" in text)
    screen.keys("Enter")
    screen.until("Approval 2")
    screen.answer("y")

    screen.until(lambda text: re.search(r"✓ 1\s+job 1\s+recovered", text) or re.search(r"recovered\s+ecc_error", text))
    screen.keys("Escape")
    screen.until("nothing is wrong")
    screen.keys("C-q")
    assert screen.left() == "0"
