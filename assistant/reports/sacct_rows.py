"""Rows of `sacct --parsable2` as texts: any columns, any order; what has another number of fields is named.

A name may hold `|` or a newline, for Slurm prints it as it is: a record that was broken over lines is put together again where its
fields then are as many as they should be, and nothing is guessed where they are not. A name that holds whole rows makes none: what
stands between the parts of its record belongs to that. Only where nobody could know the mark between fields beforehand is every
record sure; `sacct --delimiter` takes any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assistant.errors import InputError
from assistant.reports.intake import NO_TIME, Dialect, raw_query, set_zone
from assistant.reports.sources import LONGEST_LINE, SACCT_COMMAND, TextFile
from assistant.schedulers.sacct_records import BEGINS_RECORD, USERS_TEXTS, OddLine, reach_of, split_records

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
ELAPSED = "elapsed"
DURATION = r"([0-9]{1,6}-)?([0-9]{1,4}:)?[0-9]{1,4}:[0-9]{1,4}([.][0-9]{1,9})?"
"""Of `Elapsed`, which says without the suspended time how long a job ran, where `ElapsedRaw` is not there. Source: sacct(1)."""
NEEDED = ("state", "start", "end")
FIELD_MARK = "\x01"
"""Between no fields of a line: it is read as one."""
SLICE_MARK = "\x1f"
"""Between the fields of slices of the live accounting, which no field holds."""


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


def form_of(header: str, between: str) -> str:
    """Return what a file of sacct is called in a report, with what makes its rows unsure."""
    last = next((column.strip().lower() for column in reversed(header.split(between)) if column.strip()), "")
    if last in USERS_TEXTS:
        return f"sacct --parsable2; {last} is the last column, so a newline in one can make a row: ask for it before another"
    return "sacct --parsable2"


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
    if ELAPSED in places:
        length = _seconds_of(f"f[{places[ELAPSED]}]")
        fields["run_s"] = f"coalesce({fields['run_s']}, {length})" if "run_s" in fields else length
    if "state" in fields:
        # how an attempt ended after which the job was queued again, only its exit status says; without an end the job waits
        state, nothing = fields["state"], ", ".join(f"'{word}'" for word in NO_TIME)
        attempt = f"{state} ILIKE 'requeue%' AND coalesce({fields['end']}, '0') NOT IN ({nothing})"
        fields["state"] = f"CASE WHEN {attempt} THEN concat_ws(' ', {state}, {fields.get('exit', 'NULL')}, '0:0') ELSE {state} END"
    return raw_query(fields, dialect, rows)


def _seconds_of(text: str) -> str:
    """Return SQL of the text of a duration such as `1-02:00:00` in seconds, NULL for what is none."""
    part = f"try_cast(string_split(regexp_replace({text}, '^[0-9]+-', ''), ':')[{{}}] AS DOUBLE)"
    days = f"try_cast(nullif(regexp_extract({text}, '^([0-9]+)-', 1), '') AS DOUBLE)"
    length = f"coalesce({days}, 0) * 86400 + coalesce({part.format(-3)}, 0) * 3600 + {part.format(-2)} * 60 + {part.format(-1)}"
    return f"CASE WHEN regexp_full_match({text}, '{DURATION}') THEN CAST({length} AS VARCHAR) END"


def _join_broken(connection: duckdb.DuckDBPyConnection, columns: list[str], dialect: Dialect, between: str) -> None:
    """Put records together that a newline in a name broke over lines, and mark those whose parts are not sure as broken."""
    begins = f"regexp_matches(coalesce(odd, id, ''), '{BEGINS_RECORD}')" if columns[0] in SOURCES["id"] else "true"
    fetched = connection.execute(
        "SELECT row::BIGINT AS row, coalesce((length(odd) - length(replace(odd, $1, ''))) // length($1), "
        f"{len(columns) - 1})::BIGINT AS marks, {begins} AS begins FROM raw WHERE odd IS NOT NULL OR NOT {begins} ORDER BY row",
        [between],
    ).fetchnumpy()
    lines = [OddLine(*line) for line in zip(*(fetched[name].tolist() for name in OddLine._fields), strict=True)]
    records = split_records(lines, len(columns) - 1, reach_of(columns))
    for is_complete in (True, False):
        spans = [record for record in records if record.is_complete == is_complete]
        if spans:
            connection.execute(
                "CREATE OR REPLACE TEMP TABLE spans AS SELECT unnest(?) AS first, unnest(?) AS last",
                [[record.first for record in spans], [record.last for record in spans]],
            )
            (_join if is_complete else _leave_out)(connection, columns, dialect, between)


def _leave_out(connection: duckdb.DuckDBPyConnection, columns: list[str], dialect: Dialect, between: str) -> None:
    """Mark all lines of the spans, whole ones too, as parts of records that are broken."""
    connection.execute("UPDATE raw SET broken = true FROM spans WHERE row BETWEEN first AND last")


def _join(connection: duckdb.DuckDBPyConnection, columns: list[str], dialect: Dialect, between: str) -> None:
    """Put one record in the place of the lines of each span."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE joined AS SELECT first AS row, string_agg(odd, chr(10) ORDER BY row) AS line "
        "FROM spans JOIN raw ON row BETWEEN first AND last GROUP BY first"
    )
    connection.execute("DELETE FROM raw USING spans WHERE row BETWEEN first AND last")
    rows = "SELECT row, string_split(line, ?) AS f, CAST(NULL AS VARCHAR) AS odd FROM joined"
    connection.execute(f"INSERT INTO raw BY NAME {_selected(columns, dialect, rows)}", [between])
