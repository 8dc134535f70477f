"""What is not known is said as that, by every report: no store, no submission, no moment but one, no sure continuation."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.reports.exports import as_object
from assistant.reports.figures import ReportFrame, UsageReport
from assistant.reports.intake import TimeRange
from assistant.reports.reading import ReadRequest
from assistant.reports.reliability.cost import Prices, cost_report
from assistant.reports.reliability.failure_rates import RestartCost
from assistant.reports.reliability.job_life import life_report, read_life
from assistant.reports.reliability.reading import read_failures
from assistant.reports.reliability.reliability import reliability_report
from assistant.reports.workload_types import type_rules
from tests.unit.failures_here import ZERO_S, Case, plain_facts
from tests.unit.reports_here import NOW, read_text, report_of

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "reports" / "not_known.toml").read_text(encoding="utf-8"))["case"]


def report_of_case(case: dict[str, Any], folder: Path) -> UsageReport:
    text = case["text"].lstrip("\n")
    if case["report"] == "cluster":
        return report_of(read_text(text, folder))
    path = folder / "rows.txt"
    path.write_text(text)
    request = ReadRequest(str(path), type_rules(None), "UTC", NOW)
    facts = None
    if "incidents" in case:
        times = [(entry["job"], entry["failed_s"] - ZERO_S) for entry in case["incidents"]]
        facts = plain_facts([Case(job, failed, failed) for job, failed in times])
    if case["report"] == "job":
        life = read_life(request, case["job"], facts, folder=folder)
        return life_report(life, ReportFrame("A life", "UTC", (), life.left_out))
    read = read_failures(request, facts, folder=folder)
    frame = ReportFrame("A report", "UTC", (), read.left_out)
    if case["report"] == "cost":
        return cost_report(read, frame, Prices(gpu_hour=2.0, currency="EUR"))
    return reliability_report(read, frame, RestartCost(300, 3600), TimeRange())


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_a_report_says_what_is_not_known(case: dict[str, Any], tmp_path: Path) -> None:
    said = json.dumps(as_object(report_of_case(case, tmp_path)))
    assert [text for text in case["says"] if text not in said] == []
    assert [text for text in case.get("never", ()) if text in said] == []
