"""The steps that made the store what it is: append-only, each applied once, in this order.

A new table or column is one function at the end of `STEPS`; a step that was released is never changed. The steps run through
`sqlite_utils.Migrations`, which is imported only when there is something to apply: asking costs one query.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from sqlite_utils import Database

__all__ = ["STEPS", "TABLE", "applied", "apply", "broken_list", "broken_list_indexes", "make_tables", "pending", "unknown"]

_SET = "nightshift"
TABLE = "_sqlite_migrations"
"""The list of steps that a store has had, which sqlite_utils keeps."""
_COLUMNS = {"id", "migration_set", "name", "applied_at"}


def m0001_incidents(db: Database) -> None:
    """Incidents, the events that opened or joined them, and their timeline."""
    _script(
        db,
        """
        CREATE TABLE incidents (
            id INTEGER PRIMARY KEY, state TEXT NOT NULL, job TEXT, attempt INTEGER NOT NULL, node TEXT, kind TEXT NOT NULL,
            opened TEXT NOT NULL, failed_at TEXT, closed TEXT, owner TEXT, lease_until TEXT, playbook TEXT, playbook_digest TEXT,
            note TEXT NOT NULL, parent INTEGER REFERENCES incidents(id));
        CREATE INDEX incidents_by_job ON incidents(job, attempt);
        CREATE INDEX incidents_by_node ON incidents(node);
        CREATE INDEX incidents_by_state ON incidents(state);
        CREATE TABLE events (
            id INTEGER PRIMARY KEY, incident INTEGER NOT NULL REFERENCES incidents(id), kind TEXT NOT NULL, job TEXT, node TEXT,
            at TEXT NOT NULL, detail TEXT NOT NULL, attempt INTEGER NOT NULL);
        CREATE INDEX events_by_incident ON events(incident);
        CREATE TABLE stages (
            incident INTEGER NOT NULL REFERENCES incidents(id), stage TEXT NOT NULL, at TEXT NOT NULL,
            PRIMARY KEY (incident, stage))
        """,
    )


def m0002_evidence_and_diagnoses(db: Database) -> None:
    """What reading calls brought, and what was made of it."""
    _script(
        db,
        """
        CREATE TABLE evidence (
            id INTEGER PRIMARY KEY, incident INTEGER NOT NULL REFERENCES incidents(id), source TEXT NOT NULL, text TEXT NOT NULL,
            facts TEXT NOT NULL, at TEXT NOT NULL);
        CREATE INDEX evidence_by_incident ON evidence(incident);
        CREATE TABLE diagnoses (
            id INTEGER PRIMARY KEY, incident INTEGER NOT NULL REFERENCES incidents(id), at TEXT NOT NULL, reason TEXT NOT NULL,
            category TEXT NOT NULL, action TEXT NOT NULL, confidence REAL NOT NULL, by TEXT NOT NULL, body TEXT NOT NULL);
        CREATE INDEX diagnoses_by_incident ON diagnoses(incident)
        """,
    )


def m0003_calls(db: Database) -> None:
    """Calls, who allowed them, what came of them, and the approvals they wait for."""
    _script(
        db,
        """
        CREATE TABLE calls (
            id INTEGER PRIMARY KEY, incident INTEGER REFERENCES incidents(id), tool TEXT NOT NULL, arguments TEXT NOT NULL,
            why TEXT NOT NULL, by TEXT NOT NULL, at TEXT NOT NULL, status TEXT NOT NULL, step TEXT, preview TEXT NOT NULL,
            kind TEXT NOT NULL, targets TEXT NOT NULL, undoes INTEGER REFERENCES calls(id),
            UNIQUE (incident, step));
        CREATE INDEX calls_by_time ON calls(at);
        CREATE INDEX calls_by_status ON calls(status);
        CREATE TABLE decisions (
            id INTEGER PRIMARY KEY, call INTEGER NOT NULL REFERENCES calls(id), verdict TEXT NOT NULL, rule TEXT NOT NULL,
            by TEXT NOT NULL, at TEXT NOT NULL, why TEXT NOT NULL);
        CREATE INDEX decisions_by_call ON decisions(call);
        CREATE TABLE outcomes (
            call INTEGER PRIMARY KEY REFERENCES calls(id), ok INTEGER NOT NULL, value TEXT NOT NULL, error TEXT NOT NULL,
            at TEXT NOT NULL);
        CREATE TABLE approvals (
            id INTEGER PRIMARY KEY, call INTEGER NOT NULL REFERENCES calls(id), rule TEXT NOT NULL, why TEXT NOT NULL,
            asked TEXT NOT NULL, expires TEXT NOT NULL, verdict TEXT, by TEXT, answered TEXT, answer_why TEXT NOT NULL);
        CREATE INDEX approvals_by_call ON approvals(call)
        """,
    )


def m0004_attempts(db: Database) -> None:
    """Restarts and progress per fingerprint of a root cause, for retry budgets."""
    _script(
        db,
        """
        CREATE TABLE attempts (
            id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, progress INTEGER NOT NULL, incident INTEGER REFERENCES incidents(id),
            step INTEGER, at TEXT NOT NULL);
        CREATE INDEX attempts_by_fingerprint ON attempts(fingerprint, at)
        """,
    )


def m0005_audit(db: Database) -> None:
    """The hash-chained audit, which SQLite itself refuses to change."""
    # AUTOINCREMENT: sqlite_sequence keeps the highest id, so rows cut off at the end are missed
    _script(
        db,
        """
        CREATE TABLE audit (
            id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, by TEXT NOT NULL, what TEXT NOT NULL, incident INTEGER,
            call INTEGER, why TEXT NOT NULL, rule TEXT NOT NULL, preview TEXT NOT NULL, outcome TEXT NOT NULL, undo TEXT NOT NULL,
            detail TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL UNIQUE);
        CREATE INDEX audit_by_incident ON audit(incident);
        CREATE TRIGGER audit_keeps_rows BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
        CREATE TRIGGER audit_keeps_text BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END
        """,
    )


def m0006_properties(db: Database) -> None:
    """What is true of the store as a whole: when it was made."""
    _script(db, "CREATE TABLE properties (name TEXT PRIMARY KEY, value TEXT NOT NULL)")


def m0007_learned_rules(db: Database) -> None:
    """Learned signatures and filters, and what came of each use of a signature."""
    _script(
        db,
        """
        CREATE TABLE rules (
            id TEXT PRIMARY KEY, kind TEXT NOT NULL, pattern TEXT NOT NULL, examples TEXT NOT NULL, of TEXT NOT NULL,
            state TEXT NOT NULL, by TEXT NOT NULL, why TEXT NOT NULL, made TEXT NOT NULL, incident INTEGER REFERENCES incidents(id),
            task TEXT NOT NULL, source TEXT NOT NULL, weight REAL NOT NULL, hits INTEGER NOT NULL, misses INTEGER NOT NULL);
        CREATE INDEX rules_by_state ON rules(state, kind);
        CREATE TABLE rule_uses (
            rule TEXT NOT NULL REFERENCES rules(id), incident INTEGER NOT NULL REFERENCES incidents(id), agreed INTEGER NOT NULL,
            at TEXT NOT NULL, PRIMARY KEY (rule, incident))
        """,
    )


def m0008_node_ledger(db: Database) -> None:
    """Which nodes were in which failed job, which were to blame, what they share, how hot they were."""
    _script(
        db,
        """
        CREATE TABLE sightings (
            incident INTEGER NOT NULL REFERENCES incidents(id), node TEXT NOT NULL, at TEXT NOT NULL, reason TEXT NOT NULL,
            blamed INTEGER NOT NULL, of INTEGER NOT NULL, traits TEXT NOT NULL, heat TEXT NOT NULL, PRIMARY KEY (incident, node));
        CREATE INDEX sightings_by_time ON sightings(at);
        CREATE INDEX sightings_by_node ON sightings(node)
        """,
    )


def m0009_readings(db: Database) -> None:
    """What counters of a node stood at when it was last checked."""
    _script(db, "CREATE TABLE readings (node TEXT PRIMARY KEY, readings TEXT NOT NULL)")


def m0010_memories(db: Database) -> None:
    """What confirmed incidents looked like, with a vector for each line."""
    _script(
        db,
        """
        CREATE TABLE memories (
            incident INTEGER PRIMARY KEY REFERENCES incidents(id), reason TEXT NOT NULL, action TEXT NOT NULL, lines TEXT NOT NULL,
            text TEXT NOT NULL, cure TEXT NOT NULL, nodes TEXT NOT NULL, task TEXT NOT NULL, by TEXT NOT NULL, why TEXT NOT NULL,
            at TEXT NOT NULL, embedder TEXT NOT NULL, dims INTEGER NOT NULL, vectors BLOB NOT NULL,
            taken_back TEXT);
        CREATE INDEX memories_by_reason ON memories(reason)
        """,
    )


def m0011_templates(db: Database) -> None:
    """Templates of the last good runs of each task."""
    _script(
        db,
        """
        CREATE TABLE templates (
            task TEXT NOT NULL, run TEXT NOT NULL, at TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (task, run))
        """,
    )


def m0012_leaders(db: Database) -> None:
    """Which of several watches leads; the token grows with each change of hands."""
    _script(
        db,
        """
        CREATE TABLE leaders (
            name TEXT PRIMARY KEY, owner TEXT NOT NULL, token INTEGER NOT NULL, until TEXT NOT NULL)
        """,
    )


def m0013_watches(db: Database) -> None:
    """The last pass of each watch, counts that only grow, how far readers of the audit are, and what was told to whom."""
    _script(
        db,
        """
        CREATE TABLE watches (
            owner TEXT PRIMARY KEY, began TEXT NOT NULL, at TEXT NOT NULL, seconds REAL NOT NULL, leads INTEGER NOT NULL,
            whole_at TEXT, trouble TEXT NOT NULL, unfinished INTEGER NOT NULL, in_flight INTEGER NOT NULL);
        CREATE TABLE counts (name TEXT NOT NULL, labels TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (name, labels));
        CREATE TABLE cursors (name TEXT PRIMARY KEY, row INTEGER NOT NULL);
        CREATE TABLE tellings (
            sink TEXT NOT NULL, fingerprint TEXT NOT NULL, at TEXT NOT NULL, held INTEGER NOT NULL,
            PRIMARY KEY (sink, fingerprint));
        CREATE INDEX calls_by_kind ON calls(kind);
        CREATE INDEX approvals_by_verdict ON approvals(verdict)
        """,
    )


def m0014_evaluations(db: Database) -> None:
    """What datasets took in past evaluations."""
    _script(
        db,
        """
        CREATE TABLE evaluations (
            run TEXT NOT NULL, dataset TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, infer_s REAL NOT NULL,
            metric_s REAL NOT NULL, model TEXT NOT NULL, model_bytes INTEGER NOT NULL, at TEXT NOT NULL,
            PRIMARY KEY (run, dataset, first, last));
        CREATE INDEX evaluations_by_time ON evaluations(at)
        """,
    )


def m0015_prepared(db: Database) -> None:
    """How long reading and tokenising a dataset took, where a command told it."""
    _script(db, "ALTER TABLE evaluations ADD COLUMN prepare_s REAL NOT NULL DEFAULT 0")


def m0016_policy_digest(db: Database) -> None:
    """Under which policy a call was decided, and which one the process of a watch holds."""
    _script(
        db,
        """
        ALTER TABLE decisions ADD COLUMN policy TEXT NOT NULL DEFAULT '';
        ALTER TABLE watches ADD COLUMN policy TEXT NOT NULL DEFAULT '';
        ALTER TABLE watches ADD COLUMN mode TEXT NOT NULL DEFAULT '';
        ALTER TABLE watches ADD COLUMN policy_problem TEXT NOT NULL DEFAULT '';
        ALTER TABLE watches ADD COLUMN kill_switch TEXT NOT NULL DEFAULT '[]'
        """,
    )


def m0017_frozen_commands(db: Database) -> None:
    """The commands of a call as they were first decided on, and the digest that an approval asked about."""
    _script(
        db,
        """
        ALTER TABLE calls ADD COLUMN commands TEXT NOT NULL DEFAULT '[]';
        ALTER TABLE calls ADD COLUMN digest TEXT NOT NULL DEFAULT '';
        ALTER TABLE approvals ADD COLUMN digest TEXT NOT NULL DEFAULT ''
        """,
    )


def m0018_store_id(db: Database) -> None:
    """A random id of the store, part of every tag, so that tags of two stores on one cluster are never the same."""
    _script(db, "INSERT OR IGNORE INTO properties (name, value) VALUES ('store_id', lower(hex(randomblob(5))))")


def m0019_row_seals(db: Database) -> None:
    """Digests of the rows that each transaction wrote, in the audit, and the mac of the store's key."""
    _script(
        db,
        """
        ALTER TABLE audit ADD COLUMN seals TEXT NOT NULL DEFAULT '';
        ALTER TABLE audit ADD COLUMN mac TEXT NOT NULL DEFAULT '';
        CREATE INDEX audit_by_call ON audit(call)
        """,
    )


