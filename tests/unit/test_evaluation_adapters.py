"""Known evaluators are called with their own options, and their results become scores."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.evaluation.adapters import lm_eval_score, main, opencompass_score

CASES = tomllib.loads((Path(__file__).parents[1] / "cases/evaluation/adapters.toml").read_text())["case"]
PROGRAM = """#!/bin/sh
for word in "$(basename "$0")" "$@"; do printf '%s\\n' "$word"; done >> {folder}/calls
case "$*" in *"--mode eval"*)
  for last; do shift; [ "$last" = --work-dir ] && work=$1; done
  mkdir -p "$work/20260821/results/7b" && echo '{{"accuracy": 62.5}}' > "$work/20260821/results/7b/gsm8k.json" ;;
esac
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("lm_eval", "opencompass"):
        (folder / name).write_text(PROGRAM.format(folder=folder))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_an_evaluator_gets_its_own_options(case: dict[str, Any], programs: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert main([word.replace("OUT", out) for word in case["words"]]) == 0
    assert (programs / "calls").read_text().splitlines() == [word.replace("OUT", out) for word in case["runs"]]
    if "samples" in case:
        assert json.loads((tmp_path / "out/samples.json").read_bytes()) == case["samples"]


def test_opencompass_scores_what_it_inferred_before(programs: Path, tmp_path: Path) -> None:
    pieces = tmp_path / "outputs"
    assert main(["opencompass", "infer", "/m/7b", "gsm8k_gen", "0", "8", str(pieces / "0-8")]) == 0
    assert main(["opencompass", "score", "gsm8k_gen", str(pieces), str(tmp_path / "score")]) == 0
    assert json.loads((tmp_path / "score").read_bytes()) == {"score": 0.625, "metric": "accuracy", "parts": 1}
    called = (programs / "calls").read_text()
    assert "--mode\neval" in called
    assert "--reuse\nlatest" in called


def result(task: str, effective: int, **metrics: float) -> dict[str, Any]:
    named = {f"{name},none": value for name, value in metrics.items()}
    return {"results": {task: {"alias": task, **named}}, "n-samples": {task: {"original": 100, "effective": effective}}}


def test_ranges_of_a_task_count_by_their_documents() -> None:
    ranges = [result("arc", 30, acc=0.5, acc_stderr=0.1, acc_norm=0.6), result("arc", 10, acc=0.1, acc_norm=1.0)]
    assert lm_eval_score(ranges, "arc") == {"score": pytest.approx(0.7), "metric": "acc_norm,none", "items": 40}


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda: lm_eval_score([result("arc", 1, acc=1.0)], "boolq"), "no result of task 'boolq'; it has: arc"),
        (lambda: opencompass_score([{"error": "no such file"}]), "gave no number"),
        (lambda: opencompass_score([]), "left no result"),
    ],
)
def test_results_without_a_number_are_refused(score: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score()


@pytest.mark.parametrize("words", [[], ["lm-eval"], ["lm-eval", "infer", "m"], ["other", "score", "a", "b", "c"]])
def test_a_wrong_call_is_answered_with_its_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "usage:" in capsys.readouterr().err
