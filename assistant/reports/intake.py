"""Judge each row: what is a job that ran, what is left out and why. Makes the table `jobs` from the table `raw` of texts.

Every row of the source gets one fate; `counted` ones are the jobs of the report, all others are listed by fate. What is odd in a
counted row and spoils one figure only (a start before the submission, say) is a flaw: that figure leaves it out; it is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from assistant.errors import ContentError, InputError
from assistant.records import JobState
from assistant.reports.figures import Cell, FigureTable, TableColumn
from assistant.reports.workload_types import TypeRules, type_query
from assistant.schedulers.slurm_text import attempt_state_text, gpus_of, job_state

if TYPE_CHECKING:
    import duckdb

TEXTS = ("id", "user", "account", "partition", "name", "type", "state", "exit", "tres", "node_list")
TIMES = ("submit", "start", "end")
NUMBERS = ("nodes", "gpus", "cpus", "run_s", "queue_s", "gpu_s", "restarts")
RAW_COLUMNS = (*TEXTS, *TIMES, *NUMBERS)
"""What a source may say of a job."""
OLDEST_S = 631152000.0
"""1990: a clock that says less was never set."""
AHEAD_S = 86400.0
"""A time so far behind the present is of a clock that is wrong, or a plan."""
MOST_GPUS = 10_000_000
"""Of one job; a larger number is a slip."""
REUSED_S = 30 * 86400.0
"""A run so long after another one with its id is of another job: Slurm begins anew behind its MaxJobId."""
DIFFERS_S = 1.0
"""So much may a duration differ from its end less its start before it is said."""

OUTCOMES = {
    JobState.COMPLETED: "completed",
    JobState.CANCELLED: "cancelled",
    JobState.PREEMPTED: "cancelled",
    JobState.FAILED: "failed",
    JobState.TIMEOUT: "failed",
    JobState.NODE_FAIL: "failed",
    JobState.OUT_OF_MEMORY: "failed",
}
"""As the paper counts states: timeouts and lost nodes are failures. All others are `unknown`."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the texts of a source are read."""

    steps: bool = False
    """Whether ids may be those of steps, arrays and heterogeneous jobs of Slurm."""
    seconds_from: float | None = None
    """What a plain number among the times counts from, seconds since 1970; None for 1970 itself."""
    states: Mapping[str, str] = field(default_factory=dict)
    """Words of the source in small letters, and the state that each is; what is not in it is read as Slurm's."""
    zone: str = "UTC"
    """Of times that have none."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """When a job has to have ended to be counted; None where there is no limit."""

    since: datetime | None = None
    until: datetime | None = None


def quoted(name: str) -> str:
    """Return a name of a column of ours for SQL."""
    return f'"{name}"'


FATES: dict[str, str] = {
    "broken record": "lines over which a newline in a name breaks a record, and those between its parts, which the name may hold",
    "unreadable": "lines with another number of fields, which a `|` or a newline in a name makes, or without an id",
    "step": "steps of jobs: their job is counted",
    "waiting array": "tasks of arrays that wait together, no run of any of them",
    "no state": "rows without a state",
    "unreadable time": "rows with a time that nobody can read",
    "waiting": "jobs that wait",
    "running": "jobs that run: counted once they have ended",
    "never began": "jobs that ended without having begun, so without a run and GPU time",
    "not at its end": "jobs with an end whose state says that they wait or run",
    "no end": "jobs whose state says that they ended, without the time",
    "ends before start": "jobs that end before they begin",
    "impossible clock": "jobs with a time before 1990 or in the future",
    "duplicate": "rows that say the same as one that is counted",
    "outside the period": "jobs that ended at another time than was asked for",
}
"""Why a row is no job of the report, in the order in which it is asked."""
NO_HOURS = ("broken record", "duplicate", "ends before start", "impossible clock")
"""Rows whose GPU hours are nobody's, counted already, or follow from times that cannot be."""
FLAWS: dict[str, tuple[str, str]] = {
    "negative queue": ("jobs that begin before they are submitted", "without a queueing time, else counted"),
    "no submission": ("jobs without a time of submission", "without a queueing time and an arrival, else counted"),
    "GPUs unknown": ("jobs of which no number of GPUs is known", "in no figure of GPUs, else counted"),
    "state unknown": ("jobs in a state that we do not know", "in figures of states as unknown, else counted"),
    "duration differs": (
        "jobs whose duration is more than a second off their end less their start",
        "counted with the duration that the source gives",
    ),
    "requeued": ("runs of jobs that were queued again, all but the last of each", "each run is counted as a job"),
    "array task": ("tasks of arrays", "each task is counted as a job"),
    "heterogeneous part": ("parts of heterogeneous jobs", "each part is counted as a job"),
}
"""What is odd in rows that are counted, and what is made of it."""