def m0020_job_processes(db: Database) -> None:
    """What the processes of a running job were seen to write, by attempt."""
    _script(
        db,
        """
        CREATE TABLE job_processes (
            job TEXT NOT NULL, attempt INTEGER NOT NULL, begun TEXT NOT NULL, at TEXT NOT NULL, report TEXT NOT NULL,
            PRIMARY KEY (job, attempt, begun));
        CREATE INDEX job_processes_by_time ON job_processes(at)
        """,
    )


STEPS: tuple[Callable[[Database], None], ...] = (
    m0001_incidents,
    m0002_evidence_and_diagnoses,
    m0003_calls,
    m0004_attempts,
    m0005_audit,
    m0006_properties,
    m0007_learned_rules,
    m0008_node_ledger,
    m0009_readings,
    m0010_memories,
    m0011_templates,
    m0012_leaders,
    m0013_watches,
    m0014_evaluations,
    m0015_prepared,
    m0016_policy_digest,
    m0017_frozen_commands,
    m0018_store_id,
    m0019_row_seals,
    m0020_job_processes,
)
"""Every step ever released, oldest first."""


def applied(connection: sqlite3.Connection) -> list[str]:
    """Return the names of the steps that a store has had, oldest first; none for a new file."""
    has_table = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '_sqlite_migrations'").fetchone()
    if not has_table:
        return []
    # not by its index, whose content somebody may have written
    rows = connection.execute("SELECT name FROM _sqlite_migrations NOT INDEXED WHERE migration_set = ? ORDER BY rowid", [_SET])
    return [str(row[0]) for row in rows]


