"""The diagnostics of DCGM: read by structure over its versions, and never run beside a job."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import ToolError
from assistant.ports import JumpingClock, Reply
from assistant.records import JobSpec
from assistant.schedulers.simulated import SimulatedCluster
from assistant.store import Store
from assistant.tooling import Context
from assistant.tools.nodes import diagnose_gpus, judge_diagnostic


def said(report: Mapping[str, Any], status: int = 0) -> Reply:
    return Reply("n1", True, status, json.dumps(report), "")


def three(*tests: Mapping[str, Any]) -> dict[str, Any]:
    return {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Integration", "tests": list(tests)}], "version": "3.3.9"}}


PASS = {"name": "Denylist", "results": [{"status": "Pass"}]}


def test_a_diagnostic_that_passes_is_well() -> None:
    assert [one.status for one in judge_diagnostic(said(three(PASS, {"name": "x", "results": [{"status": "Skip"}]})))] == ["ok"]


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        (
            {"gpu_id": "7", "status": "Fail", "warnings": [{"warning": "link width 8X", "error_id": 40}]},
            "GPU 7: PCIe: link width 8X",
        ),
        ({"gpu_ids": "2", "status": "Fail", "warnings": ["too narrow"]}, "GPU 2: PCIe: too narrow"),
        ({"entity_group": "GPU", "entity_id": 3, "status": "Fail", "warnings": [{"warning": "bad"}]}, "GPU 3: PCIe: bad"),
        ({"status": "Fail"}, "node: PCIe: Fail"),
    ],
    ids=["dcgm3", "dcgm2", "dcgm4", "bare"],
)
def test_a_failed_test_is_named_with_its_gpu(result: Mapping[str, Any], wanted: str) -> None:
    (found,) = judge_diagnostic(said(three(PASS, {"name": "PCIe", "results": [result]}), status=226))
    assert (found.status, found.text) == ("critical", wanted)


def test_the_fourth_version_nests_otherwise() -> None:
    report = {
        "DCGM Diagnostic": {
            "test_categories": [
                {
                    "category": "Hardware",
                    "tests": [
                        {"name": "memory", "results": [{"entity_id": 0, "status": "Pass"}], "test_summary": {"status": "Fail"}}
                    ],
                }
            ]
        }
    }
    assert "memory" in judge_diagnostic(said(report))[0].text


@pytest.mark.parametrize(
    "reply",
    [
        Reply("n", False, None, "", "no route"),
        Reply("n", True, 127, "", ""),
        Reply("n", True, 255, "", "Error: unable to establish a connection"),
        Reply("n", True, 0, "garbage {", ""),
        Reply("n", True, 0, "{" * 5000, ""),
    ],
)
def test_what_did_not_run_is_unknown(reply: Reply) -> None:
    assert [one.status for one in judge_diagnostic(reply)] == ["unknown"]


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    made = SimulatedCluster(JumpingClock(datetime(2026, 1, 1, tzinfo=UTC)), tmp_path)
    for level in "12":
        made.answers[f"dcgmi diag -r {level} -j"] = lambda node: said(three(PASS))
    return made


def context(cluster: SimulatedCluster, tmp_path: Path) -> Context:
    return Context(cluster, cluster, cluster.clock, random.Random(1), Store(tmp_path / "s.db", cluster.clock))


def test_only_the_mildest_level_runs_beside_jobs(cluster: SimulatedCluster, tmp_path: Path) -> None:
    cluster.submit(JobSpec("llm", "", nodes=1))
    assert diagnose_gpus(context(cluster, tmp_path), nodes=["node01"])["nodes"]["node01"]["status"] == "ok"
    for node in ("node01", "node02"):
        with pytest.raises(ToolError, match="cordon it and wait until it is drained"):
            diagnose_gpus(context(cluster, tmp_path), nodes=[node], level=2)
    cluster.set_cordon("node02", "nightshift: test")
    assert diagnose_gpus(context(cluster, tmp_path), nodes=["node02"], level=2)["failed"] == []


def test_there_is_no_fifth_level(cluster: SimulatedCluster, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="1, 2, 3 or 4, not 5"):
        diagnose_gpus(context(cluster, tmp_path), nodes=["node01"], level=5)
