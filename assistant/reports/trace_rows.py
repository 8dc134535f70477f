"""Rows of job traces in CSV: the released form of the paper's clusters, and any other by a map of its columns in TOML.

A map says which column holds what, what its words for states mean, and from when its times count:

    zone = "Asia/Shanghai"        # of times without an offset; default: this machine's
    seconds_from = 2023-01-01     # where times are seconds from the trace's own start

    [columns]
    id = "name"
    start = "scheduled_time"
    gpus = { column = "num_gpu", times = "gpu_milli", scale = 0.001 }

    [states]
    Succeeded = "completed"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant.content.reading import read_toml
from assistant.errors import ContentError, InputError
from assistant.records import JobState
from assistant.reports.intake import RAW_COLUMNS, Dialect, raw_query, set_zone
from assistant.reports.sources import LONGEST_LINE, TextFile, csv_columns

if TYPE_CHECKING:
    import duckdb

MAPPED = tuple(name for name in RAW_COLUMNS if name != "tres")
"""What a map may name."""
NEEDED = ("id", "state", "start", "end")
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "ms": 0.001}


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """Where a value of ours stands in a file."""

    column: str
    times: str = ""
    """Another column that it is multiplied with."""
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """How a CSV file is read."""

    columns: Mapping[str, MappedColumn]
    states: Mapping[str, str] = field(default_factory=dict)
    """By the file's word in small letters."""
    zone: str = ""
    seconds_from: float | None = None
    name: str = ""
    """Of the form, for the report."""


def _plain(**columns: str) -> dict[str, MappedColumn]:
    return {name: MappedColumn(column) for name, column in columns.items()}


_ACME = _plain(
    id="job_id", user="user", nodes="node_num", gpus="gpu_num", cpus="cpu_num", type="type", state="state", submit="submit_time",
    start="start_time", end="end_time", run_s="duration", queue_s="queue", gpu_s="gpu_time",
)  # fmt: skip
RELEASED = ColumnMap(_ACME, name="the released form of the paper's traces")
"""Seren has exactly these columns, Kalos some more, of which none is needed. Source: InternLM/AcmeTrace, data/."""


def released(columns: Sequence[str]) -> bool:
    """Whether a file has the columns of the paper's traces."""
    return {mapped.column for mapped in _ACME.values()} <= set(columns)


def read_map(path: Path) -> ColumnMap:
    """Return the map of a file.

    Raises:
        ContentError: It cannot be read, names a column of ours that there is not, or lacks one that is needed.
    """
    tables = read_toml(path)
    unknown = set(tables) - {"columns", "states", "zone", "seconds_from", "name"}
    if unknown:
        raise ContentError(f"{path}: {min(unknown)}: unknown key; known: columns, name, seconds_from, states, zone")
    columns = {}
    for name, value in _table(path, tables, "columns").items():
        if name not in MAPPED:
            raise ContentError(f"{path}: columns.{name}: unknown; known: {', '.join(MAPPED)}")
        columns[name] = _column(path, name, value)
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise ContentError(f"{path}: [columns] does not say where {', '.join(missing)} stands")
    states = {}
    for word, state in _table(path, tables, "states").items():
        if state not in [str(member) for member in JobState]:
            raise ContentError(f"{path}: states.{word}: {state!r} is no state; known: {', '.join(map(str, JobState))}")
        states[word.strip().lower()] = str(state)
    return ColumnMap(columns, states, str(tables.get("zone", "")), _moment_of(path, tables.get("seconds_from")), path.name)


def _table(path: Path, tables: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = tables.get(key, {})
    if not isinstance(value, Mapping):
        raise ContentError(f"{path}: {key}: must be a table")
    return value


def _column(path: Path, name: str, value: Any) -> MappedColumn:
    if isinstance(value, str):
        return MappedColumn(value)
    if isinstance(value, Mapping) and isinstance(value.get("column"), str) and set(value) <= {"column", "times", "scale"}:
        scale, times = value.get("scale", 1.0), value.get("times", "")
        if isinstance(scale, int | float) and isinstance(times, str):
            return MappedColumn(value["column"], times, float(scale))
    raise ContentError(f'{path}: columns.{name}: wanted a name, or {{ column = "...", times = "...", scale = 1.0 }}')


def _moment_of(path: Path, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    raise ContentError(f"{path}: seconds_from: wanted a date such as 2023-01-01")


def read_rows(connection: duckdb.DuckDBPyConnection, text: TextFile, columns: ColumnMap, zone: str) -> Dialect:
    """Fill the table `raw` with the rows of a CSV file, each field as it stands there.

    Raises:
        InputError: The file lacks a column that the map names, or is no CSV.
    """
    import duckdb

    names = csv_columns(text)
    lacking = [
        column for mapped in columns.columns.values() for column in (mapped.column, mapped.times) if column and column not in names
    ]
    if lacking:
        raise InputError(f"{text.name}: has no column {', '.join(lacking)}, only {', '.join(names)}")
    # never the names of the file: they are whatever somebody wrote
    listed = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(len(names)))
    dialect = Dialect(seconds_from=columns.seconds_from, states=columns.states, zone=columns.zone or zone)
    set_zone(connection, dialect.zone)
    fields = {name: _field(mapped, names) for name, mapped in columns.columns.items()}
    rows = (
        "SELECT *, row_number() OVER () + ? AS row, CAST(NULL AS VARCHAR) AS odd FROM "
        "read_csv(?, delim=',', quote='\"', escape='\"', header=false, skip=?, auto_detect=false, null_padding=false, "
        f"store_rejects=true, max_line_size={LONGEST_LINE}, columns={{{listed}}})"
    )
    try:
        connection.execute(f"CREATE TABLE raw AS {raw_query(fields, dialect, rows)}", [text.skip, str(text.path), text.skip])
    except duckdb.Error as error:
        raise InputError(f"{text.name}: is no CSV that can be read: {str(error).splitlines()[0]}") from error
    connection.execute(
        "INSERT INTO raw BY NAME SELECT line AS row, false AS broken_time, false AS local_end, any_value(csv_line) AS odd "
        "FROM reject_errors GROUP BY line"
    )
    return dialect


def _field(mapped: MappedColumn, names: Sequence[str]) -> str:
    """Return SQL of the text of a column, NULL where it is empty."""
    text_of = "nullif(c{}, '')".format
    value = text_of(names.index(mapped.column))
    if not mapped.times and mapped.scale == 1.0:
        return value
    factor = f" * try_cast({text_of(names.index(mapped.times))} AS DOUBLE)" if mapped.times else ""
    return f"CAST(try_cast({value} AS DOUBLE){factor} * {mapped.scale!r} AS VARCHAR)"
