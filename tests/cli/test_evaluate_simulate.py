"""`nightshift evaluate --simulate`: a table, a chart, JSON, a picture."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from assistant.cli.measure.evaluate import print_simulation
from assistant.errors import InputError, UsageError

SUITE = """
title = "mine"
[defaults]
infer = "run {pieces}"
[[dataset]]
name = "gsm8k"
[[dataset]]
name = "own"
items = 500
infer_s = 300
metric_s = 100
[[dataset]]
name = "wide"
items = 50
gpus = 4
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(SUITE)
    return path


def test_the_table_has_every_strategy_and_the_bound(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_simulation(None, suite, nodes=2)
    out = capsys.readouterr().out
    assert "mine: 3 datasets on 2 nodes of 8 GPUs; a model of 14 GB, read at 25 Gb/s a node" in out
    rows = {line.split()[0]: line.split() for line in out.splitlines()[1:9]}
    assert list(rows) == ["STRATEGY", "baseline", "sized", "loading", "metrics", "elastic", "all", "bound"]
    assert int(rows["bound"][1]) <= int(rows["all"][1]) < int(rows["baseline"][1])
    assert "GPUs that infer" in out


def test_json_says_the_same(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_simulation(None, suite, nodes=2, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["title"], found["datasets"], found["machines"]["nodes"]) == ("mine", 3, 2)
    assert [one["strategy"] for one in found["strategies"]] == ["baseline", "sized", "loading", "metrics", "elastic", "all"]
    assert all(one["makespan_s"] >= found["bound_s"] for one in found["strategies"])


def test_without_a_suite_it_is_the_paper_s_case(capsys: pytest.CaptureFixture[str]) -> None:
    print_simulation(None, None, nodes=4, as_json=True)
    found = json.loads(capsys.readouterr().out)
    best = found["strategies"][-1]
    assert found["datasets"] == 63
    assert best["speedup"] >= 1.8
    assert best["over_bound"] <= 0.05


def test_the_model_of_a_suite_that_lies_here_is_weighed(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/weights").write_bytes(b"x" * 5000)
    suite.write_text(f'model = "model"{SUITE}')
    print_simulation(None, suite, as_json=True)
    assert json.loads(capsys.readouterr().out)["storage"]["model_bytes"] == 5000


def test_the_picture_is_written(suite: Path, tmp_path: Path) -> None:
    print_simulation(None, suite, svg=tmp_path / "chart.svg")
    assert ElementTree.parse(tmp_path / "chart.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_a_picture_that_cannot_be_written_is_said(suite: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        print_simulation(None, suite, svg=tmp_path / "gone/chart.svg")


def test_a_dataset_wider_than_a_node_is_refused(suite: Path) -> None:
    with pytest.raises(UsageError, match="wide needs 4 GPUs of one node, and nodes have 2"):
        print_simulation(None, suite, gpus_per_node=2)
