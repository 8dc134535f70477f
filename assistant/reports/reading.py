"""From a source to the jobs of a report: a file of sacct, a trace in CSV, or slices of the live accounting."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.errors import InputError
from assistant.reports.figures import FigureTable
from assistant.reports.intake import Dialect, TimeRange, left_out_table, make_jobs
from assistant.reports.job_arrays import JobArrays, job_arrays, without_names
from assistant.reports.sources import TextFile, csv_columns, is_sacct, mark_of, open_text
from assistant.reports.workload_types import TypeRules

if TYPE_CHECKING:
    import duckdb

MEMORY = "400MB"
"""That DuckDB may take; beyond, it writes into the folder of the report."""

NO_LIMIT = TimeRange()


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What is to be read, and how."""

    source: str
    """A path, `-`, or what the slices are called."""
    rules: TypeRules
    zone: str
    """Of times that have none."""
    now: datetime
    period: TimeRange = NO_LIMIT
    columns: Path | None = None
    """A map of columns."""
    anonymous: bool = False


@dataclass(frozen=True, slots=True)
class ReadJobs:
    """The jobs of a source, and what was left out."""

    jobs: JobArrays
    left_out: FigureTable
    form: str
    """What kind of source it was."""


@dataclass(frozen=True, slots=True)
class OpenedJobs:
    """The judged jobs of a source in their database, which lives as long as the block that opened it."""

    connection: duckdb.DuckDBPyConnection
    """Has the tables `jobs` and `counted`."""
    left_out: FigureTable
    form: str


def read_source(
    request: ReadRequest,
    *,
    slices: Iterable[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    folder: Path | None = None,
) -> ReadJobs:
    """Read a source to its end; arguments and errors are those of `opened_jobs`."""
    with opened_jobs(request, slices=slices, progress=progress, folder=folder) as opened:
        jobs = job_arrays(opened.connection)
    return ReadJobs(without_names(jobs) if request.anonymous else jobs, opened.left_out, opened.form)


@contextmanager
def opened_jobs(
    request: ReadRequest,
    *,
    slices: Iterable[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    folder: Path | None = None,
) -> Iterator[OpenedJobs]:
    """Read a source to its end, and hold its jobs open for more questions.

    Args:
        request: What.
        slices: Texts of the live accounting, all with the same header and fields between `SLICE_MARK`; None for a file.
        progress: Gets a line for each stage.
        folder: Where files for the time of reading may lie; default: the system's.

    Raises:
        InputError: The source is missing, empty, or of a form that is not known.
        ContentError: A map of columns or a rule is wrong.
        ModuleNotFoundError: DuckDB is not installed.
    """
    import duckdb

    with tempfile.TemporaryDirectory(prefix="nightshift-report-", dir=folder) as name:
        work = Path(name)
        connection = duckdb.connect(":memory:")
        try:
            # nothing is fetched from anywhere, and nothing outlives the folder
            connection.execute("SET autoinstall_known_extensions = false")
            connection.execute("SET autoload_known_extensions = false")
            connection.execute(f"SET memory_limit = '{MEMORY}'")
            connection.execute("SET temp_directory = ?", [str(work)])
            progress(f"reading {request.source}")
            form, dialect = _fill(connection, request, slices, work)
            make_jobs(connection, dialect, request.rules, now=request.now, period=request.period, progress=progress)
            yield OpenedJobs(connection, left_out_table(connection, with_ids=not request.anonymous), form)
        except duckdb.InterruptException as error:
            raise KeyboardInterrupt from error
        except duckdb.Error as error:
            raise InputError(f"{request.source}: cannot be read: {str(error).splitlines()[0]}") from error
        finally:
            connection.close()


def _fill(
    connection: duckdb.DuckDBPyConnection, request: ReadRequest, slices: Iterable[str] | None, work: Path
) -> tuple[str, Dialect]:
    from assistant.reports import sacct_rows, trace_rows

    if slices is not None:
        text = _joined(slices, request.source, work)
        return "sacct, by day", sacct_rows.read_rows(connection, text, request.zone, sacct_rows.SLICE_MARK)
    text = open_text(request.source, work)
    if request.columns is not None:
        columns = trace_rows.read_map(request.columns)
        return f"CSV, by {request.columns.name}", trace_rows.read_rows(connection, text, columns, request.zone)
    if is_sacct(text.header):
        mark = mark_of(text.header)
        return sacct_rows.form_of(text.header, mark), sacct_rows.read_rows(connection, text, request.zone, mark)
    names = csv_columns(text)
    if trace_rows.released(names):
        return trace_rows.RELEASED.name, trace_rows.read_rows(connection, text, trace_rows.RELEASED, request.zone)
    raise InputError(
        f"{text.name}: is CSV whose columns are not those of the paper's traces: {', '.join(names[:12])}; "
        "say what they hold: --columns MAP.toml (docs/reports.md)"
    )


def _joined(slices: Iterable[str], name: str, work: Path) -> TextFile:
    path, header = work / "source.txt", ""
    with path.open("w", encoding="utf-8", newline="") as target:
        for text in slices:
            first, _, rows = text.partition("\n")
            if not header:
                header = first
                target.write(f"{header}\n")
            if first != header:
                raise InputError(f"{name}: slices were asked for with other columns; remove the folder of slices and ask again")
            target.write(rows)
    if not header:
        raise InputError(f"{name}: the accounting was asked for no day")
    return TextFile(path, name, header, 1)
