"""Read a text as a report does."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from assistant.reports.cluster import cluster_report
from assistant.reports.figures import Cell, FigureTable, ReportFrame, UsageReport
from assistant.reports.intake import TimeRange
from assistant.reports.reading import NO_LIMIT, ReadJobs, ReadRequest, read_source
from assistant.reports.references import reference_clusters
from assistant.reports.workload_types import TypeRules, type_rules

NOW = datetime(2026, 6, 1, tzinfo=UTC)
HEADER = "JobID|JobName|User|Account|Partition|State|ExitCode|Submit|Start|End|NNodes|NCPUS|AllocTRES"


def read_text(
    text: str | bytes,
    folder: Path,
    *,
    zone: str = "UTC",
    period: TimeRange = NO_LIMIT,
    rules: TypeRules | None = None,
    columns: Path | None = None,
    anonymous: bool = False,
) -> ReadJobs:
    """Return the jobs of a text."""
    path = folder / "rows.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    wanted = ReadRequest(str(path), rules or type_rules(None), zone, NOW, period, columns, anonymous)
    return read_source(wanted, folder=folder)


def report_of(read: ReadJobs, zone: str = "UTC") -> UsageReport:
    """Return the report of jobs."""
    return cluster_report(read.jobs, reference_clusters(None), ReportFrame("Where the GPU hours went", zone, (), read.left_out))


def table_of(report: UsageReport, key: str) -> FigureTable:
    """Return a table of a report."""
    (table,) = [figure for _, figure in report.figures() if figure.key == key]
    assert isinstance(table, FigureTable)
    return table


def column_of(table: FigureTable, key: str) -> dict[str, Cell]:
    """Return a column of a table by the text of its first one."""
    place = [column.key for column in table.columns].index(key)
    return {str(row[0]): row[place] for row in table.rows}
