"""The benchmark of raw logs: what it counts as right, harmful and fine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.raw import Judged, expected_calibration_error, figures, main

LABEL = {
    "id": "001",
    "reason": "no_failure",
    "category": "none",
    "action": "none",
    "root_cause_lines": [],
    "faulty_nodes": [],
    "also_acceptable": [],
    "also_acceptable_actions": [],
}
FAILED = LABEL | {"reason": "ecc_error", "category": "infrastructure", "action": "cordon_and_restart", "root_cause_lines": [7]}
FAILED |= {"faulty_nodes": ["gpu7"]}
ANSWER = {"reason": "no_failure", "category": "none", "action": "none", "faulty_nodes": [], "confidence": 0.95, "root_cause": []}
BLAME = ANSWER | {"reason": "ecc_error", "category": "infrastructure", "action": "cordon_and_restart"}


def test_the_right_answer_has_nothing_wrong() -> None:
    lines = [{"file": "job.log", "line": 9, "rule": "", "text": ""}]
    assert Judged(LABEL, ANSWER).wrong == []
    assert Judged(FAILED, BLAME | {"faulty_nodes": ["gpu7"], "root_cause": lines}).wrong == []


@pytest.mark.parametrize(
    ("label", "answer", "name", "value"),
    [
        (LABEL, ANSWER, "fine_right", "1/1"),
        (LABEL, BLAME, "fine_called_failed", "1/1"),
        (LABEL, ANSWER | {"reason": "unknown"}, "fine_called_failed", "0/1"),
        (FAILED, ANSWER, "failed_called_fine", "1/1"),
        (FAILED, ANSWER, "right_from_0.95", "0/1"),
        (FAILED, BLAME | {"faulty_nodes": ["gpu8"]}, "harmful_cordon", "1"),
        (FAILED, BLAME | {"faulty_nodes": ["gpu7", "gpu8"]}, "node_f1", "0.667"),
        (LABEL | {"reason": "cancelled", "also_acceptable": ["no_failure"]}, ANSWER, "failed_called_fine", "0/1"),
    ],
)
def test_what_is_counted(label: dict[str, object], answer: dict[str, object], name: str, value: str) -> None:
    assert dict(figures([Judged(label, answer)]))[name] == value


def test_the_calibration_error_is_the_distance_of_confidence_and_right_answers() -> None:
    cases = [Judged(LABEL, ANSWER), Judged(FAILED, ANSWER), Judged(LABEL, ANSWER | {"reason": "unknown"})]
    assert expected_calibration_error(cases) == pytest.approx(0.45)


def test_a_suite_is_measured_and_compared_with_an_earlier_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "001").mkdir()
    (tmp_path / "001" / "job.log").write_text("step 1 loss 2.0\n" * 3 + "Training finished\n", encoding="utf-8")
    (tmp_path / "labels.jsonl").write_text(json.dumps(FAILED) + "\n", encoding="utf-8")
    saved = tmp_path / "answers.json"
    assert main([str(tmp_path), "--wrong", "--save", str(saved)]) == 0
    assert "cases 1  reason 0.000" in capsys.readouterr().out
    saved.write_text(saved.read_text(encoding="utf-8").replace("no_failure", "unknown"), encoding="utf-8")
    assert main([str(tmp_path), "--against", str(saved)]) == 0
    assert "changed 001" in capsys.readouterr().out


def test_a_suite_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none")]) == 0
    assert "labels.jsonl was wanted" in capsys.readouterr().out
