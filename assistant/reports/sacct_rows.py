"""Rows of `sacct --parsable2` as texts: any columns, any order; what has another number of fields is named.

A name may hold `|` or a newline, for Slurm prints it as it is: a record that was broken over lines is put together again where its
fields then are as many as they should be, and nothing is guessed where they are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assistant.errors import InputError
from assistant.reports.intake import Dialect, raw_query, set_zone
from assistant.reports.sources import LONGEST_LINE, SACCT_COMMAND, TextFile

if TYPE_CHECKING:
    import duckdb

SOURCES = {
    "id": ("jobid", "jobidraw"),
    "name": ("jobname",),
    "user": ("user", "uid"),
    "account": ("account",),
    "partition": ("partition",),
    "nodes": ("nnodes", "allocnodes"),
    "gpus": ("allocgpus", "ngpus"),
    "tres": ("alloctres", "allocgres", "reqtres", "reqgres"),
    "cpus": ("alloccpus", "ncpus"),
    "submit": ("submit",),
    "start": ("start",),
    "end": ("end",),
    "state": ("state",),
    "exit": ("exitcode",),
    "run_s": ("elapsedraw",),
    "node_list": ("nodelist",),
    "restarts": ("restarts",),
}
"""Column of ours, and those of sacct that say it, in order of trust."""
NEEDED = ("state", "start", "end")
FIELD_MARK = "\x01"
"""Between no fields of a line: it is read as one."""
SLICE_MARK = "\x1f"
"""Between the fields of slices of the live accounting, which no field holds."""
MOST_ODD = 200_000
"""Lines with another number of fields that are looked at for records to put together."""


def columns_of(header: str, name: str, between: str = "|") -> list[str]:
    """Return the columns of a table of sacct, in small letters.

    Raises:
        InputError: A column is missing without which nothing can be counted.
    """
    columns = [column.strip().lower() for column in header.split(between)]
    missing = [column for column in NEEDED if column not in columns]
    if missing:
        raise InputError(f"{name}: has no column {', '.join(missing)}, only {', '.join(filter(None, columns))}; {SACCT_COMMAND}")
    return columns


def read_rows(connection: duckdb.DuckDBPyConnection, text: TextFile, zone: str, between: str = "|") -> Dialect:
    """Fill the table `raw` with the rows of a file of sacct.

    Args:
        connection: Of a new database.
        text: The file.
        zone: Of its times where they are not seconds since 1970.
        between: What stands between its fields.
    """
    columns = columns_of(text.header, text.name, between)
    dialect = Dialect(steps=True, zone=zone)
    set_zone(connection, zone)
    lines = (
        f"SELECT row_number() OVER () + ? AS row, string_split(line, ?) AS f, line FROM read_csv(?, delim=?, quote='', escape='', "
        f"header=false, skip=?, auto_detect=false, strict_mode=false, max_line_size={LONGEST_LINE}, columns={{'line': 'VARCHAR'}})"
    )
    rows = (
        f"SELECT row, f, CASE WHEN len(f) <> {len(columns)} THEN array_to_string(f, ?) END AS odd FROM ({lines}) "
        "WHERE line IS NOT NULL AND line <> ?"
    )
    connection.execute(
        f"CREATE TABLE raw AS {_selected(columns, dialect, rows)}",
        [between, text.skip, between, str(text.path), FIELD_MARK, text.skip, text.header],
    )
    _join_broken(connection, columns, dialect, between)
    return dialect


def _selected(columns: list[str], dialect: Dialect, rows: str) -> str:
    """Return the query for `raw` over rows with a list `f` of fields."""
    places = {column: place for place, column in reversed(list(enumerate(columns, 1)))}
    fields = {}
    for name, sources in SOURCES.items():
        present = [f"nullif(f[{places[source]}], '')" for source in sources if source in places]
        if present:
            fields[name] = present[0] if len(present) == 1 else f"coalesce({', '.join(present)})"
    if "state" in fields and "exit" in fields:
        # how an attempt ended after which the job was queued again, only its exit status says
        state = fields["state"]
        fields["state"] = f"CASE WHEN {state} ILIKE 'requeue%' THEN concat_ws(' ', {state}, {fields['exit']}) ELSE {state} END"
    return raw_query(fields, dialect, rows)


def _join_broken(connection: duckdb.DuckDBPyConnection, columns: list[str], dialect: Dialect, between: str) -> None:
    """Put records together that a newline in a name broke over lines."""
    odd_lines = connection.execute("SELECT row, odd FROM raw WHERE odd IS NOT NULL ORDER BY row").fetchmany(MOST_ODD)
    records = list(_records(odd_lines, len(columns), between))
    if not records:
        return
    used = [row for rows, _ in records for row in rows]
    connection.execute("DELETE FROM raw WHERE row IN (SELECT unnest(?))", [used])
    rows = "SELECT unnest(?) AS row, string_split(unnest(?), ?) AS f, CAST(NULL AS VARCHAR) AS odd"
    connection.execute(
        f"INSERT INTO raw BY NAME {_selected(columns, dialect, rows)}",
        [[lines[0] for lines, _ in records], [line for _, line in records], between],
    )


def _records(odd_lines: list[tuple[int, str]], count: int, between: str) -> Iterator[tuple[list[int], str]]:
    """Yield the lines and the text of each record whose parts, on lines that follow one another, have all its fields."""
    rows: list[int] = []
    text = ""
    for row, line in odd_lines:
        if rows and row == rows[-1] + 1 and (text.count(between) + line.count(between)) < count:
            rows, text = [*rows, row], f"{text}\n{line}"
        else:
            rows, text = [row], line
        if len(rows) > 1 and text.count(between) == count - 1:
            yield rows, text
            rows, text = [], ""