NO_TIME = ("Unknown", "None", "N/A", "(null)", "NULL", "null", "NaN", "nan", "NaT", "0")
"""Ways of saying that there is no time; in a trace that counts from its own start, 0 is one."""


def raw_query(fields: Mapping[str, str], dialect: Dialect, rows: str) -> str:
    """Return the query for the rows of the table `raw`.

    Args:
        fields: SQL of the text of each column that the source has, empty texts as NULL.
        dialect: How its texts are read.
        rows: The query that the fields are of; it has `row`, and `odd`, the text of a row that is not whole.
    """
    nothing = ", ".join(f"'{word}'" for word in NO_TIME[: None if dialect.seconds_from is None else -1])
    base = "" if dialect.seconds_from is None else f" + {dialect.seconds_from!r}"
    texts = [f"{fields.get(name, 'CAST(NULL AS VARCHAR)')} AS {quoted(name)}" for name in TEXTS]
    # `inf` and `nan` are numbers to a cast
    numbers = [
        f"CASE WHEN isfinite(try_cast({text} AS DOUBLE)) THEN try_cast({text} AS DOUBLE) END AS {name}"
        for name in NUMBERS
        for text in [fields.get(name, "NULL")]
    ]
    times = [f"nullif({fields.get(name, 'CAST(NULL AS VARCHAR)')}, '') AS {name}_text" for name in TIMES]
    read = []
    for name in TIMES:
        # epoch() gives seconds since 1970; a time without an offset is one of the session's zone
        date = f"epoch(try_cast({name}_text AS TIMESTAMPTZ))"
        number = f"try_cast({name}_text AS DOUBLE){base}"
        read.append(
            f"CASE WHEN {name}_text IS NULL OR {name}_text IN ({nothing}) THEN NULL "
            f"WHEN instr({name}_text, '-') = 5 THEN {date} ELSE {number} END AS {name}_s"
        )
    broken = " OR ".join(f"({name}_s IS NULL AND {name}_text NOT IN ({nothing}))" for name in TIMES)
    # step by step, so that each text is read once
    texts_only = f"SELECT row, odd, {', '.join([*texts, *numbers, *times])} FROM ({rows})"
    return (
        "SELECT * EXCLUDE (submit_text, start_text, end_text), "
        f"coalesce({broken}, false) AS broken_time, false AS broken, coalesce(instr(end_text, '-') = 5, false) AS local_end "
        f"FROM (SELECT *, {', '.join(read)} FROM ({texts_only}))"
    )


