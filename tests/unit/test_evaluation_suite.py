"""A suite is read strictly: whatever is wrong with it is said before anything runs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import ContentError, UsageError
from assistant.evaluation.suite import load_suite
from assistant.evaluation.work import Dataset

CASES = tomllib.loads((Path(__file__).parents[1] / "cases/evaluation/wrong_suites.toml").read_text())["case"]
GOOD = """
title = "nightly"
model = "models/7b"

[defaults]
infer = "{python} infer.py {model} {data} {first}:{last} {out} --json '{{}}'"
metric = "{python} exact.py {out} {score}"

[[dataset]]
name = "arc-c"
items = 1172

[[dataset]]
name = "code_eval.v1"
data = "data/here.jsonl"
infer = "whole {dataset} {out}"
metric = "tests {out} {score}"
sandbox = true
metric_timeout_s = 60
gpus = 2
metric_s = 42

[[dataset]]
name = "known"
metric = ""
split = false
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/here.jsonl").write_text('{"a": 1}\n{"a": 2}\n\n{"a": 3}')
    (tmp_path / "data/empty.jsonl").write_text("\n")
    return tmp_path


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_wrong_suite_is_refused_and_the_message_says_where(folder: Path, case: dict[str, Any]) -> None:
    (folder / "suite.toml").write_text(case["text"])
    with pytest.raises(UsageError) as raised:
        load_suite(folder / "suite.toml")
    assert [part for part in case["says"] if part not in str(raised.value)] == [], str(raised.value)


def test_a_suite_is_its_datasets_with_the_defaults_filled_in(folder: Path) -> None:
    (folder / "suite.toml").write_text(GOOD)
    suite = load_suite(folder / "suite.toml", {"known": 7})
    infer = "{python} infer.py {model} {data} {first}:{last} {out} --json '{{}}'"
    data = str(folder / "data/here.jsonl")
    assert suite.title == "nightly"
    assert suite.model == str(folder / "models/7b")
    assert suite.datasets == (
        Dataset("arc-c", 1172, infer, "{python} exact.py {out} {score}"),
        Dataset("code_eval.v1", 3, "whole {dataset} {out}", "tests {out} {score}", data, 2, False, 60, sandbox=True, metric_s=42),
        Dataset("known", 7, infer, "", split=False),
    )


def test_a_suite_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ContentError, match=r"gone\.toml: cannot be read"):
        load_suite(tmp_path / "gone.toml")
