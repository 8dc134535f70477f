"""`nightshift audit`: the hash-chained record of every decision and change."""

from __future__ import annotations

from typing import Annotated

import typer

from assistant.doors.cli.door import door_of
from assistant.doors.cli.exits import Exit
from assistant.doors.cli.group import app, examples
from assistant.doors.cli.options import Json, Limit
from assistant.doors.cli.output import print_json, print_line, print_record, print_table
from assistant.doors.cli.times import local

audit_app = app(help="Show and verify the record of every decision.", no_args_is_help=True)


@audit_app.command(
    "show", epilog=examples("nightshift audit show", "nightshift audit show --incident 3", "nightshift audit show --json")
)
def show_audit(
    context: typer.Context,
    incident: Annotated[int | None, typer.Option("--incident", metavar="ID", help="Only rows about this incident.")] = None,
    after: Annotated[int, typer.Option("--after", metavar="ROW", help="Only rows with a higher number.")] = 0,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """Show who did what, when, why, by which rule, and what came of it."""
    store = door_of(context).store
    if incident is not None:
        store.incident(incident)
    rows = store.audit(incident=incident, after=after, limit=limit)
    if as_json:
        for row in rows:
            print_record(row)
        return
    table = [
        (row.id, local(row.at), row.by, row.what, row.incident, row.call, row.rule, row.outcome, row.preview or row.why)
        for row in rows
    ]
    print_table(("row", "at", "by", "what", "incident", "call", "rule", "outcome", "change or why"), table)


@audit_app.command(
    "verify", epilog=examples("nightshift audit verify", "nightshift audit verify --json >> /var/log/nightshift-audit.jsonl")
)
def verify_audit(context: typer.Context, as_json: Json = False) -> None:
    """Check that no row was changed, removed or swapped.

    Exit code 1 and the first broken row when one was. Keep the hash that it prints somewhere else: with it a rewritten chain
    shows too.
    """
    store = door_of(context).store
    broken = store.verify()
    newest = store.audit(limit=1)
    rows, digest = (newest[0].id, newest[0].hash) if newest else (0, "")
    if as_json:
        found = {"row": broken.id, "why": broken.why} if broken else None
        print_json({"ok": broken is None, "rows": rows, "hash": digest, "broken": found})
    elif broken is None:
        print_line(f"the audit holds: {rows} rows, newest hash {digest or '-'}")
    else:
        print_line(f"the audit is broken at row {broken.id}: {broken.why}")
    if broken is not None:
        raise typer.Exit(Exit.ERROR)
