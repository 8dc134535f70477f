"""A number of thousands of digits in any field costs its own row or figure only, in every report."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.reports.figures import ReportFrame
from assistant.reports.intake import TimeRange
from assistant.reports.reading import ReadRequest
from assistant.reports.reliability.cost import Prices, cost_report
from assistant.reports.reliability.failure_rates import RestartCost
from assistant.reports.reliability.failures import failures_report
from assistant.reports.reliability.job_life import life_report, read_life
from assistant.reports.reliability.reading import read_failures
from assistant.reports.reliability.reliability import reliability_report
from assistant.reports.workload_types import type_rules
from tests.unit.reports_here import NOW, read_text, report_of

HUGE = "9" * 5000
SACCT = {
    "JobID": "{}",
    "JobName": "train",
    "User": "ann",
    "State": "FAILED",
    "ExitCode": "1:0",
    "Submit": "1690000000",
    "Start": "1690000100",
    "End": "1690003700",
    "ElapsedRaw": "3600",
    "Elapsed": "01:00:00",
    "NNodes": "1",
    "NCPUS": "16",
    "AllocTRES": "gres/gpu=8",
    "NodeList": "node01",
    "Restarts": "0",
}
TRACE = {
    "job_id": "{}",
    "user": "ann",
    "node_num": "1",
    "gpu_num": "8",
    "cpu_num": "16",
    "type": "train",
    "state": "FAILED",
    "submit_time": "2023-07-22 04:00:00+00:00",
    "start_time": "2023-07-22 04:00:00+00:00",
    "end_time": "2023-07-22 05:00:00+00:00",
    "duration": "3600",
    "queue": "0",
    "gpu_time": "28800",
}


def rows_of(fields: dict[str, str], between: str) -> str:
    """Return one good row, and for each field rows in which it holds a number that is none of this world."""
    lines = [between.join(fields), between.join(fields.values()).format(1)]
    for place, column in enumerate(fields):
        for number, text in enumerate(
            (HUGE, f"-{HUGE}", f"{fields[column].format(7)}{HUGE}", f"{HUGE}.5", "1e400", f"{HUGE}:{HUGE}")
        ):
            row = dict(fields, **{column: text})
            lines.append(between.join(row.values()).format(100 + 10 * place + number))
    typed = [f"gres/gpu:a100={HUGE}", f"gres/gpu={HUGE}", f"gpu:{HUGE}", f"node[1-{HUGE}]"]
    if "AllocTRES" in fields:
        for number, text in enumerate(typed):
            row = dict(fields, **{"NodeList" if text.startswith("node") else "AllocTRES": text})
            lines.append(between.join(row.values()).format(900 + number))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("fields", "between"), [(SACCT, "|"), (TRACE, ",")], ids=["sacct", "trace"])
def test_a_huge_number_costs_its_own_row_only(fields: dict[str, str], between: str, tmp_path: Path) -> None:
    text = rows_of(fields, between)
    read = read_text(text, tmp_path)
    assert 1 in read.jobs.row - 1
    assert float(read.jobs.gpu_s[read.jobs.row == read.jobs.row.min()][0]) == 28800.0
    report_of(read)
    request = ReadRequest(str(tmp_path / "rows.txt"), type_rules(None), "UTC", NOW)
    runs = read_failures(request, None, folder=tmp_path)
    frame = ReportFrame("A report", "UTC", (), runs.left_out)
    for report in (
        failures_report(runs, frame),
        reliability_report(runs, frame, RestartCost(300, 3600), TimeRange()),
        cost_report(runs, frame, Prices(gpu_hour=2.0)),
        life_report(read_life(request, "1", None, folder=tmp_path), frame),
    ):
        assert report.headline
