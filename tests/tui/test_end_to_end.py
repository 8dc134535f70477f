"""A whole night in a real terminal: a job dies, the operator looks and allows, the job comes back. Real processes train."""

from __future__ import annotations

import re

from tests.tui.in_tmux import IN_TMUX, Screen, demo_screen  # noqa: F401 - the fixture

pytestmark = IN_TMUX


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
    screen.until(lambda text: re.search(r"\? 2 .*sbatch", text))
    screen.keys("F3")
    screen.until(lambda text: "--job-name=demo-lm" in text)
    screen.keys("Enter")
    screen.until("Approval 2")
    screen.answer("y")

    screen.until(lambda text: re.search(r"✓ 1\s+job 1\s+recovered", text) or re.search(r"recovered\s+ecc_error", text))
    screen.keys("Escape")
    screen.until("nothing is wrong")
    screen.keys("C-q")
    assert screen.left() == "0"