def make_jobs(
    connection: duckdb.DuckDBPyConnection,
    dialect: Dialect,
    rules: TypeRules,
    *,
    now: datetime,
    period: TimeRange,
    progress: Callable[[str], None] = lambda text: None,
) -> None:
    """Make the table `jobs` of the table `raw`, one row for each, with its fate and its flaws; `raw` is dropped.

    Args:
        connection: Where `raw` is.
        dialect: How its texts are read.
        rules: What the type of a job is.
        now: No job has ended after it.
        period: What is asked for.
        progress: Gets a line for each stage.

    Raises:
        ContentError: A pattern of the rules is no regular expression of RE2.
    """
    import duckdb

    progress("states and GPUs are read")
    _map_states(connection, dialect)
    _map_gpus(connection)
    progress("rows are judged")
    by_type = type_query(rules)
    verdicts = (
        f"SELECT *, {_fate(dialect, now.timestamp() + AHEAD_S, period)} AS fate, {_flaws(dialect)} AS flaws FROM ({_worked_out()})"
    )
    try:
        connection.execute(
            f"CREATE TABLE jobs AS SELECT * EXCLUDE (type, broken_time, broken, given_run_s), {by_type.sql} AS type "
            f"FROM ({verdicts})",
            list(by_type.values),
        )
    except duckdb.Error as error:
        raise ContentError(f"rules for types of work: a pattern cannot be used: {str(error).splitlines()[0]}") from error
    connection.execute("DROP TABLE raw")
    _drop_duplicates(connection)
    connection.execute("CREATE VIEW counted AS SELECT * FROM jobs WHERE fate = 'counted'")


def set_zone(connection: duckdb.DuckDBPyConnection, zone: str) -> None:
    """Let times without an offset be those of a zone.

    Raises:
        InputError: There is none of that name.
    """
    import duckdb

    try:
        ZoneInfo(zone)
        connection.execute(f"SET TimeZone = '{zone}'")
    except (ValueError, OSError, KeyError, duckdb.Error) as error:
        raise InputError(f"{zone!r} is no zone of which the rules are known; wanted a name such as Europe/Berlin or UTC") from error


def _map_states(connection: duckdb.DuckDBPyConnection, dialect: Dialect) -> None:
    """Read each word for a state once: `states` in the dialect, then Slurm's."""
    words = [text for (text,) in connection.execute("SELECT DISTINCT state FROM raw WHERE state IS NOT NULL").fetchall()]
    connection.execute("CREATE TEMP TABLE state_words (text VARCHAR, state VARCHAR)")
    _fill(
        connection,
        "state_words",
        [(text, dialect.states.get(text.strip().lower()) or _slurm_state(text, dialect)) for text in words],
    )


def _slurm_state(text: str, dialect: Dialect) -> str:
    """Return the state in Slurm's words; behind that of an attempt after which its job was queued again its exit status stands."""
    word, _, status = text.partition(" ")
    # in sacct `REQUEUE_HOLD` alone is a job that waits
    return str(job_state(attempt_state_text(word, status.split(" ")[0]) if status or not dialect.steps else word))


def _map_gpus(connection: duckdb.DuckDBPyConnection) -> None:
    """Read each text of resources once, in the forms of Slurm; one of a job of several nodes may count for each node."""
    # one row for each key of the join below, or rows would be counted twice
    pairs = connection.execute(
        "SELECT DISTINCT tres, coalesce(nodes, 0.0) FROM raw WHERE gpus IS NULL AND tres IS NOT NULL"
    ).fetchall()
    read = [(tres, nodes, gpus_of(tres, int(min(nodes or 1, MOST_GPUS)))) for tres, nodes in pairs]
    connection.execute("CREATE TEMP TABLE tres_words (tres VARCHAR, nodes DOUBLE, gpus DOUBLE)")
    _fill(connection, "tres_words", read)


