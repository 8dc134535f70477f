"""Logs that end in attempts that go on failing, gradients that are lost up to the end, and clocks of two zones."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.diagnose.weighing.retries import failing_attempts, is_attempt
from assistant.logs.lines import Line
from assistant.records import Diagnosis

FAILS = "WARNING fetch: attempt {number}/9 failed: ReadTimeout on https://store.lab:9000; retrying in 10s"


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def diagnosed(folder: Path, knowledge: Knowledge, *lines: str) -> Diagnosis:
    (folder / "job.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return diagnose(Case.from_path(folder), knowledge)


def numbered(*texts: str) -> list[Line]:
    return [Line(number, text) for number, text in enumerate(texts, 1)]


def test_attempts_at_the_end_are_told_with_the_first_and_the_last() -> None:
    lines = numbered("INFO fetch: begins", *(FAILS.format(number=number) for number in range(1, 5)))
    assert [line.number for line in failing_attempts(lines, 0)] == [2, 5]


@pytest.mark.parametrize(
    "texts",
    [
        (*(FAILS.format(number=number) for number in range(1, 5)), "INFO fetch: connected"),
        (FAILS.format(number=1), FAILS.format(number=2), *(f"row {number} read" for number in range(8))),
        tuple(f"wandb: Network error (ConnectTimeout), entering retry loop {number}" for number in range(5)),
    ],
)
def test_attempts_that_led_to_something_or_only_report_are_none(texts: tuple[str, ...]) -> None:
    assert failing_attempts(numbered(*texts), 0) == ()


def test_attempts_before_the_last_step_are_outlived() -> None:
    lines = numbered(*(FAILS.format(number=number) for number in range(1, 5)), "step 7 loss 2.1")
    assert failing_attempts(lines, 5) == ()


def test_a_line_without_a_failure_is_no_attempt() -> None:
    assert is_attempt(FAILS.format(number=1))
    assert not is_attempt("INFO fetch: attempt 2 of 9")


def test_a_run_that_tries_in_vain_is_not_called_fine(tmp_path: Path, knowledge: Knowledge) -> None:
    lines = ("INFO fetch: part 12", *(FAILS.format(number=number) for number in range(1, 7)))
    diagnosis = diagnosed(tmp_path, knowledge, *lines)
    assert diagnosis.reason != "no_failure"
    assert "Nothing has to be done" not in diagnosis.advice


def test_a_gradient_norm_that_is_lost_up_to_the_end_is_a_spike(tmp_path: Path, knowledge: Knowledge) -> None:
    form = "10/30 22:18:{at:02} - engine - INFO - Epoch(train) [1][{step}/735]  lr: 1.9e-04  loss: 2.7  grad_norm: {norm}"
    norms = ["3.0", "2.7", "2.7", "2.5", "nan", "nan"]
    lines = [form.format(at=at, step=200 + 10 * at, norm=norm) for at, norm in enumerate(norms)]
    diagnosis = diagnosed(tmp_path, knowledge, *lines)
    assert diagnosis.reason == "loss_spike"
    assert diagnosis.root_cause[0].line == 5


def test_a_gradient_norm_that_came_back_is_none(tmp_path: Path, knowledge: Knowledge) -> None:
    form = "10/30 22:18:{at:02} - engine - INFO - Epoch(train) [1][{step}/735]  lr: 1.9e-04  loss: 2.7  grad_norm: {norm}"
    norms = ["3.0", "2.7", "2.7", "nan", "nan", "2.5"]
    lines = [form.format(at=at, step=200 + 10 * at, norm=norm) for at, norm in enumerate(norms)]
    assert diagnosed(tmp_path, knowledge, *lines).reason == "no_failure"


def test_a_clock_of_another_zone_makes_no_run_longer(tmp_path: Path, knowledge: Knowledge) -> None:
    lines = (
        "2024-03-01 10:00:00,000 - edit - INFO - begins",
        "2024-03-01 11:20:00,000 - edit - INFO - row 7",
        "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2024-03-01T15:20:10 DUE TO TIME LIMIT ***",
    )
    assert "It had run for 1 h 20 min" in diagnosed(tmp_path, knowledge, *lines).advice


def test_a_run_that_was_silent_for_long_ran_as_long_as_the_scheduler_says(tmp_path: Path, knowledge: Knowledge) -> None:
    lines = (
        "2024-03-01 10:00:00,000 - edit - INFO - begins",
        "2024-03-01 10:07:13,000 - edit - INFO - row 7",
        "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2024-03-01T15:20:10 DUE TO TIME LIMIT ***",
    )
    assert "It had run for 5 h 20 min" in diagnosed(tmp_path, knowledge, *lines).advice