def pending(connection: sqlite3.Connection) -> list[str]:
    """Return the names of the steps that a store still needs, in order."""
    had = set(applied(connection))
    return [step.__name__ for step in STEPS if step.__name__ not in had]


def unknown(connection: sqlite3.Connection) -> list[str]:
    """Return steps that a store has had and this version does not know: it is newer than we are."""
    step_names = {step.__name__ for step in STEPS}
    return [name for name in applied(connection) if name not in step_names]


def broken_list(connection: sqlite3.Connection) -> str:
    """Return why the list of steps does not hold those of this version, in order, and nothing else; empty when it does."""
    columns = {row[1] for row in connection.execute(f"PRAGMA main.table_info({TABLE})")}
    # older versions of sqlite_utils had no id
    if columns | {"id"} != _COLUMNS:
        return f"its columns are {', '.join(sorted(columns))}"
    rows = [
        tuple(row)
        for row in connection.execute(f"SELECT rowid, migration_set, name, typeof(applied_at) FROM {TABLE} ORDER BY rowid")
    ]
    expected = [(number, _SET, step.__name__, "text") for number, step in enumerate(STEPS, 1)]
    if rows == expected:
        return ""
    odd_row = next((row for row in rows if row not in expected), None) or next(row for row in expected if row not in rows)
    return f"row {odd_row[0]} ({odd_row[1]}, {odd_row[2]}) is none of this version's, was changed or is missing"