def _fill(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        connection.execute(f"INSERT INTO {table} SELECT {', '.join('unnest(?)' for _ in columns)}", columns)


def _shows_twice(earlier: str, later: str) -> str:
    """Return SQL for whether a clock shows the same time at two moments, an hour apart."""
    return f"strftime(to_timestamp({earlier}), '%H:%M') = strftime(to_timestamp({later}), '%H:%M')"


_BACKWARDS = "local_end AND end_s < start_s AND end_s + 3600 >= start_s"
_MENDED_RUN = (
    f"CASE WHEN {_BACKWARDS} AND {_shows_twice('end_s', 'end_s + 3600')} THEN end_s + 3600 ELSE end_s END AS end_s, "
    f"CASE WHEN {_BACKWARDS} AND NOT {_shows_twice('end_s', 'end_s + 3600')} AND {_shows_twice('start_s - 3600', 'start_s')} "
    "THEN start_s - 3600 ELSE start_s END AS start_s"
)
"""In the hour that a clock shows twice, a job that would end before it began began in the first or ended in the second."""
_MENDED_SUBMISSION = (
    f"CASE WHEN local_end AND start_s < submit_s AND start_s >= submit_s - 3600 AND {_shows_twice('submit_s - 3600', 'submit_s')} "
    "THEN submit_s - 3600 ELSE submit_s END AS submit_s"
)
"""So it is with one that would begin before it was submitted."""


def _worked_out() -> str:
    """Return the query that adds to each row what follows from its texts: state, GPUs, lengths of time, GPU seconds."""
    outcomes = " ".join(f"WHEN '{state}' THEN '{outcome}'" for state, outcome in OUTCOMES.items())
    mended = (
        f"SELECT r.* EXCLUDE (state, gpus, tres, local_end) REPLACE ({_MENDED_SUBMISSION}), w.state, "
        f"coalesce(r.gpus, t.gpus) AS given_gpus FROM (SELECT * REPLACE ({_MENDED_RUN}) FROM raw) r "
        # plain equalities, or each row is compared with each word
        "LEFT JOIN state_words w ON w.text = r.state "
        "LEFT JOIN tres_words t ON t.tres = r.tres AND t.nodes = coalesce(r.nodes, 0.0)"
    )
    lengths = (
        f"SELECT * EXCLUDE (given_gpus) REPLACE (CASE WHEN run_s >= 0 THEN run_s ELSE end_s - start_s END AS run_s, "
        "CASE WHEN start_s < submit_s THEN NULL WHEN queue_s >= 0 THEN queue_s ELSE start_s - submit_s END AS queue_s), "
        f"run_s AS given_run_s, CASE WHEN given_gpus BETWEEN 0 AND {MOST_GPUS} THEN given_gpus END AS gpus, "
        f"CASE state {outcomes} ELSE 'unknown' END AS outcome FROM ({mended})"
    )
    return f"SELECT * REPLACE (CASE WHEN gpu_s >= 0 AND gpus > 0 THEN gpu_s ELSE gpus * run_s END AS gpu_s) FROM ({lengths})"


def _fate(dialect: Dialect, latest_s: float, period: TimeRange) -> str:
    """Return what becomes of a row, as SQL."""
    impossible = " OR ".join(f"NOT ({name}_s BETWEEN {OLDEST_S} AND {latest_s!r})" for name in TIMES)
    conditions = {
        "broken record": "broken",
        "unreadable": "odd IS NOT NULL OR id IS NULL",
        "step": "contains(id, '.')" if dialect.steps else "false",
        "waiting array": "regexp_matches(id, '_\\[|\\]$')" if dialect.steps else "false",
        "no state": "state IS NULL",
        "unreadable time": "broken_time",
        "waiting": "end_s IS NULL AND start_s IS NULL AND state = 'pending'",
        "running": "end_s IS NULL AND state IN ('pending', 'running')",
        # sacct writes the time of the cancel as the end of a job that never began, and older versions a start behind it
        "never began": "start_s IS NULL OR (state = 'cancelled' AND end_s < start_s)",
        "not at its end": "state IN ('pending', 'running')",
        "no end": "end_s IS NULL",
        "impossible clock": impossible,
        "ends before start": "end_s < start_s",
        "outside the period": _outside(period),
    }
    cases = " ".join(f"WHEN {condition} THEN '{fate}'" for fate, condition in conditions.items())
    return f"CASE {cases} ELSE 'counted' END"


def _flaws(dialect: Dialect) -> str:
    """Return the flaws of a row as bits of a number, in the order of `FLAWS`; `requeued` is set later."""
    conditions = {
        "negative queue": "start_s < submit_s",
        "no submission": "submit_s IS NULL",
        "GPUs unknown": "gpus IS NULL",
        "state unknown": "outcome = 'unknown'",
        "duration differs": f"abs(given_run_s - (end_s - start_s)) > {DIFFERS_S}",
        "array task": "contains(id, '_')" if dialect.steps else "false",
        "heterogeneous part": "contains(id, '+')" if dialect.steps else "false",
    }
    bits = {flaw: 1 << place for place, flaw in enumerate(FLAWS)}
    return " + ".join(f"CASE WHEN {condition} THEN {bits[flaw]} ELSE 0 END" for flaw, condition in conditions.items())


def _drop_duplicates(connection: duckdb.DuckDBPyConnection) -> None:
    """Let the first of equal rows count, and mark all runs of a job but its last."""
    # most ids stand there once; only the others are compared
    repeated = "(SELECT id FROM jobs WHERE fate = 'counted' GROUP BY id HAVING count(*) > 1)"
    same = 'id, submit_s, start_s, end_s, state, gpus, "user", name'
    connection.execute(
        f'CREATE TEMP TABLE repeated AS SELECT row, id, "user", start_s, end_s, row_number() OVER (PARTITION BY {same} '
        f"ORDER BY row) AS copy FROM jobs WHERE fate = 'counted' AND id IN {repeated}"
    )
    connection.execute("UPDATE jobs SET fate = 'duplicate' WHERE row IN (SELECT row FROM repeated WHERE copy > 1)")
    flaw_bit = 1 << list(FLAWS).index("requeued")
    connection.execute(
        f"UPDATE jobs SET flaws = flaws + {flaw_bit} WHERE row IN (SELECT row FROM (SELECT row, end_s, lead(start_s) OVER "
        '(PARTITION BY id, "user" ORDER BY end_s, row) AS next_s '
        f"FROM repeated WHERE copy = 1) WHERE next_s - end_s < {REUSED_S!r})"
    )


def _outside(period: TimeRange) -> str:
    conditions = []
    if period.since is not None:
        conditions.append(f"end_s < {period.since.timestamp()!r}")
    if period.until is not None:
        conditions.append(f"end_s >= {period.until.timestamp()!r}")
    return " OR ".join(conditions) or "false"


EXAMPLES = 3


def left_out_table(connection: duckdb.DuckDBPyConnection, *, with_ids: bool) -> FigureTable:
    """Return what was left out and why, and what is odd in rows that are counted; kinds without a row stand in it, too.

    Args:
        connection: Where `jobs` is.
        with_ids: Whether the first rows of each kind are shown with the ids of their jobs; else with their lines only.
    """
    # a row that is not whole has the number of its line; in CSV, whose texts may hold newlines, others have that of their row
    first = "CASE WHEN odd IS NULL THEN 'row ' ELSE 'line ' END || row || CASE WHEN id IS NULL OR NOT ? THEN '' ELSE ': ' || id END"
    counts = f"count(*), sum(gpu_s) / 3600, list({first} ORDER BY row)[:{EXAMPLES}]"
    fates = connection.execute(f"SELECT fate, {counts} FROM jobs WHERE fate <> 'counted' GROUP BY fate", [with_ids]).fetchall()
    by_fate = {fate: figures for fate, *figures in fates}
    rows: list[tuple[Cell, ...]] = []
    for fate, meaning in FATES.items():
        count, hours, examples = by_fate.get(fate, (0, None, []))
        rows.append((fate, count, None if fate in NO_HOURS else hours, f"left out: {meaning}", ", ".join(examples)))
    for place, (flaw, (meaning, effect)) in enumerate(FLAWS.items()):
        query = f"SELECT {counts} FROM counted WHERE flaws & {1 << place} <> 0"
        count, hours, examples = connection.execute(query, [with_ids]).fetchall()[0]
        rows.append((flaw, count, hours, f"{meaning}: {effect}", ", ".join(examples or [])))
    columns = (
        TableColumn("kind", "kind"),
        TableColumn("rows", "rows", "count"),
        TableColumn("gpu_hours", "GPU hours", "GPU h"),
        TableColumn("meaning", "what it is, and what is made of it"),
        TableColumn("examples", "first of them"),
    )
    return FigureTable("left_out", "What was left out, and why", columns, tuple(rows))