def broken_list_indexes(connection: sqlite3.Connection) -> list[str]:
    """Return the indexes of the list of steps that sqlite_utils does not make: it makes those of set and name, and of the id."""
    names = [row[1] for row in connection.execute(f"PRAGMA main.index_list({TABLE})")]
    of_list = {name: tuple(row[2] for row in connection.execute(f'PRAGMA main.index_info("{name}")')) for name in names}
    return [name for name, columns in of_list.items() if columns not in (("migration_set", "name"), ("id",))]


def apply(connection: sqlite3.Connection, *, stop_before: str | None = None) -> None:
    """Apply the pending steps inside the caller's transaction.

    Args:
        connection: Holds the write lock; a failure rolls all steps back with the transaction.
        stop_before: Name of the first step to leave out, for tests.
    """
    from sqlite_utils import Database, Migrations

    steps = Migrations(_SET)
    for step in STEPS:
        steps(name=step.__name__)(step)
    steps.apply(Database(connection, execute_plugins=False), stop_before=stop_before)


def make_tables(connection: sqlite3.Connection, steps: int | None = None) -> None:
    """Make the tables of this version in an empty database, or those after so many steps, without the list of steps.

    sqlite_utils, which takes half a second to import, is used only when a step needs more of it than `execute`.
    """
    try:
        for step in STEPS[:steps]:
            # all that `_script` needs of a Database
            step(cast("Database", connection))
    except AttributeError:
        connection.execute("ROLLBACK")
        connection.execute("BEGIN")
        apply(connection, stop_before=None if steps is None or steps >= len(STEPS) else STEPS[steps].__name__)


def _script(db: Database, sql: str) -> None:
    # executescript() would commit the caller's transaction; a trigger's body holds a semicolon of its own
    statement = ""
    for part in sql.split(";"):
        statement += part
        if sqlite3.complete_statement(statement + ";"):
            db.execute(statement)
            statement = ""
        else:
            statement += ";"
